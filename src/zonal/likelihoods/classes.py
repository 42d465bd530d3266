"""Likelihoods of two or more classes, and the names of classes."""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_ndtr, ndtr, ndtri, softmax
from scipy.stats import qmc

from zonal.likelihoods.base import (
    WEIGHTS,
    Expected,
    Latents,
    Likelihood,
    at_nodes,
    averaged,
)
from zonal.saving import savable

__all__ = ["Bernoulli", "ClassLikelihood", "Labels", "Softmax"]

# Half the number of nodes of Softmax; the other half are their mirror images.
_SPREAD = 64
# Rows times classes in a block of Softmax, which limits memory.
_BLOCK = 2_000
# Pseudo-count of the classes that a row does not have, in the first sites of softmax.
_DIRICHLET = 0.1


class ClassLikelihood(Likelihood):
    """A target that is one of several classes, given as a code 0, 1, ..."""

    n_classes: int
    classifies = True

    def outcome(self, rows, mean, variance):
        return self.probabilities(mean, variance)

    def check(self, rows, first_row=0):
        y = rows.targets
        bad = np.flatnonzero((y != np.floor(y)) | (y < 0) | (y >= self.n_classes))
        if len(bad):
            raise ValueError(
                f"row {first_row + bad[0]} has class code {y[bad[0]]:g}; codes of "
                f"{self.n_classes} classes are 0 to {self.n_classes - 1} "
                "(zonal.Labels converts names to codes)"
            )

    def log_density(self, rows, mean, variance):
        codes = rows.targets.astype(int)
        probability = self.probabilities(mean, variance)[np.arange(len(codes)), codes]
        return np.log(np.maximum(probability, np.finfo(np.float64).tiny))

    def draw(self, rows, f, generator):
        # Given the functions, probabilities are those of marginals of variance zero.
        cumulative = np.cumsum(self.probabilities(f, np.zeros_like(f)), axis=1)
        codes = np.sum(generator.random(len(f))[:, None] > cumulative, axis=1)
        return np.minimum(codes, self.n_classes - 1).astype(np.float64)

    def moments(self, rows):
        codes = rows.targets.astype(int)
        return np.bincount(codes, rows.weights, minlength=self.n_classes)

    def _shares(self, moments: np.ndarray) -> np.ndarray:
        """Share of each class, smoothed so that it is positive."""
        return (moments + 0.5) / (moments.sum() + 0.5 * self.n_classes)


@savable
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
            raise ValueError(f"link must be 'logit' or 'probit', not {self.link!r}")

    def expected(self, rows, mean, variance):
        sign = np.where(rows.targets > 0.5, 1.0, -1.0)[:, None]
        # With this sign, larger values make the true class more probable.
        f = at_nodes(sign[:, 0] * mean[:, 0], variance[:, 0])
        if self.link == "logit":
            error = expit(-f)
            value, slope, curvature = -np.logaddexp(0, -f), error, -error * (1 - error)
        else:
            value = log_ndtr(f)
            slope = np.exp(-0.5 * f**2 - 0.5 * np.log(2 * np.pi) - value)
            curvature = -slope * (slope + f)
        return Expected(
            value @ WEIGHTS, sign * averaged(slope), 0.5 * averaged(curvature)
        )

    def probabilities(self, mean, variance):
        if self.link == "probit":
            f = mean[:, 0] / np.sqrt(1 + variance[:, 0])
            return np.column_stack([ndtr(-f), ndtr(f)])
        f = at_nodes(mean[:, 0], variance[:, 0])
        return np.column_stack([expit(-f) @ WEIGHTS, expit(f) @ WEIGHTS])

    def offsets(self, moments):
        share = self._shares(moments)[1]
        offset = np.log(share / (1 - share)) if self.link == "logit" else ndtri(share)
        return np.array([offset])


