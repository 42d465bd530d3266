"""Normal noise, and its calibration on leave-one-out residuals.

A Gaussian process predicts normal targets. Real residuals often have a sharper peak and
heavier tails, and predicted standard deviations are too wide where features do not
capture the whole kernel. Leave-one-out predictions (`zonal.engine.posterior`, one pass)
reveal both. Standardised residuals are fitted by a mixture of centred normals of fixed
widths, which can represent normals of random width such as Student's t and Laplace.
Their shares maximise a concave likelihood without settings, by expectation
maximisation. The mean does not change.
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

# From 1/64 to 16 times the predicted standard deviation.
_WIDTHS = 2.0 ** np.arange(-6, 4.5, 0.5)
# Total weight of the normal pseudo-residuals that are added to the residuals.
_PSEUDO_ROWS = 10
_MOST_STEPS = 500
# Similar residuals are taken together, at most this many groups of them.
_MOST_GROUPS = 1000
_LEAST_GAIN = 1e-8
_LEAST_SHARE = 1e-5
_FARTHEST = 1e6


@savable
@dataclasses.dataclass(frozen=True)
class Calibration:
    """The distribution of a target in units of its predicted standard deviation.

    A mixture of centred normals with ``widths`` and ``shares``; by default a single
    normal of width one.

    Examples
    --------
    >>> residuals = np.random.default_rng(0).laplace(size=5000)
    >>> calibration = Calibration.of(residuals)
    >>> calibration.quantiles(np.array([0.95])).round(1)  # of a normal: 1.6
    array([2.3])
    """

    widths: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)

    @property
    def spread(self) -> float:
        """The factor of the predicted variance of a target."""
        return float(np.dot(self.shares, np.square(self.widths)))

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, " rows"],
        weight: Float[np.ndarray, " rows"] | None = None,
    ) -> "Calibration":
        """The calibration fitted to standardised leave-one-out residuals."""
        weight = np.ones(len(residuals)) if weight is None else weight
        normal = ndtri((np.arange(2 * _PSEUDO_ROWS) + 0.5) / (2 * _PSEUDO_ROWS))
        z = np.concatenate([residuals, normal])
        counts = np.concatenate([weight, np.full(len(normal), 0.5)])
        counts /= counts.sum()
        # Farther residuals belong to the widest normal; clipping avoids overflow.
        z = np.clip(np.nan_to_num(z, nan=0.0), -_FARTHEST, _FARTHEST)
        z, counts = _grouped(np.abs(z), counts)
        logs = -0.5 * (z[:, None] / _WIDTHS) ** 2 - np.log(_WIDTHS)
        likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares, value = np.full(len(_WIDTHS), 1 / len(_WIDTHS)), -np.inf
        for _ in range(_MOST_STEPS):
            density = np.maximum(likelihoods @ shares, np.finfo(np.float64).tiny)
            before, value = value, counts @ np.log(density)
            if value - before < _LEAST_GAIN:
                break
            shares = shares * (likelihoods.T @ (counts / density))
        used = shares > _LEAST_SHARE
        shares = shares[used] / shares[used].sum()
        return cls(tuple(_WIDTHS[used].tolist()), tuple(shares.tolist()))

    def log_density(self, z: Float[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Log density at z."""
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
        """Quantiles at the given levels."""
        levels = np.asarray(levels, np.float64)
        if self == Calibration():
            return ndtri(levels)
        # The quantiles of the widest normal are farther from zero.
        reach = max(self.widths) * (1 + np.abs(ndtri(levels)))
        return find_root(
            lambda z, level: self.distribution(z) - level,
            (-reach, reach),
            args=(levels,),
        ).x

    def crps(self, z: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Continuous ranked probability score (Grimit et al. 2006, equation 5)."""
        widths, shares = np.array(self.widths), np.array(self.shares)
        distance = sum(
            share * _mean_distance(z, width)
            for width, share in zip(widths, shares, strict=True)
        )
        pair_widths = np.hypot(widths[:, None], widths)
        pairs = _mean_distance(np.zeros_like(pair_widths), pair_widths)
        return distance - shares @ pairs @ shares / 2

    def draw_widths(
        self, shape: tuple[int, ...], generator: np.random.Generator
    ) -> np.ndarray:
        """Random widths, the factors of standard normal draws."""
        return generator.choice(self.widths, size=shape, p=self.shares)


def _grouped(z: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups of similar residuals: the root mean square of each, and its weight."""
    if len(z) <= _MOST_GROUPS:
        return z, weight
    order = np.argsort(z, kind="stable")
    starts = np.linspace(0, len(z), _MOST_GROUPS, endpoint=False).astype(np.int64)
    total = np.add.reduceat(weight[order], starts)
    squares = np.add.reduceat((weight * z**2)[order], starts)
    return np.sqrt(squares / np.maximum(total, np.finfo(np.float64).tiny)), total


def _mean_distance(z: np.ndarray, width: Any) -> np.ndarray:
    """Mean distance between z and a centred normal variable of this width."""
    scaled = z / width
    density = np.exp(-0.5 * scaled**2) / np.sqrt(2 * np.pi)
    return 2 * width * density + z * (2 * ndtr(scaled) - 1)


@savable
@dataclasses.dataclass(frozen=True)
class Gaussian(RealLikelihood):
    """Normal noise of constant variance, solved exactly in one pass over the rows.

    Parameters
    ----------
    noise
        Variance of the noise at precision one, in units of the target's variance.
    calibration
        Distribution of a new target about its mean, in units of its predicted standard
        deviation.

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
            f"predicted standard deviations; 95 % are within {tails:.2f}",
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
        """Standard deviation of a new target before calibration."""
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
        # One width per function, so that a function's draws at all rows are consistent.
        widths = self.calibration.draw_widths((count,), generator)

        def draw(rows: Chunk, mean: np.ndarray, f: np.ndarray) -> np.ndarray:
            noise = np.sqrt(float(self.noise) / rows.precisions)[:, None]
            residual = f[:, :, 0] - mean[:, :1]
            residual = residual + noise * generator.normal(size=residual.shape)
            return mean[:, :1] + widths * residual

        return draw
