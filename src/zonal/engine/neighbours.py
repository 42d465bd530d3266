"""The nearest rows in the learned metric.

The metric is the chord between directions on the sphere. A tree on the principal axes
of the directions (`zonal.engine.kd_tree`) proposes candidates in float32, a few more
than requested. Distances in float64 rank them and prove that no other row is nearer;
otherwise the search is repeated with more candidates. So the answer is exact and
depends neither on the order of the search nor on the number of threads.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from zonal.engine.blas import single_threaded_blas
from zonal.engine.kd_tree import Tree, grow, nearest, ranked
from zonal.engine.passes import block_results

__all__ = ["Neighbours"]

# Rows from which the principal axes are computed.
_AXES_ROWS = 20_000
# Queries per task: fixed, so that results do not depend on the number of threads.
_BLOCK = 256
# Candidates beyond those requested: the minimum, and as a share of the request.
_LEAST_SPARE, _SPARE = 8, 0.125
# Rounding error of float32 coordinates along the principal axes, divided by the root of
# the dimension, and relative rounding error of squared distances.
_COORDINATE_ROUNDING = 4e-7
_SQUARE_ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbours:
    """An index of rows on the sphere that finds the nearest ones.

    Examples
    --------
    >>> angles = np.array([0.0, 0.5, 1.1, 1.8, 2.6])
    >>> points = np.column_stack([np.cos(angles), np.sin(angles)])
    >>> neighbours = Neighbours.build(points.astype(np.float32))
    >>> indices, squares = neighbours.query(neighbours.points[:2], 2)
    >>> indices
    array([[0, 1],
           [1, 0]], dtype=int32)
    >>> squares.round(3)
    array([[0.   , 0.245],
           [0.   , 0.245]])
    """

    points: Float[np.ndarray, "rows d"]
    _centre: np.ndarray
    _axes: np.ndarray
    _tree: Tree

    @classmethod
    def build(cls, points: Float[np.ndarray, "rows d"]) -> "Neighbours":
        """Build the index from the directions of some rows."""
        points = np.ascontiguousarray(points, np.float32)
        if len(points) == 0:
            raise ValueError("there are no rows to search; give at least one")
        centre, axes = _principal_axes(points)
        rotated = _rotate(points, centre, axes)
        return cls(points, centre, axes, grow(rotated))

    def __len__(self) -> int:
        return len(self.points)

    def query(
        self,
        points: Float[np.ndarray, "queries d"],
        k: int,
        leave_out: Int[np.ndarray, " queries"] | None = None,
        closeness: float = 1.0,
    ) -> tuple[Int[np.ndarray, "queries k"], Float[np.ndarray, "queries k"]]:
        """Indices of the k nearest rows, nearest first, and squared chords to them.

        Rows at equal distances keep their order. Where there are fewer than k rows, the
        remaining indices are -1, at infinite distance.

        Parameters
        ----------
        points
            Unit vectors.
        k
            Number of neighbours per query.
        leave_out
            Index of one row to exclude per query, such as itself; -1 for none.
        closeness
            A value below one makes the search faster and approximate: it skips regions
            further away than this share of the distance to the furthest candidate.
        """
        if k < 1:
            raise ValueError(f"k must be 1 or more, got {k}")
        points = np.ascontiguousarray(points, np.float32)
        if points.ndim != 2 or points.shape[1] != self.points.shape[1]:
            raise ValueError(
                f"queries need {self.points.shape[1]} coordinates, "
                f"got shape {points.shape}"
            )
        own = np.full(len(points), -1) if leave_out is None else np.asarray(leave_out)
        own = np.ascontiguousarray(own, np.int64)
        indices = np.empty((len(points), k), np.int32)
        squares = np.empty((len(points), k))

        def search(block: slice) -> None:
            nearest_rows = self._search(points[block], own[block], k, closeness)
            indices[block], squares[block] = nearest_rows

        for _ in block_results(search, len(points), _BLOCK):
            pass
        return indices, squares

    def _search(
        self, queries: np.ndarray, own: np.ndarray, k: int, closeness: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Search one block, with more candidates for queries not yet proved exact."""
        rotated = _rotate(queries, self._centre, self._axes)
        indices = np.empty((len(queries), k), np.int32)
        squares = np.empty((len(queries), k))
        left = np.arange(len(queries))
        wanted = k + max(_LEAST_SPARE, int(_SPARE * k))
        while len(left):
            wanted = min(wanted, len(self))
            candidates = np.empty((len(left), wanted), np.int64)
            limits = np.empty(len(left), np.float32)
            shrink = np.float32(closeness**2)
            nearest(
                rotated[left], own[left], wanted, self._tree, shrink, candidates, limits
            )
            rows, chords = np.empty((len(left), k), np.int32), np.empty((len(left), k))
            ranked(self.points, queries[left], candidates, k, rows, chords)
            indices[left], squares[left] = rows, chords
            if wanted == len(self):
                break
            left = left[~self._is_exact(chords[:, -1], limits)]
            wanted *= 2
        return indices, squares

    def _is_exact(self, furthest: np.ndarray, limits: np.ndarray) -> np.ndarray:
        """Whether every row beyond the candidates is further than the last neighbour.

        Equal distances do not count as proved: the rest may hold a lower index.
        """
        rounding = _COORDINATE_ROUNDING * np.sqrt(self.points.shape[1])
        least = np.sqrt(limits.astype(np.float64)) * (1 - _SQUARE_ROUNDING) - rounding
        return np.isinf(limits) | (np.sqrt(furthest) < least)


def _principal_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and principal axes of the rows, the widest first."""
    sample = points[:: max(1, len(points) // _AXES_ROWS)].astype(np.float64)
    centre = sample.mean(axis=0)
    centred = sample - centre
    with single_threaded_blas():
        _, axes = np.linalg.eigh(centred.T @ centred)
    return centre, np.ascontiguousarray(axes[:, ::-1])


def _rotate(points: np.ndarray, centre: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Coordinates of rows along the principal axes, rounded only at the end."""
    rotated = np.empty(points.shape, np.float32)
    for start in range(0, len(points), 65_536):
        block = slice(start, start + 65_536)
        rotated[block] = (points[block] - centre) @ axes
    return rotated
