"""Learning: from a standardised table to a process, with nothing to tune.

1. Start: leave-one-out densities of nearest rows (`zonal.learning.by_neighbours`) give
   the scales of the inputs, and the roughness that decides where the spectrum ends.
2. Learn: sphere, kernel, band energies, noise and phases together, by L-BFGS on the
   exact bound of a sample. The sample grows, and each one starts where the last ended.
   It stops growing once validation rows are no longer predicted better.
3. Widen: a few more steps with as many features as the solution will have. Variance
   that few features cannot capture counts as noise; with many, the noise shrinks.
4. The caller then solves: one pass over all rows, and energies and noise fitted on it.

L-BFGS runs in rounds. Between two rounds the whole state is a `Progress`, which can be
written to a file; a run resumed from it ends like an uninterrupted one.
"""

import dataclasses
import functools
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
from zonal.learning import by_neighbours
from zonal.learning.ascent import Ascent, sample_dtype
from zonal.learning.checkpoints import (
    check_place,
    fingerprint_of,
    load_progress,
    save_progress,
    warn_unwritten,
)
from zonal.learning.recipe import Recipe
from zonal.learning.state import LearningStoppedWarning, Progress, Step
from zonal.likelihoods.noise import Gaussian
from zonal.prior.basis import Basis
from zonal.prior.kernels import ContinuousDepth, Kernel
from zonal.prior.parameters import named
from zonal.prior.process import LocalProcess, Process
from zonal.prior.sphere import ARD, Sphere
from zonal.tables.chunks import Chunk, by_output
from zonal.tables.repeats import DistinctRows, merged_rows
from zonal.tables.sampling import row_bits, thin
from zonal.tables.sources import Source, source_of

__all__ = ["LearningStoppedWarning", "learn"]

# Features may need columns that nearest rows do not; their scales start at this share
# of the largest. Where that is below the first limit, neighbours found no function; far
# beyond the second, only directions of rows would matter.
_LEAST_SHARE = 0.05
_LARGEST_SCALE = 0.02, 3.0


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
    sources = [sources] if isinstance(sources, Source) else sources
    return Learner(sources, recipe, callback, checkpoint, start).run()


