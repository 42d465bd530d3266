"""Monotone maps of the target: the scale on which its noise is added.

Prices, shares and incomes are not normal about their means: they have bounds, and
larger values vary more. A map takes such a target to the whole real line, where it is
standardised and learned. Predictions are mapped back, so that intervals are asymmetric
and stay within the bounds.

References: Yeo & Johnson (2000), "A new family of power transformations to improve
normality or symmetry"; Snelson, Rasmussen & Ghahramani (2003), "Warped Gaussian
processes".
"""

import abc
import dataclasses
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from zonal.saving import savable

__all__ = ["Identity", "Log", "Logit", "TargetMap", "YeoJohnson", "logit_below"]

Values = Float[np.ndarray, "*shape"]

# exp(±700) is within the range of float64; so are sums of such numbers.
_LARGEST_EXPONENT = 700.0
_LARGEST = 1e300
_TINY = np.finfo(np.float64).tiny
# Smaller powers make no difference to a logarithm.
_LEAST_POWER = 1e-15


class TargetMap(abc.ABC):
    """An increasing map from the targets' interval to the real line.

    All methods return finite numbers for all numbers. ``name`` is the option of the
    estimators, and ``lower`` and ``upper`` are the open bounds of the targets. Below
    ``floor`` there are no targets either, though the map has none of its own.
    """

    name: ClassVar[str]
    floor: float = -np.inf

    @property
    def lower(self) -> float:
        """Lower bound of the targets."""
        return -np.inf

    @property
    def upper(self) -> float:
        """Upper bound of the targets."""
        return np.inf

    @abc.abstractmethod
    def forward(self, y: Values) -> Values:
        """Mapped targets; targets at or beyond a bound are taken to the farthest."""

    @abc.abstractmethod
    def backward(self, z: Values) -> Values:
        """The targets that are mapped to z."""

    @abc.abstractmethod
    def log_slope(self, y: Values) -> Values:
        """Logarithm of the slope of `forward`, which its log density needs."""

    @property
    def described(self) -> str:
        """The scale in a few words, for a summary."""
        return f"{self.name} scale"

    @property
    def is_identity(self) -> bool:
        """Whether targets stay as they are."""
        return False

    def contains(self, y: Values) -> np.ndarray:
        """Whether each target is within the bounds."""
        return (y > self.lower) & (y < self.upper)

    def check(self, y: Values, first_row: int = 0) -> None:
        """Raise ValueError if a target is at or beyond a bound, naming the first."""
        outside = np.flatnonzero(~np.asarray(self.contains(np.asarray(y))))
        if len(outside) == 0:
            return
        bounds = f"above {self.lower:g}"
        if np.isfinite(self.upper):
            bounds += f" and below {self.upper:g}"
        value = np.asarray(y).reshape(-1)[outside[0]]
        raise ValueError(
            f"the {self.name} scale is for targets {bounds}, but row "
            f"{first_row + outside[0]} has {value:g} ({len(outside)} such rows); "
            "correct these rows, leave them out, or fit with target_transform=None"
        )


