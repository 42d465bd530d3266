"""Learning: from a standardised table to a process, with nothing to tune.

1. Start: a few scales of the inputs, then a few cuts of the spectrum, are tried on a
   few thousand rows with a small basis and a dozen steps; the bound chooses.
2. Learn: sphere, kernel, band energies, noise and phases together, by L-BFGS on the
   exact bound of a sample. The sample grows, each one starting where the last ended.
   It stops growing where rows kept aside are not predicted better any more.
3. The caller then solves: one pass over all rows, and energies and noise fitted on it.

L-BFGS runs in rounds. Between two rounds everything there is to know is a `Progress`,
which can be written to a file; a run resumed from it ends as the uninterrupted one.
"""

import dataclasses
import functools
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from zonal.bands import Band, CompleteLevel, band_kernel, numpy_shape
from zonal.basis import Basis
from zonal.checkpoints import Progress, Step, load_progress, save_progress
from zonal.frame import CoincidingPhasesWarning, whiten
from zonal.kernels import ContinuousDepth, Kernel
from zonal.objective import Process, value_and_gradient
from zonal.parameters import named
from zonal.phases import greedy_phases
from zonal.posterior import Posterior
from zonal.sources import ArraySource, Chunk, Source
from zonal.sphere import ARD, Sphere
from zonal.statistics import collect
from zonal.unknowns import Unknowns

