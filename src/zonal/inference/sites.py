"""Sites: one pass over the rows of a posterior that any likelihood asks for.

A site is a Gaussian pseudo-observation of each function at a row. A pass predicts every
row with the posterior that the present sites give, adds up the bound, and makes the
sums of the next sites; nothing is kept of a row unless it is asked for.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.blas import triangular_product
from zonal.engine.bound import unexplained_of
from zonal.engine.features import Frame, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.posterior import Posterior
from zonal.engine.statistics import (
    RunningSum,
    Statistics,
    row_statistics,
    uncaptured_of,
)
from zonal.likelihoods.base import Likelihood
from zonal.prior.basis import Basis, feature_scales
from zonal.prior.parameters import Fields
from zonal.prior.process import Process
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sources import ArraySource, Source

__all__ = [
    "Inferred",
    "Sites",
    "added",
    "best_factor",
    "duals",
    "first_sums",
    "full_pass",
    "marginals",
    "mixed",
    "mixed_apart",
    "proposed_sums",
    "scaled_up",
]

# A site less precise than this is no site; its target would overflow.
_LEAST_PRECISION = 1e-8
_MOST_PRECISION = 1e13


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Sites:
    """Row by row: the marginals of the functions, and the sites that follow."""

    mean: Float[np.ndarray, "rows latents"]
    variance: Float[np.ndarray, "rows latents"]
    precision: Float[np.ndarray, "rows latents"]
    target: Float[np.ndarray, "rows latents"]

    def sources(self, rows: Chunk) -> list[Source]:
        """Some rows with the sites of each function for targets."""
        return [
            ArraySource(rows.x, target, rows.weight, precision)
            for target, precision in zip(self.target.T, self.precision.T, strict=True)
        ]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Inferred(Fields):
    """The approximate posterior, its bound, and the bounds on the way there.

    ``statistics`` are the sums of the sites, one for each function; ``proposed`` those
    of the sites that would come next, the same at the fixed point. ``factors`` shrink
    what the features do not capture, in the bound; a ``lift`` above zero says that
    rounding of the sums shows in it.
    """

    processes: tuple[Process, ...]
    offsets: Float[np.ndarray, " latents"]
    likelihood: Likelihood
    statistics: tuple[Statistics, ...]
    proposed: tuple[Statistics, ...]
    factors: tuple[float, ...]
    bound: float
    bounds: tuple[float, ...]
    converged: bool
    lift: float
    sites: Sites | None = None

    @property
    def tightened(self) -> bool:
        """Whether the bound shrinks what the features do not capture."""
        return any(factor != 1.0 for factor in self.factors)

    @property
    def known_sites(self) -> Sites:
        """The sites, which inference was asked to keep."""
        assert self.sites is not None, "infer(..., keep_sites=True) keeps them"
        return self.sites

    @functools.cached_property
    def posteriors(self) -> tuple[Posterior, ...]:
        """The posterior of each function, offset not included."""
        return _posteriors(self.processes, self.statistics)


def first_sums(
    frame: Frame, source: Source, likelihood: Likelihood, offsets: np.ndarray
) -> tuple[Statistics, ...]:
    """Sums of the sites that the likelihood suggests, or none."""
    first = functools.partial(_first_sums_here, frame, likelihood, offsets)
    return source.reduced(first, added)


def _first_sums_here(
    frame: Frame, likelihood: Likelihood, offsets: np.ndarray, source: Source
) -> tuple[Statistics, ...]:
    def visit(chunk: Chunk) -> list[Statistics] | None:
        y = np.asarray(chunk.y, np.float64)
        sites = likelihood.starting_sites(y, chunk.exposure)
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


def _posteriors(
    processes: Sequence[Process], statistics: Sequence[Statistics]
) -> tuple[Posterior, ...]:
    return tuple(
        Posterior(process, sums)
        for process, sums in zip(processes, statistics, strict=True)
    )


def mixed(
    old: Sequence[Statistics], new: Sequence[Statistics], step: float
) -> tuple[Statistics, ...]:
    """Sums of sites between two others; tables of rows are those of the new."""
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


def mixed_apart(
    state: Inferred,
    processes: Sequence[Process],
    means: float,
    precisions: float,
    further: np.ndarray | float = 0.0,
) -> tuple[Statistics, ...]:
    """Sums between the present and the proposed sites of a state.

    The sites' precisions go a part ``precisions`` of the way. The posterior's means go
    a part ``means`` of the way that a Newton step with these precisions would, and
    ``further`` by a change of their `duals`.
    """
    sums = []
    now = duals(state.posteriors)
    for dual, ahead, old, new, process in zip(
        now, now + further, state.statistics, state.proposed, processes, strict=True
    ):
        (between,) = mixed([old], [new], precisions)
        squares = feature_scales(process.basis) ** 2
        slope = new.moment - dual - new.gram @ (squares * dual)
        moment = ahead + between.gram @ (squares * ahead) + means * slope
        sums.append(dataclasses.replace(between, moment=moment))
    return tuple(sums)


def duals(posteriors: Sequence[Posterior]) -> Float[np.ndarray, "latents features"]:
    """What means of weights are in terms of sums: w = s (h - G s w), without the s."""
    return np.stack(
        [
            one.statistics.moment
            - one.statistics.gram @ (feature_scales(one.process.basis) * one.weights)
            for one in posteriors
        ]
    )


def best_factor(process: Process, sums: Statistics) -> float:
    """What the conditional variance of all rows is best shrunk by."""
    table = sums.uncaptured
    unexplained, _ = unexplained_of(process.basis, table)
    total = float(table.count.astype(np.float64) @ unexplained)
    return 1 / (1 + total / sums.rows) if sums.rows > 0 else 1.0


def scaled_up(statistics: Statistics, factor: float) -> Statistics:
    """The sums of a sample, blown up to stand for a whole table."""
    table = statistics.uncaptured
    return dataclasses.replace(
        statistics,
        gram=factor * statistics.gram,
        moment=factor * statistics.moment,
        squares=factor * statistics.squares,
        rows=factor * statistics.rows,
        log_precision=factor * statistics.log_precision,
        uncaptured=dataclasses.replace(table, count=factor * table.count),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Marginals:
    """What predicts a row from its unit features: weights, and a triangular root."""

    weights: np.ndarray
    root: np.ndarray
    energies: np.ndarray
    missing: float

    @classmethod
    def of(cls, posterior: Posterior, dtype: Any, factor: float = 1.0) -> "_Marginals":
        basis = posterior.process.basis
        scales = feature_scales(basis)
        variance = factor * float(basis.variance)
        return cls(
            scales * posterior.weights,
            np.ascontiguousarray(posterior.inverse_factor * scales, dtype),
            variance * basis.energies[list(basis.incomplete)],
            variance * basis.uncovered_energy,
        )

    def at(
        self, unit: np.ndarray, radial: np.ndarray, parts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance: what the features know, and what they do not capture."""
        mean = radial * (unit @ self.weights.astype(unit.dtype))
        kept = unit.astype(self.root.dtype, order="C")
        triangular_product(kept, slice(0, len(self.root)), self.root)
        known = radial**2 * np.einsum("ij,ij->i", kept, kept, dtype=np.float64)
        return mean, known + parts @ self.energies + radial**2 * self.missing


