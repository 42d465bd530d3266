"""Cholesky factorisation in lanes: one small matrix per lane of a vector.

A matrix is a flat array of vectors, see `zonal.engine.lanes`. Its rows come in panels
of four, up to the diagonal, each stored by column: the order in which they are read.
Rows below the square part are stored likewise; they are right-hand sides to be solved
with its factor.
"""

# pyright: reportCallIssue=false, reportOperatorIssue=false
# Numba's own functions are called without their first argument.

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit

from zonal.engine.lanes import (
    TILE,
    full,
    lane_count,
    larger,
    load,
    smaller,
    square_root,
    store,
    subtract_products,
)

__all__ = ["compiled", "entry_start", "factorise", "panel_start"]


def compiled(function: Callable) -> Any:
    """Compile on first use, without the interpreter's lock, and cache the code on disk.

    Type checks that tests wrap around functions are removed first.
    """
    function = inspect.unwrap(function)
    try:
        return njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:
        # Numba found no writable folder for its cache.
        return njit(function, nogil=True, error_model="numpy")


@compiled
def panel_start(row, n):
    """Number of vectors before the panel of a row."""
    panel = row // TILE
    square = min(panel, n // TILE)
    return TILE * (square * (square + 1) // 2 * TILE + (panel - square) * n)


@compiled
def entry_start(row, column, n):
    """Number of vectors before an entry of the matrix."""
    return panel_start(row, n) + column * TILE + row % TILE


@compiled
def factorise(matrix, pivots, factor, rest, n, n_rows, least_pivot):
    """Factorise in place, and solve the rows below the square part with the factor.

    A pivot that is too small in proportion to the prior variance is lifted, as if that
    neighbour had more noise. Returns the smallest margin of a pivot above its limit.
    """
    lanes = lane_count(matrix)
    tolerance, least = full(matrix, least_pivot), full(matrix, 1e-30)
    worst = full(matrix, 1.0)
    for j in range(n):
        # Store the limit of each pivot in the place of its inverse.
        own = load(factor, j * lanes)
        limit = (own * own + load(rest, j * lanes)) * tolerance
        store(pivots, j * lanes, larger(limit, least))
    for left in range(0, n, TILE):
        right = panel_start(left, n)
        corner = (right + left * TILE) * lanes
        subtract_products(matrix, corner, matrix, right * lanes, right * lanes, left)
        worst = smaller(worst, _factorise_tile(matrix, corner, pivots, left))
        for top in range(left + TILE, n_rows, TILE):
            panel = panel_start(top, n)
            tile = (panel + left * TILE) * lanes
            subtract_products(matrix, tile, matrix, panel * lanes, right * lanes, left)
            _solve_tile(matrix, tile, corner, pivots, left)
    return worst


@compiled
def _factorise_tile(matrix, corner, pivots, left):
    """Factorise a tile on the diagonal; return the smallest margin of its pivots."""
    lanes = lane_count(matrix)
    step = TILE * lanes
    one = full(matrix, 1.0)
    worst = one
    for c in range(TILE):
        diagonal = corner + c * step + c * lanes
        pivot = load(matrix, diagonal)
        limit = load(pivots, (left + c) * lanes)
        worst = smaller(worst, pivot - limit)
        inverse = one / square_root(larger(pivot, limit))
        store(pivots, (left + c) * lanes, inverse)
        for r in range(c + 1, TILE):
            below = corner + c * step + r * lanes
            store(matrix, below, load(matrix, below) * inverse)
        for q in range(c + 1, TILE):
            factor = load(matrix, corner + c * step + q * lanes)
            for r in range(q, TILE):
                below = corner + q * step + r * lanes
                value = load(matrix, corner + c * step + r * lanes)
                store(matrix, below, load(matrix, below) - value * factor)
    return worst


@compiled
def _solve_tile(matrix, tile, corner, pivots, left):
    """Multiply a tile by the inverse of the transposed factor on the diagonal."""
    lanes = lane_count(matrix)
    step = TILE * lanes
    p0, p1 = load(pivots, left * lanes), load(pivots, (left + 1) * lanes)
    p2, p3 = load(pivots, (left + 2) * lanes), load(pivots, (left + 3) * lanes)
    l10, l20 = load(matrix, corner + lanes), load(matrix, corner + 2 * lanes)
    l30, l21 = load(matrix, corner + 3 * lanes), load(matrix, corner + step + 2 * lanes)
    l31 = load(matrix, corner + step + 3 * lanes)
    l32 = load(matrix, corner + 2 * step + 3 * lanes)
    for r in range(TILE):
        row = tile + r * lanes
        x0 = load(matrix, row) * p0
        x1 = (load(matrix, row + step) - x0 * l10) * p1
        x2 = (load(matrix, row + 2 * step) - x0 * l20 - x1 * l21) * p2
        x3 = load(matrix, row + 3 * step) - x0 * l30 - x1 * l31 - x2 * l32
        store(matrix, row, x0)
        store(matrix, row + step, x1)
        store(matrix, row + 2 * step, x2)
        store(matrix, row + 3 * step, x3 * p3)
