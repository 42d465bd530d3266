"""Predictions: what is known of functions and of new targets, row by row."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from zonal.likelihoods.base import Likelihood
from zonal.tables.chunks import Chunk, joined

__all__ = ["Prediction", "PredictiveDistribution"]

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions at some rows: marginals of the functions, and new targets.

    ``latent_mean`` and ``latent_variance`` have a column for each function, in the
    likelihood's own scale. Everything else is in the units of the table.

    Parameters
    ----------
    likelihood
        How targets follow from the functions.
    latent_mean, latent_variance
        The functions' marginals.
    centre, width
        Targets are ``centre + width`` times what the likelihood has them as.
    rows
        Precision and exposure of the rows (`zonal.tables.chunks.Chunk.conditions`).

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
        )

    def __len__(self) -> int:
        return len(self.centre)

    @property
    def _marginals(self) -> tuple[Chunk, np.ndarray, np.ndarray]:
        return self.rows, self.latent_mean, self.latent_variance

    @functools.cached_property
    def _spread(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self.likelihood.spread(*self._marginals)
        return self.centre + self.width * mean, self.width**2 * variance

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
        return self.width**2 * self.latent_variance[:, 0]

    def probabilities(self) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class."""
        return self.likelihood.probabilities(self.latent_mean, self.latent_variance)

    def outcome(self) -> Float[np.ndarray, "rows outcomes"]:
        """Mean of a new target as a column, or a probability for each class."""
        found = self.likelihood.outcome(*self._marginals)
        if self.likelihood.classifies:
            return found
        return self.centre[:, None] + self.width * found

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target; for counts the smallest that reach the level."""
        levels = np.asarray(levels, np.float64)
        found = self.likelihood.quantiles(levels, *self._marginals)
        return self.centre[:, None] + self.width * found

    def distribution(self, y: Rows) -> Rows:
        """Probability that a new target is at most y."""
        return self.likelihood.distribution(
            self._with_targets(y), self.latent_mean, self.latent_variance
        )

    def draw(
        self, count: int, generator: np.random.Generator
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself."""
        found = self.likelihood.draw_new(*self._marginals, count, generator)
        return self.centre[:, None] + self.width * found

    def log_density(self, y: Rows) -> Rows:
        """Log predictive density, or probability, of targets."""
        rows = self._with_targets(y)
        self.likelihood.check(rows)
        density = self.likelihood.log_density(
            rows, self.latent_mean, self.latent_variance
        )
        return density - np.log(self.width)

    def crps(self, y: Rows) -> Rows | None:
        """Continuous ranked probability score, where it has a closed form."""
        found = self.likelihood.crps(
            self._with_targets(y), self.latent_mean, self.latent_variance
        )
        return None if found is None else self.width * found

    def _with_targets(self, y: np.ndarray) -> Chunk:
        """The rows with targets as the likelihood has them."""
        y = (np.asarray(y, np.float64) - self.centre) / self.width
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
