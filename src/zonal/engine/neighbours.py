"""The nearest rows in the learned metric.

The metric is the chord between directions on the sphere. A tree on the principal axes
of the directions (`zonal.engine.kd_tree`) proposes candidates in float32, a few more
than are asked for; distances in float64 rank them, and prove that no other row can be
nearer, or the search is repeated with more candidates. So the answer is exact,
and depends neither on the order of the search nor on the number of threads.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float, Int

from zonal.engine.kd_tree import Tree, grow, nearest, ranked
from zonal.engine.passes import core_count

__all__ = ["Neighbours"]

# Rows that principal axes are taken from.
_AXES_ROWS = 20_000
# Queries of one task. Fixed, so that results do not depend on the number of threads.
_BLOCK = 256
# Candidates beyond those asked for: at least so many, and such a share of them.
_LEAST_SPARE, _SPARE = 8, 0.25
# Rounding of float32 coordinates that are turned to the principal axes, per root of the
# dimension, and of squared distances, relative.
_COORDINATE_ROUNDING = 4e-7
_SQUARE_ROUNDING = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class Neighbours:
    """Rows on the sphere, ready to be searched.

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
        """Index the directions of some rows."""
        points = np.ascontiguousarray(points, np.float32)
        if len(points) == 0:
            raise ValueError("there are no rows to search; give at least one")
        centre, axes = _principal(points)
        turned = _turned(points, centre, axes)
        return cls(points, centre, axes, grow(turned))

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

        Equal distances are in the order of the rows. Where there are fewer than k rows,
        the rest of the indices is -1, at infinite distance.

        Parameters
        ----------
        points
            Unit vectors.
        k
            Neighbours of each.
        leave_out
            Index of one row that each query does not see, such as itself; -1 for none.
        closeness
            Below one, a search that is faster and not exact: it gives up regions
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

        def answer(start: int) -> None:
            block = slice(start, start + _BLOCK)
            found = self._search(points[block], own[block], k, closeness)
            indices[block], squares[block] = found

        starts = range(0, len(points), _BLOCK)
        threads = min(core_count(), len(starts))
        if threads <= 1:
            for start in starts:
                answer(start)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(answer, starts))
        return indices, squares

    def _search(
        self, queries: np.ndarray, own: np.ndarray, k: int, closeness: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """One block of queries, with more candidates for those not proved exact."""
        turned = _turned(queries, self._centre, self._axes)
        indices = np.empty((len(queries), k), np.int32)
        squares = np.empty((len(queries), k))
        left = np.arange(len(queries))
        wanted = k + max(_LEAST_SPARE, int(_SPARE * k))
        while len(left):
            wanted = min(wanted, len(self))
            found = np.empty((len(left), wanted), np.int64)
            limits = np.empty(len(left), np.float32)
            shrink = np.float32(closeness**2)
            nearest(turned[left], own[left], wanted, self._tree, shrink, found, limits)
            rows, chords = np.empty((len(left), k), np.int32), np.empty((len(left), k))
            ranked(self.points, queries[left], found, k, rows, chords)
            indices[left], squares[left] = rows, chords
            if wanted == len(self):
                break
            left = left[~self._proved(chords[:, -1], limits)]
            wanted *= 2
        return indices, squares

    def _proved(self, furthest: np.ndarray, limits: np.ndarray) -> np.ndarray:
        """Whether every row beyond the candidates is further than the last neighbour.

        Equal distances count as not proved: the lower index might be among the rest.
        """
        rounding = _COORDINATE_ROUNDING * np.sqrt(self.points.shape[1])
        least = np.sqrt(limits.astype(np.float64)) * (1 - _SQUARE_ROUNDING) - rounding
        return np.isinf(limits) | (np.sqrt(furthest) < least)


def _principal(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and principal axes of the rows, the widest first."""
    some = points[:: max(1, len(points) // _AXES_ROWS)].astype(np.float64)
    centre = some.mean(axis=0)
    centred = some - centre
    _, axes = np.linalg.eigh(centred.T @ centred)
    return centre, np.ascontiguousarray(axes[:, ::-1])


def _turned(points: np.ndarray, centre: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Coordinates of rows along principal axes, rounded only at the end."""
    turned = np.empty(points.shape, np.float32)
    for start in range(0, len(points), 65_536):
        block = slice(start, start + 65_536)
        turned[block] = (points[block] - centre) @ axes
    return turned
