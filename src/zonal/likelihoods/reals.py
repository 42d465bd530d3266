"""Targets that are real numbers: normal noise, heavy tails, changing noise."""

import abc
import dataclasses
import functools

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, ndtr, ndtri

from zonal.likelihoods.base import (
    WEIGHTS,
    Expected,
    Latents,
    Likelihood,
    Rows,
    at_nodes,
    exp,
    log_mixed,
)
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable

__all__ = ["Gaussian", "Heteroscedastic", "RealLikelihood", "StudentT"]

_BISECTIONS = 60


class RealLikelihood(Likelihood):
    """A target that is a real number: a mean, a variance and quantiles."""

    real = True

    @abc.abstractmethod
    def spread(self, mean: Latents, variance: Latents) -> tuple[Rows, Rows]:
        """Predictive mean and variance of a new target."""

    @abc.abstractmethod
    def distribution(self, y: Rows, mean: Latents, variance: Latents) -> Rows:
        """Probability that a new target is at most y."""

    def quantiles(
        self, levels: np.ndarray, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target, by bisection."""
        centre, width = self.spread(mean, variance)
        width = np.sqrt(np.where(np.isfinite(width), width, 1.0 + variance[:, 0]))
        columns = []
        for level in levels:
            low, high = centre - width, centre + width
            for _ in range(_BISECTIONS):
                reach = high - low
                short = self.distribution(low, mean, variance) > level
                far = self.distribution(high, mean, variance) < level
                if not np.any(short | far):
                    break
                low, high = low - reach * short, high + reach * far
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                above = self.distribution(middle, mean, variance) >= level
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            columns.append((low + high) / 2)
        return np.column_stack(columns)


@savable
@dataclasses.dataclass(frozen=True)
class Gaussian(RealLikelihood):
    """Normal noise of one variance; `zonal.fit` solves it in a single pass.

    Examples
    --------
    >>> zero, one = np.zeros((1, 1)), np.ones((1, 1))
    >>> float(Gaussian(1.0).log_density(np.zeros(1), zero, 3 * one)[0].round(3))
    -1.612
    """

    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def expected(self, y, mean, variance, exposure=None):
        noise = float(self.noise)
        error = y - mean[:, 0]
        value = -0.5 * (np.log(2 * np.pi * noise) + (error**2 + variance[:, 0]) / noise)
        return Expected(value, error[:, None] / noise, np.full_like(mean, -0.5 / noise))

    def log_density(self, y, mean, variance, exposure=None):
        return _log_normal(y - mean[:, 0], variance[:, 0] + float(self.noise))

    def draw(self, f, generator, exposure=None):
        return generator.normal(f[:, 0], np.sqrt(float(self.noise)))

    def spread(self, mean, variance):
        return mean[:, 0], variance[:, 0] + float(self.noise)

    def distribution(self, y, mean, variance):
        return ndtr((y - mean[:, 0]) / np.sqrt(variance[:, 0] + float(self.noise)))

    def quantiles(self, levels, mean, variance):
        centre, spread = self.spread(mean, variance)
        return centre[:, None] + np.sqrt(spread)[:, None] * ndtri(levels)


def _log_normal(error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)


@savable
@dataclasses.dataclass(frozen=True)
class StudentT(RealLikelihood):
    """Noise with heavy tails: outliers lose their say.

    A Student-t is a normal whose precision is drawn from a gamma distribution. With
    these draws inferred at their best, E is bounded from below by the density at the
    expected squared error,

        E >= log c - (ν+1)/2 log(1 + ((y-m)² + v)/(ν s²)),

    which is exact for v = 0 and gives every row a positive precision, so inference
    cannot fail although the density is not log-concave.

    Parameters
    ----------
    scale
        Width s of the noise, in deviations of the target.
    freedom
        Degrees of freedom ν. Both are learned.
    """

    scale: Number = parameter(POSITIVE, default=0.3)
    freedom: Number = parameter(POSITIVE, default=4.0)

    def __post_init__(self) -> None:
        check_values(self)

    def _log_constant(self) -> float:
        freedom = float(self.freedom)
        ratio = gammaln((freedom + 1) / 2) - gammaln(freedom / 2)
        return float(ratio - 0.5 * np.log(freedom * np.pi) - np.log(self.scale))

    def expected(self, y, mean, variance, exposure=None):
        freedom = float(self.freedom)
        width = freedom * float(self.scale) ** 2
        error = y - mean[:, 0]
        squares = error**2 + variance[:, 0]
        value = self._log_constant() - (freedom + 1) / 2 * np.log1p(squares / width)
        precision = (freedom + 1) / (width + squares)
        return Expected(value, (precision * error)[:, None], -0.5 * precision[:, None])

    def log_density(self, y, mean, variance, exposure=None):
        precisions, shares = _normals_of_t(float(self.freedom))
        width = variance + float(self.scale) ** 2 / precisions
        parts = _log_normal((y - mean[:, 0])[:, None], width)
        return log_mixed(parts, shares)

    def draw(self, f, generator, exposure=None):
        noise = generator.standard_t(float(self.freedom), size=len(f))
        return f[:, 0] + float(self.scale) * noise

    def spread(self, mean, variance):
        freedom = float(self.freedom)
        factor = freedom / (freedom - 2) if freedom > 2 else np.inf
        return mean[:, 0], variance[:, 0] + factor * float(self.scale) ** 2

    def distribution(self, y, mean, variance):
        precisions, shares = _normals_of_t(float(self.freedom))
        width = variance + float(self.scale) ** 2 / precisions
        return ndtr((y - mean[:, 0])[:, None] / np.sqrt(width)) @ shares


@functools.lru_cache(maxsize=16)
def _normals_of_t(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Precisions of normals that together make up a Student-t, and their shares.

    A gamma distribution of precisions, by the trapezoidal rule in their logarithm. The
    smallest reach far: they are what outliers are made of.
    """
    log_precision = np.linspace(-20 - 60 / freedom, 4, 400)
    shares = np.exp(freedom / 2 * (log_precision + 1 - np.exp(log_precision)))
    return np.exp(log_precision), shares / shares.sum()


@savable
@dataclasses.dataclass(frozen=True)
class Heteroscedastic(RealLikelihood):
    """Normal noise whose variance changes from row to row: noise · exp(g).

    The second function g is learned like the first; noise is relative to the variance
    of the target. E is closed form.
    """

    n_latents = 2
    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def expected(self, y, mean, variance, exposure=None):
        noise = float(self.noise)
        precision = exp(-mean[:, 1] + variance[:, 1] / 2) / noise
        error = y - mean[:, 0]
        squares = (error**2 + variance[:, 0]) * precision
        value = -0.5 * (np.log(2 * np.pi * noise) + mean[:, 1] + squares)
        return Expected(
            value,
            np.column_stack([error * precision, 0.5 * (squares - 1)]),
            np.column_stack([-0.5 * precision, -0.25 * squares]),
        )

    def starting_sites(self, y, exposure=None):
        """One noise everywhere, until something is known of its changes."""
        target = np.column_stack([y, np.zeros(len(y))])
        precision = np.tile([1 / float(self.noise), 0.5], (len(y), 1))
        return target, precision

    def _variances(self, mean: Latents, variance: Latents) -> np.ndarray:
        """Variance of a new target at the nodes of g, (rows, nodes)."""
        exponent = at_nodes(mean[:, 1], variance[:, 1])
        return variance[:, :1] + float(self.noise) * exp(exponent)

    def log_density(self, y, mean, variance, exposure=None):
        error = (y - mean[:, 0])[:, None]
        parts = _log_normal(error, self._variances(mean, variance))
        return log_mixed(parts, WEIGHTS)

    def draw(self, f, generator, exposure=None):
        deviation = np.sqrt(float(self.noise) * exp(f[:, 1]))
        return generator.normal(f[:, 0], deviation)

    def spread(self, mean, variance):
        noise = float(self.noise) * exp(mean[:, 1] + variance[:, 1] / 2)
        return mean[:, 0], variance[:, 0] + noise

    def distribution(self, y, mean, variance):
        error = (y - mean[:, 0])[:, None]
        return ndtr(error / np.sqrt(self._variances(mean, variance))) @ WEIGHTS
