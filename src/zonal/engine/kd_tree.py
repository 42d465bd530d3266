"""A k-d tree whose leaves are scanned as matrices, compiled.

The tree halves the rows at the median of the widest coordinate until at most 128 are
left. A leaf holds its rows coordinate by coordinate, so vector instructions
compute the distances of a query to all of them, and a leaf is abandoned as soon as the
leading coordinates alone put all of its rows too far away. In few dimensions the search
visits few leaves; in many it degrades to a brute-force scan, with little overhead. So
one method serves every table.

Reference: Friedman, Bentley & Finkel (1977), "An algorithm for finding best matches in
logarithmic expected time", with bounding boxes in place of splitting planes.
"""

from typing import NamedTuple, no_type_check

import numba
import numpy as np
from jaxtyping import Float

__all__ = ["Tree", "grow", "nearest", "ranked"]

_LEAF_ROWS = 128
# Coordinates between two checks whether a leaf can be abandoned.
_STRIDE = 4
# A node is split along the widest of this many leading coordinates.
_SPLIT_COORDINATES = 12


class Tree(NamedTuple):
    """A tree as arrays.

    Node 0 is the root, nodes 2i + 1 and 2i + 2 are the halves of node i, and the last
    nodes are the leaves.

    Parameters
    ----------
    order
        Rows, leaf by leaf.
    starts
        Where each leaf starts in that order, and where the last one stops.
    least, greatest
        Corners of each node's bounding box.
    values
        Each leaf's rows, coordinate by coordinate.
    """

    order: np.ndarray
    starts: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    values: np.ndarray


def grow(points: Float[np.ndarray, "rows d"]) -> Tree:
    """The tree of some rows, whose coordinates are sorted by decreasing spread.

    Examples
    --------
    >>> tree = grow(np.zeros((1000, 3), np.float32))
    >>> len(tree.starts) - 1
    8
    """
    leaves = 1
    while leaves * _LEAF_ROWS < len(points):
        leaves *= 2
    return Tree(*_grown(points, leaves))


