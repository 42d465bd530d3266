"""Inference for any likelihood: a short sequence of weighted least squares.

Conjugate-computation variational inference (Khan & Lin 2017). The approximate posterior
of each function is that of Gaussian pseudo-data, a *site* a row: precision λ and target
ỹ. A pass over the rows predicts each with the present posterior and makes its new site

    λ = -2 ∂E/∂v,    ỹ = m + (∂E/∂m)/λ,    E = E_q[log p(y|f)],

which is a natural-gradient step of length one. Shorter steps mix old and new sites, and
mixing sites is mixing their sums, so a stream is inferred without keeping a number a
row. The bound is Σ E minus the divergence from the prior, known after every pass; a
step that would lower it is shortened.

What the features do not capture of a row, u, adds to its variance v and so costs E. The
*tightened* bound (Titsias 2025) lets the posterior shrink it by one factor s for all
rows, v = s u + ..., which costs ½ n (s - 1 - log s); the best s = 1/(1 + mean λu) is
known from the sums. Predictions have the whole of u.

Everything else is the regression engine: sites are rows with known precisions, so
their statistics, collapsed bound and gradients are those of `zonal.objective` at noise
one. Where sites are at their fixed point, that gradient is the bound's own.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.basis import Basis, feature_scales
from zonal.blas import suited_blas, triangular_product
from zonal.frame import Frame, whiten
from zonal.likelihoods import Likelihood
from zonal.objective import Process, unexplained_of
from zonal.parameters import Fields
from zonal.passes import chunk_results
from zonal.posterior import Posterior
from zonal.sources import ArraySource, Chunk, Source, source_of
from zonal.statistics import (
    RunningSum,
    Statistics,
    row_statistics,
    row_weights,
    uncaptured_of,
)

__all__ = ["Inferred", "Sites", "infer", "infer_batches", "proposed_sums"]

# A site less precise than this is no site; its target would overflow.
_LEAST_PRECISION = 1e-8
_MOST_PRECISION = 1e13
_SHORTEST_STEP = 1e-3
# Rates of convergence are taken for no worse than this.
_LARGEST_RATE = 0.9
# A bound may fall by this much of itself through rounding of float32 features.
_ROUNDING = 1e-7


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


Refit = Callable[[Inferred], tuple[tuple[Process, ...], Likelihood]]


def infer(
    processes: Sequence[Process],
    source: Source,
    likelihood: Likelihood,
    offsets: Float[np.ndarray, " latents"],
    start: Sequence[Statistics] | None = None,
    *,
    given: Sequence[Statistics] | None = None,
    tightened: bool = True,
    dtype: Any = np.float32,
    tolerance: float = 1e-6,
    most_passes: int = 30,
    keep_sites: bool = False,
    refit: Refit | None = None,
    callback: Callable[[int, float], Any] | None = None,
) -> Inferred:
    """Pass over the rows until the bound changes by less than ``tolerance`` of itself.

    Parameters
    ----------
    processes
        The prior of each function, all in the same features and with noise one.
    source
        The rows, with targets as the likelihood has them.
    offsets
        The prior mean of each function.
    start
        Sums of sites to start from; without them, what the likelihood suggests, or
        the prior.
    given
        Sums of the sites of other rows, which stay as they are.
    tightened
        Whether what the features do not capture is shrunk in the bound.
    keep_sites
        Whether the sites of the last pass are kept, row by row.
    refit
        Called after a pass that did not lower the bound, for the priors and the
        likelihood to go on with, in the same features. What they spoil is taken back.
    callback
        Called with the number of each pass and the bound before it.

    Examples
    --------
    >>> from zonal import ARD, Basis, ContinuousDepth
    >>> from zonal.likelihoods import Poisson
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> counts = np.random.default_rng(0).poisson(np.exp(1 + np.sin(3 * x[:, 0])))
    >>> basis = Basis.build(ARD.isotropic(1), ContinuousDepth(), n_features=20)
    >>> source = ArraySource(x, counts)
    >>> found = infer([Process(basis, 1.0)], source, Poisson(), np.ones(1))
    >>> found.converged, len(found.bounds) <= 15
    (True, True)
    """
    run = _Run(
        source,
        offsets,
        given,
        tightened,
        tolerance,
        most_passes,
        keep_sites,
        refit,
        callback,
    )
    with suited_blas(processes[0].basis.n_features):
        try:
            return run.ended(tuple(processes), likelihood, start, dtype)
        except _CoarseSumsError:
            return run.ended(tuple(processes), likelihood, None, np.float64)


class _CoarseSumsError(ArithmeticError):
    """Sums in float32 are too coarse for sites this precise."""


@dataclasses.dataclass(eq=False)
class _Run:
    """One inference: the best state so far, and how it goes on from there."""

    source: Source
    offsets: np.ndarray
    given: Sequence[Statistics] | None
    tightened: bool
    tolerance: float
    most_passes: int
    keep_sites: bool
    refit: Refit | None
    callback: Callable[[int, float], Any] | None

    def ended(
        self,
        processes: tuple[Process, ...],
        likelihood: Likelihood,
        start: Sequence[Statistics] | None,
        dtype: Any,
    ) -> Inferred:
        """The state where the bound has stopped rising, or passes have run out."""
        frame = whiten(processes[0].basis, dtype)
        if start is None:
            start = _first_sums(frame, self.source, likelihood, self.offsets)
            start = _added(start, self.given)
        self.best: Inferred | None = None
        self.step, self.refitted = 1.0, False
        now, bounds = tuple(start), []
        factors = self._factors(processes, now)
        for number in range(1, self.most_passes + 1):
            found = _full_pass(
                frame,
                processes,
                now,
                factors,
                self.source,
                likelihood,
                self.offsets,
                self.keep_sites,
                self.given,
            )
            if found.lift > 0 and dtype == np.float32:
                raise _CoarseSumsError
            bounds.append(found.bound)
            if self.callback is not None:
                self.callback(number, found.bound)
            better = self._is_best(found)
            if not (self._went_on(found) if better else self._went_back(found)):
                break
            assert self.best is not None
            processes, likelihood = self.best.processes, self.best.likelihood
            if self.refit is not None and self.best is found:
                processes, likelihood = self.refit(found)
                self.refitted = True
            now = _mixed(self.best.statistics, self.best.proposed, self.step)
            factors = self._factors(processes, self.best.proposed)
        assert self.best is not None, "there is at least one pass"
        return dataclasses.replace(self.best, bounds=tuple(bounds))

    def _factors(
        self, processes: Sequence[Process], sums: Sequence[Statistics]
    ) -> tuple[float, ...]:
        if not self.tightened:
            return (1.0,) * len(processes)
        return tuple(map(_best_factor, processes, sums))

    def _is_best(self, found: Inferred) -> bool:
        if self.best is None:
            if np.isfinite(found.bound):
                return True
            raise ArithmeticError(
                f"the bound is {found.bound} where inference starts; are targets or "
                "exposures beyond all measure?"
            )
        slack = _ROUNDING * (1 + abs(found.bound))
        return bool(found.bound >= self.best.bound - slack)

    def _went_on(self, found: Inferred) -> bool:
        """Take a state for the best, and say whether there is further to go."""
        before, self.best = self.best, found
        if before is None:
            return True
        # A short step gains little, however far there is to go.
        least = min(self.step, 1) * self.tolerance * (1 + abs(found.bound))
        if abs(found.bound - before.bound) <= least:
            self.best = dataclasses.replace(found, converged=True)
            return False
        several = len(found.processes) > 1
        residuals = _residual(found), _residual(before)
        self.step = _next_step(self.step, *residuals, several)
        return True

    def _went_back(self, found: Inferred) -> bool:
        """Take a pass back that lowered the bound; a shorter step, if there is one.

        Where the bound changes by less than the tolerance whatever the step, this is
        the top, as exactly as quadrature and rounding tell.
        """
        assert self.best is not None, "something was better"
        if self.refitted:
            # It was the refit, or may have been.
            self.refit, self.refitted = None, False
            return True
        fall = self.best.bound - found.bound
        if self.step <= 1 and fall <= self.tolerance * (1 + abs(self.best.bound)):
            self.best = dataclasses.replace(self.best, converged=True)
            return False
        self.step = 1.0 if self.step > 1 else self.step / 2
        return self.step >= _SHORTEST_STEP


def _residual(state: Inferred) -> np.ndarray:
    """How far sites are from their fixed point, by their moments."""
    pairs = zip(state.proposed, state.statistics, strict=True)
    return np.concatenate([new.moment - old.moment for new, old in pairs])


def _next_step(
    step: float, now: np.ndarray, before: np.ndarray, several: bool
) -> float:
    """The step after one that did not lower the bound.

    With a step of one the residual is multiplied by some λ a pass, as two of them in a
    row tell. Where a single function's heavy tails come in slowly (λ > 0) or overshoot
    (λ < 0), a step of 2/(2 - λ) is better. Sites of several functions do not know of
    each other, so their residuals grow and shrink by turns and tell nothing of λ: they
    only go back to whole steps.
    """
    if not before.any():
        return min(1.0, 2 * step)
    shrunk = float(now @ before / (before @ before))
    if shrunk >= 1:
        return min(step, 1.0)
    if several:
        return min(1.5 * step, 1.0)
    rate = 1 - (1 - shrunk) / step
    rate = float(np.clip(rate, -_LARGEST_RATE, _LARGEST_RATE))
    return min(2 / (2 - rate), 2 * step)


def infer_batches(
    processes: Sequence[Process],
    source: Source,
    likelihood: Likelihood,
    offsets: Float[np.ndarray, " latents"],
    start: Sequence[Statistics] | None = None,
    *,
    rows: int,
    batch_rows: int = 65_536,
    dtype: Any = np.float32,
    first_step: float = 1.0,
    decay: float = 0.7,
) -> tuple[Statistics, ...]:
    """Natural-gradient steps on one batch after another, through the source once.

    The sums of a batch, scaled to all ``rows`` (or their total weight), are mixed in
    with steps that fall as (1 + t)^-decay (Robbins & Monro). It gets close to the fixed
    point in a single reading of a long stream; `infer` goes on from there.
    """
    processes = tuple(processes)
    frame = whiten(processes[0].basis, dtype)
    factors = (1.0,) * len(processes)
    now = start
    for number, batch in enumerate(source.chunks(batch_rows)):
        weight = float(row_weights(batch)[0].sum())
        if weight == 0:
            continue
        part, whole = source_of(batch), rows / weight
        if now is None:
            first = _first_sums(frame, part, likelihood, offsets)
            now = [scaled_up(one, whole) for one in first]
        found = _full_pass(
            frame, processes, now, factors, part, likelihood, offsets, False
        )
        step = first_step * (1 + number) ** -decay
        now = _mixed(now, [scaled_up(one, whole) for one in found.proposed], step)
    if now is None:
        raise ValueError("every row has weight zero: no row is left to learn from")
    return tuple(now)


def _first_sums(
    frame: Frame, source: Source, likelihood: Likelihood, offsets: np.ndarray
) -> tuple[Statistics, ...]:
    """Sums of the sites that the likelihood suggests, or none."""
    first = functools.partial(_first_sums_here, frame, likelihood, offsets)
    return source.reduced(first, _added)


def _first_sums_here(
    frame: Frame, likelihood: Likelihood, offsets: np.ndarray, source: Source
) -> tuple[Statistics, ...]:
    def visit(chunk: Chunk) -> list[Statistics] | None:
        y = np.asarray(chunk.y, np.float64)
        sites = likelihood.starting_sites(y, chunk.exposure)
        if sites is None:
            return None
        unit, radial = frame.unit_features(chunk.x)
        weight, _ = row_weights(chunk)
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


def _mixed(
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


def _best_factor(process: Process, sums: Statistics) -> float:
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
            variance * basis.missing_energy,
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


def _full_pass(
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
    proposed = _added(sums, given)
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
    return one[0] + other[0], _added(one[1], other[1]), sites


def _added(
    sums: tuple[Statistics, ...], given: Sequence[Statistics] | None
) -> tuple[Statistics, ...]:
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
    found = _full_pass(
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
    weight, _ = row_weights(chunk)
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
