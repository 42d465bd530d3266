"""A k-d tree whose leaves are scanned as matrices, compiled.

The tree halves the rows at the median of the widest coordinate until at most 256 are
left. A leaf holds its rows coordinate by coordinate, so vector instructions
compute the distances of a query to all of them, and a leaf is abandoned as soon as the
leading coordinates alone put all of its rows too far away. The boxes of 16 neighbouring
leaves are stored in the same way. In few dimensions the search visits few leaves; in
many it degrades to a brute-force scan, with little overhead. So one method serves every
table.

Rows nearer than the limit are appended to a buffer. When it is full, bisection finds a
lower limit that leaves the requested number of rows or a few more. Unlike a heap, this
needs no unpredictable branch per row.

Reference: Friedman, Bentley & Finkel (1977), "An algorithm for finding best matches in
logarithmic expected time", with bounding boxes in place of splitting planes.
"""

from typing import NamedTuple, no_type_check

import numba
import numpy as np
from jaxtyping import Float

__all__ = ["Tree", "grow", "nearest", "ranked"]

_LEAF_ROWS = 256
# Leaves are padded to a multiple of this, the numbers in a vector register.
_LANES = 8
# Leaves whose bounding boxes are compared with a query together; a power of two.
_GROUP = 16
# Coordinates between two checks whether a leaf can be abandoned.
_STRIDE = 4
# A node is split along the widest of this many leading coordinates.
_SPLIT_COORDINATES = 12
# Candidates that a full buffer may keep beyond those requested: one in this many.
_SLACK = 8
# Buckets with more numbers are not sorted by insertion.
_BUCKET = 32


class Tree(NamedTuple):
    """A tree as arrays.

    Node 0 is the root, and nodes 2i + 1 and 2i + 2 are the halves of node i. The last
    nodes are the groups of leaves. All leaves are padded to the same number of slots.

    Parameters
    ----------
    rows
        The row in each slot of each leaf, or -1.
    slots
        Where each row is, counted over all leaves.
    least, greatest
        Corners of each node's bounding box.
    leaf_least, leaf_greatest
        Corners of the leaves' bounding boxes: group, coordinate, leaf.
    values
        Coordinates of rows: leaf, coordinate, slot. They are infinite in empty slots.
    """

    rows: np.ndarray
    slots: np.ndarray
    least: np.ndarray
    greatest: np.ndarray
    leaf_least: np.ndarray
    leaf_greatest: np.ndarray
    values: np.ndarray


