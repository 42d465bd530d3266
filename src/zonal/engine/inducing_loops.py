"""The compiled loops behind `zonal.engine.inducing`.

Arrays of vectors are flat, and their last axis is that of the lanes; see
`zonal.engine.lanes`.
"""

# pyright: reportCallIssue=false, reportOperatorIssue=false
# Numba's own functions are called without their first argument.

import numpy as np

from zonal.engine.lanes import coefficients, full, lane_count, load, locate, store
from zonal.engine.panels import compiled

__all__ = ["combine_rows", "evaluate_kernel"]


@compiled
def evaluate_kernel(directions, scale, phases, table, room, starts, values):
    """``scale`` times the kernel between rows and phases, a vector of phases at a time.

    ``phases`` holds, for each vector of phases, their first coordinates, then their
    second ones, and so on. ``room`` is one vector, ``starts`` 16 integers.
    """
    lanes = lane_count(phases)
    n_rows, dimension = directions.shape
    n_phases = values.shape[1]
    for row in range(n_rows):
        for first in range(0, n_phases, lanes):
            here = first * dimension
            difference = full(phases, directions[row, 0]) - load(phases, here)
            chord = difference * difference
            for k in range(1, dimension):
                other = load(phases, here + k * lanes)
                difference = full(phases, directions[row, k]) - other
                chord = chord + difference * difference
            place = locate(chord, starts)
            c0, c1, c2, c3 = coefficients(table, starts)
            kernel = c0 + place * (c1 + place * (c2 + place * c3))
            store(room, 0, full(phases, scale[row]) * kernel)
            for lane in range(min(lanes, n_phases - first)):
                values[row, first + lane] = room[lane]


@compiled
def combine_rows(features, neighbours, weights, rest):
    """Subtract the weighted sum of each query's neighbours from its features."""
    n_features = features.shape[1]
    for query in range(len(neighbours)):
        for slot in range(neighbours.shape[1]):
            row = neighbours[query, slot]
            if row >= 0:
                row = np.uint64(row)
                weight = weights[query, slot]
                for k in range(n_features):
                    rest[query, k] -= weight * features[row, k]
