"""Solve a problem; add, forget and merge the rows of solutions.

Normal noise is conjugate: one pass over the rows gives the exact posterior, and sums of
rows can be added and subtracted. Other likelihoods take a short sequence of passes
(`zonal.inference.natural_gradient`), and sites of added rows are inferred given those
of earlier rows. Only this module distinguishes between the two.
"""

import dataclasses
import functools
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from zonal.engine.bound import evaluate
from zonal.engine.features import quiet_phases, whiten
from zonal.engine.posterior import marginals
from zonal.engine.precision import check_sums, refine, suited_dtype
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import Statistics, collect
from zonal.inference.natural_gradient import Effort, Passes, Watch, infer
from zonal.inference.problem import Problem
from zonal.inference.sites import proposed_sums
from zonal.inference.solution import Solution
from zonal.likelihoods.base import Likelihood
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sampling import thin
from zonal.tables.sources import Source

__all__ = [
    "Preparation",
    "add_rows",
    "forget_rows",
    "merge_rows",
    "solve",
    "without_rows",
]

# Maximum work (rows times squared features) of passes in float64, which then take a few
# seconds at most. A single exact pass may cost more than each of several passes.
_EXACT_WORK = 5e10
_PASS_WORK = 1e10
# Maximum number of passes (larger if they are cheap), and the relative change of the
# bound that ends them.
_MOST_PASSES = 20
_MANY_PASSES = 60
_TOLERANCE = 1e-5
# Minimum number of passes, even without time left: the third is the first whose sites
# were computed from sites of all rows.
_LEAST_PASSES = 3
# Maximum number of rows to fit a likelihood's own parameters to.
_OWN_ROWS = 10_000


@dataclasses.dataclass(frozen=True, eq=False)
class Preparation:
    """Results of learning on a sample, needed to solve all rows.

    Parameters
    ----------
    process
        The learned prior.
    sample
        The rows it was learned from.
    inferred
        The solution of the sample, for likelihoods that need several passes.
    dtype
        Precision of features; None chooses it by the amount of work.
    fits_scales
        Whether to fit energies and noise to all rows; false for constant targets.
    tolerance
        Relative change of the bound that ends the passes.
    """

    process: Process
    sample: Chunk
    inferred: Solution | None = None
    dtype: Any = None
    fits_scales: bool = True
    tolerance: float = _TOLERANCE

    def suited_dtype(self, rows: float | int | None, budget: float) -> Any:
        """The precision of features for this number of rows."""
        if self.dtype is not None:
            return self.dtype
        return suited_dtype(rows, self.process.basis.n_features, budget)


def solve(
    problem: Problem, preparation: Preparation, watch: Watch, count: int | None = None
) -> tuple[Solution, str | None]:
    """The posterior of all rows, and the reason for an early stop or None.

    ``count`` is the number of rows, if it is known.
    """
    if problem.likelihood.conjugate:
        return _solve_in_one_pass(problem, preparation, watch), None
    with quiet_phases():
        return _solve_in_passes(problem, preparation, watch, count)


def _solve_in_one_pass(
    problem: Problem, preparation: Preparation, watch: Watch
) -> Solution:
    """Sums of all rows, with energies and noise fitted to them.

    If rounding of float32 products is noticeable (little noise in many rows), the pass
    is repeated in float64; otherwise the optimiser would exploit the rounding.
    """
    process, source = preparation.process, problem.source

    def attempt(dtype: Any) -> Solution:
        sums = _collect(process, source, dtype)
        fitted = process
        if preparation.fits_scales:
            fitted = fit_scales(sums, process, tightened=problem.tightened)
        result = evaluate(sums, fitted, problem.tightened)
        check_sums(result.lift, dtype)
        return Solution(
            (fitted,),
            problem.offsets,
            dataclasses.replace(problem.likelihood, noise=fitted.noise),  # pyright: ignore
            (sums,),
            result.value,
            problem.tightened,
            preparation.dtype,
            bounds=(result.value,),
        )

    dtype = preparation.suited_dtype(source.n_rows, _EXACT_WORK)
    solution = refine(attempt, dtype)
    if watch.callback is not None:
        watch.callback(1, solution)
    return solution


def _collect(process: Process, source: Source, dtype: Any) -> Statistics:
    with quiet_phases():
        return collect(whiten(process.basis, dtype), source)


