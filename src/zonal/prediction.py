"""Predictions: what is known of functions and of new targets, row by row."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.quadrature import LEVELS, NORMAL, crps_of, moments_of
from zonal.tables.chunks import Chunk, joined
from zonal.tables.target_maps import Identity, TargetMap

__all__ = ["Prediction", "PredictiveDistribution"]

Rows = Float[np.ndarray, " rows"]

# Rows of a mapped target whose moments are computed at a time, to limit memory.
_BLOCK = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions at some rows: marginals of the functions, and new targets.

    ``latent_mean`` and ``latent_variance`` have a column for each function, in the
    likelihood's own scale. Everything else is in the units of the table.

    With a target map, quantiles are those of the mapped target, mapped back. Mean,
    variances and CRPS are integrals over the distribution in the units of the table,
    with the 10⁻⁴ of probability in each tail moved to its end
    (`zonal.likelihoods.quadrature`).

    Parameters
    ----------
    likelihood
        How targets follow from the functions.
    latent_mean, latent_variance
        The functions' marginals.
    centre, width
        Mapped targets are ``centre + width`` times what the likelihood has them as.
    rows
        Precision and exposure of the rows (`zonal.tables.chunks.Chunk.conditions`).
    target_map
        The map of the target; none by default.

    Examples
    --------
    >>> from zonal.likelihoods.noise import Gaussian
    >>> zero, one = np.zeros((2, 1)), np.ones((2, 1))
    >>> rows = Chunk(np.empty((2, 0)))
    >>> found = Prediction(Gaussian(3.0), zero, one, np.array([0.0, 5.0]), 1.0, rows)
    >>> found.mean, found.variance_f, found.variance_y
    (array([0., 5.]), array([1., 1.]), array([4., 4.]))
    """

    likelihood: Likelihood
    latent_mean: Float[np.ndarray, "rows latents"]
    latent_variance: Float[np.ndarray, "rows latents"]
    centre: Rows
    width: float
    rows: Chunk
    target_map: TargetMap = Identity()

    @classmethod
    def joined(cls, parts: Sequence["Prediction"]) -> "Prediction":
        """Predictions of chunks, one below the other."""
        first = parts[0]
        return cls(
            first.likelihood,
            np.concatenate([part.latent_mean for part in parts]),
            np.concatenate([part.latent_variance for part in parts]),
            np.concatenate([part.centre for part in parts]),
            first.width,
            joined([part.rows for part in parts]),
            first.target_map,
        )

    def __len__(self) -> int:
        return len(self.centre)

    @property
    def _marginals(self) -> tuple[Chunk, np.ndarray, np.ndarray]:
        return self.rows, self.latent_mean, self.latent_variance

    @functools.cached_property
    def _spread(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.target_map.is_identity:
            blocks = [moments_of(part.quantiles(LEVELS)) for part in self._blocks()]
            mean, variance = map(np.concatenate, zip(*blocks, strict=True))
            return mean, variance
        mean, variance = self.likelihood.spread(*self._marginals)
        mean = self.target_map.backward(self.centre + self.width * mean)
        return mean, self.width**2 * variance

    @property
    def mean(self) -> Rows:
        """Mean of a new target."""
        return self._spread[0]

    @property
    def variance_y(self) -> Rows:
        """Variance of a new target."""
        return self._spread[1]

    @property
    def variance_f(self) -> Rows:
        """Variance of the first function, without noise, in units of the target."""
        if not self.target_map.is_identity:
            blocks = [part._function_variance() for part in self._blocks()]
            return np.concatenate(blocks)
        return self.width**2 * self.latent_variance[:, 0]

    def _function_variance(self) -> Rows:
        """Variance of the mapped function's values in the units of the table."""
        deviation = np.sqrt(self.latent_variance[:, :1])
        values = self._in_units(self.latent_mean[:, :1] + deviation * NORMAL)
        return moments_of(values)[1]

    def _blocks(self) -> "Iterator[Prediction]":
        """The rows in blocks, and one empty block if there are none."""
        for start in range(0, max(len(self), 1), _BLOCK):
            rows = slice(start, start + _BLOCK)
            yield dataclasses.replace(
                self,
                latent_mean=self.latent_mean[rows],
                latent_variance=self.latent_variance[rows],
                centre=self.centre[rows],
                rows=self.rows[rows],
            )

    def _in_units(
        self, values: Float[np.ndarray, "rows values"]
    ) -> Float[np.ndarray, "rows values"]:
        """Several values per row, from the likelihood's scale to units of the table."""
        return self.target_map.backward(self.centre[:, None] + self.width * values)

    def probabilities(self) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class."""
        return self.likelihood.probabilities(self.latent_mean, self.latent_variance)

    def outcome(self) -> Float[np.ndarray, "rows outcomes"]:
        """Mean of a new target as a column, or a probability for each class."""
        if not self.target_map.is_identity:
            return self.mean[:, None]
        found = self.likelihood.outcome(*self._marginals)
        return found if self.likelihood.classifies else self._in_units(found)

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target; for counts the smallest that reach the level."""
        levels = np.asarray(levels, np.float64)
        return self._in_units(self.likelihood.quantiles(levels, *self._marginals))

    def distribution(self, y: Rows) -> Rows:
        """Probability that a new target is at most y."""
        y = np.asarray(y, np.float64)
        below = self.likelihood.distribution(
            self._with_targets(y), self.latent_mean, self.latent_variance
        )
        if self.target_map.is_identity:
            return np.where(y < self.target_map.floor, 0.0, below)
        beyond = np.where(y <= self.target_map.lower, 0.0, 1.0)
        return np.where(self.target_map.contains(y), below, beyond)

    def draw(
        self, count: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself."""
        found = self.likelihood.draw_new(*self._marginals, count, generator)
        return self._in_units(found)

    def log_density(self, y: Rows) -> Rows:
        """Log predictive density, or probability, of targets."""
        rows = self._with_targets(y)
        self.likelihood.check(rows)
        density = self.likelihood.log_density(
            rows, self.latent_mean, self.latent_variance
        )
        density = density - np.log(self.width)
        if self.target_map.is_identity:
            return density
        y = np.asarray(y, np.float64)
        inside = self.target_map.contains(y)
        return np.where(inside, density + self.target_map.log_slope(y), -np.inf)

    def crps(self, y: Rows) -> Rows | None:
        """Continuous ranked probability score, or None if it has no closed form."""
        if not self.target_map.is_identity:
            y, below = np.asarray(y, np.float64), self.distribution(y)
            starts = range(0, max(len(self), 1), _BLOCK)
            blocks = []
            for start, part in zip(starts, self._blocks(), strict=True):
                rows = slice(start, start + _BLOCK)
                blocks.append(crps_of(part.quantiles(LEVELS), y[rows], below[rows]))
            return np.concatenate(blocks)
        found = self.likelihood.crps(
            self._with_targets(y), self.latent_mean, self.latent_variance
        )
        return None if found is None else self.width * found

    def _with_targets(self, y: np.ndarray) -> Chunk:
        """The rows with targets as the likelihood has them."""
        y = self.target_map.forward(np.asarray(y, np.float64))
        y = (y - self.centre) / self.width
        return dataclasses.replace(self.rows, y=y)


@dataclasses.dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The distribution of a new target at each of some rows.

    Used like a frozen distribution of SciPy.

    Examples
    --------
    >>> from zonal import SphericalGPRegressor
    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=100)
    >>> distribution = SphericalGPRegressor().fit(X, y).predict_dist([[0.0], [0.5]])
    >>> bool(np.all(np.abs(distribution.mean() - [0.0, 0.5]) < 0.1))
    True
    >>> distribution.interval(0.9).round(1)
    array([[-0.1,  0.2],
           [ 0.4,  0.7]])
    >>> distribution.logpdf([0.0, 5.0])[1] < -100
    np.True_
    """

    prediction: Prediction

    def __len__(self) -> int:
        return len(self.prediction)

    def mean(self) -> Rows:
        """Mean of a new target."""
        return self.prediction.mean

    def var(self) -> Rows:
        """Variance of a new target."""
        return self.prediction.variance_y

    def std(self) -> Rows:
        """Standard deviation of a new target."""
        return np.sqrt(self.var())

    def logpdf(self, y) -> Rows:
        """Log density of targets; for counts the log of their probability."""
        return self.prediction.log_density(self._rows(y))

    def pdf(self, y) -> Rows:
        """Density of targets; for counts their probability."""
        return np.exp(self.logpdf(y))

    def cdf(self, y) -> Rows:
        """Probability that a new target is at most y."""
        return self.prediction.distribution(self._rows(y))

    def quantile(self, alpha) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target, a column for each of ``alpha``."""
        levels = np.atleast_1d(np.asarray(alpha, np.float64))
        if not np.all((levels > 0) & (levels < 1)):
            raise ValueError(f"quantiles lie between 0 and 1; {alpha} do not")
        return self.prediction.quantiles(levels)

    def interval(self, coverage: float = 0.9) -> Float[np.ndarray, "rows 2"]:
        """Lower and upper end of the central interval with that coverage."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage lies between 0 and 1; {coverage} does not")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def sample(
        self, n_samples: int = 1, random_state: int | None = 0
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself."""
        return self.prediction.draw(n_samples, np.random.default_rng(random_state))

    def _rows(self, y) -> Rows:
        """One target for each row; a single one is meant for all."""
        return np.broadcast_to(np.asarray(y, np.float64), (len(self),)).copy()
