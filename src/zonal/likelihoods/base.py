"""Likelihoods: how a target follows from the functions at its row.

Inference asks a likelihood for one thing: E = E_q[log p(y|f)] under independent normal
marginals q(f) = N(m, v) of a row's functions, and the derivatives of E in m and v. They
are closed form for `Gaussian`, `Poisson`, `StudentT` and `Heteroscedastic`,
Gauss-Hermite quadrature for `Bernoulli` and `NegativeBinomial`, and an average over
fixed, evenly spread nodes for `Softmax`; the same nodes for every row, so that nothing
depends on the batch.

Predictions integrate over the same marginals. Rows and functions are the axes of
``mean`` and ``variance``; targets are numbers, for classes their codes (see `Labels`).
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

# Gauss-Hermite nodes; tests/test_likelihoods.py holds what they are good for.
_NODES = 32
# An exponent beyond this is a prediction gone astray; inference takes it back.
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
    #: Whether rates of targets are multiplied by an exposure of each row.
    takes_exposure: bool = False
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
        """Targets drawn at random, given the functions."""

    def draw_new(
        self,
        rows: Chunk,
        mean: Latents,
        variance: Latents,
        count: int,
        generator: np.random.Generator,
    ) -> Float[np.ndarray, "rows samples"]:
        """New targets at random, every row for itself, given the marginals."""
        deviation, columns = np.sqrt(variance), []
        for _ in range(count):
            f = mean + deviation * generator.normal(size=mean.shape)
            columns.append(self.draw(rows, f, generator))
        return np.column_stack(columns)

    def sampler(
        self, count: int, generator: np.random.Generator
    ) -> Callable[[Chunk, Latents, np.ndarray], Float[np.ndarray, "rows samples"]]:
        """A function that draws a target for each of ``count`` drawn functions.

        It takes rows, the functions' means, and the drawn functions, of shape
        (rows, samples, latents); one block of rows after another.
        """

        def draw(rows: Chunk, mean: Latents, f: np.ndarray) -> np.ndarray:
            every = range(count)
            return np.column_stack(
                [self.draw(rows, f[:, number], generator) for number in every]
            )

        return draw

    def spread(
        self, rows: Chunk, mean: Latents, variance: Latents
    ) -> tuple[Rows, Rows]:
        """Predictive mean and variance of a new target."""
        raise TypeError(f"{type(self).__name__} has no mean and variance")

    def distribution(self, rows: Chunk, mean: Latents, variance: Latents) -> Rows:
        """Probability that a new target is at most the rows' own."""
        raise TypeError(f"{type(self).__name__} has no distribution function")

    def crps(self, rows: Chunk, mean: Latents, variance: Latents) -> Rows | None:
        """Continuous ranked probability score, where it has a closed form."""
        return None

    def quantiles(
        self, levels: np.ndarray, rows: Chunk, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows levels"]:
        """Quantiles of a new target."""
        raise TypeError(f"{type(self).__name__} has no quantiles")

    def probabilities(
        self, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class; every row sums to one."""
        raise TypeError(f"{type(self).__name__} has no probabilities of classes")

    def outcome(
        self, rows: Chunk, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows outcomes"]:
        """Mean of a new target, or the probability of each class, as columns."""
        return self.spread(rows, mean, variance)[0][:, None]

    def check(self, rows: Chunk, first_row: int = 0) -> None:
        """Raise ValueError where targets are impossible, naming the first."""
        return

    def moments(self, rows: Chunk) -> Float[np.ndarray, " sums"]:
        """Sums over rows that tell where to start; those of two tables add up."""
        return np.zeros(0)

    def offsets(
        self, moments: Float[np.ndarray, " sums"]
    ) -> Float[np.ndarray, " latents"]:
        """The functions' prior means."""
        return np.zeros(self.n_latents)

    def starting_sites(self, rows: Chunk) -> tuple[Latents, Latents] | None:
        """Targets and precisions to start from, where the prior is a bad place to."""
        return None

    def centred(self, mean: Latents) -> Latents:
        """Means without what the likelihood cannot see of them."""
        return mean

    def calibrate(self, rows: Chunk, mean: Latents, variance: Latents) -> "Likelihood":
        """The likelihood with the shape of the errors of leave-one-out predictions.

        Likelihoods that have a shape of their own keep it.
        """
        return self

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of constant noise; NaN where noise is not constant."""
        return np.nan

    @property
    def described(self) -> tuple[str, str, str]:
        """Name, value and meaning of what was learned, for a summary."""
        return "likelihood", str(self), "with its learned parameters"

    def refit(self, rows: Chunk, mean: Latents, variance: Latents) -> "Likelihood":
        """The likelihood whose own parameters explain some rows best."""
        start = free(self)
        if len(start) == 0:
            return self

        def objective(vector: np.ndarray) -> float:
            candidate = with_free(self, vector)
            found = candidate.expected(rows, mean, variance)
            return -float(rows.weights @ found.value / rows.weights.sum())

        # Parameters are logarithms: a factor of e^3 in one go is plenty.
        bounds = [(number - 3, number + 3) for number in start]
        found: Any = minimize(objective, start, method="L-BFGS-B", bounds=bounds)
        return with_free(self, found.x) if found.fun <= objective(start) else self


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(_NODES)
WEIGHTS /= WEIGHTS.sum()


def log_mixed(
    parts: Float[np.ndarray, "rows parts"], shares: Float[np.ndarray, " parts"]
) -> Rows:
    """Log of the mean of exp(parts) by shares, some of which may be next to nothing."""
    logs = np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    return np.asarray(logsumexp(parts + logs, axis=1))


def at_nodes(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Values of one function at the nodes of its marginal, (rows, nodes)."""
    return mean[:, None] + np.sqrt(variance)[:, None] * NODES


def averaged(values: np.ndarray) -> Latents:
    """Averages of values at the nodes, as the one column of a single function."""
    return (values @ WEIGHTS)[:, None]


def exp(exponent: np.ndarray) -> np.ndarray:
    """The exponential function, without overflow."""
    return np.exp(np.minimum(exponent, _LARGEST_EXPONENT))
