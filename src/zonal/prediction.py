"""Predictive distributions, one a row, as SciPy's frozen distributions are used."""

import dataclasses

import numpy as np
from jaxtyping import Float

from zonal.engine.posterior import Prediction
from zonal.generalised import LatentPrediction

__all__ = ["PredictiveDistribution"]

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The distribution of a new target at each of some rows.

    Examples
    --------
    >>> two = Prediction(np.array([0.0, 5.0]), np.ones(2), np.full(2, 4.0))
    >>> distribution = PredictiveDistribution(two)
    >>> distribution.std()
    array([2., 2.])
    >>> distribution.interval(0.9).round(2)
    array([[-3.29,  3.29],
           [ 1.71,  8.29]])
    >>> distribution.logpdf([0.0, 5.0]).round(3)
    array([-1.612, -1.612])
    """

    prediction: Prediction | LatentPrediction

    def __len__(self) -> int:
        return len(self.mean())

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
        """Lower and upper end of the central interval that holds so much."""
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
