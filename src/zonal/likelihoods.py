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
import functools
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.special import (
    betainc,
    expit,
    gammaln,
    log_ndtr,
    logsumexp,
    ndtr,
    ndtri,
    pdtr,
    softmax,
)
from scipy.stats import qmc

from zonal.parameters import POSITIVE, Number, check_values, free, learned, with_free

__all__ = [
    "Bernoulli",
    "Expected",
    "Gaussian",
    "Heteroscedastic",
    "Labels",
    "Likelihood",
    "NegativeBinomial",
    "Poisson",
    "Softmax",
    "StudentT",
]

Rows = Float[np.ndarray, " rows"]
Latents = Float[np.ndarray, "rows latents"]

# Gauss-Hermite nodes; tests/test_likelihoods.py holds what they are good for.
_NODES = 32
# Nodes of Softmax: half of them drawn, the other half their mirror images.
_SPREAD = 64
# Rows of Softmax at a time, times classes: what a block of nodes may hold.
_BLOCK = 2_000
# An exponent beyond this is a prediction gone astray; inference takes it back.
_LARGEST_EXPONENT = 80.0
_BISECTIONS = 60
_LARGEST_COUNT = 1e12
# What a class that was not seen counts for, where softmax starts.
_DIRICHLET = 0.1


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

    @abc.abstractmethod
    def expected(
        self,
        y: Rows,
        mean: Latents,
        variance: Latents,
        exposure: Rows | None = None,
    ) -> Expected:
        """The expected log density of targets, and its derivatives."""

    @abc.abstractmethod
    def log_density(
        self,
        y: Rows,
        mean: Latents,
        variance: Latents,
        exposure: Rows | None = None,
    ) -> Rows:
        """Log predictive density, or probability, of targets: log E_q[p(y|f)]."""

    def check(self, y: Rows, first_row: int = 0) -> None:
        """Refuse targets that cannot be, naming the first."""
        return

    def moments(
        self, y: Rows, weight: Rows, exposure: Rows | None = None
    ) -> Float[np.ndarray, " sums"]:
        """Sums over rows that tell where to start; those of two tables add up."""
        return np.zeros(0)

    def offsets(
        self, moments: Float[np.ndarray, " sums"]
    ) -> Float[np.ndarray, " latents"]:
        """The functions' prior means."""
        return np.zeros(self.n_latents)

    def starting_sites(
        self, y: Rows, exposure: Rows | None = None
    ) -> tuple[Latents, Latents] | None:
        """Targets and precisions to start from, where the prior is a bad place to."""
        return None

    def centred(self, mean: Latents) -> Latents:
        """Means without what the likelihood cannot see of them."""
        return mean

    def refitted(
        self,
        y: Rows,
        weight: Rows,
        mean: Latents,
        variance: Latents,
        exposure: Rows | None = None,
    ) -> "Likelihood":
        """The likelihood whose own parameters explain some rows best."""
        start = free(self)
        if len(start) == 0:
            return self

        def objective(vector: np.ndarray) -> float:
            candidate = with_free(self, vector)
            found = candidate.expected(y, mean, variance, exposure)
            return -float(weight @ found.value / weight.sum())

        # Parameters are logarithms: a factor of e^3 in one go is plenty.
        bounds = [(number - 3, number + 3) for number in start]
        found: Any = minimize(objective, start, method="L-BFGS-B", bounds=bounds)
        return with_free(self, found.x) if found.fun <= objective(start) else self


def _hermite(count: int = _NODES) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


_Z, _W = _hermite()


