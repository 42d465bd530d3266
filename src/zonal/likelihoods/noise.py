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
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri

from zonal.likelihoods.base import Expected
from zonal.likelihoods.reals import RealLikelihood
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable
from zonal.tables.chunks import Chunk

__all__ = ["Calibration", "Gaussian"]

# From a sixty-fourth of what is predicted to sixteen times as much.
_WIDTHS = 2.0 ** np.arange(-6, 4.5, 0.5)
# Residuals as a normal would have them, counted in with those that there are.
_PSEUDO_ROWS = 10
_MOST_STEPS = 500
_LEAST_GAIN = 1e-8
_LEAST_SHARE = 1e-5
_FARTHEST = 1e6


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
        # Nearer than what the widest normal alone would say.
        reach = max(self.widths) * (1 + np.abs(ndtri(levels)))
        return find_root(
            lambda z, level: self.distribution(z) - level,
            (-reach, reach),
            args=(levels,),
        ).x

    def crps(self, z: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Continuous ranked probability score (Grimit et al. 2006, equation 5)."""
        widths, shares = np.array(self.widths), np.array(self.shares)
        near = sum(
            share * _mean_distance(z, width)
            for width, share in zip(widths, shares, strict=True)
        )
        both = np.hypot(widths[:, None], widths)
        between = shares @ _mean_distance(np.zeros_like(both), both) @ shares
        return near - between / 2

    def draw_widths(
        self, shape: tuple[int, ...], generator: np.random.Generator
    ) -> np.ndarray:
        """Widths at random; what normal deviations are multiplied by."""
        return generator.choice(self.widths, size=shape, p=self.shares)


def _mean_distance(z: np.ndarray, width: Any) -> np.ndarray:
    """Mean distance from z of a centred normal of some width."""
    scaled = z / width
    density = np.exp(-0.5 * scaled**2) / np.sqrt(2 * np.pi)
    return 2 * width * density + z * (2 * ndtr(scaled) - 1)


@savable
@dataclasses.dataclass(frozen=True)
class Gaussian(RealLikelihood):
    """Normal noise of one variance, solved exactly in a single pass over the rows.

    Parameters
    ----------
    noise
        Variance of the noise at precision one, in units of the target's variance.
    calibration
        The law of a new target around its mean, in units of its predicted deviation.

    Examples
    --------
    >>> zero, one = np.zeros((1, 1)), np.ones((1, 1))
    >>> rows = Chunk(np.empty((1, 0)), np.zeros(1))
    >>> float(Gaussian(1.0).log_density(rows, zero, 3 * one)[0].round(3))
    -1.612
    """

    conjugate = True
    noise: Number = parameter(POSITIVE, default=0.1)
    calibration: Calibration = Calibration()

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def noise_deviation(self):
        return float(np.sqrt(self.noise))

    @property
    def described(self):
        tails = float(self.calibration.quantiles(np.array([0.975]))[0])
        return (
            "residuals",
            f"{np.sqrt(self.calibration.spread):.3f}",
            f"times the predicted deviation; 95 % within {tails:.2f} times",
        )

    def calibrate(self, rows, mean, variance):
        z = (rows.targets - mean[:, 0]) / self._unit(rows, variance)
        calibration = Calibration.of(z, rows.weights)
        return dataclasses.replace(self, calibration=calibration)

    def expected(self, rows, mean, variance):
        noise = float(self.noise) / rows.precisions
        error = rows.targets - mean[:, 0]
        squares = (error**2 + variance[:, 0]) / noise
        value = -0.5 * (np.log(2 * np.pi * noise) + squares)
        return Expected(value, (error / noise)[:, None], (-0.5 / noise)[:, None])

    def _unit(self, rows: Chunk, variance: np.ndarray) -> np.ndarray:
        """The deviation of a new target before it is calibrated."""
        return np.sqrt(variance[:, 0] + float(self.noise) / rows.precisions)

    def log_density(self, rows, mean, variance):
        unit = self._unit(rows, variance)
        z = (rows.targets - mean[:, 0]) / unit
        return self.calibration.log_density(z) - np.log(unit)

    def distribution(self, rows, mean, variance):
        z = (rows.targets - mean[:, 0]) / self._unit(rows, variance)
        return self.calibration.distribution(z)

    def crps(self, rows, mean, variance):
        unit = self._unit(rows, variance)
        return unit * self.calibration.crps((rows.targets - mean[:, 0]) / unit)

    def spread(self, rows, mean, variance):
        unit = self._unit(rows, variance)
        return mean[:, 0], self.calibration.spread * unit**2

    def quantiles(self, levels, rows, mean, variance):
        unit = self._unit(rows, variance)[:, None]
        return mean[:, :1] + unit * self.calibration.quantiles(levels)

    def draw(self, rows, f, generator):
        deviation = np.sqrt(float(self.noise) / rows.precisions)
        return generator.normal(f[:, 0], deviation)

    def draw_new(
        self,
        rows: Chunk,
        mean: np.ndarray,
        variance: np.ndarray,
        count: int,
        generator: np.random.Generator,
    ) -> Float[np.ndarray, "rows samples"]:
        shape = len(mean), count
        standard = generator.normal(size=shape)
        standard *= self.calibration.draw_widths(shape, generator)
        return mean[:, :1] + self._unit(rows, variance)[:, None] * standard

    def sampler(self, count, generator):
        # One width for each function, so that a function stays one.
        widths = self.calibration.draw_widths((count,), generator)

        def draw(rows: Chunk, mean: np.ndarray, f: np.ndarray) -> np.ndarray:
            noise = np.sqrt(float(self.noise) / rows.precisions)[:, None]
            apart = f[:, :, 0] - mean[:, :1]
            apart = apart + noise * generator.normal(size=apart.shape)
            return mean[:, :1] + widths * apart

        return draw
