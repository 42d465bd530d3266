"""Sites: one pass over the rows with the posterior of any likelihood.

A site is a Gaussian pseudo-observation of each function at a row. A pass predicts every
row with the posterior of the current sites, computes the bound, and sums up the next
sites. It stores nothing per row, except for problems with ``keep_sites``.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from zonal.engine.bound import unexplained_of
from zonal.engine.features import Frame, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.posterior import Posterior, Predictor, marginals_of
from zonal.engine.statistics import RunningSum, Statistics, row_statistics
from zonal.inference.problem import Problem
from zonal.inference.solution import Sites, Solution
from zonal.likelihoods.base import Likelihood
from zonal.prior.basis import Basis, feature_scales
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import Source

__all__ = [
    "add_given",
    "best_factor",
    "duals",
    "first_sums",
    "full_pass",
    "mix",
    "mix_apart",
    "proposed_sums",
]

# Bounds of the precisions of sites; targets of less precise sites would overflow.
_LEAST_PRECISION = 1e-8
_MOST_PRECISION = 1e13


def first_sums(frame: Frame, problem: Problem) -> tuple[Statistics, ...]:
    """Sums of the likelihood's starting sites, of zero rows if it has none."""
    first = functools.partial(
        _first_sums_here, frame, problem.likelihood, problem.offsets
    )
    return problem.source.reduced(first, _add_sums)


def _first_sums_here(
    frame: Frame, likelihood: Likelihood, offsets: np.ndarray, source: Source
) -> tuple[Statistics, ...]:
    def visit(chunk: Chunk) -> list[Statistics] | None:
        sites = likelihood.starting_sites(chunk)
        if sites is None:
            return None
        unit, radial = frame.unit_features(chunk.x)
        weight = chunk.weights
        return [
            row_statistics(frame.basis, unit, radial, target, weight, precision)
            for target, precision in zip(
                (sites[0] - offsets).T, sites[1].T, strict=True
            )
        ]

    totals = [RunningSum(frame.basis) for _ in range(likelihood.n_latents)]
    for parts in chunk_results(visit, source):
        for total, part in zip(totals, parts or [], strict=False):
            total.add(part)
    return tuple(total.result() for total in totals)


def mix(
    old: Sequence[Statistics], new: Sequence[Statistics], step: float
) -> tuple[Statistics, ...]:
    """Interpolate between sums of sites; all else is that of the new ones."""
    if step == 1.0:
        return tuple(new)
    return tuple(
        dataclasses.replace(
            after,
            gram=(1 - step) * before.gram + step * after.gram,
            moment=(1 - step) * before.moment + step * after.moment,
        )
        for before, after in zip(old, new, strict=True)
    )


def mix_apart(
    state: Solution,
    processes: Sequence[Process],
    means: float,
    precisions: float,
    further: np.ndarray | float = 0.0,
) -> tuple[Statistics, ...]:
    """Interpolate between the current and the proposed sites of a state.

    Precisions of sites move by the fraction ``precisions``. Means of the posterior move
    by the fraction ``means`` of a Newton step with these precisions; ``further`` is
    added to their `duals`.
    """
    sums = []
    current = duals(state.posteriors)
    for dual, moved, old, new, process in zip(
        current,
        current + further,
        state.statistics,
        state.proposed,
        processes,
        strict=True,
    ):
        (mixed,) = mix([old], [new], precisions)
        squares = feature_scales(process.basis) ** 2
        slope = new.moment - dual - new.gram @ (squares * dual)
        moment = moved + mixed.gram @ (squares * moved) + means * slope
        sums.append(dataclasses.replace(mixed, moment=moment))
    return tuple(sums)


def duals(posteriors: Sequence[Posterior]) -> Float[np.ndarray, "latents features"]:
    """Means of the weights w in dual form: w = s ⊙ dual, dual = h - G (s ⊙ w)."""
    return np.stack(
        [
            posterior.statistics.moment
            - posterior.statistics.gram
            @ (feature_scales(posterior.process.basis) * posterior.weights)
            for posterior in posteriors
        ]
    )


def best_factor(process: Process, sums: Statistics) -> float:
    """The factor of the uncaptured variance that maximises the bound."""
    table = sums.uncaptured
    unexplained, _ = unexplained_of(process.basis, table)
    total = float(table.count.astype(np.float64) @ unexplained)
    return 1 / (1 + total / sums.rows) if sums.rows > 0 else 1.0


def _divergence(posterior: Posterior) -> float:
    """KL divergence of the posterior of the features' weights from their prior."""
    weights, spread = posterior.weights, np.sum(posterior.inverse_factor**2)
    log_determinant = 2 * np.sum(np.log(np.diag(posterior.factor)))
    return 0.5 * float(spread + weights @ weights - len(weights) + log_determinant)