def _at_nodes(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Values of one function at the nodes of its marginal, (rows, nodes)."""
    return mean[:, None] + np.sqrt(variance)[:, None] * _Z


def _exp(exponent: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(exponent, _LARGEST_EXPONENT))


def _log_exposure(exposure: Rows | None) -> np.ndarray | float:
    return 0.0 if exposure is None else np.log(exposure)


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


@dataclasses.dataclass(frozen=True)
class Gaussian(RealLikelihood):
    """Normal noise of one variance; `zonal.fit` solves it in a single pass.

    Examples
    --------
    >>> zero, one = np.zeros((1, 1)), np.ones((1, 1))
    >>> float(Gaussian(1.0).log_density(np.zeros(1), zero, 3 * one)[0].round(3))
    -1.612
    """

    noise: Number = learned(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def expected(self, y, mean, variance, exposure=None):
        noise = float(self.noise)
        error = y - mean[:, 0]
        value = -0.5 * (np.log(2 * np.pi * noise) + (error**2 + variance[:, 0]) / noise)
        return Expected(value, error[:, None] / noise, np.full_like(mean, -0.5 / noise))

    def log_density(self, y, mean, variance, exposure=None):
        return _log_normal(y - mean[:, 0], variance[:, 0] + float(self.noise))

    def spread(self, mean, variance):
        return mean[:, 0], variance[:, 0] + float(self.noise)

    def distribution(self, y, mean, variance):
        return ndtr((y - mean[:, 0]) / np.sqrt(variance[:, 0] + float(self.noise)))

    def quantiles(self, levels, mean, variance):
        centre, spread = self.spread(mean, variance)
        return centre[:, None] + np.sqrt(spread)[:, None] * ndtri(levels)


def _log_normal(error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)


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

    scale: Number = learned(POSITIVE, default=0.3)
    freedom: Number = learned(POSITIVE, default=4.0)

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
        return np.asarray(logsumexp(parts, axis=1, b=shares))

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


@dataclasses.dataclass(frozen=True)
class Heteroscedastic(RealLikelihood):
    """Normal noise whose variance changes from row to row: noise · exp(g).

    The second function g is learned like the first; noise is relative to the variance
    of the target. E is closed form.
    """

    n_latents = 2
    noise: Number = learned(POSITIVE, default=0.1)

    def __post_init__(self) -> None:
        check_values(self)

    def expected(self, y, mean, variance, exposure=None):
        noise = float(self.noise)
        precision = _exp(-mean[:, 1] + variance[:, 1] / 2) / noise
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
        exponent = _at_nodes(mean[:, 1], variance[:, 1])
        return variance[:, :1] + float(self.noise) * _exp(exponent)

    def log_density(self, y, mean, variance, exposure=None):
        error = (y - mean[:, 0])[:, None]
        parts = _log_normal(error, self._variances(mean, variance))
        return logsumexp(parts, axis=1, b=_W)

    def spread(self, mean, variance):
        noise = float(self.noise) * _exp(mean[:, 1] + variance[:, 1] / 2)
        return mean[:, 0], variance[:, 0] + noise

    def distribution(self, y, mean, variance):
        error = (y - mean[:, 0])[:, None]
        return ndtr(error / np.sqrt(self._variances(mean, variance))) @ _W


class ClassLikelihood(Likelihood):
    """A target that is one of several classes, as codes 0, 1, ..."""

    n_classes: int

    @abc.abstractmethod
    def probabilities(
        self, mean: Latents, variance: Latents
    ) -> Float[np.ndarray, "rows classes"]:
        """Probability of each class; every row sums to one."""

    def check(self, y, first_row=0):
        bad = np.flatnonzero((y != np.floor(y)) | (y < 0) | (y >= self.n_classes))
        if len(bad):
            raise ValueError(
                f"row {first_row + bad[0]} has class code {y[bad[0]]:g}; codes of "
                f"{self.n_classes} classes are 0 to {self.n_classes - 1} "
                "(zonal.Labels makes them)"
            )

    def log_density(self, y, mean, variance, exposure=None):
        chosen = self.probabilities(mean, variance)[np.arange(len(y)), y.astype(int)]
        return np.log(np.maximum(chosen, np.finfo(np.float64).tiny))

    def moments(self, y, weight, exposure=None):
        return np.bincount(y.astype(int), weight, minlength=self.n_classes)

    def _shares(self, moments: np.ndarray) -> np.ndarray:
        """Share of each class, never quite zero."""
        return (moments + 0.5) / (moments.sum() + 0.5 * self.n_classes)


@dataclasses.dataclass(frozen=True)
class Bernoulli(ClassLikelihood):
    """Two classes, codes 0 and 1: the probability of 1 is a sigmoid of the function.

    Parameters
    ----------
    link
        ``"logit"`` or ``"probit"``.

    Examples
    --------
    >>> Bernoulli().probabilities(np.zeros((1, 1)), np.ones((1, 1))).round(3)
    array([[0.5, 0.5]])
    """

    n_classes = 2
    link: str = "logit"

    def __post_init__(self) -> None:
        if self.link not in ("logit", "probit"):
            raise ValueError(f"link is 'logit' or 'probit', not {self.link!r}")

    def expected(self, y, mean, variance, exposure=None):
        sign = np.where(y > 0.5, 1.0, -1.0)[:, None]
        # The function seen from the right answer: more is better for either class.
        f = _at_nodes(sign[:, 0] * mean[:, 0], variance[:, 0])
        if self.link == "logit":
            wrong = expit(-f)
            value, slope, curvature = -np.logaddexp(0, -f), wrong, -wrong * (1 - wrong)
        else:
            value = log_ndtr(f)
            slope = np.exp(-0.5 * f**2 - 0.5 * np.log(2 * np.pi) - value)
            curvature = -slope * (slope + f)
        return Expected(value @ _W, sign * _column(slope), 0.5 * _column(curvature))

    def probabilities(self, mean, variance):
        if self.link == "probit":
            f = mean[:, 0] / np.sqrt(1 + variance[:, 0])
            return np.column_stack([ndtr(-f), ndtr(f)])
        f = _at_nodes(mean[:, 0], variance[:, 0])
        return np.column_stack([expit(-f) @ _W, expit(f) @ _W])

    def offsets(self, moments):
        share = self._shares(moments)[1]
        found = np.log(share / (1 - share)) if self.link == "logit" else ndtri(share)
        return np.array([found])


def _column(values: np.ndarray) -> np.ndarray:
    return (values @ _W)[:, None]


@dataclasses.dataclass(frozen=True)
class Softmax(ClassLikelihood):
    """Several classes: probabilities are the softmax of one function each.

    Integrals over all functions at once are averages over 128 fixed nodes that are
    spread evenly (scrambled Sobol points and their mirror images).
    """

    n_classes: int
    exchangeable = True

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"softmax needs two classes or more, not {self.n_classes}")

    @property
    def n_latents(self) -> int:
        return self.n_classes

    def expected(self, y, mean, variance, exposure=None):
        codes = y.astype(int)
        value = np.empty(len(y))
        shares, curvature = np.empty_like(mean), np.empty_like(mean)
        for rows, f in self._blocks(mean, variance):
            value[rows] = -np.mean(np.asarray(logsumexp(f, axis=2)), axis=0)
            likely = softmax(f, axis=2)
            shares[rows] = likely.mean(axis=0)
            curvature[rows] = shares[rows] - np.mean(likely**2, axis=0)
        value += mean[np.arange(len(y)), codes]
        mean_bar = -shares
        mean_bar[np.arange(len(y)), codes] += 1
        return Expected(value, mean_bar, -0.5 * curvature)

    def probabilities(self, mean, variance):
        shares = np.empty_like(mean)
        for rows, f in self._blocks(mean, variance):
            shares[rows] = softmax(f, axis=2).mean(axis=0)
        return shares / shares.sum(axis=1, keepdims=True)

    def starting_sites(self, y, exposure=None):
        """Labels as observed logarithms of class probabilities (Milios et al. 2018).

        Those of a Dirichlet with one count for the class seen and a little for the
        others, matched by log-normals: regression with known precisions.
        """
        counts = np.full((len(y), self.n_classes), _DIRICHLET)
        counts[np.arange(len(y)), y.astype(int)] += 1
        variance = np.log1p(1 / counts)
        return self.centred(np.log(counts) - variance / 2), 1 / variance

    def centred(self, mean):
        """A shift of all functions changes nothing, and under one prior is zero."""
        return mean - mean.mean(axis=1, keepdims=True)

    def _blocks(self, mean: Latents, variance: Latents):
        """Some rows at a time, and their functions at the nodes."""
        nodes = _spread_nodes(self.n_classes)
        size = max(1, _BLOCK // self.n_classes)
        for start in range(0, len(mean), size):
            rows = slice(start, start + size)
            yield rows, mean[rows] + np.sqrt(variance[rows]) * nodes[:, None, :]

    def offsets(self, moments):
        logs = np.log(self._shares(moments))
        return logs - logs.mean()


@functools.lru_cache(maxsize=16)
def _spread_nodes(size: int) -> np.ndarray:
    """Nodes for averages over independent standard normals: (nodes, size)."""
    points = qmc.Sobol(size, scramble=True, rng=np.random.default_rng(0))
    half = ndtri(np.clip(points.random(_SPREAD), 1e-6, 1 - 1e-6))
    nodes = np.concatenate([half, -half])
    return nodes / np.sqrt(np.mean(nodes**2, axis=0))


class CountLikelihood(Likelihood):
    """A target that counts: 0, 1, 2, ...; the function is the log of its rate.

    ``exposure`` is what a row's rate is multiplied by: hours watched, people at risk.
    """

    @abc.abstractmethod
    def spread(
        self, mean: Latents, variance: Latents, exposure: Rows | None = None
    ) -> tuple[Rows, Rows]:
        """Predictive mean and variance of a new count."""

    @abc.abstractmethod
    def _at_most(self, count: np.ndarray, rate: np.ndarray) -> np.ndarray:
        """Probability of at most so many, given the rate."""

    def check(self, y, first_row=0):
        bad = np.flatnonzero((y < 0) | (y != np.floor(y)))
        if len(bad):
            raise ValueError(
                f"counts are 0, 1, 2, ...; row {first_row + bad[0]} has {y[bad[0]]:g}"
            )
        large = np.flatnonzero(y > _LARGEST_COUNT)
        if len(large):
            raise ValueError(
                f"row {first_row + large[0]} counts {y[large[0]]:g}; beyond "
                f"{_LARGEST_COUNT:g} take the logarithm and zonal.fit"
            )

    def moments(self, y, weight, exposure=None):
        exposed = weight.sum() if exposure is None else weight @ exposure
        return np.array([weight @ y, exposed])

    def offsets(self, moments):
        return np.array([np.log((moments[0] + 0.5) / moments[1])])

    def starting_sites(self, y, exposure=None):
        """Each count is its own first guess: log rates, as exact as counts are."""
        target = np.log(y + 0.5) - _log_exposure(exposure)
        return target[:, None], (y + 0.5)[:, None]

    def _rates(
        self, mean: Latents, variance: Latents, exposure: Rows | None
    ) -> np.ndarray:
        """Rates at the nodes of the function, (rows, nodes)."""
        exponent = _at_nodes(mean[:, 0], variance[:, 0])
        return _exp((exponent.T + _log_exposure(exposure)).T)

    def quantiles(
        self,
        levels: np.ndarray,
        mean: Latents,
        variance: Latents,
        exposure: Rows | None = None,
    ) -> Float[np.ndarray, "rows levels"]:
        """The least counts that are reached with each probability."""
        rates = self._rates(mean, variance, exposure)
        columns = []
        for level in levels:
            low, high = np.full(len(mean), -1.0), np.ones(len(mean))
            while np.any(short := self._at_most(high[:, None], rates) @ _W < level):
                low, high = np.where(short, high, low), np.where(short, 2 * high, high)
            while True:
                middle = np.floor((low + high) / 2)
                # Beyond 2^53 neighbouring numbers are further apart than one.
                if np.all((high - low <= 1) | (middle == low) | (middle == high)):
                    break
                reached = self._at_most(middle[:, None], rates) @ _W >= level
                low = np.where(reached, low, middle)
                high = np.where(reached, middle, high)
            columns.append(high)
        return np.column_stack(columns)


@dataclasses.dataclass(frozen=True)
class Poisson(CountLikelihood):
    """Counts whose variance is their mean. E is closed form.

    Examples
    --------
    >>> mean, variance = np.log(np.array([[7.0]])), np.zeros((1, 1))
    >>> Poisson().quantiles(np.array([0.5]), mean, variance)
    array([[7.]])
    """

    def expected(self, y, mean, variance, exposure=None):
        log_mean = mean[:, 0] + _log_exposure(exposure)
        rate = _exp(log_mean + variance[:, 0] / 2)
        value = y * log_mean - rate - gammaln(y + 1)
        return Expected(value, (y - rate)[:, None], -0.5 * rate[:, None])

    def log_density(self, y, mean, variance, exposure=None):
        rates = self._rates(mean, variance, exposure)
        parts = y[:, None] * np.log(rates) - rates - gammaln(y + 1)[:, None]
        return logsumexp(parts, axis=1, b=_W)

    def spread(self, mean, variance, exposure=None):
        rate = _exp(mean[:, 0] + variance[:, 0] / 2 + _log_exposure(exposure))
        return rate, rate + rate**2 * np.expm1(variance[:, 0])

    def _at_most(self, count, rate):
        return pdtr(count, rate)


@dataclasses.dataclass(frozen=True)
class NegativeBinomial(CountLikelihood):
    """Counts that scatter more than their mean: variance rate + rate² · dispersion."""

    dispersion: Number = learned(POSITIVE, default=0.5)

    def __post_init__(self) -> None:
        check_values(self)

    def _log_probability(self, y: np.ndarray, log_rate: np.ndarray) -> np.ndarray:
        size = 1 / float(self.dispersion)
        constant = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        excess = np.logaddexp(0, log_rate - np.log(size))
        return constant + y * (log_rate - np.log(size)) - (y + size) * excess

    def expected(self, y, mean, variance, exposure=None):
        size = 1 / float(self.dispersion)
        log_rate = (_at_nodes(mean[:, 0], variance[:, 0]).T + _log_exposure(exposure)).T
        value = self._log_probability(y[:, None], log_rate) @ _W
        share = expit(log_rate - np.log(size))
        total = (y + size)[:, None]
        slope, curvature = y[:, None] - total * share, -total * share * (1 - share)
        return Expected(value, _column(slope), 0.5 * _column(curvature))

    def log_density(self, y, mean, variance, exposure=None):
        log_rate = np.log(self._rates(mean, variance, exposure))
        return logsumexp(self._log_probability(y[:, None], log_rate), axis=1, b=_W)

    def spread(self, mean, variance, exposure=None):
        rate, around = Poisson().spread(mean, variance, exposure)
        squares = around - rate + rate**2
        return rate, around + float(self.dispersion) * squares

    def _at_most(self, count, rate):
        size = 1 / float(self.dispersion)
        return _negative_binomial_at_most(count, size, size / (size + rate))


def _negative_binomial_at_most(count, size, success):
    """SciPy's `nbdtr` takes whole sizes only; the incomplete beta takes any."""
    return np.where(count < 0, 0.0, betainc(size, np.maximum(count, 0) + 1, success))


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """Names of classes and the codes 0, 1, ... that stand for them.

    Examples
    --------
    >>> labels = Labels.of(np.array(["red", "blue", "red"]))
    >>> labels.names, labels.codes(["blue", "red"])
    (array(['blue', 'red'], dtype='<U4'), array([0., 1.]))
    """

    names: np.ndarray

    @classmethod
    def of(cls, y) -> "Labels":
        """The classes that occur in a column of strings, numbers or truth values."""
        names = np.unique(_checked_labels(y))
        if len(names) == 0:
            raise ValueError("there are no labels; give at least one row of each class")
        if len(names) == 1:
            raise ValueError(
                f"every row has the same class, {names[0]!r}; there is nothing to tell "
                "apart: give rows of at least two classes"
            )
        return cls(names)

    def __len__(self) -> int:
        return len(self.names)

    def likelihood(self) -> ClassLikelihood:
        """`Bernoulli` for two classes, `Softmax` for more."""
        return Bernoulli() if len(self) == 2 else Softmax(len(self))

    def codes(self, y) -> Float[np.ndarray, " rows"]:
        """Codes of labels; one that was never seen is refused by name."""
        y = _checked_labels(y)
        places = np.searchsorted(self.names, y).clip(0, len(self) - 1)
        unseen = np.flatnonzero(self.names[places] != y)
        if len(unseen):
            known = ", ".join(str(name) for name in self.names[:5])
            raise ValueError(
                f"row {unseen[0]} has class {y[unseen[0]]!r}, which was not there to "
                f"learn from; known are {known}{', ...' if len(self) > 5 else ''}"
            )
        return places.astype(np.float64)


def _checked_labels(y) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"labels must have shape (rows,), got {y.shape}")
    if y.dtype == object:
        kinds = {type(value) for value in y}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"labels must be of one type; these are {names}")
        y = np.array(y.tolist())
    if np.issubdtype(y.dtype, np.floating) and not np.all(np.isfinite(y)):
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"the label of row {row} is missing; remove or name it")
    return y
