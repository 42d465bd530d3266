"""Targets that are classes: two of them, or several; and their names."""

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

# Nodes of Softmax: half of them drawn, the other half their mirror images.
_SPREAD = 64
# Rows of Softmax at a time, times classes: what a block of nodes may hold.
_BLOCK = 2_000
# What a class that was not seen counts for, where softmax starts.
_DIRICHLET = 0.1


class ClassLikelihood(Likelihood):
    """A target that is one of several classes, as codes 0, 1, ..."""

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
                "(zonal.Labels makes them)"
            )

    def log_density(self, rows, mean, variance):
        codes = rows.targets.astype(int)
        chosen = self.probabilities(mean, variance)[np.arange(len(codes)), codes]
        return np.log(np.maximum(chosen, np.finfo(np.float64).tiny))

    def draw(self, rows, f, generator):
        # Given the functions, probabilities are those of marginals without width.
        below = np.cumsum(self.probabilities(f, np.zeros_like(f)), axis=1)
        chosen = np.sum(generator.random(len(f))[:, None] > below, axis=1)
        return np.minimum(chosen, self.n_classes - 1).astype(np.float64)

    def moments(self, rows):
        codes = rows.targets.astype(int)
        return np.bincount(codes, rows.weights, minlength=self.n_classes)

    def _shares(self, moments: np.ndarray) -> np.ndarray:
        """Share of each class, never quite zero."""
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
            raise ValueError(f"link is 'logit' or 'probit', not {self.link!r}")

    def expected(self, rows, mean, variance):
        sign = np.where(rows.targets > 0.5, 1.0, -1.0)[:, None]
        # The function seen from the right answer: more is better for either class.
        f = at_nodes(sign[:, 0] * mean[:, 0], variance[:, 0])
        if self.link == "logit":
            wrong = expit(-f)
            value, slope, curvature = -np.logaddexp(0, -f), wrong, -wrong * (1 - wrong)
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
        found = np.log(share / (1 - share)) if self.link == "logit" else ndtri(share)
        return np.array([found])


@savable
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

    def expected(self, rows, mean, variance):
        codes = rows.targets.astype(int)
        value = mean[np.arange(len(codes)), codes]
        shares, curvature = np.empty_like(mean), np.empty_like(mean)
        for block, likely, log_total in self._blocks(mean, variance):
            value[block] -= log_total.mean(axis=0)
            shares[block] = likely.mean(axis=1).T
            np.square(likely, out=likely)
            curvature[block] = shares[block] - likely.mean(axis=1).T
        mean_bar = -shares
        mean_bar[np.arange(len(codes)), codes] += 1
        return Expected(value, mean_bar, -0.5 * curvature)

    def probabilities(self, mean, variance):
        if not variance.any():
            return softmax(mean, axis=1)
        shares = np.empty_like(mean)
        for rows, likely, _ in self._blocks(mean, variance):
            shares[rows] = likely.mean(axis=1).T
        return shares / shares.sum(axis=1, keepdims=True)

    def starting_sites(self, rows):
        """Labels as observed logarithms of class probabilities (Milios et al. 2018).

        Those of a Dirichlet with one count for the class seen and a little for the
        others, matched by log-normals: regression with known precisions.
        """
        counts = np.full((len(rows), self.n_classes), _DIRICHLET)
        counts[np.arange(len(rows)), rows.targets.astype(int)] += 1
        variance = np.log1p(1 / counts)
        return self.centred(np.log(counts) - variance / 2), 1 / variance

    def centred(self, mean):
        """A shift of all functions changes nothing, and under one prior is zero."""
        return mean - mean.mean(axis=1, keepdims=True)

    def _blocks(
        self, mean: Latents, variance: Latents
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Some rows at a time; at the nodes, all classes' chances and log Σ exp.

        Shapes are (classes, nodes, rows) and (nodes, rows): the sums over classes run
        along whole rows of memory, several times faster than the other way round.
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
                f"every row has the same class, {names[0]!r}; with 1 class there is "
                "nothing to tell apart: give rows of at least two classes"
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
            label = y[unseen[0]].item()
            raise ValueError(
                f"row {unseen[0]} has class {label!r}, which was not there to learn "
                f"from; known are {known}{', ...' if len(self) > 5 else ''}"
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
