"""The compiled loops behind `zonal.engine.local`: one small system per row.

A vector holds one number for each of several rows, so all arrays here are flat and
their last axis is that of the lanes; see `zonal.engine.lanes`. For ``n`` neighbours,
padded to a multiple of the tile, the matrix has ``n`` columns and these rows:

    0 ... n-1     covariance of the neighbours, below the diagonal
    n             covariance of the query and the neighbours
    n+1 ...       targets, one row per output, padded to a tile

so that one factorisation also solves L⁻¹k* and L⁻¹y. A missing neighbour has
radial factor zero and noise one: its equation is a = 0.
"""

# pyright: reportCallIssue=false, reportOperatorIssue=false
# Numba's own functions are called without their first argument.

import numpy as np

from zonal.engine.lanes import (
    TILE,
    coefficients,
    empty_lanes,
    full,
    inverse_width,
    lane_count,
    larger,
    load,
    locate,
    smaller,
    store,
    subtract_products,
)
from zonal.engine.panels import compiled, entry_start, factorise

__all__ = ["make_room", "scatter", "solve_rows"]

# Features read at a time.
_FEATURES = 16


@compiled
def _padded(count):
    return (count + TILE - 1) // TILE * TILE


def make_room(n_neighbours, n_outputs, dimension, n_features, dtype):
    """Working arrays for `solve_rows`, which threads cannot share."""
    n = -(-n_neighbours // TILE) * TILE
    sides = -(-(1 + n_outputs) // TILE) * TILE
    sizes = (
        n * (n + TILE) // 2 + sides * n,  # the matrix
        (n + 1) * dimension,  # points
        n + 1,  # their radial factors, times the root of the variance
        n + 1,  # their noise
        n,  # inverse roots of pivots
        n_outputs,  # means
        4,  # numbers moved between vectors and scalars
        (n + sides) * _FEATURES if n_features else 0,
        n + 1,  # a
        n + 1,  # h
        (n + 1) * dimension,  # gradient in points
        n + 1,  # gradient in factors
    )
    room = tuple(empty_lanes(size, dtype) for size in sizes)
    # Entries of the matrix that are never written take part in products.
    room[0][:] = 0
    return room, np.empty(64, np.int32)


@compiled
def solve_rows(
    rows,
    queries,
    neighbours,
    order,
    table,
    beta_table,
    variance,
    least_pivot,
    least_noise,
    overlap,
    tails,
    outputs,
    gradients,
    start,
    room,
    starts,
):
    """Solve the systems of some queries, given by their positions in ``order``.

    ``rows`` and ``queries`` are directions, radial factors, targets, noise and features
    each; the first ``overlap`` features are subtracted from the covariances.
    ``tails`` is one over the degrees of freedom of the residuals. ``outputs`` are mean,
    variance, weights and the flag of a small pivot, each per query; weights are omitted
    where the array is empty. ``gradients`` are those in directions and radial factors
    of each query's neighbours and of itself, and in log variance, log noise and β,
    whose first query is ``start``; omitted where the arrays are empty. ``room`` and
    ``starts`` come from `make_room`.
    """
    targets, features = rows[2], rows[4]
    means, variances, weights, flags = outputs
    matrix, points, factor, rest, pivots, mean, single = room[:7]
    block, a, h, points_bar, factor_bar = room[7:]
    lanes = lane_count(table)
    n_neighbours, n_outputs = neighbours.shape[1], targets.shape[1]
    n, sides = _padded(n_neighbours), _padded(1 + n_outputs)
    dimension = rows[0].shape[1]
    wants_gradient = gradients[0].shape[0] > 0
    wants_weights = weights.shape[0] > 0
    root = np.sqrt(variance)
    for first in range(0, len(order), lanes):
        group = order[first : first + lanes]
        _gather(
            rows, queries, neighbours, group, root, least_noise,
            matrix, points, factor, rest, n,
        )  # fmt: skip
        _fill(matrix, points, factor, rest, table, starts, n, dimension)
        own = load(factor, n * lanes) * load(factor, n * lanes)
        spread = load(rest, n * lanes)
        floor = larger(own * full(table, least_pivot), full(table, 1e-30))
        if overlap:
            own = own - _subtract_features(
                features, queries[4], overlap, neighbours, group, matrix, block, n
            )
        worst = factorise(matrix, pivots, factor, rest, n, n + sides, least_pivot)
        # L⁻¹k* in row n, L⁻¹y below it.
        left = own
        side = entry_start(n, 0, n)
        for j in range(n):
            value = load(matrix, (side + j * TILE) * lanes)
            left = left - value * value
        for output in range(n_outputs):
            total = full(table, 0.0)
            row = entry_start(n + 1 + output, 0, n)
            for j in range(n):
                value = load(matrix, (side + j * TILE) * lanes)
                total = total + value * load(matrix, (row + j * TILE) * lanes)
            store(mean, output * lanes, total)
        worst = smaller(worst, left + spread - floor)
        left = larger(larger(left, floor - spread), full(table, 0.0))
        store(single, 0, left)
        store(single, lanes, worst)
        for lane in range(len(group)):
            query = group[lane]
            variances[query] = single[lane]
            # Also true for NaN, which float32 gives where a system is all but singular.
            flags[query] = not single[lanes + lane] >= 0
            for output in range(n_outputs):
                means[query, output] = mean[output * lanes + lane]
        if wants_weights or wants_gradient:
            total = left + spread
            _solve_back(
                matrix, pivots, queries[2], group, mean, total, tails, a, h, single, n
            )
        if wants_weights:
            for lane in range(len(group)):
                for slot in range(n_neighbours):
                    weights[group[lane], slot] = a[slot * lanes + lane]
        if wants_gradient:
            _differentiate(
                points,
                factor,
                rest,
                a,
                h,
                single,
                table,
                beta_table,
                starts,
                points_bar,
                factor_bar,
                n,
                dimension,
            )
            _hand_out(
                gradients,
                start,
                neighbours,
                group,
                root,
                factor,
                points_bar,
                factor_bar,
                single,
                n,
                dimension,
            )


@compiled
def _gather(
    rows, queries, neighbours, group, root, least_noise,
    matrix, points, factor, rest, n,
):  # fmt: skip
    """Copy the data of a group's neighbours and queries into lanes."""
    directions, radial, targets, noise, _ = rows
    query_directions, query_radial, _, query_noise, _ = queries
    lanes = lane_count(matrix)
    dimension, n_outputs = directions.shape[1], targets.shape[1]
    n_neighbours = neighbours.shape[1]
    own = np.empty(lanes, np.uint64)
    present = np.empty(lanes, np.bool_)
    for slot in range(n):
        for lane in range(lanes):
            row = -1
            if lane < len(group) and slot < n_neighbours:
                row = neighbours[group[lane], slot]
            present[lane] = row >= 0
            own[lane] = np.uint64(max(row, 0))
        here = slot * lanes
        for lane in range(lanes):
            row = own[lane]
            own_factor = root * radial[row]
            least = least_noise * own_factor * own_factor
            factor[here + lane] = own_factor if present[lane] else 0.0
            rest[here + lane] = max(noise[row], least) if present[lane] else 1.0
        for k in range(dimension):
            here = (slot * dimension + k) * lanes
            for lane in range(lanes):
                points[here + lane] = directions[own[lane], k]
        for output in range(n_outputs):
            here = entry_start(n + 1 + output, slot, n) * lanes
            for lane in range(lanes):
                value = targets[own[lane], output]
                matrix[here + lane] = value if present[lane] else 0.0
    for lane in range(lanes):
        query = group[min(lane, len(group) - 1)]
        factor[n * lanes + lane] = root * query_radial[query]
        rest[n * lanes + lane] = query_noise[query]
        for k in range(dimension):
            points[(n * dimension + k) * lanes + lane] = query_directions[query, k]


@compiled
def _chord(points, i, j, dimension):
    """Squared chord between two points, from their difference."""
    lanes = lane_count(points)
    left, right = i * dimension * lanes, j * dimension * lanes
    difference = load(points, left) - load(points, right)
    total = difference * difference
    for k in range(1, dimension):
        difference = load(points, left + k * lanes) - load(points, right + k * lanes)
        total = total + difference * difference
    return total


@compiled
def _fill(matrix, points, factor, rest, table, starts, n, dimension):
    """Covariances of the neighbours and of the query."""
    lanes = lane_count(matrix)
    for i in range(n + 1):
        own = load(factor, i * lanes)
        row = entry_start(i, 0, n)
        for j in range(min(i, n)):
            place = locate(_chord(points, i, j, dimension), starts)
            c0, c1, c2, c3 = coefficients(table, starts)
            kernel = c0 + place * (c1 + place * (c2 + place * c3))
            value = own * load(factor, j * lanes) * kernel
            store(matrix, (row + j * TILE) * lanes, value)
        if i < n:
            value = own * own + load(rest, i * lanes)
            store(matrix, (row + i * TILE) * lanes, value)


@compiled
def _subtract_features(
    features, query_features, n_features, neighbours, group, matrix, block, n
):
    """Subtract the part that features explain from the covariances; return |φ*|²."""
    lanes = lane_count(matrix)
    n_neighbours = neighbours.shape[1]
    own = full(matrix, 0.0)
    panel = _FEATURES * TILE * lanes
    for first in range(0, n_features, _FEATURES):
        width = min(_FEATURES, n_features - first)
        block[:] = 0
        for lane in range(len(group)):
            query = group[lane]
            for slot in range(n_neighbours):
                row = neighbours[query, slot]
                start = slot // TILE * panel + slot % TILE * lanes + lane
                if row >= 0:
                    for k in range(width):
                        block[start + k * TILE * lanes] = features[row, first + k]
            start = n // TILE * panel + lane
            for k in range(width):
                block[start + k * TILE * lanes] = query_features[query, first + k]
        for i in range(0, n + 1, TILE):
            for j in range(0, min(i + TILE, n), TILE):
                subtract_products(
                    matrix,
                    entry_start(i, j, n) * lanes,
                    block,
                    i // TILE * panel,
                    j // TILE * panel,
                    width,
                )
        for k in range(width):
            value = load(block, n // TILE * panel + k * TILE * lanes)
            own = own + value * value
    return own


@compiled
def _solve_back(matrix, pivots, targets, group, mean, total, tails, a, h, single, n):
    """The weights a = K⁻¹k*, and the factors of the gradient in K.

    With residuals r, total variance s² and w = K⁻¹ Σ y e/s² over outputs, the gradient
    in K is -½ (a hᵀ + h aᵀ) with h = w - g a, where g is that in s². The query itself
    is one more point with a = -1, w = 0. Here e = r (ν+1)/(ν + r²/s²) for ν degrees of
    freedom, and e = r for normal residuals.
    """
    lanes = lane_count(matrix)
    n_outputs = mean.shape[0] // lanes
    zero, half = full(matrix, 0.0), full(matrix, 0.5)
    one, tail = full(matrix, 1.0), full(matrix, tails)
    inverse = one / total
    g = zero
    for j in range(n):
        store(a, j * lanes, load(matrix, entry_start(n, j, n) * lanes))
        store(h, j * lanes, zero)
    if targets.shape[0] > 0:
        for output in range(n_outputs):
            for lane in range(lanes):
                single[lane] = 0.0
            for lane in range(len(group)):
                single[lane] = targets[group[lane], output]
            distance = load(single, 0) - load(mean, output * lanes)
            residual = distance * inverse
            # A residual far beyond the tails has little influence.
            say = (one + tail) / (one + tail * distance * residual)
            g = g + half * (say * residual * residual - inverse)
            residual = say * residual
            for j in range(n):
                value = load(matrix, entry_start(n + 1 + output, j, n) * lanes)
                store(h, j * lanes, load(h, j * lanes) + residual * value)
    for i in range(n - 1, -1, -1):
        pivot = load(pivots, i * lanes)
        weight, other = load(a, i * lanes) * pivot, load(h, i * lanes) * pivot
        store(a, i * lanes, weight)
        store(h, i * lanes, other)
        row = entry_start(i, 0, n)
        for j in range(i):
            value = load(matrix, (row + j * TILE) * lanes)
            store(a, j * lanes, load(a, j * lanes) - value * weight)
            store(h, j * lanes, load(h, j * lanes) - value * other)
    for i in range(n):
        store(h, i * lanes, load(h, i * lanes) - g * load(a, i * lanes))
    store(a, n * lanes, zero - full(matrix, 1.0))
    store(h, n * lanes, g)


@compiled
def _differentiate(
    points, factor, rest, a, h, single, table, beta_table, starts,
    points_bar, factor_bar, n, dimension,
):  # fmt: skip
    """Gradients in points and factors, and per row in log variance, log noise and β.

    They are doubled for points and factors off the diagonal, where a pair counts
    twice.
    """
    lanes = lane_count(points)
    zero = full(points, 0.0)
    two, three = full(points, 2.0), full(points, 3.0)
    beta_bar, variance_bar, noise_bar = zero, zero, zero
    for i in range((n + 1) * dimension):
        store(points_bar, i * lanes, zero)
    for i in range(n + 1):
        store(factor_bar, i * lanes, zero)
    for i in range(n + 1):
        own = load(factor, i * lanes)
        own_a, own_h = load(a, i * lanes) * own, load(h, i * lanes) * own
        own_bar = zero
        for j in range(i):
            chord = _chord(points, i, j, dimension)
            place = locate(chord, starts)
            c0, c1, c2, c3 = coefficients(table, starts)
            kernel = c0 + place * (c1 + place * (c2 + place * c3))
            slope = c1 + place * (two * c2 + place * (three * c3))
            b0, b1, b2, b3 = coefficients(beta_table, starts)
            other = load(factor, j * lanes)
            pair = own_a * load(h, j * lanes) + own_h * load(a, j * lanes)
            pair = zero - pair * other
            beta_bar = beta_bar + pair * (b0 + place * (b1 + place * (b2 + place * b3)))
            energy = pair * kernel
            own_bar = own_bar + energy
            store(factor_bar, j * lanes, load(factor_bar, j * lanes) + energy)
            chord_bar = two * pair * slope * inverse_width(chord)
            for k in range(dimension):
                here, there = (i * dimension + k) * lanes, (j * dimension + k) * lanes
                pull = chord_bar * (load(points, here) - load(points, there))
                store(points_bar, here, load(points_bar, here) + pull)
                store(points_bar, there, load(points_bar, there) - pull)
        variance_bar = variance_bar + own_bar
        diagonal = zero - load(a, i * lanes) * load(h, i * lanes)
        energy = diagonal * own * own
        variance_bar = variance_bar + energy
        noise_bar = noise_bar + diagonal * load(rest, i * lanes)
        own_bar = load(factor_bar, i * lanes) + own_bar + two * energy
        store(factor_bar, i * lanes, own_bar)
    store(single, 0, variance_bar)
    store(single, lanes, noise_bar)
    store(single, 2 * lanes, beta_bar)


@compiled
def _hand_out(
    gradients, start, neighbours, group, root, factor, points_bar, factor_bar, single,
    n, dimension,
):  # fmt: skip
    """Write the gradients of a group; the query comes after its neighbours."""
    directions, radial, numbers = gradients
    lanes = lane_count(factor)
    n_neighbours = neighbours.shape[1]
    for lane in range(len(group)):
        query = group[lane] - start
        for k in range(3):
            numbers[query, k] = single[k * lanes + lane]
        for slot in range(n_neighbours + 1):
            point = slot if slot < n_neighbours else n
            here = point * lanes + lane
            # Turn d/d log ρ into d/dρ.
            own = factor[here] / root
            radial[query, slot] = factor_bar[here] / own if own != 0 else 0.0
            for k in range(dimension):
                directions[query, slot, k] = points_bar[
                    (point * dimension + k) * lanes + lane
                ]


@compiled
def scatter(total, radial_total, neighbours, queries, directions, radial):
    """Add the gradients of neighbours and queries to those of their rows."""
    for query in range(len(queries)):
        for slot in range(neighbours.shape[1] + 1):
            row = queries[query]
            if slot < neighbours.shape[1]:
                row = neighbours[query, slot]
            if row >= 0:
                radial_total[row] += radial[query, slot]
                for k in range(total.shape[1]):
                    total[row, k] += directions[query, slot, k]