def _divergence(posterior: Posterior) -> float:
    """KL divergence of the posterior of the features' weights from their prior."""
    weights, spread = posterior.weights, np.sum(posterior.inverse_factor**2)
    log_determinant = 2 * np.sum(np.log(np.diag(posterior.factor)))
    return 0.5 * float(spread + weights @ weights - len(weights) + log_determinant)


def marginals(
    posteriors: Sequence[Posterior],
    offsets: np.ndarray,
    frame: Frame,
    dtype: Any = np.float32,
    factors: Sequence[float] | None = None,
) -> Callable[[Chunk], tuple[np.ndarray, np.ndarray]]:
    """The function that predicts all functions at a chunk: means and variances.

    Means are in the frame's precision. Variances are sums of squares, where nothing
    cancels, so float32 will do for them. ``factors`` shrink what the features do not
    capture, as the bound has it; predictions have the whole of it.
    """
    predict = [
        _Marginals.of(posterior, dtype, factor)
        for posterior, factor in zip(
            posteriors, factors or (1.0,) * len(posteriors), strict=True
        )
    ]

    def at(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        unit, radial = frame.unit_features(chunk.x)
        return _marginals_at(predict, offsets, frame, unit, radial)

    return at


def _marginals_at(
    predict: Sequence[_Marginals],
    offsets: np.ndarray,
    frame: Frame,
    unit: np.ndarray,
    radial: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    ones = np.ones(len(unit))
    radial = radial.astype(np.float64)
    parts = uncaptured_of(frame.basis, unit, radial, ones, ones).parts
    every = [one.at(unit, radial, parts) for one in predict]
    mean = np.column_stack([mean for mean, _ in every]) + offsets
    return mean, np.column_stack([variance for _, variance in every])


def full_pass(
    frame: Frame,
    processes: tuple[Process, ...],
    statistics: Sequence[Statistics],
    factors: tuple[float, ...],
    source: Source,
    likelihood: Likelihood,
    offsets: np.ndarray,
    keep_sites: bool,
    given: Sequence[Statistics] | None = None,
) -> Inferred:
    """The bound of the present sites, and the sums of the next ones."""
    posteriors = _posteriors(processes, statistics)
    predict = [
        _Marginals.of(posterior, frame.dtype, factor)
        for posterior, factor in zip(posteriors, factors, strict=True)
    ]
    visit = functools.partial(_visit, frame, predict, likelihood, offsets)
    passed = functools.partial(_passed, frame.basis, visit, keep_sites)
    expected, sums, sites = source.reduced(passed, _passes_added)
    proposed = added(sums, given)
    for posterior, factor, other in zip(posteriors, factors, given or (), strict=False):
        expected += _expected_of_sites(posterior, other, factor)
    shrinking = sum(factor - 1 - np.log(factor) for factor in factors)
    divergence = sum(map(_divergence, posteriors)) + proposed[0].rows / 2 * shrinking
    return Inferred(
        processes,
        offsets,
        likelihood,
        tuple(statistics),
        proposed,
        factors,
        float(expected - divergence),
        (),
        False,
        max(posterior.lift for posterior in posteriors),
        sites,
    )


Passed = tuple[float, tuple[Statistics, ...], Sites | None]


def _passed(
    basis: Basis,
    visit: Callable[[Chunk], tuple[float, list[Statistics], Sites]],
    keep_sites: bool,
    source: Source,
) -> Passed:
    """The rows' share in the bound, the sums of their next sites, and these."""
    expected, kept, sums = 0.0, [], None
    for value, parts, sites in chunk_results(visit, source):
        sums = [RunningSum(basis) for _ in parts] if sums is None else sums
        expected += value
        for total, part in zip(sums, parts, strict=True):
            total.add(part)
        if keep_sites:
            kept.append(sites)
    totals = tuple(total.result() for total in sums or ())
    return expected, totals, _stacked(kept) if keep_sites else None


def _passes_added(one: Passed, other: Passed) -> Passed:
    sites = None
    if one[2] is not None and other[2] is not None:
        sites = _stacked([one[2], other[2]])
    return one[0] + other[0], added(one[1], other[1]), sites


def added(
    sums: tuple[Statistics, ...], given: Sequence[Statistics] | None
) -> tuple[Statistics, ...]:
    """Sums of sites, function by function, with others that are given or not."""
    if given is None:
        return sums
    return tuple(ours + other for ours, other in zip(sums, given, strict=True))


def _expected_of_sites(posterior: Posterior, sums: Statistics, factor: float) -> float:
    """E_q of the log density of sites that are only known as sums, up to a constant."""
    basis = posterior.process.basis
    scales = feature_scales(basis)
    weights = scales * posterior.weights
    root = posterior.inverse_factor * scales
    squares = sums.squares - 2 * sums.moment @ weights
    squares += weights @ sums.gram @ weights + np.sum((root @ sums.gram) * root)
    unexplained, _ = unexplained_of(basis, sums.uncaptured)
    squares += factor * sums.uncaptured.count.astype(np.float64) @ unexplained
    return -0.5 * float(squares)


def proposed_sums(state: Inferred, source: Source) -> tuple[Statistics, ...]:
    """Sums of the sites that some rows have under what was inferred."""
    frame = whiten(state.processes[0].basis, np.float64)
    found = full_pass(
        frame,
        state.processes,
        state.statistics,
        state.factors,
        source,
        state.likelihood,
        state.offsets,
        False,
    )
    return found.proposed


def _visit(
    frame: Frame,
    predict: Sequence[_Marginals],
    likelihood: Likelihood,
    offsets: np.ndarray,
    chunk: Chunk,
) -> tuple[float, list[Statistics], Sites]:
    """A chunk's share in the bound, and its next sites."""
    unit, radial = frame.unit_features(chunk.x)
    mean, variance = _marginals_at(predict, offsets, frame, unit, radial)
    weight = chunk.weights
    y = np.asarray(chunk.y, np.float64)
    expected = likelihood.expected(y, mean, variance, chunk.exposure)
    precision = np.clip(-2 * expected.variance_bar, _LEAST_PRECISION, _MOST_PRECISION)
    target = likelihood.centred(mean - offsets) + expected.mean_bar / precision
    parts = [
        row_statistics(frame.basis, unit, radial, ours, weight, exact)
        for ours, exact in zip(target.T, precision.T, strict=True)
    ]
    sites = Sites(mean, variance, precision, target)
    return float(weight @ expected.value), parts, sites


def _stacked(parts: Iterable[Sites]) -> Sites:
    every = list(parts)
    return Sites(
        *(
            np.concatenate([getattr(part, field.name) for part in every])
            for field in dataclasses.fields(Sites)
        )
    )