class Learner:
    """One run of learning: its samples, its clock and its state."""

    start_noise = 0.2

    def __init__(
        self,
        sources: Sequence[Source],
        recipe: Recipe,
        callback: Callable[[Step], Any] | None,
        checkpoint: str | os.PathLike | None,
        start: Process | None,
    ):
        recipe = recipe.for_features_alone()
        self.recipe = recipe
        self.schedule = recipe.schedule
        self.callback = callback
        self.checkpoint = checkpoint
        if checkpoint is not None:
            check_place(checkpoint)
        self._warned = False
        self.begin = time.monotonic()
        self.stopped: str | None = None
        self.sample, self.held_out = _split_rows(sources, recipe)
        self._n_rows = sources[0].n_rows
        self.history: list[Step] = []
        self.spent = 0.0
        self.features = recipe.features_to_learn
        if recipe.layout == "banded":
            # More features than rows would not help.
            most = max(self.schedule.least_features, len(self.sample))
            self.features = min(most, self.features)
        learns = recipe.layout == "banded" and recipe.most_steps > 0
        if start is not None and recipe.most_steps > 0:
            # A process learned with another layout is of no use as a start.
            start = start if start.basis.follows(recipe.layout) else None
        if start is not None and learns:
            # A process enlarged for the solution is learned with few features again.
            start = reduced(start, recipe.features_to_learn)
        self.start = start
        self.exact = self._can_be_exact()

    def _can_be_exact(self) -> bool:
        """Whether there are few enough rows to place a phase at each."""
        limit = min(self.schedule.exact_rows, self.recipe.features_to_learn)
        if len(self.sample) > limit or self.recipe.layout != "banded":
            return False
        if self.start is not None:
            return is_series(self.start.basis)
        kernel = self.recipe.kernel
        return kernel is None or kernel.last_level is not None

    def run(self) -> Progress:
        progress = self._resumed()
        try:
            if progress is None:
                progress = self._initial_progress()
                self.save(progress)
            while not self.stopped and not progress.done:
                progress = self._run_round(progress)
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
        """Write progress to the checkpoint, if there is one.

        A full disk costs the checkpoint, not the fit. Progress of a run that is being
        stopped is not saved, because a longer run would have continued differently.
        """
        if self.checkpoint is None or self.stopped:
            return
        current = dataclasses.replace(progress, history=tuple(self.history))
        try:
            save_progress(self.checkpoint, current, self._fingerprint)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warn_unwritten(self.checkpoint, error)

    @functools.cached_property
    def _fingerprint(self) -> str:
        """A digest of recipe and sampled rows, which a checkpoint must match."""
        columns = (
            (name, getattr(rows, name))
            for rows in (self.sample, self.held_out)
            if rows is not None
            for name in ("x", "y", "weight", "precision", "exposure")
        )
        return fingerprint_of(self.recipe, self._given, columns)

    @property
    def _given(self) -> list[Any]:
        """The arguments of a run other than the rows and the recipe's numbers."""
        return [self.recipe.kernel, self.recipe.sphere, self.start]

    def report(self, stage: str, number: int, rows: int, bound: float) -> bool:
        """Report a step, and return whether it is the last."""
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
        """Report a pass over all rows; return the reason if it is the last."""
        # Passes may start again in float64; earlier ones still count.
        number = 1 + sum(step.stage == stage for step in self.history)
        bound = solution.bound / solution.rows
        # Weights can count more rows than an integer of a table of steps can hold.
        rows = int(min(solution.rows, 2**62))
        is_last = self.report(stage, number, rows, bound)
        return self.stopped if is_last else None

    def preparation(self, process: Process, fits_scales: bool = True) -> Preparation:
        """The results of learning on a sample that solving all rows needs."""
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
        """Duration of the run, including the time before it was resumed."""
        return self.spent + time.monotonic() - self.begin

    def _initial_progress(self) -> Progress:
        """The state to start from: the given start, unless a fresh one is better.

        Parameters that suited other rows may be a local optimum that no step leaves.
        """
        done = self.recipe.most_steps == 0
        if self.start is None:
            return Progress(self._fresh_start(), done=done)
        if done or self.recipe.sphere is not None:
            return Progress(self.start, done=done)
        starts = [self.start, self._fresh_start()]
        return Progress(max(starts, key=self._promise))

    def _promise(self, start: Process) -> float:
        """The bound on few rows that a process reaches in a few steps."""
        rows = thin(self.sample, self.schedule.start_rows, self.recipe.seed)
        steps = self.schedule.start_steps
        return self._improve(start, rows, steps, "start", "anchored")[1]

    def _fresh_start(self) -> Process:
        """A process with the scales and the roughness that nearest rows show."""
        recipe, schedule = self.recipe, self.schedule
        learned = self._learn_from_neighbours()
        sphere = recipe.sphere or self._start_sphere(learned)
        kernel = recipe.kernel or self._start_kernel(learned)
        candidates = thin(self.sample, schedule.candidate_rows, recipe.seed)
        return self._build_process(sphere, kernel, self.features, candidates)

    def _start_sphere(self, learned: LocalProcess | None) -> ARD:
        order = self.recipe.radial_order
        scales = np.zeros(self.sample.x.shape[1])
        if learned is not None:
            scales = np.asarray(named(learned.sphere)["scales"], np.float64)
        least, most = _LARGEST_SCALE
        largest = scales.max()
        if largest < least:
            return ARD.isotropic(len(scales), order)
        scales = np.maximum(scales / largest, _LEAST_SHARE)
        return ARD(min(largest, most) * scales, order)

    def _start_kernel(self, learned: LocalProcess | None) -> ContinuousDepth:
        """A spectrum to learn from; that of a rough function has more levels."""
        schedule, last = self.schedule, self.schedule.smooth_levels
        if learned is not None and named(learned.kernel)["beta"] < schedule.smooth_beta:
            last = schedule.rough_levels
        return ContinuousDepth(1.0, last)

    def _learn_from_neighbours(self) -> LocalProcess | None:
        """The process by leave-one-out densities; None where nothing is to be learned.

        With a sphere given, only the roughness of the function on it is used.
        """
        recipe = self.recipe
        given = recipe.sphere is not None and recipe.kernel is not None
        if given or recipe.most_steps == 0:
            return None
        rows = self._distinct_rows
        if len(rows) < 2:
            return None

        def report(info: by_neighbours.Info) -> bool:
            number = 1 + len(self.history)
            return self.report("start", number, info.rows, info.validation)

        state, _ = by_neighbours.learn(
            rows,
            self.schedule.by_neighbours,
            recipe.sphere or ARD.isotropic(rows.x.shape[1], recipe.radial_order),
            seed=recipe.seed,
            callback=report,
        )
        return state.best

    @property
    def _distinct_rows(self) -> DistinctRows:
        """The distinct rows of the sample, with standardised signals."""
        sample, signals = self.sample, self._signals
        weight = sample.weights
        centred = signals - np.average(signals, axis=0, weights=weight)
        width = np.sqrt(np.average(centred**2, axis=0, weights=weight))
        signals = centred / np.where(width > 0, width, 1.0)
        return merged_rows(sample.x, signals, weight * sample.precisions)

    @property
    def _signals(self) -> np.ndarray:
        """Numeric targets whose densities choose the start."""
        return np.column_stack([rows.targets for rows in by_output(self.sample)])

    def _build_process(
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

    def _run_round(self, progress: Progress) -> Progress:
        """Run one round of L-BFGS, and decide how to continue."""
        recipe, sizes = self.recipe, self._sizes
        if progress.stage == len(sizes):
            return self._widen(progress)
        last = progress.stage == len(sizes) - 1
        steps = (
            min(self.schedule.round_steps, recipe.most_steps - progress.steps)
            if last
            else self.schedule.round_steps
        )
        rows = thin(self.sample, sizes[progress.stage], recipe.seed + progress.stage)
        process, bound = self._improve(
            progress.process,
            rows,
            min(steps, recipe.most_steps),
            f"learn {progress.stage + 1}",
            # Anchored and free phases take turns.
            "anchored" if progress.rounds % 2 == 0 else "free",
        )
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
        """Features in the last round of learning, as many as the solution will have."""
        if self.exact:
            return 0
        features = self.recipe.features_to_solve(self._n_rows)
        return min(features, self.schedule.most_wide, len(self.sample))

    def _widen(self, progress: Progress) -> Progress:
        """A last round of few steps with as many features as the solution will have.

        Its few rows may prefer another kernel than all rows do, so the validation rows,
        or else the whole sample, decide whether the result is used.
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
        learned, _ = self._improve(process, rows, steps, "widen", "free")
        if self.stopped:
            return progress
        candidates = [self._rescale(process), self._rescale(learned)]
        process, bound = max(candidates, key=self._judge)
        return dataclasses.replace(
            done, process=process, bound=bound, rounds=progress.rounds + 1
        )

    def _judge(self, candidate: tuple[Process, float]) -> float:
        """The score of a process on validation rows, or else its bound."""
        score = self._score(candidate[0])
        return candidate[1] if score is None else score

    def _rescale(self, process: Process) -> tuple[Process, float]:
        """The process with energies and noise fitted to the sample, and its bound."""
        tightened, outputs = self.recipe.tightened, by_output(self.sample)

        def attempt(dtype: Any) -> tuple[Process, float]:
            frame = whiten(process.basis, dtype)
            sums = [collect(frame, source_of(rows)) for rows in outputs]
            fitted = fit_scales(sums, process, tightened=tightened)
            results = [evaluate(statistics, fitted, tightened) for statistics in sums]
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
        # Skip the last size but one if the last is less than twice as large.
        if sizes and len(self.sample) < 2 * sizes[-1]:
            sizes.pop()
        return [*sizes, len(self.sample)]

    def _score(self, process: Process) -> float | None:
        """Mean log density of the validation rows, given the sample."""
        if self.held_out is None or self.stopped:
            return None
        density = np.zeros(len(self.held_out))
        with quiet_phases():
            frame = whiten(process.basis)
            for rows, validation in zip(
                by_output(self.sample), by_output(self.held_out), strict=True
            ):
                posterior = Posterior(process, collect(frame, source_of(rows)))
                mean, variance, _ = posterior.predict(validation.x)
                density += Gaussian(process.noise).log_density(
                    validation, mean[:, None], variance[:, None]
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
        """Run L-BFGS on some rows; return the best process and its bound."""
        sources = [source_of(output) for output in by_output(rows)]
        tightened = self.recipe.tightened
        ascent = Ascent(process, sources, phases, tightened, exact=self.exact)
        self._climb(ascent, steps, stage, len(rows))
        return ascent.best, ascent.bound

    def _climb(self, ascent: Ascent, steps: int, stage: str, rows: int) -> None:
        """Take some steps and report each; an interrupt leaves the best so far."""
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


def _split_rows(
    sources: Sequence[Source], recipe: Recipe
) -> tuple[Chunk, Chunk | None]:
    """Rows to learn from, and validation rows if there are enough."""
    count = recipe.sample_rows + recipe.schedule.validation_rows
    # The same seed draws the same rows from each source.
    rows_per_source = [source.sample(count, recipe.seed) for source in sources]
    drawn = rows_per_source[0]
    if len(rows_per_source) > 1:
        targets = np.column_stack([rows.targets for rows in rows_per_source])
        drawn = dataclasses.replace(drawn, y=targets)
    order = np.random.default_rng(row_bits(recipe.seed)).permutation(len(drawn))
    sample_size = min(
        recipe.sample_rows,
        len(drawn) - int(recipe.validation_fraction * len(drawn)),
    )
    sample, rest = np.sort(order[:sample_size]), np.sort(order[sample_size:])
    # With only a handful of rows left over, chance would decide.
    enough = (
        recipe.validation_fraction > 0
        or len(rest) >= recipe.schedule.validation_rows // 8
    )
    validation = drawn[rest]
    weight = validation.weight
    count = len(validation) if weight is None else weight.sum()
    return drawn[sample], validation if enough and count > 0 else None
