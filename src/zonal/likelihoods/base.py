"""Likelihoods: how a target follows from the functions at its row.

Inference needs only E = E_q[log p(y|f)] under independent normal marginals
q(f) = N(m, v) of a row's functions, and the derivatives of E in m and v. They have a
closed form for `Gaussian`, `Poisson`, `StudentT` and `Heteroscedastic`,
Gauss-Hermite quadrature for `Bernoulli` and `NegativeBinomial`, and an average over
fixed, evenly spread nodes for `Softmax`. The nodes are the same for every row, so that
results do not depend on the batch.

Predictions integrate over the same marginals. The axes of ``mean`` and ``variance`` are
rows and functions. Targets are numbers; classes are given by their codes (`Labels`).
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import logsumexp

from zonal.prior.parameters import free, with_free
from zonal.tables.chunks import Chunk

__all__ = ["Expected", "Likelihood"]

Rows = Float[np.ndarray, " rows"]
Latents = Float[np.ndarray, "rows latents"]

# Gauss-Hermite nodes; tests/likelihoods/test_likelihoods.py checks their accuracy.
_NODES = 32
# Larger exponents occur only in steps of inference that diverge and are rejected.
_LARGEST_EXPONENT = 80.0


@dataclasses.dataclass(frozen=True, eq=False)
class Expected:
    """E_q[log p(y|f)] of each row, and its derivatives in each marginal."""

    value: Rows
    mean_bar: Latents
    variance_bar: Latents


class Likelihood(abc.ABC):
    """How a target follows from one or several functions at its row."""

    n_latents: int = 1
    #: Whether the target is a real number, to be standardised like a column.
    real: bool = False
    #: Whether its functions can be exchanged, and so share one prior.
    exchangeable: bool = False
    #: Whether one pass over the rows gives the exact posterior.
    conjugate: bool = False
    #: Whether each row may have an exposure, which multiplies the rate of its target.
    takes_exposure: bool = False
    #: Whether the width of errors depends on residuals near a row.
    uses_nearby: bool = False
    #: Whether targets are classes.
    classifies: bool = False

    @abc.abstractmethod
    def expected(self, rows: Chunk, mean: Latents, variance: Latents) -> Expected:
        """The expected log density of targets, and its derivatives."""

    @abc.abstractmethod
    def log_density(self, rows: Chunk, mean: Latents, variance: Latents) -> Rows:
        """Log predictive density, or probability, of targets: log E_q[p(y|f)]."""

    @abc.abstractmethod
    def draw(self, rows: Chunk, f: Latents, generator: np.random.Generator) -> Rows:
        """Random targets, given the functions."""

    def draw_new(
        self,
        rows: Chunk,
        mean: Latents,
        variance: Latents,
        count: int,
        generator: np.random.Generator,
    ) -> Float[np.ndarray, "rows samples"]:
        """Random new targets, given the marginals and independent between rows."""
        deviation, columns = np.sqrt(variance), []
        for _ in range(count):
            f = mean + deviation * generator.normal(size=mean.shape)
            columns.append(self.draw(rows, f, generator))
        return np.column_stack(columns)

    def sampler(
        self, count: int, generator: np.random.Generator
    ) -> Callable[
        [Chunk, Latents, Latents, np.ndarray], Float[np.ndarray, "rows samples"]
    ]:
        """A function that draws a target for each of ``count`` drawn functions.

        It is called for each block of rows, with the rows, the functions' marginal
        means and variances, and the drawn functions of shape (rows, samples, latents).
        """

        def draw(
            rows: Chunk, mean: Latents, variance: Latents, f: np.ndarray
        ) -> np.ndarray:
            return np.column_stack(
                [self.draw(rows, f[:, index], generator) for index in range(count)]
            )

        return draw

    def spread(
        self, rows: Chunk, mean: Latents, variance: Latents
    ) -> tuple[Rows, Rows]:
        """Predictive mean and variance of a new target."""
        raise TypeError(f"{type(self).__name__} has no mean and variance")

    def distribution(self, rows: Chunk, mean: Latents, variance: Latents) -> Rows:
        """Probability that a new target is at most the target of its row."""
        raise TypeError(f"{type(self).__name__} has no distribution function")

    def crps(self, rows: Chunk, mean: Latents, variance: Latents) -> Rows | None:
        """Continuous ranked probability score, or None if it has no closed form."""
        return None

    def quantiles(
        self, levels: np.ndarray, rows: Chunk, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target."""
        raise TypeError(f"{type(self).__name__} has no quantiles")

    def probabilities(
        self, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class; rows sum to one."""
        raise TypeError(f"{type(self).__name__} has no probabilities of classes")

    def outcome(
        self, rows: Chunk, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows outcomes"]:
        """Mean of a new target, or the probability of each class, as columns."""
        return self.spread(rows, mean, variance)[0][:, None]

    def check(self, rows: Chunk, first_row: int = 0) -> None:
        """Raise ValueError if a target is invalid, naming the first such row."""
        return

    def moments(self, rows: Chunk) -> Float[np.ndarray, " sums"]:
        """Sums over rows that determine `offsets`; those of two tables can be added."""
        return np.zeros(0)

    def offsets(
        self, moments: Float[np.ndarray, " sums"]
    ) -> Float[np.ndarray, " latents"]:
        """The functions' prior means."""
        return np.zeros(self.n_latents)

    def starting_sites(self, rows: Chunk) -> tuple[Latents, Latents] | None:
        """Targets and precisions of first sites, or None to start from the prior."""
        return None

    def centred(self, mean: Latents) -> Latents:
        """Means without components that the likelihood does not depend on."""
        return mean

    def calibrate(self, rows: Chunk, mean: Latents, variance: Latents) -> "Likelihood":
        """The likelihood calibrated on targets and their leave-one-out predictions.

        Only normal noise is calibrated; other likelihoods are returned unchanged.
        """
        return self

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise; NaN if it is not constant."""
        return np.nan

    @property
    def described(self) -> tuple[str, str, str]:
        """Name, value and meaning of the learned parameters, for a summary."""
        return "likelihood", str(self), "with its learned parameters"

    def refit(self, rows: Chunk, mean: Latents, variance: Latents) -> "Likelihood":
        """The likelihood with its own parameters fitted to rows."""
        start = free(self)
        if len(start) == 0:
            return self

        def objective(vector: np.ndarray) -> float:
            candidate = with_free(self, vector)
            expected = candidate.expected(rows, mean, variance)
            return -float(rows.weights @ expected.value / rows.weights.sum())

        # Parameters are logarithms; a fit changes them by at most a factor of e^3.
        bounds = [(value - 3, value + 3) for value in start]
        result: Any = minimize(objective, start, method="L-BFGS-B", bounds=bounds)
        return with_free(self, result.x) if result.fun <= objective(start) else self


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(_NODES)
WEIGHTS /= WEIGHTS.sum()


def log_mixed(
    parts: Float[np.ndarray, "rows parts"], shares: Float[np.ndarray, " parts"]
) -> Rows:
    """Log of the mean of exp(parts), weighted by shares that may be close to zero."""
    logs = np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    return np.asarray(logsumexp(parts + logs, axis=1))


def at_nodes(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Values of one function at the nodes of its marginal, (rows, nodes)."""
    return mean[:, None] + np.sqrt(variance)[:, None] * NODES


def averaged(values: np.ndarray) -> Latents:
    """Averages over the nodes, as the single column of one function."""
    return (values @ WEIGHTS)[:, None]


def exp(exponent: np.ndarray) -> np.ndarray:
    """The exponential function, without overflow."""
    return np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
