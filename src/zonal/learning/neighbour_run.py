"""A run of learning by neighbours: its clock, callbacks, interrupts and checkpoints."""

import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from zonal.engine.inducing import GlobalFeatures
from zonal.learning.by_neighbours import Info, State, init, round_of_steps
from zonal.learning.checkpoints import (
    check_place,
    fingerprint_of,
    load_progress,
    save_progress,
    warn_unwritten,
)
from zonal.learning.recipe import Recipe
from zonal.learning.sizes import Sizes, choose_sizes
from zonal.learning.state import LearningStoppedWarning, Step
from zonal.prior.kernels import ContinuousDepth
from zonal.prior.process import LocalProcess, Process
from zonal.prior.sphere import ARD, Sphere
from zonal.tables.repeats import DistinctRows

__all__ = ["NeighbourRun"]


# The kernel's decay if nothing is learned: that of a network with one layer.
_BETA = 2.0
# Neighbours where nothing was chosen, because there was no time or are too few rows.
_NEIGHBORS = 128


class NeighbourRun:
    """Learns from all rows of a table, and reports every round as a `Step`.

    After `learn`, ``stopped`` says why learning ended early, if it did.
    """

    def __init__(
        self,
        rows: DistinctRows,
        recipe: Recipe,
        callback: Callable[[Step], Any] | None = None,
        checkpoint: str | os.PathLike | None = None,
        start: Process | None = None,
    ):
        if checkpoint is not None:
            check_place(checkpoint)
        self._rows = rows
        self._recipe = recipe
        self._settings = recipe.schedule.by_neighbours
        self._callback = callback
        self._checkpoint = checkpoint
        self._start = None if start is None else _local(start)
        self._begin = time.monotonic()
        self._warned = False
        self.stopped: str | None = None
        self.history: list[Step] = []

    def learn(self) -> tuple[Sizes, ...]:
        """The learned process of each output, with its features and neighbours."""
        process = self._learn_process()
        if len(self._rows) < 2:
            none = np.zeros((0, process.sphere.dimension))
            features = GlobalFeatures(process, 0, none)
            sizes = Sizes(features, self._recipe.n_neighbors or _NEIGHBORS, np.nan)
            return (sizes,) * self._rows.y.shape[1]
        try:
            sizes = self._choose(process)
        except KeyboardInterrupt:
            if self.stopped:
                raise
            self._stop("an interrupt")
            sizes = self._choose(process)
        density = float(np.mean([output.density for output in sizes]))
        info = Info("sizes", 1, len(self._rows), 0, np.nan, density, np.nan)
        # This is the last step: there is nothing left to stop.
        stopped = self.stopped
        self._report(info)
        self.stopped = stopped
        return sizes

    def _choose(self, process: LocalProcess) -> tuple[Sizes, ...]:
        """The sizes and the noise; once learning was stopped, the noise alone."""
        recipe = self._recipe
        n_features, n_neighbors = recipe.n_features, recipe.n_neighbors
        if self.stopped:
            n_features = n_features or 0
            n_neighbors = _NEIGHBORS if n_neighbors is None else n_neighbors
        return choose_sizes(
            self._rows,
            process,
            n_features,
            n_neighbors,
            recipe.seed,
            recipe.schedule.sizes,
        )

    def _learn_process(self) -> LocalProcess:
        """Run rounds until validation rows are no longer predicted better."""
        recipe = self._recipe
        if self._start is not None and recipe.most_steps == 0:
            return self._start
        state = self._resume()
        if state is None and (len(self._rows) < 2 or recipe.most_steps == 0):
            return self._default_process()
        try:
            if state is None:
                state, info = init(
                    self._rows,
                    self._settings,
                    self._sphere,
                    recipe.kernel,
                    recipe.seed,
                    self._start,
                )
                self._report(info)
                self._save(state)
            while not state.done and not self.stopped:
                state, info = round_of_steps(
                    self._rows, self._settings, state, recipe.seed
                )
                self._report(info)
                self._save(state)
        except KeyboardInterrupt:
            if state is None:
                raise
            self.stopped = "an interrupt"
        if self.stopped:
            self._stop(self.stopped)
        return state.best

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        warnings.warn(
            f"learning was stopped by {reason}; the best parameters so far are kept",
            LearningStoppedWarning,
            stacklevel=6,
        )

    def _default_process(self) -> LocalProcess:
        """The default prior, where nothing is learned."""
        kernel = self._recipe.kernel or ContinuousDepth(_BETA)
        return LocalProcess(self._sphere, kernel)

    @property
    def _sphere(self) -> Sphere:
        """The sphere to start from."""
        n_inputs = self._rows.x.shape[1]
        return self._recipe.sphere or ARD.isotropic(n_inputs, self._recipe.radial_order)

    def _report(self, info: Info) -> None:
        seconds = time.monotonic() - self._begin
        step = Step(info.stage, info.number, info.rows, info.validation, seconds)
        self.history.append(step)
        limit = self._recipe.max_seconds
        if self._callback is not None and self._callback(step):
            self.stopped = "a callback"
        elif limit is not None and seconds > limit:
            self.stopped = f"the limit of {limit:g} seconds"

    def _save(self, state: State) -> None:
        if self._checkpoint is None or self.stopped:
            return
        progress = (state, tuple(self.history))
        try:
            save_progress(self._checkpoint, progress, self._fingerprint)
        except OSError as error:
            if not self._warned:
                self._warned = True
                warn_unwritten(self._checkpoint, error)

    def _resume(self) -> State | None:
        if self._checkpoint is None:
            return None
        progress = load_progress(self._checkpoint, self._fingerprint)
        if progress is None:
            return None
        state, history = progress
        self.history = list(history)
        self._begin -= history[-1].seconds if history else 0.0
        return state

    @functools.cached_property
    def _fingerprint(self) -> str:
        """A digest of recipe, start and rows, which a checkpoint must match."""
        recipe, rows = self._recipe, self._rows
        names = ("x", "y", "weight", "spread")
        columns = ((name, getattr(rows, name)) for name in names)
        given = [recipe.kernel, recipe.sphere, self._start]
        return fingerprint_of(recipe, given, columns)


def _local(process: Process) -> LocalProcess:
    """A process without its bands."""
    basis = process.basis
    return LocalProcess(basis.sphere, basis.kernel, basis.variance, process.noise)