def full_pass(
    frame: Frame,
    problem: Problem,
    processes: tuple[Process, ...],
    statistics: Sequence[Statistics],
    factors: tuple[float, ...],
) -> Solution:
    """The solution of the current sites with its bound, and sums of the next sites."""
    current = Solution(
        processes,
        problem.offsets,
        problem.likelihood,
        tuple(statistics),
        np.nan,
        tightened=problem.tightened,
        converged=False,
        factors=factors,
    )
    predictors = [
        Predictor.of(posterior, frame.dtype, factor)
        for posterior, factor in zip(current.posteriors, factors, strict=True)
    ]
    visit = functools.partial(
        _visit, frame, predictors, problem.likelihood, problem.offsets
    )
    pass_over = functools.partial(_pass_here, frame.basis, visit, problem.keep_sites)
    expected, sums, sites = problem.source.reduced(pass_over, _add_passes)
    proposed = add_given(sums, problem.given)
    for posterior, factor, other in zip(
        current.posteriors, factors, problem.given or (), strict=False
    ):
        expected += _expected_of_sites(posterior, other, factor)
    shrinking = sum(factor - 1 - np.log(factor) for factor in factors)
    divergence = sum(map(_divergence, current.posteriors))
    divergence += proposed[0].rows / 2 * shrinking
    return dataclasses.replace(
        current,
        bound=float(expected - divergence),
        lift=max(posterior.lift for posterior in current.posteriors),
        proposed=proposed,
        sites=sites,
    )


PassResult = tuple[float, tuple[Statistics, ...], Sites | None]


def _pass_here(
    basis: Basis,
    visit: Callable[[Chunk], tuple[float, list[Statistics], Sites]],
    keep_sites: bool,
    source: Source,
) -> PassResult:
    """The expected log density of the rows, sums of their next sites, and the sites."""
    expected, all_sites, sums = 0.0, [], None
    for value, parts, sites in chunk_results(visit, source):
        sums = [RunningSum(basis) for _ in parts] if sums is None else sums
        expected += value
        for total, part in zip(sums, parts, strict=True):
            total.add(part)
        if keep_sites:
            all_sites.append(sites)
    totals = tuple(total.result() for total in sums or ())
    return expected, totals, _stack(all_sites) if keep_sites else None


def _add_passes(first: PassResult, second: PassResult) -> PassResult:
    sites = None
    if first[2] is not None and second[2] is not None:
        sites = _stack([first[2], second[2]])
    return first[0] + second[0], _add_sums(first[1], second[1]), sites


def add_given(
    sums: tuple[Statistics, ...], given: Sequence[Statistics] | None
) -> tuple[Statistics, ...]:
    """Sums of sites per function, plus given sums if there are any."""
    return sums if given is None else _add_sums(sums, given)


def _add_sums(
    sums: Sequence[Statistics], others: Sequence[Statistics]
) -> tuple[Statistics, ...]:
    return tuple(ours + other for ours, other in zip(sums, others, strict=True))


def _expected_of_sites(posterior: Posterior, sums: Statistics, factor: float) -> float:
    """E_q of the log density of sites whose sums are known, up to a constant."""
    basis = posterior.process.basis
    scales = feature_scales(basis)
    weights = scales * posterior.weights
    root = posterior.inverse_factor * scales
    squares = sums.squares - 2 * sums.moment @ weights
    squares += weights @ sums.gram @ weights + np.sum((root @ sums.gram) * root)
    unexplained, _ = unexplained_of(basis, sums.uncaptured)
    squares += factor * sums.uncaptured.count.astype(np.float64) @ unexplained
    return -0.5 * float(squares)


def proposed_sums(state: Solution, source: Source) -> tuple[Statistics, ...]:
    """Sums of the sites of rows under a solution."""
    frame = whiten(state.processes[0].basis, np.float64)
    problem = Problem(source, state.likelihood, state.offsets, state.tightened)
    solution = full_pass(
        frame, problem, state.processes, state.statistics, state.factors
    )
    return solution.proposed


def _visit(
    frame: Frame,
    predictors: Sequence[Predictor],
    likelihood: Likelihood,
    offsets: np.ndarray,
    chunk: Chunk,
) -> tuple[float, list[Statistics], Sites]:
    """A chunk's expected log density, the sums of its next sites, and the sites."""
    unit, radial = frame.unit_features(chunk.x)
    found = marginals_of(predictors, offsets, frame, unit, radial)
    mean, variance = found.mean, found.variance
    weight = chunk.weights
    expected = likelihood.expected(chunk, mean, variance)
    precision = np.clip(-2 * expected.variance_bar, _LEAST_PRECISION, _MOST_PRECISION)
    target = likelihood.centred(mean - offsets) + expected.mean_bar / precision
    parts = [
        row_statistics(frame.basis, unit, radial, site_target, weight, site_precision)
        for site_target, site_precision in zip(target.T, precision.T, strict=True)
    ]
    sites = Sites(mean, variance, precision, target)
    return float(weight @ expected.value), parts, sites


def _stack(parts: Sequence[Sites]) -> Sites:
    return Sites(
        *(
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in dataclasses.fields(Sites)
        )
    )