def _solve_in_passes(
    problem: Problem, preparation: Preparation, watch: Watch, count: int | None
) -> tuple[Solution, str | None]:
    """Passes over all rows; energies and own parameters are refitted between them.

    They start from the sites of the sample. (Its sums scaled up to all rows would be
    overconfident.)
    """
    start = preparation.inferred
    assert start is not None, "learning has inferred its sample"
    latest, stopped = watch.resumed, None

    def keep(passes: Passes) -> None:
        nonlocal latest
        latest = passes
        if watch.keep is not None:
            watch.keep(passes)

    def follow(number: int, solution: Solution) -> bool:
        nonlocal stopped
        reason = watch.callback(number, solution) if watch.callback else None
        if reason and number >= _LEAST_PASSES:
            stopped = reason
        return stopped is not None

    dtype = preparation.suited_dtype(count, _PASS_WORK)
    features = preparation.process.basis.n_features
    cheap = suited_dtype(count, features, _PASS_WORK) == np.float64
    effort = Effort(
        dtype, preparation.tolerance, _MANY_PASSES if cheap else _MOST_PASSES
    )
    refit = functools.partial(_refit, preparation.sample)
    try:
        solution = infer(
            dataclasses.replace(problem, likelihood=start.likelihood),
            start.processes,
            start.statistics,
            effort,
            refit,
            Watch(follow, keep, watch.resumed),
        )
    except KeyboardInterrupt:
        if latest is None or len(latest.bounds) < _LEAST_PASSES:
            raise
        assert latest.best is not None, "passes were made"
        stopped = "an interrupt"
        solution = dataclasses.replace(latest.best, bounds=latest.bounds)
    if not solution.converged:
        _warn_of_passes(len(solution.bounds), stopped)
    # Only inference needs the proposed sums.
    solution = dataclasses.replace(solution, proposed=(), dtype=preparation.dtype)
    return solution, stopped


def _warn_of_passes(passes: int, stopped: str | None) -> None:
    warnings.warn(
        f"inference was stopped by {stopped} after {passes} passes, before it had "
        "converged; the model is that of the best pass"
        if stopped
        else f"inference had not converged after {passes} passes; the model is that of "
        "the best pass",
        ConvergenceWarning,
        stacklevel=5,
    )


def _refit(sample: Chunk, state: Solution) -> tuple[tuple[Process, ...], Likelihood]:
    """Energies fitted to the sums, and the likelihood's own parameters to a sample."""
    fit = functools.partial(
        fit_scales,
        names=("basis.free_energies",),
        tightened="common" if state.tightened else False,
    )
    if state.likelihood.exchangeable:
        shared = fit(state.statistics, state.processes[0])
        processes = (shared,) * len(state.processes)
    else:
        processes = tuple(map(fit, state.statistics, state.processes))
    rows = thin(sample, _OWN_ROWS, 0)
    frame = whiten(state.processes[0].basis)
    predict = marginals(state.posteriors, state.offsets, frame, factors=state.factors)
    found = predict(rows)
    return processes, state.likelihood.refit(rows, found.mean, found.variance)


@functools.singledispatch
def add_rows(solution: Any, source: Source) -> Any:
    """The solution of earlier and new rows, at the same parameters.

    Exact for normal noise. For other likelihoods, the sites of the new rows are
    inferred and those of earlier rows stay the same, which is accurate if the new rows
    change the posterior little.
    """
    if solution.likelihood.conjugate:
        return _with_sums(solution, _add(solution.statistics, _sums(solution, source)))
    problem = Problem(
        source,
        solution.likelihood,
        solution.offsets,
        solution.tightened,
        given=solution.statistics,
    )
    effort = Effort(np.float64, _TOLERANCE, _MOST_PASSES)
    with quiet_phases():
        added = infer(problem, solution.processes, effort=effort)
    return _with_sums(solution, added.statistics)


@functools.singledispatch
def forget_rows(solution: Any, source: Source) -> Any:
    """The solution without these rows, as if it had never seen them."""
    sums = _sums(solution, source)
    if sums[0].rows > solution.rows * (1 + 1e-12):
        raise ValueError(
            f"{sums[0].rows:g} rows cannot be taken out of a model of "
            f"{solution.rows:g}; forget only rows that were fitted or added"
        )
    pairs = zip(solution.statistics, sums, strict=True)
    return _with_sums(solution, tuple(total - part for total, part in pairs))


@functools.singledispatch
def merge_rows(solution: Any, other: Any) -> Any:
    """The solution of the rows of both solutions, which have the same parameters."""
    return _with_sums(solution, _add(solution.statistics, other.statistics))


@functools.singledispatch
def without_rows(solution: Any) -> Any:
    """The solution with the same parameters and no rows."""
    empty = tuple(Statistics.zero(process.basis) for process in solution.processes)
    return _with_sums(solution, empty)


def _sums(solution: Solution, source: Source) -> tuple[Statistics, ...]:
    """Sums of rows like those of the solution: of their targets, or of their sites."""
    if solution.likelihood.conjugate:
        (process,) = solution.processes
        dtype = suited_dtype(source.n_rows, process.basis.n_features, _EXACT_WORK)
        return (_collect(process, source, dtype),)
    with quiet_phases():
        return proposed_sums(solution, source)


def _add(
    sums: tuple[Statistics, ...], others: tuple[Statistics, ...]
) -> tuple[Statistics, ...]:
    return tuple(ours + other for ours, other in zip(sums, others, strict=True))


def _with_sums(solution: Solution, sums: tuple[Statistics, ...]) -> Solution:
    """The solution with other sums at the same parameters.

    Its bound is exact for normal noise, and NaN for other likelihoods.
    """
    bound = np.nan
    if solution.likelihood.conjugate:
        bound = evaluate(sums[0], solution.processes[0], solution.tightened).value
    return dataclasses.replace(solution, statistics=sums, bound=bound)
