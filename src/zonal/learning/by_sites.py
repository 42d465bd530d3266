"""Learning for any likelihood: inference and ascent take turns.

With fixed sites, the problem is regression with known precisions, and sphere, kernel,
phases and energies are learned from its bound as in `zonal.learning.by_bound`. Sites
are then inferred again. They stay fixed while the prior changes (the dual view, Adam et
al. 2021), so a few passes suffice each time.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import rankdata

from zonal.engine.features import quiet_phases, whiten
from zonal.engine.posterior import marginals
from zonal.engine.statistics import collect_all
from zonal.inference.natural_gradient import Effort, infer
from zonal.inference.problem import Problem
from zonal.inference.solution import Solution
from zonal.inference.solving import Preparation
from zonal.learning.ascent import Ascent, sample_dtype
from zonal.learning.by_bound import Learner
from zonal.learning.recipe import Recipe
from zonal.learning.state import Progress, Step
from zonal.likelihoods.base import Likelihood
from zonal.prior.parameters import same_values
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import source_of

__all__ = ["SiteLearner"]


class SiteLearner(Learner):
    """A run of learning with a likelihood other than normal noise.

    After `run`, ``likelihood`` has learned parameters.
    """

    start_noise = 1.0

    def __init__(
        self,
        problem: Problem,
        recipe: Recipe,
        callback: Callable[[Step], Any] | None = None,
        checkpoint: str | os.PathLike | None = None,
        start: Process | None = None,
    ):
        if start is not None:
            start = dataclasses.replace(start, noise=self.start_noise)
        super().__init__([problem.source], recipe, callback, checkpoint, start)
        self.problem = problem
        self.likelihood = problem.likelihood
        self._last: tuple[Chunk | None, Solution] | None = None
        self._tried: list[tuple[Chunk | None, Solution]] = []

    @property
    def _given(self) -> list[Any]:
        # Offsets depend on the targets of all rows, not only on the sample.
        offsets = tuple(self.problem.offsets.tolist())
        return [*super()._given, self.problem.likelihood, offsets]

    @property
    def _signals(self) -> np.ndarray:
        y = self.sample.targets
        if self.likelihood.classifies:
            return (y[:, None] == np.unique(y)).astype(np.float64)
        # Ranks, because counts and targets with heavy tails have outliers.
        if self.sample.exposure is not None:
            y = y / self.sample.exposure
        return rankdata(y)[:, None]

    @property
    def _wide(self) -> int:
        # Inference follows every few steps, and would need as many features.
        return 0

    def save(self, progress: Progress) -> None:
        if self._last is not None:
            rows, state = self._last
            # Sites per row are used again only where the rows stay the same.
            sites = state.sites if rows is self.sample else None
            state = dataclasses.replace(state, proposed=(), sites=sites)
            progress = dataclasses.replace(progress, sites=state)
        super().save(progress)

    def _resumed(self) -> Progress | None:
        progress = super()._resumed()
        if progress is None or progress.sites is None:
            return progress
        state = progress.sites
        self.likelihood = state.likelihood
        self._last = (None if state.sites is None else self.sample, state)
        self._tried = [self._last]
        # Sites are matched to their process by identity.
        if same_values(progress.process, state.processes[0]):
            progress = dataclasses.replace(progress, process=state.processes[0])
        return progress

    def _improve(
        self, process: Process, rows: Chunk, steps: int, stage: str, phases: str
    ) -> tuple[Process, float]:
        """Alternate inference and learning steps as long as the true bound rises."""
        state = self.inferred(process, rows, self._before(rows), self.likelihood)
        try:
            while steps > 0 and not self.stopped:
                ascent = Ascent(
                    state.processes[0],
                    state.known_sites.sources(rows),
                    phases,
                    "common" if self.recipe.tightened else False,
                    fixed=("noise",),
                    exact=self.exact,
                )
                self._climb(
                    ascent, min(steps, self.schedule.turn_steps), stage, len(rows)
                )
                steps -= self.schedule.turn_steps
                sites = state.known_sites
                likelihood = state.likelihood.refit(rows, sites.mean, sites.variance)
                moved = self.inferred(ascent.best, rows, state, likelihood)
                if moved.bound <= state.bound:
                    break
                state = moved
        except KeyboardInterrupt:
            if stage == "start":
                raise
            self.stopped = "an interrupt"
        if stage != "start":
            self._tried.append((rows, state))
        total = float(rows.weights.sum())
        return state.processes[0], state.bound / total

    def _settle(self, process: Process) -> None:
        """Continue with the likelihood and the sites that belong to a process."""
        for pair in reversed(self._tried):
            if pair[1].processes[0] is process:
                # Learning may return to the previous one, but to no earlier one.
                self._tried = [pair] if self._last is None else [self._last, pair]
                self.likelihood, self._last = pair[1].likelihood, pair
                return

    def _before(self, rows: Chunk) -> Solution | None:
        """The last inferred solution, if it belongs to the same rows."""
        return self._last[1] if self._last and self._last[0] is rows else None

    def preparation(self, process: Process, fits_scales: bool = True) -> Preparation:
        plain = super().preparation(process, fits_scales)
        return dataclasses.replace(plain, inferred=self.on_sample(process))

    def on_sample(self, process: Process) -> Solution:
        """The solution of the whole sample under a process, inferred unless cached."""
        before = self._before(self.sample)
        if before is not None and before.processes[0] is process:
            return before
        return self.inferred(process, self.sample, None, self.likelihood)

    def inferred(
        self,
        process: Process,
        rows: Chunk,
        before: Solution | None,
        likelihood: Likelihood,
    ) -> Solution:
        """Infer sites of some rows, starting from those before the prior changed."""
        dtype = sample_dtype(process, len(rows))
        start = None
        problem = dataclasses.replace(
            self.problem,
            source=source_of(rows),
            likelihood=likelihood,
            keep_sites=True,
        )
        with quiet_phases():
            if before is not None:
                frame = whiten(process.basis, dtype)
                sites = before.known_sites
                start = collect_all(frame, sites.sources(rows))
            processes = [process] * likelihood.n_latents
            schedule = self.schedule
            effort = Effort(dtype, schedule.turn_tolerance, schedule.turn_passes)
            return infer(problem, processes, start, effort)

    def _score(self, process: Process) -> float | None:
        """Mean log density of the validation rows, given the sample."""
        validation = self.held_out
        if validation is None or self.stopped:
            return None
        state = self.on_sample(process)
        with quiet_phases():
            frame = whiten(process.basis)
            at = marginals(state.posteriors, self.problem.offsets, frame)
            mean, variance, _ = at(validation)
        density = self.likelihood.log_density(validation, mean, variance)
        return float(np.average(density, weights=validation.weight))