__all__ = ["LearningStoppedWarning", "Recipe", "enlarged", "learn"]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a person may choose; every default was chosen by measurement.

    Parameters
    ----------
    n_features
        Features to learn with.
    solve_features
        Features to solve with, if more: the kernel is learned with a small basis and
        the data are solved with a large one.
    layout
        ``"banded"``, ``"sparse"`` or ``"harmonics"``.
    kernel
        A kernel to start from, instead of a choice of `ContinuousDepth`.
    sphere
        A map to the sphere to start from, instead of `ARD`. Inputs are then taken as
        they are; only the target is standardised.
    radial_order
        The power of the radius in the kernel.
    tightened
        Whether the bound pays the tightened penalty.
    tails
        What becomes of heavy tails in the inputs: ``"keep"``, ``"clip"`` or
        ``"quantile"`` (see `zonal.scaling.Scaling`).
    linear_mean
        Whether a linear function of the inputs is taken off the target first.
    most_rows
        Rows to learn sphere, kernel and phases from. By default as many as keep a step
        at about a second: 60,000 with 512 features, fewer with more.
    most_steps
        Steps of the optimiser on the largest sample.
    validation_fraction
        Rows kept aside while learning, to stop where they are not predicted better any
        more. (Rows that the sample has no room for serve the same end for nothing.)
        The solution is made from all rows.
    max_seconds
        Stop learning after this long, and solve with what has been reached.
    seed
        Every random choice follows from it.
    """

    n_features: int = 512
    solve_features: int | None = None
    layout: str = "banded"
    kernel: Kernel | None = None
    sphere: Sphere | None = None
    radial_order: float = 0.0
    tightened: bool = True
    tails: str = "keep"
    linear_mean: bool = False
    most_rows: int | None = None
    most_steps: int = 300
    validation_fraction: float = 0.0
    max_seconds: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sphere is not None and (self.linear_mean or self.tails != "keep"):
            raise ValueError(
                "with a sphere of your own, inputs are taken as they are; leave tails "
                "and linear_mean alone"
            )
        for name in ("n_features", "solve_features", "most_rows"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if self.most_steps < 0:
            raise ValueError(f"most_steps must be 0 or more, got {self.most_steps}")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                "validation_fraction must be at least 0 and below 1, "
                f"got {self.validation_fraction}"
            )

    @property
    def sample_rows(self) -> int:
        """Rows of the largest sample."""
        if self.most_rows is not None:
            return self.most_rows
        affordable = int(_MOST_ROWS * min(1.0, (512 / self.n_features) ** 2))
        return max(_START_ROWS, affordable)


# Rows of the largest sample with 512 features or less.
_MOST_ROWS = 60_000
# Samples grow by this factor from the least one; each of them but the last gets one
# round of steps.
_LEAST_ROWS = 16_000
_GROWTH = 4
_ROUND = 50
# A round that gains less than this, in nats a row, is the last on its sample.
_TOLERANCE = 5e-4
_HELD_OUT_ROWS = 4_000
# Small problems, by rows times squared features, are learned in float64.
_FINE_WORK = 5e8
_START_SCALES = (0.05, 0.1, 0.2, 0.5)
_START_LEVELS = (20, 60)
_START_ROWS = 3_000
_START_FEATURES = 256
_START_STEPS = 12
_CANDIDATE_ROWS = 6_000
_ENLARGING_ROWS = 20_000

BasisBand = Band | CompleteLevel


class LearningStoppedWarning(UserWarning):
    """Learning was stopped before it was done."""


def learn(
    source: Source,
    recipe: Recipe,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
) -> Progress:
    """Learn sphere, kernel, phases and noise from standardised rows.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(300, 2))
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * generator.normal(size=300)
    >>> recipe = Recipe(n_features=40, most_steps=10)
    >>> progress = learn(ArraySource(x, y), recipe)
    >>> bool(0.05 < np.sqrt(progress.process.noise) < 0.3)
    True
    """
    return _Learner(source, recipe, callback, checkpoint).run()


class _OutOfTimeError(Exception):
    """Raised inside the optimiser to leave it."""


class _Learner:
    """One run: its samples, its clock, and where it is."""

    def __init__(
        self,
        source: Source,
        recipe: Recipe,
        callback: Callable[[Step], Any] | None,
        checkpoint: str | os.PathLike | None,
    ):
        self.recipe = recipe
        self.callback = callback
        self.checkpoint = checkpoint
        if checkpoint is not None and not Path(checkpoint).resolve().parent.is_dir():
            raise ValueError(
                f"there is no folder to keep {checkpoint} in; make it first"
            )
        self.begin = time.monotonic()
        self.stopped: str | None = None
        self.sample, self.held_out = _drawn(source, recipe)
        self.history: list[Step] = []
        self.spent = 0.0

    def run(self) -> Progress:
        progress = self._resumed()
        try:
            if progress is None:
                process = self._start()
                progress = Progress(process, done=self.recipe.most_steps == 0)
                self._save(progress)
            while not self.stopped and not progress.done:
                progress = self._round(progress)
                self._save(progress)
        except KeyboardInterrupt:
            if progress is None:
                raise
            self.stopped = "an interrupt"
        if self.stopped:
            warnings.warn(
                f"learning was stopped by {self.stopped}; "
                "the best parameters so far are kept",
                LearningStoppedWarning,
                stacklevel=4,
            )
        return dataclasses.replace(progress, history=tuple(self.history))

    def _resumed(self) -> Progress | None:
        if self.checkpoint is None:
            return None
        progress = load_progress(
            self.checkpoint,
            self._fingerprint,
            self._spheres[0],
            ContinuousDepth() if self.recipe.kernel is None else self.recipe.kernel,
        )
        if progress is not None:
            self.history = list(progress.history)
            self.spent = self.history[-1].seconds if self.history else 0.0
        return progress

    def _save(self, progress: Progress) -> None:
        if self.checkpoint is not None and not self.stopped:
            told = dataclasses.replace(progress, history=tuple(self.history))
            save_progress(self.checkpoint, told, self._fingerprint)

    @functools.cached_property
    def _fingerprint(self) -> str:
        """What a checkpoint must agree with: the recipe, and the rows it drew."""
        recipe = dataclasses.replace(
            self.recipe, max_seconds=None, kernel=None, sphere=None
        )
        digest = hashlib.blake2b(repr(recipe).encode(), digest_size=16)
        for part in (self.recipe.kernel, self.recipe.sphere):
            digest.update(repr(part).encode())  # kind and levels; the rest exactly:
            for name, value in {} if part is None else named(part).items():
                digest.update(name.encode() + value.tobytes())
        for rows in (self.sample, self.held_out):
            for name in ("x", "y", "weight", "precision"):
                column = None if rows is None else getattr(rows, name)
                if column is not None:
                    digest.update(
                        name.encode() + np.ascontiguousarray(column).tobytes()
                    )
        return digest.hexdigest()

    def _report(self, stage: str, number: int, rows: int, bound: float) -> None:
        seconds = self.spent + time.monotonic() - self.begin
        step = Step(stage, number, rows, float(bound), seconds)
        self.history.append(step)
        if self.callback is not None:
            self.callback(step)
        limit = self.recipe.max_seconds
        if limit is not None and seconds > limit:
            self.stopped = f"the limit of {limit:g} seconds"

    @property
    def _spheres(self) -> list[Sphere]:
        """The spheres to try: one that was given, or inputs at several scales."""
        if self.recipe.sphere is not None:
            return [self.recipe.sphere]
        width, order = self.sample.x.shape[1], self.recipe.radial_order
        return [ARD(np.full(width, scale), order) for scale in _START_SCALES]

    def _start(self) -> Process:
        """The start that a few steps lead furthest from.

        Only the choice is kept. Scales that a dozen steps on few rows have bent to fit
        them are a worse place to go on from than equal ones.
        """
        recipe = self.recipe
        few = _thinned(self.sample, _START_ROWS, recipe.seed)
        features = min(_START_FEATURES, recipe.n_features)
        best: tuple[float, Sphere, Kernel] | None = None

        def attempt(sphere: Sphere, kernel: Kernel) -> None:
            nonlocal best
            if self.stopped:
                return
            start = self._even(sphere, kernel, features, few)
            _, reached = self._improve(start, few, _START_STEPS, "start", "anchored")
            if best is None or reached > best[0]:
                best = reached, sphere, kernel

        fewest, *more = _START_LEVELS
        for sphere in self._spheres:
            attempt(sphere, recipe.kernel or ContinuousDepth(1.0, fewest))
        assert best is not None, "there is at least one start"
        for levels in more if recipe.kernel is None else []:
            attempt(best[1], ContinuousDepth(1.0, levels))
        candidates = _thinned(self.sample, _CANDIDATE_ROWS, recipe.seed)
        return self._even(best[1], best[2], recipe.n_features, candidates)

    def _even(
        self, sphere: Sphere, kernel: Kernel, n_features: int, rows: Chunk
    ) -> Process:
        """A process with phases from some rows, and a little energy in every band."""
        recipe = self.recipe
        basis = Basis.build(
            sphere, kernel, n_features, recipe.layout, rows=rows.x, seed=recipe.seed
        )
        # A band without energy has no slope to follow.
        shares = np.maximum(basis.energies, 1e-3)
        freed = dataclasses.replace(basis, free_energies=shares / shares.sum())
        return Process(freed, 0.2)

    def _round(self, progress: Progress) -> Progress:
        """One round of L-BFGS, and the decision what comes next."""
        recipe, sizes = self.recipe, self._sizes
        last = progress.stage == len(sizes) - 1
        steps = min(_ROUND, recipe.most_steps - progress.steps) if last else _ROUND
        rows = _thinned(
            self.sample, sizes[progress.stage], recipe.seed + progress.stage
        )
        process, bound = self._improve(
            progress.process,
            rows,
            min(steps, recipe.most_steps),
            f"learn {progress.stage + 1}",
            # Anchored and free phases take turns.
            "anchored" if progress.rounds % 2 == 0 else "free",
        )
        score = self._score(process)
        better = score is None or score > progress.score
        gain = bound - progress.bound
        if self.held_out is not None and score is not None:
            gain = score - progress.score
        moved = dataclasses.replace(
            progress,
            process=process if better else progress.process,
            score=score if better and score is not None else progress.score,
            bound=bound,
            steps=progress.steps + steps,
            rounds=progress.rounds + 1,
        )
        if not last and better:
            return dataclasses.replace(
                moved, stage=progress.stage + 1, steps=0, bound=-np.inf
            )
        exhausted = gain < _TOLERANCE or moved.steps >= recipe.most_steps
        return dataclasses.replace(moved, done=not better or exhausted)

    @property
    def _sizes(self) -> list[int]:
        sizes, size = [], _LEAST_ROWS
        while size < len(self.sample):
            sizes.append(size)
            size *= _GROWTH
        # A last step that hardly grows is left out.
        if sizes and len(self.sample) < 2 * sizes[-1]:
            sizes.pop()
        return [*sizes, len(self.sample)]

    def _score(self, process: Process) -> float | None:
        """Mean log density of the rows kept aside, given the sample."""
        if self.held_out is None or self.stopped:
            return None
        with quiet_phases():
            statistics = collect(whiten(process.basis), _source(self.sample))
            posterior = Posterior(process, statistics)
            prediction = posterior.predict(self.held_out.x, self.held_out.precision)
        density = prediction.log_density(self.held_out.y)
        return float(np.average(density, weights=self.held_out.weight))

    def _improve(
        self,
        process: Process,
        rows: Chunk,
        steps: int,
        stage: str,
        phases: str,
    ) -> tuple[Process, float]:
        """L-BFGS on the bound of some rows: the best parameters met and their bound."""
        unknowns = Unknowns(process, phases)
        source = _source(rows)
        work = len(rows) * process.basis.n_features**2
        dtype = np.float64 if work <= _FINE_WORK else np.float32
        total = len(rows) if rows.weight is None else float(rows.weight.sum())
        best_value, best_process = -np.inf, process
        number = sum(step.stage == stage for step in self.history)

        def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best_value, best_process
            candidate = unknowns.process(vector)
            value, gradients = value_and_gradient(
                candidate, source, self.recipe.tightened, dtype
            )
            if value > best_value:
                best_value, best_process = value, candidate
            return -value / total, -unknowns.gradient(vector, gradients) / total

        def after_step(_: np.ndarray) -> None:
            nonlocal number
            number += 1
            self._report(stage, number, len(rows), best_value / total)
            if self.stopped:
                raise _OutOfTimeError

        try:
            with quiet_phases():
                minimize(
                    objective,
                    unknowns.start,
                    jac=True,
                    method="L-BFGS-B",
                    callback=after_step,
                    bounds=unknowns.bounds,
                    options={"maxiter": steps, "maxcor": 20, "maxfun": 2 * steps + 10},
                )
        except _OutOfTimeError:
            pass  # `stopped` says so
        except KeyboardInterrupt:
            if stage == "start":
                raise
            self.stopped = "an interrupt"
        return best_process, best_value / total


def enlarged(process: Process, n_features: int, rows: Chunk, seed: int) -> Process:
    """The same process with more phases, each where those before explain least."""
    basis = process.basis
    dimension = basis.sphere.dimension
    larger = Basis.build(basis.sphere, basis.kernel, n_features, "banded", seed=seed)
    candidates = _thinned(rows, _ENLARGING_ROWS, seed).x
    points = np.unique(basis.sphere.points(candidates)[0], axis=0)
    bands = []
    for band in larger.bands:
        if isinstance(band, Band):
            old = next((one for one in basis.bands if one.last == band.last), None)
            known = old.phases if isinstance(old, Band) else np.zeros((0, dimension))
            extra = min(max(len(band.phases) - len(known), 0), len(points))
            shape = numpy_shape(band_kernel(band, basis.kernel, dimension))
            more = greedy_phases(points, extra, shape, given=known)
            band = dataclasses.replace(band, phases=np.vstack([known, more]))
        bands.append(band)
    larger = dataclasses.replace(larger, bands=tuple(bands))
    return dataclasses.replace(process, basis=_with_energies_of(larger, basis))


def _with_energies_of(basis: Basis, other: Basis) -> Basis:
    """The energies of another basis of the same kernel, moved level by level."""
    per_share = np.ones(len(basis.bands))
    for index, band in enumerate(basis.bands):
        # Within a band of the other basis all levels have the same energy per weight.
        levels = [
            (ours, energy / max(share, 1e-300))
            for ours, energy, share in zip(
                other.bands, other.energies, other.shares, strict=True
            )
            if ours.first <= (np.inf if band.last is None else band.last)
            and band.first <= (np.inf if ours.last is None else ours.last)
        ]
        overlap = [_overlap(band, ours, basis) for ours, _ in levels]
        rates = [rate for _, rate in levels]
        if sum(overlap) > 0:
            per_share[index] = np.average(rates, weights=overlap)
    energies = np.maximum(basis.shares * per_share, 1e-8)
    return dataclasses.replace(basis, free_energies=energies)


def _overlap(one: BasisBand, other: BasisBand, basis: Basis) -> float:
    """The kernel's weight in the levels that two bands share."""
    first = max(one.first, other.first)
    ends = [band.last for band in (one, other) if band.last is not None]
    dimension = basis.sphere.dimension
    below = basis.kernel.level_weights(dimension, first)[:first].sum()
    if not ends:
        return float(1.0 - below)
    weights = basis.kernel.level_weights(dimension, min(ends))
    return float(weights[first:].sum())


