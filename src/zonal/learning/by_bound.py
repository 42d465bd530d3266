"""Learning: from a standardised table to a process, with nothing to tune.

1. Start: a few scales of the inputs are tried on a few thousand rows with a small basis
   and a dozen steps; the bound chooses.
2. Learn: sphere, kernel, band energies, noise and phases together, by L-BFGS on the
   exact bound of a sample. The first round is run with each of a few cuts of the
   spectrum, and the bound chooses again. The sample grows, each one starting where the
   last ended. It stops growing where rows kept aside are not predicted better any more.
3. Widen: a few steps more with as many features as the solution will have. What few
   features cannot capture counts as noise; with many, less is noise and more is kernel.
4. The caller then solves: one pass over all rows, and energies and noise fitted on it.

L-BFGS runs in rounds. Between two rounds everything there is to know is a `Progress`,
which can be written to a file; a run resumed from it ends as the uninterrupted one.
"""

import dataclasses
import functools
import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from zonal.engine.blas import suited_blas
from zonal.engine.bound import evaluate
from zonal.engine.dense import at_rows, is_series
from zonal.engine.features import quiet_phases, whiten
from zonal.engine.posterior import Posterior
from zonal.engine.precision import check_sums, refine
from zonal.engine.resizing import enlarged, reduced
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.inference.solution import Solution
from zonal.inference.solving import Preparation
from zonal.learning.ascent import Ascent, sample_dtype
from zonal.learning.checkpoints import (
    CheckpointWarning,
    check_place,
    load_progress,
    save_progress,
)
from zonal.learning.recipe import Recipe
from zonal.learning.screening import paired_scales
from zonal.learning.state import LearningStoppedWarning, Progress, Step
from zonal.likelihoods.noise import Gaussian
from zonal.prior.basis import Basis
from zonal.prior.kernels import ContinuousDepth, Kernel
from zonal.prior.parameters import named, with_values
from zonal.prior.process import Process
from zonal.prior.sphere import ARD, Sphere
from zonal.tables.chunks import Chunk, by_output
from zonal.tables.sampling import row_bits, thin
from zonal.tables.sources import Source, source_of

__all__ = ["LearningStoppedWarning", "learn"]


def learn(
    sources: Source | Sequence[Source],
    recipe: Recipe,
    callback: Callable[[Step], Any] | None = None,
    checkpoint: str | os.PathLike | None = None,
    start: Process | None = None,
) -> Progress:
    """Learn sphere, kernel, phases and noise from standardised rows.

    Several sources are the same rows with several targets, learned from together.

    Examples
    --------
    >>> from zonal import ArraySource
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(300, 2))
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * generator.normal(size=300)
    >>> recipe = Recipe(n_features=40, most_steps=10)
    >>> progress = learn(ArraySource(x, y), recipe)
    >>> bool(0.05 < np.sqrt(progress.process.noise) < 0.3)
    True
    """
    every = [sources] if isinstance(sources, Source) else sources
    return Learner(every, recipe, callback, checkpoint, start).run()