@numba.njit(cache=True, nogil=True)
@no_type_check
def _halve(order, keys, start, stop, middle):
    """Reorder rows ``start`` to ``stop`` so that the smaller keys come first.

    Quickselect by key, then by row, so that the order of equal keys is unique.
    """
    low, high = start, stop - 1
    while low < high:
        pivot_row = order[(low + high) // 2]
        pivot = keys[pivot_row]
        i, j = low, high
        while i <= j:
            while keys[order[i]] < pivot or (
                keys[order[i]] == pivot and order[i] < pivot_row
            ):
                i += 1
            while keys[order[j]] > pivot or (
                keys[order[j]] == pivot and order[j] > pivot_row
            ):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@numba.njit(cache=True, nogil=True)
@no_type_check
def _grown(points, leaves):
    rows, dimension = points.shape
    nodes = 2 * leaves - 1
    starts = np.zeros(nodes + 1, np.int64)
    stops = np.zeros(nodes, np.int64)
    order = np.arange(rows)
    keys = np.empty(rows, np.float32)
    stops[0] = rows
    for node in range(leaves - 1):
        start, stop = starts[node], stops[node]
        widest, width = 0, np.float32(-1.0)
        for column in range(min(dimension, _SPLIT_COORDINATES)):
            least = greatest = points[order[start], column]
            for place in range(start, stop):
                value = points[order[place], column]
                least = min(least, value)
                greatest = max(greatest, value)
            if greatest - least > width:
                widest, width = column, greatest - least
        for place in range(start, stop):
            keys[order[place]] = points[order[place], widest]
        middle = (start + stop) // 2
        _halve(order, keys, start, stop, middle)
        starts[2 * node + 1], stops[2 * node + 1] = start, middle
        starts[2 * node + 2], stops[2 * node + 2] = middle, stop
    least = np.empty((nodes, dimension), np.float32)
    greatest = np.empty((nodes, dimension), np.float32)
    values = np.empty(rows * dimension, np.float32)
    first = leaves - 1
    for node in range(first, nodes):
        start, stop = starts[node], stops[node]
        size = stop - start
        for column in range(dimension):
            least[node, column] = np.inf
            greatest[node, column] = -np.inf
        for i in range(size):
            row = order[start + i]
            for column in range(dimension):
                value = points[row, column]
                values[start * dimension + column * size + i] = value
                least[node, column] = min(least[node, column], value)
                greatest[node, column] = max(greatest[node, column], value)
    for node in range(first - 1, -1, -1):
        for column in range(dimension):
            left, right = 2 * node + 1, 2 * node + 2
            least[node, column] = min(least[left, column], least[right, column])
            greatest[node, column] = max(
                greatest[left, column], greatest[right, column]
            )
    leaf_starts = np.empty(leaves + 1, np.int64)
    leaf_starts[:leaves] = starts[first:nodes]
    leaf_starts[leaves] = rows
    return order, leaf_starts, least, greatest, values


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _sift(heap, places, size):
    """Restore a max-heap whose root was replaced."""
    distance, place = heap[0], places[0]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= distance:
            break
        heap[parent], places[parent] = heap[child], places[child]
        parent = child
    heap[parent], places[parent] = distance, place


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _box_distance(query, least, greatest, limit):
    """Squared distance of a query to a box, or some number at or above the limit."""
    total = np.float32(0.0)
    for column in range(len(query)):
        value = query[column]
        gap = max(least[column] - value, value - greatest[column], np.float32(0.0))
        total += gap * gap
        if total >= limit:
            break
    return total


@numba.njit(cache=True, nogil=True)
@no_type_check
def _leaf_distances(query, values, offset, size, distances, limit):
    """Squared distances to a leaf's rows; False where all of them exceed the limit."""
    dimension = len(query)
    for i in range(size):
        distances[i] = np.float32(0.0)
    column = 0
    while column + _STRIDE <= dimension:
        base = offset + column * size
        q0, q1 = query[column], query[column + 1]
        q2, q3 = query[column + 2], query[column + 3]
        v0 = values[base : base + size]
        v1 = values[base + size : base + 2 * size]
        v2 = values[base + 2 * size : base + 3 * size]
        v3 = values[base + 3 * size : base + 4 * size]
        for i in range(size):
            d0, d1, d2, d3 = v0[i] - q0, v1[i] - q1, v2[i] - q2, v3[i] - q3
            distances[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        column += _STRIDE
        if column + _STRIDE <= dimension:
            near = 0
            for i in range(size):
                near += distances[i] < limit
            if near == 0:
                return False
    while column < dimension:
        base = offset + column * size
        for i in range(size):
            difference = values[base + i] - query[column]
            distances[i] += difference * difference
        column += 1
    return True


@numba.njit(cache=True, nogil=True)
@no_type_check
def nearest(queries, own, wanted, tree, shrink, found, limits):
    """Find the nearest ``wanted`` rows per query by float32 distance, unordered.

    ``own`` is the row that a query excludes, or -1. With ``shrink`` below one, the
    search skips boxes whose squared distance exceeds that share of the furthest
    candidate's: faster, but approximate. ``limits`` receives a lower bound of the
    squared distances of all rows that were not found (infinity if there are none).
    """
    order, starts, least, greatest, values = tree
    leaves = len(starts) - 1
    dimension = queries.shape[1]
    heap = np.empty(wanted, np.float32)
    places = np.empty(wanted, np.int64)
    stack = np.empty(64, np.int64)
    bounds = np.empty(64, np.float32)
    distances = np.empty(_LEAF_ROWS, np.float32)
    for q in range(len(queries)):
        query = queries[q]
        heap[:] = np.inf
        places[:] = -1
        stack[0], bounds[0] = 0, 0.0
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            limit = heap[0] * shrink
            if bounds[depth] >= limit:
                continue
            if node >= leaves - 1:
                leaf = node - (leaves - 1)
                start = starts[leaf]
                size = starts[leaf + 1] - start
                if not _leaf_distances(
                    query, values, start * dimension, size, distances, heap[0]
                ):
                    continue
                for i in range(size):
                    if distances[i] < heap[0] and order[start + i] != own[q]:
                        heap[0], places[0] = distances[i], order[start + i]
                        _sift(heap, places, wanted)
                continue
            left, right = 2 * node + 1, 2 * node + 2
            to_left = _box_distance(query, least[left], greatest[left], limit)
            to_right = _box_distance(query, least[right], greatest[right], limit)
            if to_left > to_right:
                left, right = right, left
                to_left, to_right = to_right, to_left
            if to_right < limit:
                stack[depth], bounds[depth] = right, to_right
                depth += 1
            if to_left < limit:
                stack[depth], bounds[depth] = left, to_left
                depth += 1
        limits[q] = heap[0]
        found[q, :] = places


@numba.njit(cache=True, nogil=True)
@no_type_check
def ranked(points, queries, found, wanted, indices, squares):
    """Sort the nearest candidates by exact distance, then index; -1 where none is left.

    Distances are sums in float64 of squared differences, in the order of the columns.
    """
    count = found.shape[1]
    exact = np.empty(count, np.float64)
    rows = np.empty(count, np.int64)
    for q in range(len(queries)):
        for i in range(count):
            row = found[q, i]
            total = 0.0
            for column in range(queries.shape[1]):
                difference = np.float64(queries[q, column]) - points[row, column]
                total += difference * difference
            if row < 0:
                total, row = np.inf, np.int64(len(points))
            exact[i], rows[i] = total, row
        by_row = np.argsort(rows)
        in_turn = by_row[np.argsort(exact[by_row], kind="mergesort")]
        for i in range(wanted):
            row = rows[in_turn[i]] if i < count else len(points)
            inside = row < len(points)
            indices[q, i] = row if inside else -1
            squares[q, i] = exact[in_turn[i]] if inside else np.inf
