"""The shape of new targets about their mean, from standardised residuals.

A Gaussian process predicts normal targets. Real residuals often have a sharper peak and
heavier tails, and may lean to one side. They are fitted by a mixture of centred normals
of fixed widths, which can represent normals of random width such as Student's t and
Laplace. The shares of the widths maximise a concave likelihood without settings, by
expectation maximisation. Where it gains density, the part above the mode is stretched
by a factor κ and the part below it shrunk by the same factor, which makes the shape
skewed (Fernández & Steel 1998). The shape is then moved so that its mean is zero.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri

from zonal.saving import savable

__all__ = ["Calibration"]

# From 1/64 to 16 times the predicted standard deviation.
_WIDTHS = 2.0 ** np.arange(-6, 4.5, 0.5)
# Total weight of the normal pseudo-residuals that are added to the residuals.
_PSEUDO_ROWS = 10
# Total weight of the pseudo-residuals that have the widths of a prior shape.
_PRIOR_ROWS = 50
_MOST_STEPS = 500
# Similar residuals are taken together, at most this many groups of them.
_MOST_GROUPS = 1000
_LEAST_GAIN = 1e-8
_LEAST_SHARE = 1e-5
_FARTHEST = 1e6
# Step and most steps in the logarithm of the skew, fits that find the mean for a skew,
# and the gain in log density of all rows together that the first step has to bring.
_SKEW_STEP, _SKEW_STEPS = 0.1, 8
_SKEW_FITS = 2
_LEAST_SKEW_GAIN = 6.0
# Points of the table that maps standard normals to this shape, and its end.
_KNOTS = 2001
_REACH = 8.0


@savable
@dataclasses.dataclass(frozen=True)
class Calibration:
    """The distribution of a target in units of its predicted standard deviation.

    A mixture of normals with ``widths`` and ``shares``, by default a single one of
    width one; ``skew`` is the factor κ. The mean is zero.

    Examples
    --------
    >>> residuals = np.random.default_rng(0).laplace(size=5000)
    >>> calibration = Calibration.of(residuals)
    >>> calibration.quantiles(np.array([0.95])).round(1)  # of a normal: 1.6
    array([2.3])

    Residuals with a long tail above:

    >>> residuals = np.random.default_rng(0).exponential(size=5000) - 1
    >>> low, high = Calibration.of(residuals).quantiles(np.array([0.05, 0.95]))
    >>> bool(high > 1.5 * -low)
    True
    """

    widths: tuple[float, ...] = (1.0,)
    shares: tuple[float, ...] = (1.0,)
    skew: float = 1.0

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, " rows"],
        weight: Float[np.ndarray, " rows"] | None = None,
        prior: "Calibration | None" = None,
    ) -> "Calibration":
        """The calibration fitted to standardised leave-one-out residuals.

        With a ``prior`` such as the shape of all rows, some pseudo-residuals have its
        widths, so that a shape of few rows knows of the outliers among the others.
        """
        weight = np.ones(len(residuals)) if weight is None else weight
        normal = ndtri((np.arange(2 * _PSEUDO_ROWS) + 0.5) / (2 * _PSEUDO_ROWS))
        z = np.concatenate([residuals, normal])
        weight = np.concatenate([weight, np.full(len(normal), 0.5)])
        # Farther residuals belong to the widest normal; clipping avoids overflow.
        z = np.clip(np.nan_to_num(z, nan=0.0), -_FARTHEST, _FARTHEST)
        known = None if prior is None else prior._shares_of_widths
        best = symmetric = cls._mixture(z, weight, known)
        highest = weight @ symmetric.log_density(z) + _LEAST_SKEW_GAIN
        for side in (-1, 1):
            for step in range(1, _SKEW_STEPS + 1):
                skew = float(np.exp(side * step * _SKEW_STEP))
                candidate = symmetric._skewed(skew, z, weight, known)
                total = weight @ candidate.log_density(z)
                if total <= highest:
                    break
                best, highest = candidate, total
        return best

    @property
    def _shares_of_widths(self) -> Float[np.ndarray, " widths"]:
        """The share of each width that a calibration may have."""
        shares = np.zeros(len(_WIDTHS))
        shares[np.searchsorted(_WIDTHS, self.widths)] = self.shares
        return shares

    @classmethod
    def _mixture(
        cls, z: np.ndarray, weight: np.ndarray, known: np.ndarray | None = None
    ) -> "Calibration":
        """The symmetric mixture of the highest likelihood.

        ``known`` are shares of the widths that count as some pseudo-residuals.
        """
        pseudo = 0.0 if known is None else _PRIOR_ROWS / (weight.sum() + _PRIOR_ROWS)
        z, counts = _grouped(np.abs(z), weight / weight.sum())
        logs = -0.5 * (z[:, None] / _WIDTHS) ** 2 - np.log(_WIDTHS)
        likelihoods = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares, value = np.full(len(_WIDTHS), 1 / len(_WIDTHS)), -np.inf
        for _ in range(_MOST_STEPS):
            density = np.maximum(likelihoods @ shares, np.finfo(np.float64).tiny)
            before, value = value, counts @ np.log(density)
            if value - before < _LEAST_GAIN:
                break
            shares = shares * (likelihoods.T @ (counts / density))
            if known is not None:
                shares = (1 - pseudo) * shares + pseudo * known
        used = shares > _LEAST_SHARE
        shares = shares[used] / shares[used].sum()
        return cls(tuple(_WIDTHS[used].tolist()), tuple(shares.tolist()))

    def _skewed(
        self, skew: float, z: np.ndarray, weight: np.ndarray, known: np.ndarray | None
    ) -> "Calibration":
        """A mixture of the given skew, whose mode makes its mean zero."""
        found = dataclasses.replace(self, skew=skew)
        for _ in range(_SKEW_FITS):
            mixture = self._mixture(found._folded(z), weight, known)
            found = dataclasses.replace(mixture, skew=skew)
        return found

    @functools.cached_property
    def _mode(self) -> float:
        """The mode, which is zero without skew."""
        distance = np.sqrt(2 / np.pi) * float(np.dot(self.shares, self.widths))
        return -distance * (self.skew - 1 / self.skew)

    def _folded(self, z: np.ndarray) -> np.ndarray:
        """Distances from the mode, as those of the symmetric mixture."""
        x = z - self._mode
        return np.asarray(x * np.where(x < 0, self.skew, 1 / self.skew))

    @property
    def _below(self) -> float:
        """The probability below the mode."""
        return 1 / (1 + self.skew**2)

    @functools.cached_property
    def spread(self) -> float:
        """The factor of the predicted variance of a target."""
        squares = float(np.dot(self.shares, np.square(self.widths)))
        ratio = (self.skew**3 + self.skew**-3) / (self.skew + 1 / self.skew)
        return squares * ratio - self._mode**2

    def log_density(self, z: Float[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Log density at z."""
        x = self._folded(np.asarray(z, np.float64))
        total = np.full(np.shape(x), -np.inf)
        for width, share in zip(self.widths, self.shares, strict=True):
            part = np.log(share / width) - 0.5 * (x / width) ** 2
            total = np.logaddexp(total, part)
        shrunk = np.log(2 / (self.skew + 1 / self.skew))
        return total + shrunk - 0.5 * np.log(2 * np.pi)

    def distribution(self, z: Float[np.ndarray, "*rows"]) -> Float[np.ndarray, "*rows"]:
        """Probability that a target is at most z."""
        x = np.asarray(z, np.float64) - self._mode
        folded = self._folded(np.asarray(z, np.float64))
        above = 2 * (1 - self._below) * self._symmetric(-folded)
        return np.where(x < 0, 2 * self._below * self._symmetric(folded), 1 - above)

    def _symmetric(self, x: np.ndarray) -> np.ndarray:
        """Probability below x under the symmetric mixture."""
        pairs = zip(self.widths, self.shares, strict=True)
        return np.sum([share * ndtr(x / width) for width, share in pairs], axis=0)

    def quantiles(
        self, levels: Float[np.ndarray, " levels"]
    ) -> Float[np.ndarray, " levels"]:
        """Quantiles at the given levels."""
        levels, below = np.asarray(levels, np.float64), self._below
        lower = levels < below
        # Both tails are looked up below the mode: probabilities keep their digits.
        tail = np.where(lower, levels / below, (1 - levels) / (1 - below)) / 2
        x = -self._symmetric_quantiles(np.clip(tail, 0.0, 0.5))
        return self._mode + np.where(lower, -x / self.skew, x * self.skew)

    def _symmetric_quantiles(self, levels: np.ndarray) -> np.ndarray:
        if self.widths == (1.0,):
            return ndtri(levels)
        # The quantiles of the widest normal are farther from zero.
        reach = max(self.widths) * (1 + np.abs(ndtri(levels)))
        return find_root(
            lambda z, level: self._symmetric(z) - level,
            (-reach, reach),
            args=(levels,),
        ).x

    def crps(self, z: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " rows"]:
        """Continuous ranked probability score, from the integral of the distribution.

        E|X - z| - E|X - X'| / 2, where E|X - z| = 2 ∫ F(x) dx up to z, less z.
        """
        z = np.asarray(z, np.float64)
        x, below = z - self._mode, self._below
        to_mode = 2 * below / self.skew * self._integral(np.zeros(1))[0]
        lower = 2 * below / self.skew * self._integral(np.minimum(x, 0) * self.skew)
        up = np.maximum(x, 0)
        upper = self.skew * (
            self._integral(up / self.skew) - self._integral(np.zeros(1))[0]
        )
        rest = to_mode + up - 2 * (1 - below) * (up - upper)
        return 2 * np.where(x < 0, lower, rest) - z - self._mean_difference / 2

    def _integral(self, x: np.ndarray) -> np.ndarray:
        """Integral of the symmetric mixture's distribution up to x."""
        parts = [
            share * (x * ndtr(x / width) + width * _normal_density(x / width))
            for width, share in zip(self.widths, self.shares, strict=True)
        ]
        return np.sum(parts, axis=0)

    @functools.cached_property
    def _mean_difference(self) -> float:
        """Mean distance between two targets, 2 ∫ F (1 - F)."""
        if self.skew == 1.0:
            pairs = np.hypot(np.array(self.widths)[:, None], self.widths)
            shares = np.array(self.shares)
            return float(shares @ (np.sqrt(2 / np.pi) * pairs) @ shares)
        # Equal steps in the logarithm of the distance from the mode suit all widths.
        steps = np.linspace(-14.0, np.log(10 * max(self.widths)), 4001)
        x = np.exp(steps) * max(self.skew, 1 / self.skew)
        both = [self.distribution(self._mode + side * x) for side in (-1, 1)]
        density = sum(f * (1 - f) for f in both) * x
        return float(2 * np.trapezoid(density, steps))

    def of_normal(self, normal: Float[np.ndarray, "*rows"]) -> np.ndarray:
        """Targets of this shape at the same probabilities as standard normal numbers.

        Correlations between the normals remain, so functions that are drawn jointly
        stay smooth.
        """
        knots, values = self._table
        inside = np.interp(normal, knots, values)
        # Beyond the table the widest normal decides.
        slope = max(self.widths) * np.where(normal < 0, 1 / self.skew, self.skew)
        return inside + slope * (normal - np.clip(normal, -_REACH, _REACH))

    @functools.cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """Standard normal numbers, and targets of the same probability."""
        half = np.linspace(0.0, _REACH, _KNOTS)[1:]
        tail = ndtr(-half)
        # The upper tail's probabilities are mirrored, to keep their digits.
        mirrored = dataclasses.replace(self, skew=1 / self.skew)
        lower, upper = self.quantiles(tail), -mirrored.quantiles(tail)
        middle = self.quantiles(np.array([0.5]))
        knots = np.concatenate([-half[::-1], [0.0], half])
        return knots, np.concatenate([lower[::-1], middle, upper])


def _grouped(z: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Groups of similar residuals: the root mean square of each, and its weight."""
    if len(z) <= _MOST_GROUPS:
        return z, weight
    order = np.argsort(z, kind="stable")
    starts = np.linspace(0, len(z), _MOST_GROUPS, endpoint=False).astype(np.int64)
    total = np.add.reduceat(weight[order], starts)
    squares = np.add.reduceat((weight * z**2)[order], starts)
    return np.sqrt(squares / np.maximum(total, np.finfo(np.float64).tiny)), total


def _normal_density(z: np.ndarray) -> Any:
    return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