@savable
@dataclasses.dataclass(frozen=True)
class Identity(TargetMap):
    """No map: targets stay as they are.

    Parameters
    ----------
    floor
        Targets are known not to be below it: predictions end there.

    Examples
    --------
    >>> Identity(floor=0.0).backward(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    floor: float = -np.inf
    name = "identity"

    @property
    def is_identity(self) -> bool:
        return True

    def forward(self, y):
        return y

    def backward(self, z):
        return z if self.floor == -np.inf else np.maximum(z, self.floor)

    def log_slope(self, y):
        return np.zeros(np.shape(y))


@savable
@dataclasses.dataclass(frozen=True)
class Log(TargetMap):
    """The logarithm of positive targets.

    Examples
    --------
    >>> Log().backward(np.log([2.0, 3.0]))
    array([2., 3.])
    """

    name = "log"

    @property
    def lower(self) -> float:
        return 0.0

    def forward(self, y):
        return np.log(np.maximum(y, _TINY))

    def backward(self, z):
        return np.exp(np.clip(z, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))

    def log_slope(self, y):
        return -np.log(np.maximum(y, _TINY))


@savable
@dataclasses.dataclass(frozen=True)
class Logit(TargetMap):
    """The logarithm of the odds of targets between two bounds.

    Examples
    --------
    >>> Logit(0.0, 100.0).forward(np.array([50.0, 80.0])).round(3)
    array([0.   , 1.386])
    """

    low: float = 0.0
    high: float = 1.0
    name = "logit"

    @property
    def lower(self) -> float:
        return self.low

    @property
    def upper(self) -> float:
        return self.high

    @property
    def described(self) -> str:
        return f"logit scale between {self.low:g} and {self.high:g}"

    def forward(self, y):
        return self._log_above(y) - self._log_below(y)

    def backward(self, z):
        width = self.high - self.low
        share = width * expit(-np.minimum(np.abs(z), _LARGEST_EXPONENT))
        # The distance to the nearer bound has all its digits.
        return np.where(np.asarray(z) < 0, self.low + share, self.high - share)

    def log_slope(self, y):
        width = np.log(self.high - self.low)
        return width - self._log_above(y) - self._log_below(y)

    def _log_above(self, y: Values) -> Values:
        """Logarithm of the distance to the lower bound."""
        return np.log(np.maximum(y - self.low, _TINY))

    def _log_below(self, y: Values) -> Values:
        """Logarithm of the distance to the upper bound."""
        return np.log(np.maximum(self.high - y, _TINY))


def logit_below(highest: float) -> Logit:
    """The logit of shares, or of percentages if the highest target is above one."""
    return Logit(0.0, 1.0 if highest <= 1 else 100.0)


@savable
@dataclasses.dataclass(frozen=True)
class YeoJohnson(TargetMap):
    """The power transformation of Yeo and Johnson, of targets in units of a width.

    Parameters
    ----------
    exponent
        From 0 (a logarithm above the centre, a square below it) by 1 (the identity) to
        2 (a square above, a logarithm below). Other exponents would not reach all real
        numbers.
    centre, width
        Subtracted from the target, which is then divided by the width.
    floor
        Targets are known not to be below it: predictions end there.

    Examples
    --------
    >>> YeoJohnson(0.0).forward(np.array([-1.0, 0.0, np.e - 1])).round(3)
    array([-1.5,  0. ,  1. ])
    """

    exponent: float = 1.0
    centre: float = 0.0
    width: float = 1.0
    floor: float = -np.inf
    name = "yeo-johnson"

    def __post_init__(self) -> None:
        if not 0 <= self.exponent <= 2:
            raise ValueError(
                f"the exponent must be between 0 and 2, got {self.exponent}"
            )

    @property
    def described(self) -> str:
        return f"Yeo-Johnson scale, exponent {self.exponent:.3g}"

    def forward(self, y):
        x = self._standardised(y)
        size = np.abs(x)
        above, below = _power(size, self.exponent), _power(size, 2 - self.exponent)
        return np.where(x >= 0, above, -below)

    def backward(self, z):
        size = np.abs(z)
        above, below = _root(size, self.exponent), _root(size, 2 - self.exponent)
        x = np.where(np.asarray(z) >= 0, above, -below)
        with np.errstate(over="ignore"):
            y = np.clip(self.centre + self.width * x, -_LARGEST, _LARGEST)
        return np.maximum(y, self.floor)

    def log_slope(self, y):
        x = self._standardised(y)
        bend = (self.exponent - 1) * np.sign(x) * np.log1p(np.abs(x))
        return bend - np.log(self.width)

    def _standardised(self, y: Values) -> Values:
        return (y - self.centre) / self.width


def _power(size: Values, power: float) -> Values:
    """((1 + size)^power − 1) / power, and its limit at a power of zero."""
    log = np.log1p(size)
    if power < _LEAST_POWER:
        return log
    return np.expm1(np.minimum(power * log, _LARGEST_EXPONENT)) / power


def _root(size: Values, power: float) -> Values:
    """The inverse of `_power`."""
    log = size if power < _LEAST_POWER else np.log1p(power * size) / power
    return np.expm1(np.minimum(log, _LARGEST_EXPONENT))
