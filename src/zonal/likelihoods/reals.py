"""Likelihoods of real numbers: heavy tails, and noise that varies between rows."""

import dataclasses
import functools

import numpy as np
from scipy.optimize.elementwise import bracket_root, find_root
from scipy.special import gammaln, ndtr

from zonal.likelihoods.base import (
    WEIGHTS,
    Expected,
    Latents,
    Likelihood,
    at_nodes,
    exp,
    log_mixed,
)
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable

__all__ = ["Heteroscedastic", "RealLikelihood", "StudentT", "log_normal"]

# Maximum number of expansions of an interval until it contains a quantile.
_BRACKETS = 200


class RealLikelihood(Likelihood):
    """A target that is a real number: a mean, a variance and quantiles."""

    real = True

    def quantiles(self, levels, rows, mean, variance):
        """Quantiles of a new target, by the inverse of its distribution function."""
        centre, width = self.spread(rows, mean, variance)
        width = np.sqrt(np.where(np.isfinite(width), width, 1.0 + variance[:, 0]))

        def excess(y: np.ndarray, level: np.ndarray, index: np.ndarray) -> np.ndarray:
            # SciPy passes only the rows whose quantiles have not converged yet.
            index = index.astype(int)
            at = dataclasses.replace(rows[index], y=y)
            return self.distribution(at, mean[index], variance[index]) - level

        columns = []
        for level in levels:
            args = np.full(len(centre), level), np.arange(len(centre))
            ends = centre - width, centre + width
            ends = bracket_root(excess, *ends, args=args, maxiter=_BRACKETS).bracket
            columns.append(find_root(excess, ends, args=args).x)
        return np.column_stack(columns)


def log_normal(error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Log density of centred normals."""
    return -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)


@savable
@dataclasses.dataclass(frozen=True)
class StudentT(RealLikelihood):
    """Noise with heavy tails, so that outliers have little influence.

    A Student-t variable is a normal whose precision is drawn from a gamma distribution.
    With the optimal variational distribution of that precision, E is bounded from below
    by the log density at the expected squared error,

        E >= log c - (ν+1)/2 log(1 + ((y-m)² + v)/(ν s²)),

    which is exact for v = 0. It gives every row a positive precision, so inference
    converges although the density is not log-concave.

    Parameters
    ----------
    scale
        Scale s of the noise, in standard deviations of the target; learned.
    freedom
        Degrees of freedom ν; learned.
    """

    scale: Number = parameter(POSITIVE, default=0.3)
    freedom: Number = parameter(POSITIVE, default=4.0)

    def __post_init__(self) -> None:
        check_values(self)

    def _log_constant(self) -> float:
        freedom = float(self.freedom)
        ratio = gammaln((freedom + 1) / 2) - gammaln(freedom / 2)
        return float(ratio - 0.5 * np.log(freedom * np.pi) - np.log(self.scale))

    def expected(self, rows, mean, variance):
        freedom = float(self.freedom)
        width = freedom * float(self.scale) ** 2
        error = rows.targets - mean[:, 0]
        squares = error**2 + variance[:, 0]
        value = self._log_constant() - (freedom + 1) / 2 * np.log1p(squares / width)
        precision = (freedom + 1) / (width + squares)
        return Expected(value, (precision * error)[:, None], -0.5 * precision[:, None])

    def log_density(self, rows, mean, variance):
        precisions, shares = _normals_of_t(float(self.freedom))
        width = variance + float(self.scale) ** 2 / precisions
        parts = log_normal((rows.targets - mean[:, 0])[:, None], width)
        return log_mixed(parts, shares)

    def draw(self, rows, f, generator):
        noise = generator.standard_t(float(self.freedom), size=len(f))
        return f[:, 0] + float(self.scale) * noise

    def spread(self, rows, mean, variance):
        freedom = float(self.freedom)
        factor = freedom / (freedom - 2) if freedom > 2 else np.inf
        return mean[:, 0], variance[:, 0] + factor * float(self.scale) ** 2

    def distribution(self, rows, mean, variance):
        precisions, shares = _normals_of_t(float(self.freedom))
        width = variance + float(self.scale) ** 2 / precisions
        return ndtr((rows.targets - mean[:, 0])[:, None] / np.sqrt(width)) @ shares


@functools.lru_cache(maxsize=16)
def _normals_of_t(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Precisions and shares of normals whose mixture is a Student-t distribution.

    The trapezoidal rule for a gamma distribution, in the logarithm of the precision.
    The grid extends to small precisions, which determine the tails.
    """
    log_precision = np.linspace(-20 - 60 / freedom, 4, 400)
    shares = np.exp(freedom / 2 * (log_precision + 1 - np.exp(log_precision)))
    return np.exp(log_precision), shares / shares.sum()


@savable
@dataclasses.dataclass(frozen=True)
class Heteroscedastic(RealLikelihood):
    """Normal noise whose variance varies from row to row: noise · exp(g).

    The second function g is learned like the first. ``noise`` is relative to the
    variance of the target. E has a closed form.
    """

    n_latents = 2
    noise: Number = parameter(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def expected(self, rows, mean, variance):
        noise = float(self.noise)
        precision = exp(-mean[:, 1] + variance[:, 1] / 2) / noise
        error = rows.targets - mean[:, 0]
        squares = (error**2 + variance[:, 0]) * precision
        value = -0.5 * (np.log(2 * np.pi * noise) + mean[:, 1] + squares)
        return Expected(
            value,
            np.column_stack([error * precision, 0.5 * (squares - 1)]),
            np.column_stack([-0.5 * precision, -0.25 * squares]),
        )

    def starting_sites(self, rows):
        """Sites of constant noise."""
        target = np.column_stack([rows.targets, np.zeros(len(rows))])
        precision = np.tile([1 / float(self.noise), 0.5], (len(rows), 1))
        return target, precision

    def _variances(self, mean: Latents, variance: Latents) -> np.ndarray:
        """Variance of a new target at the nodes of g, (rows, nodes)."""
        exponent = at_nodes(mean[:, 1], variance[:, 1])
        return variance[:, :1] + float(self.noise) * exp(exponent)

    def log_density(self, rows, mean, variance):
        error = (rows.targets - mean[:, 0])[:, None]
        parts = log_normal(error, self._variances(mean, variance))
        return log_mixed(parts, WEIGHTS)

    def draw(self, rows, f, generator):
        deviation = np.sqrt(float(self.noise) * exp(f[:, 1]))
        return generator.normal(f[:, 0], deviation)

    def spread(self, rows, mean, variance):
        noise = float(self.noise) * exp(mean[:, 1] + variance[:, 1] / 2)
        return mean[:, 0], variance[:, 0] + noise

    def distribution(self, rows, mean, variance):
        error = (rows.targets - mean[:, 0])[:, None]
        return ndtr(error / np.sqrt(self._variances(mean, variance))) @ WEIGHTS