@contextmanager
def quiet_phases() -> Iterator[None]:
    """Phases may meet on their way; that is survived, and passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoincidingPhasesWarning)
        yield


def _drawn(source: Source, recipe: Recipe) -> tuple[Chunk, Chunk | None]:
    """The rows to learn from, and some to keep aside if there are any to spare."""
    drawn = source.sample(recipe.sample_rows + _HELD_OUT_ROWS, recipe.seed)
    order = np.random.default_rng(recipe.seed).permutation(len(drawn))
    kept = min(
        recipe.sample_rows,
        len(drawn) - int(recipe.validation_fraction * len(drawn)),
    )
    sample, rest = np.sort(order[:kept]), np.sort(order[kept:])
    # A handful of rows that happen to be left over would decide by chance.
    enough = recipe.validation_fraction > 0 or len(rest) >= _HELD_OUT_ROWS // 8
    return drawn[sample], drawn[rest] if enough and len(rest) else None


def _source(rows: Chunk) -> Source:
    return ArraySource(rows.x, rows.y, rows.weight, rows.precision)


def _thinned(sample: Chunk, rows: int, seed: int) -> Chunk:
    if rows >= len(sample):
        return sample
    generator = np.random.default_rng(seed)
    return sample[np.sort(generator.choice(len(sample), rows, replace=False))]
