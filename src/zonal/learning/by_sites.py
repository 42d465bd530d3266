"""Learning for any likelihood: inference and ascent take turns.

At fixed sites the rows are regression with known precisions, and sphere, kernel, phases
and energies climb its bound exactly as `zonal.learning.by_bound` has it. Sites are then
inferred anew. They stay where they are while the prior moves (the dual view, Adam et
al. 2021), so a few passes suffice each time.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

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

    After `run`, ``likelihood`` has its own parameters learned.
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
        # Offsets tell of the targets of all rows, not only of those drawn.
        offsets = tuple(self.problem.offsets.tolist())
        return [*super()._given, self.problem.likelihood, offsets]

    @property
    def _signals(self) -> np.ndarray:
        y = self.sample.targets
        if self.likelihood.classifies:
            return (y[:, None] == np.unique(y)).astype(np.float64)
        return y[:, None]

    @property
    def _wide(self) -> int:
        # Every few steps are followed by inference, which would have many features too.
        return 0

    def save(self, progress: Progress) -> None:
        if self._last is not None:
            rows, state = self._last
            # Row by row, sites are asked for again only where rows stay the same.
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
        # It is known by its identity which process the sites belong to.
        if same_values(progress.process, state.processes[0]):
            progress = dataclasses.replace(progress, process=state.processes[0])
        return progress

    def _improve(
        self, process: Process, rows: Chunk, steps: int, stage: str, phases: str
    ) -> tuple[Process, float]:
        """Inference and some steps in turns, as long as the true bound rises."""
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
        """Go on with the likelihood and the sites that belong to a process."""
        for tried in reversed(self._tried):
            if tried[1].processes[0] is process:
                # The one before may yet be returned to; all others are done with.
                self._tried = [tried] if self._last is None else [self._last, tried]
                self.likelihood, self._last = tried[1].likelihood, tried
                return

    def _before(self, rows: Chunk) -> Solution | None:
        """What was inferred last, if it was of the same rows."""
        return self._last[1] if self._last and self._last[0] is rows else None

    def preparation(self, process: Process, fits_scales: bool = True) -> Preparation:
        plain = super().preparation(process, fits_scales)
        return dataclasses.replace(plain, inferred=self.on_sample(process))

    def on_sample(self, process: Process) -> Solution:
        """The solution of the whole sample under a process, inferred unless known."""
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
        """Sites of some rows, starting from those they had before the prior moved."""
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
        """Mean log density of the rows kept aside, given the sample."""
        held_out = self.held_out
        if held_out is None or self.stopped:
            return None
        state = self.on_sample(process)
        with quiet_phases():
            frame = whiten(process.basis)
            at = marginals(state.posteriors, self.problem.offsets, frame)
            mean, variance = at(held_out)
        density = self.likelihood.log_density(held_out, mean, variance)
        return float(np.average(density, weights=held_out.weight))
