"""Calibration: what leave-one-out residuals say of the predicted uncertainty.

A Gaussian process predicts normal targets. Real residuals often have a sharper peak and
heavier tails, and what the features do not capture makes predicted deviations too wide.
Each row predicted from all the others (`zonal.engine.posterior`, one pass) tells both.
The standardised residuals are fitted by a mixture of centred normals of many widths:
any symmetric shape with one peak that is a normal of random width, Student's and
Laplace's among them. How much of each width is a concave problem without a setting,
solved by expectation maximisation. The mean is not touched.
"""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

from zonal.saving import savable

__all__ = ["Calibration"]

# From a sixty-fourth of what is predicted to sixteen times as much.
_WIDTHS = 2.0 ** np.arange(-6, 4.5, 0.5)
# Residuals as a normal would have them, counted in with those that there are.
_PSEUDO_ROWS = 10
_MOST_STEPS = 500
_LEAST_GAIN = 1e-8
_LEAST_SHARE = 1e-5
_FARTHEST = 1e6
# Steps of bisection, to the last digit.
_HALVINGS = 80


@savable
@dataclasses.dataclass(frozen=True)
class Calibration:
    """The distribution of a target in units of its predicted deviation.

    A normal of each of some ``widths`` has a share in it; by default a single one, of
    width one.

    Examples
    --------
    >>> residuals = np.random.default_rng(0).laplace(size=5000)
    >>> found = Calibration.of(residuals)
    >>> found.quantiles(np.array([0.95])).round(1)  # of a normal: 1.6
    array([2.3])
    """

    widths: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)

    @property
    def spread(self) -> float:
        """What the predicted variance of a target is multiplied by."""
        return float(np.dot(self.shares, np.square(self.widths)))

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, " rows"],
        weight: Float[np.ndarray, " rows"] | None = None,
    ) -> "Calibration":
        """The calibration that standardised leave-one-out residuals ask for."""
        weight = np.ones(len(residuals)) if weight is None else weight
        normal = ndtri((np.arange(2 * _PSEUDO_ROWS) + 0.5) / (2 * _PSEUDO_ROWS))
        z = np.concatenate([residuals, normal])
        counts = np.concatenate([weight, np.full(len(normal), 0.5)])
        counts /= counts.sum()
        # What lies beyond all widths is a matter of the widest.
        z = np.clip(np.nan_to_num(z, nan=0.0), -_FARTHEST, _FARTHEST)
        logs = -0.5 * (z[:, None] / _WIDTHS) ** 2 - np.log(_WIDTHS)
        likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares, reached = np.full(len(_WIDTHS), 1 / len(_WIDTHS)), -np.inf
        for _ in range(_MOST_STEPS):
            density = np.maximum(likelihoods @ shares, np.finfo(np.float64).tiny)
            before, reached = reached, counts @ np.log(density)
            if reached - before < _LEAST_GAIN:
                break
            shares = shares * (likelihoods.T @ (counts / density))
        kept = shares > _LEAST_SHARE
        shares = shares[kept] / shares[kept].sum()
        return cls(tuple(_WIDTHS[kept].tolist()), tuple(shares.tolist()))

    def log_density(self, z: Float[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Log density of targets."""
        total = np.full(np.shape(z), -np.inf)
        for width, share in zip(self.widths, self.shares, strict=True):
            part = np.log(share / width) - 0.5 * (z / width) ** 2
            total = np.logaddexp(total, part)
        return total - 0.5 * np.log(2 * np.pi)

    def distribution(self, z: Float[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Probability that a target is at most z."""
        pairs = zip(self.widths, self.shares, strict=True)
        return np.sum([share * ndtr(z / width) for width, share in pairs], axis=0)

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, " levels"]:
        """Quantiles of a target."""
        levels = np.asarray(levels, np.float64)
        if self == Calibration():
            return ndtri(levels)
        # Between zero and what the widest normal alone would say.
        end = max(self.widths) * ndtri(levels)
        low, high = np.minimum(end, 0.0), np.maximum(end, 0.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.distribution(middle) < levels
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    def drawn_widths(
        self, shape: tuple[int, ...], generator: np.random.Generator
    ) -> np.ndarray:
        """Widths at random; what normal deviations are multiplied by."""
        return generator.choice(self.widths, size=shape, p=self.shares)
