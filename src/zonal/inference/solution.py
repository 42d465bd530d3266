"""The solution: the posterior of all functions, and their marginals at rows."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.posterior import Marginals, Posterior, marginals
from zonal.engine.statistics import Statistics
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.size_trend import SizeTrend
from zonal.prior.parameters import Fields
from zonal.prior.process import Process
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sources import ArraySource, Source

__all__ = ["Sites", "Solution"]

# Difference between the seeds of functions that are drawn together.
_SEED_STRIDE = 7919


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Sites:
    """The marginals of the functions at each row, and the sites computed from them."""

    mean: Float[np.ndarray, "rows latents"]
    variance: Float[np.ndarray, "rows latents"]
    precision: Float[np.ndarray, "rows latents"]
    target: Float[np.ndarray, "rows latents"]

    def sources(self, rows: Chunk) -> list[Source]:
        """The rows with the sites of a function as targets, one source per function."""
        return [
            ArraySource(rows.x, target, rows.weight, precision)
            for target, precision in zip(self.target.T, self.precision.T, strict=True)
        ]


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Solution(Fields):
    """The posterior of all functions, exact for normal noise, with its bound.

    ``statistics`` are sums over rows for each function: of targets and precisions
    for normal noise, and of sites otherwise. ``proposed`` are the sums for the next
    pass, which are the same at the fixed point. ``factors`` scale the uncaptured
    variance in the bound. ``sizes`` are weights of the features, and ``trend`` a
    function of the columns, whose sum predicts how large residuals are, for noise
    that varies. A ``lift`` above zero indicates that rounding of the sums affects
    the bound. ``dtype`` is the precision of predicted variances; None chooses it by
    size.
    """

    processes: tuple[Process, ...]
    offsets: Float[np.ndarray, " latents"]
    likelihood: Likelihood
    statistics: tuple[Statistics, ...]
    bound: float
    tightened: bool = True
    dtype: Any = None
    bounds: tuple[float, ...] = ()
    converged: bool = True
    lift: float = 0.0
    factors: tuple[float, ...] = ()
    proposed: tuple[Statistics, ...] = ()
    sites: Sites | None = None
    sizes: Float[np.ndarray, " features"] | None = None
    trend: SizeTrend | None = None

    @property
    def rows(self) -> float:
        """Total weight of the rows in the sums."""
        return (self.proposed or self.statistics)[0].rows

    @property
    def n_features(self) -> int:
        """Number of features of each function."""
        return self.processes[0].basis.n_features

    @property
    def n_neighbors(self) -> int:
        """Zero: predictions need no rows."""
        return 0

    @property
    def level_variances(self) -> Float[np.ndarray, " levels"]:
        """The prior variance of the first function's levels."""
        return self.processes[0].basis.level_variances

    @property
    def known_sites(self) -> Sites:
        """The sites of each row, for problems with ``keep_sites``."""
        assert self.sites is not None, "Problem(..., keep_sites=True) keeps them"
        return self.sites

    @functools.cached_property
    def posteriors(self) -> tuple[Posterior, ...]:
        """The posterior of each function, without its offset."""
        return tuple(
            Posterior(process, sums, self.dtype)
            for process, sums in zip(self.processes, self.statistics, strict=True)
        )

    @functools.cached_property
    def marginals(self) -> Callable[[Chunk], Marginals]:
        """A function from standardised rows to the marginals of all functions."""
        first = self.posteriors[0]
        at = marginals(
            self.posteriors,
            self.offsets,
            first.frame,
            first.precision,
            sizes=self.sizes,
        )
        trend = self.trend
        if trend is None:
            return at

        def with_trend(chunk: Chunk) -> Marginals:
            found = at(chunk)
            assert found.nearby is not None, "there are weights of sizes"
            nearby = found.nearby[:, 0] + trend.at(chunk.x)
            # No row counts as the repeat of another one.
            nearby = np.column_stack([nearby, np.zeros(len(nearby))])
            return found._replace(nearby=nearby)

        return with_trend

    @property
    def effective_parameters(self) -> float:
        """Number of parameters that the data determine, summed over functions."""
        return sum(posterior.effective_parameters for posterior in self.posteriors)

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint posterior covariance of the first function at standardised rows."""
        return self.posteriors[0].covariance(x)

    def left_out(self, chunk: Chunk) -> Marginals:
        """Leave-one-out predictions of the rows of a chunk, for normal noise."""
        if not self.likelihood.conjugate:
            raise TypeError(
                f"{type(self.likelihood).__name__} has no leave-one-out predictions in "
                "closed form; predict rows that were not fitted to"
            )
        first = self.posteriors[0]
        mean, variance, _ = first.left_out(chunk)
        nearby = None
        if self.sizes is not None:
            assert self.trend is not None, "sizes have a trend along columns as well"
            unit, radial = first.frame.unit_features(chunk.x)
            nearby = radial * (unit @ self.sizes) + self.trend.at(chunk.x)
            nearby = np.column_stack([nearby, np.zeros(len(nearby))])
        return Marginals(mean[:, None] + self.offsets, variance[:, None], nearby)

    def sample_functions(
        self, count: int, seed: int = 0
    ) -> Callable[[np.ndarray], Float[np.ndarray, "rows samples latents"]]:
        """Draw functions from the posterior; call the result with standardised rows."""
        functions = [
            posterior.sample_functions(count, seed + _SEED_STRIDE * index)
            for index, posterior in enumerate(self.posteriors)
        ]

        def at(x: np.ndarray) -> np.ndarray:
            return np.stack([draw(x) for draw in functions], axis=2) + self.offsets

        return at
