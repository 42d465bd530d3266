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
from zonal.engine.statistics import collect_all
from zonal.inference.natural_gradient import infer
from zonal.inference.sites import Inferred, marginals
from zonal.learning.ascent import Ascent, sample_dtype
from zonal.learning.by_bound import Learner
from zonal.learning.recipe import Recipe
from zonal.learning.state import Progress, Step
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.classes import ClassLikelihood
from zonal.prior.parameters import same_values
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import Source, source_of

__all__ = ["SiteLearner", "refitted"]

# Steps between two inferences, and how closely to infer in between.
_STEPS = 15
_TOLERANCE = 1e-5
_MOST_PASSES = 12


class SiteLearner(Learner):
    """A run of learning with a likelihood other than normal noise.

    After `run`, ``likelihood`` has its own parameters learned.
    """

    start_noise = 1.0

    def __init__(
        self,
        source: Source,
        recipe: Recipe,
        likelihood: Likelihood,
        offsets: np.ndarray,
        callback: Callable[[Step], Any] | None = None,
        checkpoint: str | os.PathLike | None = None,
        start: Process | None = None,
    ):
        if start is not None:
            start = dataclasses.replace(start, noise=self.start_noise)
        super().__init__([source], recipe, callback, checkpoint, start)
        self.likelihood = likelihood
        self.offsets = offsets
        self._first_likelihood = likelihood
        self._last: tuple[Chunk | None, Inferred] | None = None
        self._tried: list[tuple[Chunk | None, Inferred]] = []

    @property
    def _given(self) -> list[Any]:
        # Offsets tell of the targets of all rows, not only of those drawn.
        return [*super()._given, self._first_likelihood, tuple(self.offsets.tolist())]

    @property
    def _signals(self) -> np.ndarray:
        y = np.asarray(self.sample.y, np.float64)
        if isinstance(self.likelihood, ClassLikelihood):
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
                self._climb(ascent, min(steps, _STEPS), stage, len(rows))
                steps -= _STEPS
                sites = state.known_sites
                likelihood = refitted(
                    state.likelihood, rows, sites.mean, sites.variance
                )
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

    def _before(self, rows: Chunk) -> Inferred | None:
        """What was inferred last, if it was of the same rows."""
        return self._last[1] if self._last and self._last[0] is rows else None

    def on_sample(self, process: Process) -> Inferred:
        """What the whole sample says under a process, inferred unless it is known."""
        before = self._before(self.sample)
        if before is not None and before.processes[0] is process:
            return before
        return self.inferred(process, self.sample, None, self.likelihood)

    def inferred(
        self,
        process: Process,
        rows: Chunk,
        before: Inferred | None,
        likelihood: Likelihood,
    ) -> Inferred:
        """Sites of some rows, starting from those they had before the prior moved."""
        dtype = sample_dtype(process, len(rows))
        start = None
        with quiet_phases():
            if before is not None:
                frame = whiten(process.basis, dtype)
                sites = before.known_sites
                start = collect_all(frame, sites.sources(rows))
            return infer(
                [process] * likelihood.n_latents,
                source_of(rows),
                likelihood,
                self.offsets,
                start,
                tightened=self.recipe.tightened,
                dtype=dtype,
                tolerance=_TOLERANCE,
                most_passes=_MOST_PASSES,
                keep_sites=True,
            )

    def _score(self, process: Process) -> float | None:
        """Mean log density of the rows kept aside, given the sample."""
        held_out = self.held_out
        if held_out is None or self.stopped:
            return None
        state = self.on_sample(process)
        with quiet_phases():
            at = marginals(state.posteriors, self.offsets, whiten(process.basis))
            mean, variance = at(held_out)
        density = self.likelihood.log_density(
            np.asarray(held_out.y, np.float64), mean, variance, held_out.exposure
        )
        return float(np.average(density, weights=held_out.weight))


def refitted(
    likelihood: Likelihood, rows: Chunk, mean: np.ndarray, variance: np.ndarray
) -> Likelihood:
    """The likelihood with its own parameters fitted to rows of known marginals."""
    y, weight = np.asarray(rows.y, np.float64), rows.weights
    return likelihood.refitted(y, weight, mean, variance, rows.exposure)