class Learner:
    """One run: its samples, its clock, and where it is."""

    start_noise = 0.2

    def __init__(
        self,
        sources: Sequence[Source],
        recipe: Recipe,
        callback: Callable[[Step], Any] | None,
        checkpoint: str | os.PathLike | None,
        start: Process | None,
    ):
        self.recipe = recipe
        self.schedule = recipe.schedule
        self.callback = callback
        self.checkpoint = checkpoint
        if checkpoint is not None:
            check_place(checkpoint)
        self._warned = False
        self.begin = time.monotonic()
        self.stopped: str | None = None
        self.sample, self.held_out = _drawn(sources, recipe)
        self._n_rows = sources[0].n_rows
        self.history: list[Step] = []
        self.spent = 0.0
        self.features = recipe.n_features
        if recipe.layout == "banded":
            # More features than rows would be of no use.
            few = max(self.schedule.least_features, len(self.sample))
            self.features = min(few, recipe.n_features)
        learns = recipe.layout == "banded" and recipe.most_steps > 0
        if start is not None and recipe.most_steps > 0:
            # What was learned with bands of another kind is no place to start from.
            start = start if start.basis.follows(recipe.layout) else None
        if start is not None and learns:
            # One that was enlarged to be solved is learned with few features again.
            start = reduced(start, recipe.n_features)
        self.start = start
        self.exact = self._can_be_exact()

    def _can_be_exact(self) -> bool:
        """Whether rows are so few that there can be a phase at each."""
        few = len(self.sample) <= min(self.schedule.exact_rows, self.recipe.n_features)
        if not few or self.recipe.layout != "banded":
            return False
        if self.start is not None:
            return is_series(self.start.basis)
        return all(kernel.last_level is not None for kernel in self._kernels)

    def run(self) -> Progress:
        progress = self._resumed()
        try:
            if progress is None:
                progress = self._first()
                self.save(progress)
            while not self.stopped and not progress.done:
                progress = self._round(progress)
                self.save(progress)
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
        done = progress.done and not self.stopped
        return dataclasses.replace(progress, done=done, history=tuple(self.history))

    def _resumed(self) -> Progress | None:
        if self.checkpoint is None:
            return None
        progress = load_progress(self.checkpoint, self._fingerprint)
        if progress is not None:
            self.history = list(progress.history)
            self.spent = self.history[-1].seconds if self.history else 0.0
        return progress

    def save(self, progress: Progress) -> None:
        """Keep progress in the checkpoint, if there is one.

        A disk that is full costs the checkpoint, not the fit. What was reached in a run
        that is being stopped is not kept: with more time, it would have gone on.
        """
        if self.checkpoint is None or self.stopped:
            return
        told = dataclasses.replace(progress, history=tuple(self.history))
        try:
            save_progress(self.checkpoint, told, self._fingerprint)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"the checkpoint {os.fspath(self.checkpoint)} could not be written "
                    f"({error}); the fit goes on, and if it is cut off it resumes from "
                    "the last one that was: make room there, or name a file elsewhere",
                    CheckpointWarning,
                    stacklevel=2,
                )

    @functools.cached_property
    def _fingerprint(self) -> str:
        """What a checkpoint must agree with: the recipe, and the rows it drew."""
        recipe = dataclasses.replace(
            self.recipe, max_seconds=None, kernel=None, sphere=None
        )
        digest = hashlib.blake2b(repr(recipe).encode(), digest_size=16)
        for part in self._given:
            digest.update(repr(part).encode())  # kind and levels; the rest exactly:
            known = named(part) if dataclasses.is_dataclass(part) else {}
            for name, value in known.items():
                digest.update(name.encode() + value.tobytes())
        for rows in (self.sample, self.held_out):
            for name in ("x", "y", "weight", "precision", "exposure"):
                column = None if rows is None else getattr(rows, name)
                if column is not None:
                    digest.update(
                        name.encode() + np.ascontiguousarray(column).tobytes()
                    )
        return digest.hexdigest()

    @property
    def _given(self) -> list[Any]:
        """What a run was given beside the rows and the recipe's numbers."""
        return [self.recipe.kernel, self.recipe.sphere, self.start]

    def report(self, stage: str, number: int, rows: int, bound: float) -> bool:
        """Tell of a step, and find out whether it is to be the last."""
        step = Step(stage, number, rows, float(bound), self.seconds)
        self.history.append(step)
        reason = None
        if self.callback is not None and self.callback(step):
            reason = "a callback"
        limit = self.recipe.max_seconds
        if limit is not None and step.seconds > limit:
            reason = f"the limit of {limit:g} seconds"
        self.stopped = reason or self.stopped
        return reason is not None

    def report_pass(self, stage: str, solution: Solution) -> str | None:
        """Report a pass over all rows, and the reason if it is to be the last."""
        # Passes may begin anew in float64; those before were made all the same.
        number = 1 + sum(step.stage == stage for step in self.history)
        bound = solution.bound / solution.rows
        over = self.report(stage, number, int(solution.rows), bound)
        return self.stopped if over else None

    def preparation(self, process: Process, fits_scales: bool = True) -> Preparation:
        """Everything that solving all rows needs of learning on a sample."""
        dtype = None if self.recipe.dtype == "auto" else np.dtype(self.recipe.dtype)
        return Preparation(
            process,
            self.sample,
            dtype=None if dtype is None else dtype.type,
            fits_scales=fits_scales,
            tolerance=self.schedule.pass_tolerance,
        )

    @property
    def seconds(self) -> float:
        """How long the run has taken, before it was resumed and since."""
        return self.spent + time.monotonic() - self.begin

    @functools.cached_property
    def _spheres(self) -> list[Sphere]:
        """The spheres to try: one that was given, or inputs at several scales."""
        recipe, rows = self.recipe, self.sample
        if recipe.sphere is not None:
            return [recipe.sphere]
        scales = [
            np.full(rows.x.shape[1], scale) for scale in self.schedule.start_scales
        ]
        paired = paired_scales(rows, self._signals, recipe.seed)
        if paired is not None:
            scales += [scale * paired for scale in self.schedule.paired_scales]
        return [ARD(one, recipe.radial_order) for one in scales]

    @property
    def _signals(self) -> np.ndarray:
        """What columns can tell something of: targets, as numbers."""
        return np.column_stack([rows.targets for rows in by_output(self.sample)])

    @property
    def _kernels(self) -> list[Kernel]:
        """The kernels to try: one that was given, or several cuts of the spectrum."""
        if self.recipe.kernel is not None:
            return [self.recipe.kernel]
        return [ContinuousDepth(1.0, levels) for levels in self.schedule.start_levels]

    def _first(self) -> Progress:
        """Where learning begins: where it was told to, unless a fresh start is better.

        What suited other rows may be a place that no step leads away from.
        """
        done = self.recipe.most_steps == 0
        # A start that was given has its cut of the spectrum already.
        given = Progress(self.start, rounds=2, done=done) if self.start else None
        if given is not None and (done or len(self._spheres) == 1):
            return given
        process, bound = self._start()
        if given is not None and self._attempt(given.process)[1] >= bound:
            return given
        return Progress(process, done=done)

    @property
    def _few(self) -> Chunk:
        """Rows that starts are tried on."""
        rows = (
            self.schedule.exact_start_rows if self.exact else self.schedule.start_rows
        )
        return thin(self.sample, rows, self.recipe.seed)

    def _attempt(self, start: Process) -> tuple[Process, float]:
        """Where a few steps on few rows lead, and their bound there."""
        steps = self.schedule.exact_steps if self.exact else self.schedule.start_steps
        return self._improve(start, self._few, steps, "start", "anchored")

    def _start(self) -> tuple[Process, float]:
        """The start that a few steps lead furthest from, and how far.

        Only the choice is kept. Scales that a dozen steps on few rows have bent to fit
        them are a worse place to go on from than equal ones. (Where all rows are few,
        nothing is bent.)
        """
        spheres, kernel = self._spheres, self._kernels[0]
        if len(spheres) == 1:
            return self._full_start(spheres[0], kernel), -np.inf
        features = min(self.schedule.start_features, self.features)
        best, reached, highest = spheres[0], None, -np.inf
        for sphere in spheres:
            start = self._even(sphere, kernel, features, self._few)
            found, bound = self._attempt(start)
            if bound > highest:
                best, reached, highest = sphere, found, bound
            if self.stopped:
                break
        if self.exact and reached is not None:
            return reached, highest
        return self._full_start(best, kernel), highest

    def _full_start(self, sphere: Sphere, kernel: Kernel) -> Process:
        recipe = self.recipe
        candidates = thin(self.sample, self.schedule.candidate_rows, recipe.seed)
        return self._even(sphere, kernel, self.features, candidates)

    def _recut(self, process: Process, kernel: Kernel) -> Process:
        """A start with another cut of the spectrum."""
        basis = process.basis
        if not self.exact:
            return self._full_start(basis.sphere, kernel)
        # What was reached with one cut is near what can be with another.
        kernel = with_values(kernel, named(basis.kernel, kernel.scalar_parameters))
        other = self._full_start(basis.sphere, kernel)
        if len(other.basis.bands) != len(basis.bands):
            return other
        freed = dataclasses.replace(other.basis, free_energies=basis.free_energies)
        return dataclasses.replace(process, basis=freed)

    def _even(
        self, sphere: Sphere, kernel: Kernel, n_features: int, rows: Chunk
    ) -> Process:
        """A process with phases from some rows, and a little energy in every band."""
        recipe = self.recipe
        build = functools.partial(
            Basis.build,
            sphere,
            kernel,
            n_features,
            recipe.layout,
            n_levels=recipe.n_levels,
            seed=recipe.seed,
        )
        if self.exact:
            basis = at_rows(Process(build(start="random")), rows.x).basis
        else:
            basis = build(rows=rows.x)
        # A band without energy has no slope to follow.
        shares = np.maximum(basis.energies, 1e-3)
        freed = dataclasses.replace(basis, free_energies=shares / shares.sum())
        return Process(freed, self.start_noise)

    def _round(self, progress: Progress) -> Progress:
        """One round of L-BFGS, and the decision what comes next."""
        recipe, sizes = self.recipe, self._sizes
        if progress.stage == len(sizes):
            return self._widened(progress)
        last = progress.stage == len(sizes) - 1
        steps = (
            min(self.schedule.round_steps, recipe.most_steps - progress.steps)
            if last
            else self.schedule.round_steps
        )
        rows = thin(self.sample, sizes[progress.stage], recipe.seed + progress.stage)
        kernels: list[Kernel | None] = [None]
        if progress.rounds == 0:
            # The first round is run with every cut of the spectrum: a dozen steps on
            # few rows would not tell which is best.
            kernels += self._kernels[1:]
        process, bound = progress.process, -np.inf
        for kernel in kernels:
            if self.stopped:
                break
            start, some = progress.process, min(steps, recipe.most_steps)
            if kernel is not None and self.exact:
                start, some = (
                    self._recut(process, kernel),
                    min(some, self.schedule.exact_steps),
                )
            elif kernel is not None:
                start = self._recut(start, kernel)
            found, reached = self._improve(
                start,
                rows,
                some,
                f"learn {progress.stage + 1}",
                # Anchored and free phases take turns.
                "anchored" if progress.rounds % 2 == 0 else "free",
            )
            if reached > bound:
                process, bound = found, reached
        self._settle(process)
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
        self._settle(moved.process)
        if not last and better:
            return dataclasses.replace(
                moved, stage=progress.stage + 1, steps=0, bound=-np.inf
            )
        exhausted = gain < self.schedule.tolerance or moved.steps >= recipe.most_steps
        if better and not exhausted:
            return moved
        if self._wide > moved.process.basis.n_features:
            return dataclasses.replace(moved, stage=len(sizes))
        return dataclasses.replace(moved, done=True)

    @property
    def _wide(self) -> int:
        """Features to end learning with, as many as the solution will have."""
        if self.exact:
            return 0
        features = self.recipe.features_to_solve(self._n_rows)
        return min(features, self.schedule.most_wide, len(self.sample))

    def _widened(self, progress: Progress) -> Progress:
        """A last round of few steps with all features that the solution will have.

        They are taken on few rows, which may want another kernel than all do: the whole
        sample decides, or rows kept aside, whether they are kept.
        """
        recipe, done = self.recipe, dataclasses.replace(progress, done=True)
        process = enlarged(progress.process, self._wide, self.sample, recipe.seed)
        features = process.basis.n_features
        if features == progress.process.basis.n_features:
            return done
        rows = thin(
            self.sample, int(self.schedule.wide_work / features**2), recipe.seed
        )
        steps = min(self.schedule.wide_steps, recipe.most_steps)
        found, _ = self._improve(process, rows, steps, "widen", "free")
        if self.stopped:
            return progress
        tried = [self._rescaled(process), self._rescaled(found)]
        process, bound = max(tried, key=self._judged)
        return dataclasses.replace(
            done, process=process, bound=bound, rounds=progress.rounds + 1
        )

    def _judged(self, tried: tuple[Process, float]) -> float:
        """What rows kept aside say of a process, or else its bound."""
        score = self._score(tried[0])
        return tried[1] if score is None else score

    def _rescaled(self, process: Process) -> tuple[Process, float]:
        """The process with energies and noise of the whole sample, and its bound."""
        tightened, outputs = self.recipe.tightened, by_output(self.sample)

        def attempt(dtype: Any) -> tuple[Process, float]:
            frame = whiten(process.basis, dtype)
            sums = [collect(frame, source_of(rows)) for rows in outputs]
            fitted = fit_scales(sums, process, tightened=tightened)
            results = [evaluate(one, fitted, tightened) for one in sums]
            check_sums(max(result.lift for result in results), dtype)
            return fitted, sum(result.value for result in results) / sums[0].rows

        with quiet_phases(), suited_blas(process.basis.n_features):
            return refine(attempt, sample_dtype(process, len(self.sample)))

    def _settle(self, process: Process) -> None:
        """Hook called with the process that learning continues from."""
        return

    @property
    def _sizes(self) -> list[int]:
        sizes, size = [], self.schedule.least_rows
        while size < len(self.sample):
            sizes.append(size)
            size *= self.schedule.growth
        # A last step that hardly grows is left out.
        if sizes and len(self.sample) < 2 * sizes[-1]:
            sizes.pop()
        return [*sizes, len(self.sample)]

    def _score(self, process: Process) -> float | None:
        """Mean log density of the rows kept aside, given the sample."""
        if self.held_out is None or self.stopped:
            return None
        density = np.zeros(len(self.held_out))
        with quiet_phases():
            frame = whiten(process.basis)
            for rows, aside in zip(
                by_output(self.sample), by_output(self.held_out), strict=True
            ):
                posterior = Posterior(process, collect(frame, source_of(rows)))
                mean, variance = posterior.predict(aside.x)
                density += Gaussian(process.noise).log_density(
                    aside, mean[:, None], variance[:, None]
                )
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
        sources = [source_of(one) for one in by_output(rows)]
        tightened = self.recipe.tightened
        ascent = Ascent(process, sources, phases, tightened, exact=self.exact)
        self._climb(ascent, steps, stage, len(rows))
        return ascent.best, ascent.bound

    def _climb(self, ascent: Ascent, steps: int, stage: str, rows: int) -> None:
        """Some steps, each told; an interrupt leaves the best so far."""
        number = sum(step.stage == stage for step in self.history)

        def after_step() -> bool:
            nonlocal number
            number += 1
            self.report(stage, number, rows, ascent.bound)
            return self.stopped is not None

        try:
            ascent.run(steps, after_step)
        except KeyboardInterrupt:
            if stage == "start":
                raise
            self.stopped = "an interrupt"


def _drawn(sources: Sequence[Source], recipe: Recipe) -> tuple[Chunk, Chunk | None]:
    """The rows to learn from, and some to keep aside if there are any to spare."""
    count = recipe.sample_rows + recipe.schedule.validation_rows
    # The same seed draws the same rows of each.
    every = [source.sample(count, recipe.seed) for source in sources]
    drawn = every[0]
    if len(every) > 1:
        targets = np.column_stack([rows.targets for rows in every])
        drawn = dataclasses.replace(drawn, y=targets)
    order = np.random.default_rng(row_bits(recipe.seed)).permutation(len(drawn))
    kept = min(
        recipe.sample_rows,
        len(drawn) - int(recipe.validation_fraction * len(drawn)),
    )
    sample, rest = np.sort(order[:kept]), np.sort(order[kept:])
    # A handful of rows that happen to be left over would decide by chance.
    enough = (
        recipe.validation_fraction > 0
        or len(rest) >= recipe.schedule.validation_rows // 8
    )
    aside = drawn[rest]
    count = len(aside) if aside.weight is None else aside.weight.sum()
    return drawn[sample], aside if enough and count > 0 else None
