"""Likelihoods of counts: Poisson, and negative binomial for overdispersion."""

import abc
import dataclasses

import numpy as np
from scipy.special import betainc, expit, gammaln, pdtr

from zonal.likelihoods.base import (
    WEIGHTS,
    Expected,
    Latents,
    Likelihood,
    at_nodes,
    averaged,
    exp,
    log_mixed,
)
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.saving import savable
from zonal.tables.chunks import Chunk

__all__ = ["CountLikelihood", "NegativeBinomial", "Poisson"]

_LARGEST_COUNT = 1e12


class CountLikelihood(Likelihood):
    """A target that is a count 0, 1, 2, ...; the function is the log of its rate.

    ``exposure`` is the factor of a row's rate, such as hours of observation.
    """

    takes_exposure = True

    @abc.abstractmethod
    def _at_most(self, count: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Probability of a count of at most ``count``, given the rate."""

    def check(self, rows, first_row=0):
        y = rows.targets
        bad = np.flatnonzero((y < 0) | (y != np.floor(y)))
        if len(bad):
            raise ValueError(
                f"counts must be 0, 1, 2, ...; row {first_row + bad[0]} has "
                f"{y[bad[0]]:g}"
            )
        large = np.flatnonzero(y > _LARGEST_COUNT)
        if len(large):
            raise ValueError(
                f"row {first_row + large[0]} counts {y[large[0]]:g}; beyond "
                f"{_LARGEST_COUNT:g}, fit the logarithm with normal noise"
            )

    def moments(self, rows):
        weight, exposure = rows.weights, rows.exposure
        total_exposure = weight.sum() if exposure is None else weight @ exposure
        return np.array([weight @ rows.targets, total_exposure])

    def offsets(self, moments):
        return np.array([np.log((moments[0] + 0.5) / moments[1])])

    def starting_sites(self, rows):
        """Log counts as log rates, with the precision of Poisson counts."""
        y = rows.targets
        target = np.log(y + 0.5) - _log_exposure(rows)
        return target[:, None], (y + 0.5)[:, None]

    def _rates(self, rows: Chunk, mean: Latents, variance: Latents) -> np.ndarray:
        """Rates at the nodes of the function, (rows, nodes)."""
        exponent = at_nodes(mean[:, 0], variance[:, 0])
        return exp((exponent.T + _log_exposure(rows)).T)

    def distribution(self, rows, mean, variance):
        rates = self._rates(rows, mean, variance)
        return self._at_most(np.floor(rows.targets)[:, None], rates) @ WEIGHTS

    def quantiles(self, levels, rows, mean, variance):
        """The smallest counts whose distribution function reaches each level."""
        rates = self._rates(rows, mean, variance)
        columns = []
        for level in levels:
            low, high = np.full(len(mean), -1.0), np.ones(len(mean))
            while np.any(
                short := self._at_most(high[:, None], rates) @ WEIGHTS < level
            ):
                low, high = np.where(short, high, low), np.where(short, 2 * high, high)
            while True:
                middle = np.floor((low + high) / 2)
                # Beyond 2^53, adjacent float64 numbers differ by more than one.
                if np.all((high - low <= 1) | (middle == low) | (middle == high)):
                    break
                reached = self._at_most(middle[:, None], rates) @ WEIGHTS >= level
                low = np.where(reached, low, middle)
                high = np.where(reached, middle, high)
            columns.append(high)
        return np.column_stack(columns)


@savable
@dataclasses.dataclass(frozen=True)
class Poisson(CountLikelihood):
    """Counts whose variance is their mean. E has a closed form.

    Examples
    --------
    >>> mean, variance = np.log(np.array([[7.0]])), np.zeros((1, 1))
    >>> rows = Chunk(np.empty((1, 0)))
    >>> Poisson().quantiles(np.array([0.5]), rows, mean, variance)
    array([[7.]])
    """

    def expected(self, rows, mean, variance):
        y, log_mean = rows.targets, mean[:, 0] + _log_exposure(rows)
        rate = exp(log_mean + variance[:, 0] / 2)
        value = y * log_mean - rate - gammaln(y + 1)
        return Expected(value, (y - rate)[:, None], -0.5 * rate[:, None])

    def log_density(self, rows, mean, variance):
        y, rates = rows.targets, self._rates(rows, mean, variance)
        parts = y[:, None] * np.log(rates) - rates - gammaln(y + 1)[:, None]
        return log_mixed(parts, WEIGHTS)

    def draw(self, rows, f, generator):
        rate = np.minimum(exp(f[:, 0] + _log_exposure(rows)), _LARGEST_COUNT)
        return generator.poisson(rate).astype(np.float64)

    def spread(self, rows, mean, variance):
        rate = exp(mean[:, 0] + variance[:, 0] / 2 + _log_exposure(rows))
        return rate, rate + rate**2 * np.expm1(variance[:, 0])

    def _at_most(self, count, rate):
        return pdtr(count, rate)


@savable
@dataclasses.dataclass(frozen=True)
class NegativeBinomial(CountLikelihood):
    """Counts with overdispersion: their variance is rate + rate² · dispersion."""

    dispersion: Number = parameter(POSITIVE, default=0.5)

    def __post_init__(self) -> None:
        check_values(self)

    def _log_probability(self, y: np.ndarray, log_rate: np.ndarray) -> np.ndarray:
        size = 1 / float(self.dispersion)
        constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        excess = np.logaddexp(0, log_rate - np.log(size))
        return constant + y * (log_rate - np.log(size)) - (y + size) * excess

    def expected(self, rows, mean, variance):
        y, size = rows.targets, 1 / float(self.dispersion)
        log_rate = (at_nodes(mean[:, 0], variance[:, 0]).T + _log_exposure(rows)).T
        value = self._log_probability(y[:, None], log_rate) @ WEIGHTS
        share = expit(log_rate - np.log(size))
        total = (y + size)[:, None]
        slope, curvature = y[:, None] - total * share, -total * share * (1 - share)
        return Expected(value, averaged(slope), 0.5 * averaged(curvature))

    def log_density(self, rows, mean, variance):
        y, log_rate = rows.targets, np.log(self._rates(rows, mean, variance))
        return log_mixed(self._log_probability(y[:, None], log_rate), WEIGHTS)

    def draw(self, rows, f, generator):
        # A Poisson count whose rate is drawn from a gamma distribution.
        size = 1 / float(self.dispersion)
        rate = exp(f[:, 0] + _log_exposure(rows)) * generator.gamma(
            size, 1 / size, size=len(f)
        )
        return generator.poisson(np.minimum(rate, _LARGEST_COUNT)).astype(np.float64)

    def spread(self, rows, mean, variance):
        rate, poisson_variance = Poisson().spread(rows, mean, variance)
        squares = poisson_variance - rate + rate**2
        return rate, poisson_variance + float(self.dispersion) * squares

    def _at_most(self, count, rate):
        size = 1 / float(self.dispersion)
        return _negative_binomial_at_most(count, size, size / (size + rate))


def _negative_binomial_at_most(count, size, success):
    """The distribution function for any size; SciPy's `nbdtr` takes integers only."""
    return np.where(count < 0, 0.0, betainc(size, np.maximum(count, 0) + 1, success))


def _log_exposure(rows: Chunk) -> np.ndarray | float:
    return 0.0 if rows.exposure is None else np.log(rows.exposure)
