"""Ascent: L-BFGS on the exact bound of some rows plus the prior of the spectrum."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from zonal.engine.bound import Tightening
from zonal.engine.dense import at_rows, exact_value_and_gradient
from zonal.engine.features import quiet_phases
from zonal.engine.gradient import value_and_gradient
from zonal.engine.precision import suited_dtype
from zonal.learning.unknowns import Unknowns
from zonal.prior.energy_prior import with_energy_prior
from zonal.prior.process import Process
from zonal.tables.sources import Source

__all__ = ["Ascent"]

# Problems with at most this many rows times squared features are learned in float64.
_FLOAT64_WORK = 5e8

# A gain below the first limit, in nats per row, is rounding; one below the second, in
# nats in all, is insignificant. Two such steps in succession end the run. A line search
# ends after at most this many evaluations.
_LEAST_GAIN = 2e-6
_LEAST_TOTAL_GAIN = 0.01
_MOST_LINE_SEARCH = 10


def sample_dtype(process: Process, rows: int) -> Any:
    """The precision in which to learn from this many rows."""
    return suited_dtype(rows, process.basis.n_features, _FLOAT64_WORK)


class Ascent:
    """Maximises the bound of a process on some rows.

    Several sources are several functions of the same prior: their bounds add up.
    ``best`` is the best process so far and ``bound`` its bound per row; both are valid
    whenever a run ends, even by an interrupt.

    Parameters
    ----------
    process
        The process to start from.
    sources
        The rows of each function.
    phases
        How phases move: ``"anchored"``, ``"free"`` or ``"fixed"``
        (`zonal.learning.unknowns`).
    fixed
        Names of parameters that keep their values.
    exact
        Whether to maximise the exact marginal likelihood instead
        (`zonal.engine.dense`); phases are then at the rows.
    """

    def __init__(
        self,
        process: Process,
        sources: Sequence[Source],
        phases: str = "anchored",
        tightened: Tightening = True,
        fixed: Sequence[str] = (),
        exact: bool = False,
    ):
        self.best, self.bound = process, -np.inf
        self._unknowns = Unknowns(process, "fixed" if exact else phases, fixed)
        self._exact = exact
        self._sources = sources
        self._tightened: Tightening = tightened
        self._dtype = sample_dtype(process, sources[0].n_rows or 0)
        self._total = sum(
            float(len(chunk) if chunk.weight is None else chunk.weight.sum())
            for chunk in sources[0].chunks()
        )

    def run(self, steps: int, after_step: Callable[[], bool]) -> None:
        """Take up to ``steps`` steps; stop early where ``after_step`` returns True."""
        least = max(_LEAST_GAIN, _LEAST_TOTAL_GAIN / self._total)
        last, small = -np.inf, 0

        def check_gain(intermediate_result) -> None:
            nonlocal last, small
            value = -float(intermediate_result.fun)
            small = small + 1 if value - last < least else 0
            last = value
            # A single small step may be the first, whose length is a guess.
            if after_step() or small == 2:
                raise StopIteration

        try:
            self._run(steps, check_gain)
        finally:
            if self._exact:
                (rows,) = self._sources[0].chunks(self._sources[0].n_rows or 1)
                self.best = at_rows(self.best, rows.x)

    def _run(self, steps: int, callback: Callable) -> None:
        with quiet_phases():
            minimize(
                self._objective,
                self._unknowns.start,
                jac=True,
                method="L-BFGS-B",
                callback=callback,
                bounds=self._unknowns.bounds,
                options={
                    "maxiter": steps,
                    "maxcor": 20,
                    "maxfun": 2 * steps + 10,
                    "ftol": 0.0,
                    "maxls": _MOST_LINE_SEARCH,
                },
            )

    def _objective(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        candidate = self._unknowns.process(vector)
        if self._exact:
            value, gradients = exact_value_and_gradient(candidate, self._sources)
        else:
            value, gradients = value_and_gradient(
                candidate, self._sources, self._tightened, self._dtype
            )
        value, gradients = with_energy_prior(candidate.basis, value, gradients)
        bound = value / self._total
        slope = self._unknowns.gradient(vector, gradients) / self._total
        if bound > self.bound:
            self.best, self.bound = candidate, bound
        return -bound, -slope