@savable
@dataclasses.dataclass(frozen=True)
class Softmax(ClassLikelihood):
    """Several classes: probabilities are the softmax of one function each.

    Integrals over the functions are averages over 128 fixed, evenly spread nodes
    (scrambled Sobol points and their mirror images).
    """

    n_classes: int
    exchangeable = True

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ValueError(f"softmax needs two classes or more, not {self.n_classes}")

    @property
    def n_latents(self) -> int:
        return self.n_classes

    def expected(self, rows, mean, variance):
        codes = rows.targets.astype(int)
        value = mean[np.arange(len(codes)), codes]
        shares, curvature = np.empty_like(mean), np.empty_like(mean)
        for block, probability, log_total in self._blocks(mean, variance):
            value[block] -= log_total.mean(axis=0)
            shares[block] = probability.mean(axis=1).T
            np.square(probability, out=probability)
            curvature[block] = shares[block] - probability.mean(axis=1).T
        mean_bar = -shares
        mean_bar[np.arange(len(codes)), codes] += 1
        return Expected(value, mean_bar, -0.5 * curvature)

    def probabilities(self, mean, variance):
        if not variance.any():
            return softmax(mean, axis=1)
        shares = np.empty_like(mean)
        for rows, probability, _ in self._blocks(mean, variance):
            shares[rows] = probability.mean(axis=1).T
        return shares / shares.sum(axis=1, keepdims=True)

    def starting_sites(self, rows):
        """Labels as noisy logarithms of class probabilities (Milios et al. 2018).

        The probabilities follow a Dirichlet distribution with one count for the row's
        class and a pseudo-count for the others; log-normals with the same moments give
        targets and precisions.
        """
        counts = np.full((len(rows), self.n_classes), _DIRICHLET)
        counts[np.arange(len(rows)), rows.targets.astype(int)] += 1
        variance = np.log1p(1 / counts)
        return self.centred(np.log(counts) - variance / 2), 1 / variance

    def centred(self, mean):
        """Means minus their average, which softmax does not depend on."""
        return mean - mean.mean(axis=1, keepdims=True)

    def _blocks(
        self, mean: Latents, variance: Latents
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Blocks of rows, with class probabilities and log Σ exp at the nodes.

        Shapes are (classes, nodes, rows) and (nodes, rows). Sums over classes then run
        over contiguous memory, which is several times faster than classes last.
        """
        nodes = np.ascontiguousarray(_spread_nodes(self.n_classes).T)[:, :, None]
        size = max(1, _BLOCK // self.n_classes)
        for start in range(0, len(mean), size):
            rows = slice(start, start + size)
            deviation = np.sqrt(variance[rows]).T[:, None, :]
            f = deviation * nodes + mean[rows].T[:, None, :]
            highest = f.max(axis=0)
            np.exp(f - highest, out=f)
            total = f.sum(axis=0)
            f /= total
            yield rows, f, highest + np.log(total)

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


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """Names of classes, sorted; their codes are 0, 1, ...

    Examples
    --------
    >>> labels = Labels.of(np.array(["red", "blue", "red"]))
    >>> labels.names, labels.codes(["blue", "red"])
    (array(['blue', 'red'], dtype='<U4'), array([0., 1.]))
    """

    names: np.ndarray

    @classmethod
    def of(cls, y) -> "Labels":
        """The classes in a column of strings, numbers or booleans."""
        names = np.unique(_check_labels(y))
        if len(names) == 0:
            raise ValueError("there are no labels; give at least one row of each class")
        if len(names) == 1:
            raise ValueError(
                f"every row has the same class, {names[0]!r}; there is only 1 class: "
                "give rows of at least two classes"
            )
        return cls(names)

    def __len__(self) -> int:
        return len(self.names)

    def likelihood(self) -> ClassLikelihood:
        """`Bernoulli` for two classes, `Softmax` for more."""
        return Bernoulli() if len(self) == 2 else Softmax(len(self))

    def codes(self, y) -> Float[np.ndarray, " rows"]:
        """Codes of labels; raises ValueError for labels of unknown classes."""
        y = _check_labels(y)
        codes = np.searchsorted(self.names, y).clip(0, len(self) - 1)
        unknown = np.flatnonzero(self.names[codes] != y)
        if len(unknown):
            known = ", ".join(str(name) for name in self.names[:5])
            label = y[unknown[0]].item()
            raise ValueError(
                f"row {unknown[0]} has class {label!r}, which is not a class of the "
                f"model; known are {known}{', ...' if len(self) > 5 else ''}"
            )
        return codes.astype(np.float64)


def _check_labels(y) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"labels must have shape (rows,), got {y.shape}")
    if y.dtype == object:
        kinds = {type(value) for value in y}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(
                f"labels must be of one type; these are {names}; convert them to one"
            )
        y = np.array(y.tolist())
    if np.issubdtype(y.dtype, np.floating) and not np.all(np.isfinite(y)):
        row = int(np.flatnonzero(~np.isfinite(y))[0])
        raise ValueError(f"the label of row {row} is missing; remove or name it")
    return y
