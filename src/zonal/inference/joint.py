"""Joint covariances and joint draws of the function at several rows.

Draws follow Vecchia's approximation: new rows are taken one after another in random
order, each given the nearest among the stored rows and the new rows before it,

    f_i = aᵀ(y, f) + ψᵀu + √v z_i,    u ~ N(m, S),    z_i ~ N(0, 1),

where a, ψ and the variance v are those of `zonal.engine.full_scale`. So rows that are
drawn together agree as far as the process says that they do, at the cost of one
prediction per row. With all rows as neighbours the draws are exact.

Reference: Katzfuss, Guinness, Gong & Zilber (2020), "Vecchia approximations of
Gaussian-process predictions".
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from zonal.engine.full_scale import FullScale
from zonal.engine.inducing import GlobalFeatures, combined, squared_chords
from zonal.engine.local import Queries, StoredRows, conditionals
from zonal.engine.neighbours import Neighbours
from zonal.engine.posterior import normals_of_rows
from zonal.tables.repeats import merged_rows

__all__ = ["JointDraw", "joint_covariance"]

# Noise of drawn values relative to the prior variance, against rounding of close rows.
_NUGGET = 1e-6


def joint_covariance(
    given: FullScale, queries: Queries, lists: Int[np.ndarray, "queries k"]
) -> Float[np.ndarray, "queries queries"]:
    """Covariance of the function at queries, given all of their neighbours together."""
    features, rows = given.features, given.rows
    used = np.unique(lists[lists >= 0])
    near = _Points.of(rows, used)
    here = _Points(queries.directions, queries.radial, queries.known_features)
    among = near.covariance(near, features)
    among[np.diag_indices_from(among)] += rows.noise[used].astype(np.float64)
    cross = near.covariance(here, features)
    weights = np.linalg.solve(among, cross)
    local = here.covariance(here, features) - cross.T @ weights
    psi = here.features.astype(np.float64) - weights.T @ near.features
    known = psi @ given.root.T.astype(np.float64)
    return local + known @ known.T


@dataclasses.dataclass(frozen=True, eq=False)
class _Points:
    """Points on the sphere with their features."""

    directions: np.ndarray
    radial: np.ndarray
    features: np.ndarray

    @classmethod
    def of(cls, rows: StoredRows, used: np.ndarray) -> "_Points":
        return cls(rows.directions[used], rows.radial[used], rows.known_features[used])

    def covariance(self, other: "_Points", features: GlobalFeatures) -> np.ndarray:
        """What the features leave of the covariance with other points."""
        squares = squared_chords(
            self.directions.astype(np.float64), other.directions.astype(np.float64)
        )
        scale = features.rest_variance * np.outer(self.radial, other.radial)
        overlap = len(features.phases)
        ours = self.features[:, :overlap].astype(np.float64)
        theirs = other.features[:, :overlap].astype(np.float64)
        return scale * features.rest.kernel(squares) - ours @ theirs.T


@dataclasses.dataclass(frozen=True, eq=False)
class JointDraw:
    """Draws of the function; rows of one call are drawn jointly.

    The draw of the features' weights is the same in all calls.
    """

    given: FullScale
    n_neighbors: int
    count: int
    seed: int

    @functools.cached_property
    def _weights(self) -> Float[np.ndarray, "features samples"]:
        """Draws of u."""
        root = self.given.root.astype(np.float64)
        normal = np.random.default_rng(self.seed).normal(size=(len(root), self.count))
        return self.given.weights + root.T @ normal

    def __call__(
        self,
        directions: Float[np.ndarray, "rows d"],
        radial: Float[np.ndarray, " rows"],
        lists: Callable[[np.ndarray], np.ndarray],
    ) -> Float[np.ndarray, "rows samples"]:
        """Values at rows; ``lists`` finds the nearest stored rows of directions."""
        points = np.column_stack([directions, radial])
        # Equal rows have one value.
        distinct = merged_rows(points, np.zeros(len(points)))
        order = np.random.default_rng(self.seed).permutation(len(distinct))
        points = distinct.x[order].astype(np.float32)
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        values = self._in_order(points[:, :-1], points[:, -1], lists)
        return values[position[distinct.group]]

    def _in_order(
        self,
        directions: np.ndarray,
        radial: np.ndarray,
        lists: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        stored = lists(directions)
        used = np.unique(stored)
        count = len(used)
        rows = self._with_new(used, directions, radial)
        # Stored rows come first, then new ones, of which only earlier ones count.
        known = np.searchsorted(used, stored)
        earlier = self._earlier(directions)
        both = np.concatenate([known, np.where(earlier >= 0, earlier + count, -1)], 1)
        near = _nearest(rows.directions, both, directions, self.n_neighbors)
        new = np.arange(count, count + len(directions))
        queries = rows.queries(new)
        features = self.given.features
        found = conditionals(
            rows, queries, near, features.rest, features.rest_variance, weights=True
        )
        assert found.weights is not None, "conditionals was called with weights=True"
        psi = combined(rows.known_features, near, found.weights, queries.known_features)
        normal = normals_of_rows(
            np.column_stack([directions, radial]).astype(np.float64),
            self.count,
            self.seed,
        )
        values = found.mean + psi @ self._weights
        values += np.sqrt(np.maximum(found.variance, 0.0))[:, None] * normal
        # Stored targets are in the means; drawn values of earlier rows are added here.
        for row in range(len(values)):
            drawn = near[row] >= count
            if drawn.any():
                before = near[row, drawn] - count
                values[row] += found.weights[row, drawn] @ values[before]
        return values

    def _with_new(
        self, used: np.ndarray, directions: np.ndarray, radial: np.ndarray
    ) -> StoredRows:
        """Some stored rows, and new rows whose targets enter later."""
        rows, features = self.given.rows, self.given.features
        nugget = np.full(len(radial), _NUGGET * features.rest_variance)
        return StoredRows(
            np.concatenate([rows.directions[used], directions]),
            np.concatenate([rows.radial[used], radial]),
            np.concatenate([rows.targets[used], np.zeros((len(radial), 1))]),
            np.concatenate([rows.noise[used], nugget]),
            np.concatenate(
                [rows.known_features[used], features.at(directions, radial)]
            ),
            rows.overlap,
        )

    def _earlier(self, directions: np.ndarray) -> np.ndarray:
        """The nearest new rows that come before each row, -1 for none."""
        if len(directions) < 2 or self.n_neighbors == 0:
            return np.zeros((len(directions), 0), np.int64)
        k = min(2 * self.n_neighbors, len(directions) - 1)
        own = np.arange(len(directions))
        lists, _ = Neighbours.build(directions).query(directions, k, own)
        return np.where(lists < own[:, None], lists, -1).astype(np.int64)


def _nearest(
    points: np.ndarray, candidates: np.ndarray, directions: np.ndarray, k: int
) -> np.ndarray:
    """The k nearest candidates of each row."""
    k = min(k, candidates.shape[1])
    nearest = np.empty((len(candidates), k), np.int32)
    for row, own in enumerate(candidates):
        squares = np.sum((points[own] - directions[row]) ** 2, axis=1)
        squares[own < 0] = np.inf
        order = np.argsort(squares, kind="stable")[:k]
        nearest[row] = np.where(np.isinf(squares[order]), -1, own[order])
    return nearest
