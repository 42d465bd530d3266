"""Leave-one-out residuals of some rows, and the scale and tails that suit them.

A learner judges a process by the log density of its residuals. Real residuals have
heavier tails than a normal distribution, and a few large ones would then decide what is
learned. So the density is Student's t, whose degrees of freedom ν follow from the
residuals; ν is infinite, and the density normal, where they say so.

Noise and variance have a common scale c that does not change the means. It is fitted
together with ν, by the fixed-point iteration of expectation maximisation.

Reference: Lange, Little & Taylor (1989), "Robust statistical modeling using the t
distribution".
"""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from zonal.engine.local import log_student

__all__ = ["Fit", "Residuals"]

# One over the degrees of freedom to choose from: infinite, 30, 12, 6, 4, 3 and 2.
_TAILS = (0.0, 1 / 30, 1 / 12, 1 / 6, 1 / 4, 1 / 3, 1 / 2)
_MOST_STEPS = 50
_LEAST_CHANGE = 1e-3
_LEAST_SCALE = 1e-12
# Rows of smaller weights have no information either.
_LEAST_WEIGHT = 1e-100
# Where most residuals are zero, the scale would be zero as well.
_LEAST_SHARE = 1e-4


class Fit(NamedTuple):
    """The scale, one over the degrees of freedom, and the mean log density."""

    scale: float
    tails: float
    density: float


@dataclasses.dataclass(frozen=True, eq=False)
class Residuals:
    """Leave-one-out residuals of distinct rows, at scale one.

    Parameters
    ----------
    errors
        Targets minus their leave-one-out means.
    variance
        Variance of the function at each row.
    noise
        Noise variance at weight one.
    weight
        How often each row was repeated; its target is the mean of the repeats.
    repeats
        Sum over the repeats of a row of their squared distances from this mean.

    Examples
    --------
    >>> errors = 2 * np.random.default_rng(0).standard_t(4, size=(4000, 1))
    >>> one, none = np.ones(4000), np.zeros(4000)
    >>> fit = Residuals(errors, none, 1.0, one, np.zeros((4000, 1))).fit()
    >>> round(fit.scale), fit.tails
    (4, 0.25)
    """

    errors: Float[np.ndarray, "rows outputs"]
    variance: Float[np.ndarray, " rows"]
    noise: float
    weight: Float[np.ndarray, " rows"]
    repeats: Float[np.ndarray, "rows outputs"]

    @property
    def _spread(self) -> Float[np.ndarray, "rows 1"]:
        weight = np.maximum(self.weight, _LEAST_WEIGHT)
        return (self.variance + self.noise / weight)[:, None]

    @property
    def _squares(self) -> Float[np.ndarray, "rows outputs"]:
        return self.errors**2 / self._spread

    @property
    def _repeat_squares(self) -> float:
        return float(self.repeats.sum()) / self.noise

    @property
    def total(self) -> float:
        """The number of targets, repeats included."""
        return float(self.weight.sum()) * self.errors.shape[1]

    @property
    def normal_scale(self) -> float:
        """The scale at which normal densities are largest: Σ e²/s over all targets."""
        squares = float(self._squares.sum()) + self._repeat_squares
        return max(squares / self.total, _LEAST_SCALE)

    @property
    def distinct_scale(self) -> float:
        """The scale that suits distinct rows, whatever their repeats."""
        return max(float(self._squares.mean()), _LEAST_SCALE)

    def density(self, tails: float, scale: float = 1.0) -> float:
        """Mean log density per target, given degrees of freedom and scale."""
        squares, outputs = self._squares / scale, self.errors.shape[1]
        value = float(np.sum(log_student(squares, tails)))
        value -= 0.5 * outputs * float(np.sum(np.log(scale * self._spread)))
        # Repeats are normal about their mean.
        more = np.sum((self.weight - 1) * np.log(2 * np.pi * scale * self.noise))
        more += np.sum(np.log(self.weight))
        value -= 0.5 * (outputs * float(more) + self._repeat_squares / scale)
        return value / self.total

    def row_densities(
        self, tails: float, scale: float = 1.0
    ) -> Float[np.ndarray, " rows"]:
        """Log density of each row's mean target, summed over outputs."""
        spread = scale * self._spread
        density = log_student(self._squares / scale, tails) - 0.5 * np.log(spread)
        return density.sum(axis=1)

    @property
    def repeats_slope(self) -> float:
        """Slope of the total log density of the repeats in the log of the noise."""
        more = float(np.sum(1 - self.weight)) * self.errors.shape[1]
        return 0.5 * (more + self._repeat_squares)

    def fit(self, most_tails: float = 1.0) -> Fit:
        """The scale and the degrees of freedom of the highest density.

        ``most_tails`` is the largest inverse of the degrees of freedom.
        """
        fits = []
        for tails in (tails for tails in _TAILS if tails <= most_tails):
            scale = self._scale_of(tails)
            fits.append(Fit(scale, tails, self.density(tails, scale)))
        return max(fits, key=lambda fit: fit.density)

    def _scale_of(self, tails: float) -> float:
        """The best scale: residuals beyond the tails count less."""
        if tails == 0:
            return self.normal_scale
        squares, scale = self._squares, self.normal_scale
        least = _LEAST_SHARE * scale
        for _ in range(_MOST_STEPS):
            say = (1 + tails) / (1 + tails * squares / scale)
            before = scale
            scale = (float(np.sum(say * squares)) + self._repeat_squares) / self.total
            scale = max(scale, least)
            if abs(np.log(scale / before)) < _LEAST_CHANGE:
                break
        return scale