def grow(points: Float[np.ndarray, "rows d"]) -> Tree:
    """The tree of some rows, whose coordinates are sorted by decreasing spread.

    Examples
    --------
    >>> tree = grow(np.zeros((1000, 3), np.float32))
    >>> tree.values.shape
    (4, 3, 256)
    """
    leaves = 1
    while leaves * _LEAF_ROWS < len(points):
        leaves *= 2
    order, starts = _halved(points, leaves)
    return Tree(*_laid_out(points, order, starts, min(leaves, _GROUP)))


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
def _halved(points, leaves):
    """Rows in the order of the leaves, where each starts, and where the last stops."""
    rows, dimension = points.shape
    nodes = 2 * leaves - 1
    starts = np.zeros(nodes, np.int64)
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
    return order, np.append(starts[leaves - 1 :], rows)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _laid_out(points, order, starts, group):
    """The arrays of a tree."""
    leaves, dimension = len(starts) - 1, points.shape[1]
    slots_per_leaf = -(-np.diff(starts).max() // _LANES) * _LANES
    rows = np.full((leaves, slots_per_leaf), -1)
    slots = np.empty(len(points), np.int64)
    values = np.full((leaves, dimension, slots_per_leaf), np.float32(np.inf))
    first = leaves - 1
    least = np.full((first + leaves, dimension), np.float32(np.inf))
    greatest = np.full((first + leaves, dimension), np.float32(-np.inf))
    for leaf in range(leaves):
        node = first + leaf
        for i in range(starts[leaf + 1] - starts[leaf]):
            row = order[starts[leaf] + i]
            rows[leaf, i] = row
            slots[row] = leaf * slots_per_leaf + i
            for column in range(dimension):
                value = points[row, column]
                values[leaf, column, i] = value
                least[node, column] = min(least[node, column], value)
                greatest[node, column] = max(greatest[node, column], value)
    for node in range(first - 1, -1, -1):
        for column in range(dimension):
            left, right = 2 * node + 1, 2 * node + 2
            least[node, column] = min(least[left, column], least[right, column])
            greatest[node, column] = max(
                greatest[left, column], greatest[right, column]
            )
    groups = leaves // group
    leaf_least = np.empty((groups, dimension, group), np.float32)
    leaf_greatest = np.empty((groups, dimension, group), np.float32)
    for leaf in range(leaves):
        leaf_least[leaf // group, :, leaf % group] = least[first + leaf]
        leaf_greatest[leaf // group, :, leaf % group] = greatest[first + leaf]
    nodes = 2 * groups - 1
    corners = least[:nodes].copy(), greatest[:nodes].copy()
    return rows, slots, corners[0], corners[1], leaf_least, leaf_greatest, values


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
def _group_distances(query, least, greatest, distances):
    """Squared distances to the boxes of a group's leaves."""
    for i in range(len(distances)):
        distances[i] = np.float32(0.0)
    for column in range(len(query)):
        value = query[column]
        low, high = least[column], greatest[column]
        for i in range(len(distances)):
            gap = max(low[i] - value, value - high[i], np.float32(0.0))
            distances[i] += gap * gap


@numba.njit(cache=True, nogil=True)
@no_type_check
def _leaf_distances(query, values, leaf, distances, limit):
    """Squared distances to a leaf's rows; False where all of them exceed the limit."""
    dimension, size = len(query), len(distances)
    for i in range(size):
        distances[i] = np.float32(0.0)
    column = 0
    while column + _STRIDE <= dimension:
        q0, q1 = query[column], query[column + 1]
        q2, q3 = query[column + 2], query[column + 3]
        for i in range(size):
            d0 = values[leaf, column, i] - q0
            d1 = values[leaf, column + 1, i] - q1
            d2 = values[leaf, column + 2, i] - q2
            d3 = values[leaf, column + 3, i] - q3
            distances[i] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
        column += _STRIDE
        near = np.int32(0)
        for i in range(size):
            near += distances[i] < limit
        if near == 0:
            return False
    while column < dimension:
        value = query[column]
        for i in range(size):
            difference = values[leaf, column, i] - value
            distances[i] += difference * difference
        column += 1
    return True


@numba.njit(cache=True, nogil=True)
@no_type_check
def _discard(squares, slots, count, wanted, most):
    """Discard the furthest candidates until ``wanted`` to ``most`` of them are left.

    Returns how many are left, and a lower bound of the distances of the others.
    """
    low, high = squares[0], squares[0]
    for i in range(count):
        low, high = min(low, squares[i]), max(high, squares[i])
    # Bisection: fewer than wanted are at most ``low``, and enough are at most ``high``.
    below, within = 0, count
    for i in range(count):
        below += squares[i] <= low
    if below >= wanted:
        high, below, within = low, 0, below
    while within > most:
        middle = np.float32(0.5) * (low + high)
        if middle <= low or middle >= high:
            break
        near = 0
        for i in range(count):
            near += squares[i] <= middle
        if near < wanted:
            low, below = middle, near
        else:
            high, within = middle, near
    kept = 0
    if within <= most:
        for i in range(count):
            square = squares[i]
            squares[kept], slots[kept] = square, slots[i]
            kept += square <= high
        return kept, high
    # Too many are at the limit itself: the first of them are kept.
    ties = wanted - below
    for i in range(count):
        square, slot = squares[i], slots[i]
        tied = square == high
        if square < high or (tied and ties > 0):
            squares[kept], slots[kept] = square, slot
            kept += 1
            ties -= tied
    return kept, high


@numba.njit(cache=True, nogil=True)
@no_type_check
def nearest(queries, own, wanted, tree, shrink, found, limits):
    """Find the nearest ``wanted`` rows per query by float32 distance, unordered.

    ``own`` is the row that a query excludes, or -1. With ``shrink`` below one, the
    search skips boxes whose squared distance exceeds that share of the furthest
    candidate's: faster, but approximate. ``limits`` receives a lower bound of the
    squared distances of all rows that were not found (infinity if there are none).
    """
    rows, own_slots, least, greatest, leaf_least, leaf_greatest, values = tree
    size = rows.shape[1]
    row_of_slot = rows.ravel()
    groups, _, group = leaf_least.shape
    most, room = wanted + wanted // _SLACK, 2 * wanted
    # A leaf is appended before the room is compared; the last row may not count.
    squares = np.empty(room + size + 1, np.float32)
    slots = np.empty(room + size + 1, np.int64)
    stack = np.empty(64, np.int64)
    bounds = np.empty(64, np.float32)
    leaf_bounds = np.empty(group, np.float32)
    distances = np.empty(size, np.float32)
    for q in range(len(queries)):
        query = queries[q]
        own_slot = own_slots[own[q]] if 0 <= own[q] < len(own_slots) else -1
        count = 0
        # Rows at the limit or beyond are not appended; boxes beyond the reach, skipped.
        limit = reach = np.float32(np.inf)
        stack[0], bounds[0] = 0, 0.0
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            if bounds[depth] >= reach:
                continue
            if node < groups - 1:
                left, right = 2 * node + 1, 2 * node + 2
                to_left = _box_distance(query, least[left], greatest[left], reach)
                to_right = _box_distance(query, least[right], greatest[right], reach)
                if to_left > to_right:
                    left, right = right, left
                    to_left, to_right = to_right, to_left
                if to_right < reach:
                    stack[depth], bounds[depth] = right, to_right
                    depth += 1
                if to_left < reach:
                    stack[depth], bounds[depth] = left, to_left
                    depth += 1
                continue
            block = node - (groups - 1)
            _group_distances(
                query, leaf_least[block], leaf_greatest[block], leaf_bounds
            )
            closest = np.argmin(leaf_bounds)
            for j in range(group):
                # The closest leaf first, then the others of ever larger subtrees.
                i = closest ^ j
                if leaf_bounds[i] >= reach:
                    continue
                leaf = block * group + i
                if not _leaf_distances(query, values, leaf, distances, limit):
                    continue
                start = leaf * size
                if start <= own_slot < start + size:
                    distances[own_slot - start] = np.inf
                for slot in range(size):
                    squares[count], slots[count] = distances[slot], start + slot
                    count += distances[slot] < limit
                if count > room:
                    count, limit = _discard(squares, slots, count, wanted, most)
                    reach = limit * shrink
        if count > wanted:
            count, limit = _discard(squares, slots, count, wanted, wanted)
        limits[q] = limit
        for i in range(wanted):
            found[q, i] = row_of_slot[slots[i]] if i < count else -1


@numba.njit(cache=True, nogil=True)
@no_type_check
def _sort(keys, rows, count, buckets, ends, sorted_keys, sorted_rows):
    """Sort by key, then by row.

    The numbers are distributed to buckets of equal width, then sorted by insertion.
    """
    low, high = np.inf, -np.inf
    for i in range(count):
        low, high = min(low, keys[i]), max(high, keys[i])
    scale = (count - 1) / (high - low) if high > low else 0.0
    ends[:] = 0
    for i in range(count):
        buckets[i] = np.int64((keys[i] - low) * scale)
        ends[buckets[i] + 1] += 1
    fullest = 0
    for bucket in range(1, count + 1):
        fullest = max(fullest, ends[bucket])
        ends[bucket] += ends[bucket - 1]
    if fullest > _BUCKET:
        # Insertion would take quadratic time, for instance where most keys are equal.
        by_row = np.argsort(rows[:count])
        in_turn = by_row[np.argsort(keys[by_row], kind="mergesort")]
        for i in range(count):
            sorted_keys[i], sorted_rows[i] = keys[in_turn[i]], rows[in_turn[i]]
        return
    for i in range(count):
        place = ends[buckets[i]]
        ends[buckets[i]] += 1
        sorted_keys[place], sorted_rows[place] = keys[i], rows[i]
    for i in range(1, count):
        key, row = sorted_keys[i], sorted_rows[i]
        j = i
        while j > 0 and (
            sorted_keys[j - 1] > key
            or (sorted_keys[j - 1] == key and sorted_rows[j - 1] > row)
        ):
            sorted_keys[j], sorted_rows[j] = sorted_keys[j - 1], sorted_rows[j - 1]
            j -= 1
        sorted_keys[j], sorted_rows[j] = key, row


@numba.njit(cache=True, nogil=True)
@no_type_check
def ranked(points, queries, found, wanted, indices, squares):
    """Sort the nearest candidates by exact distance, then index; -1 where none is left.

    Distances are sums in float64 of squared differences, in the order of the columns.
    """
    most = found.shape[1]
    exact, sorted_exact = np.empty(most, np.float64), np.empty(most, np.float64)
    rows, sorted_rows = np.empty(most, np.int64), np.empty(most, np.int64)
    buckets, ends = np.empty(most, np.int64), np.empty(most + 1, np.int64)
    for q in range(len(queries)):
        count = 0
        for i in range(most):
            row = found[q, i]
            if row < 0:
                continue
            total = 0.0
            for column in range(queries.shape[1]):
                difference = np.float64(queries[q, column]) - points[row, column]
                total += difference * difference
            exact[count], rows[count] = total, row
            count += 1
        _sort(exact, rows, count, buckets, ends, sorted_exact, sorted_rows)
        for i in range(wanted):
            inside = i < count
            indices[q, i] = sorted_rows[i] if inside else -1
            squares[q, i] = sorted_exact[i] if inside else np.inf
