"""Sizes of residuals and of targets among the nearest rows.

For the 2, 8, 32 and 128 rows nearest to a query, these are two root mean squares: of
their standardised leave-one-out residuals, and of the distances of their targets from
the query's prediction. They say how wide errors are at the query. Each includes a
pseudo-row of small weight, with the size that the process predicts, so that rows with
residuals of zero promise no certainty. The results are logarithms, relative to that
size.
"""

import numpy as np
from jaxtyping import Float, Integer

from zonal.engine.panels import compiled
from zonal.engine.passes import block_results

__all__ = ["LARGEST", "SIZES", "nearby_sizes"]

# Numbers of nearest rows.
SIZES = (2, 8, 32, 128)
LARGEST = SIZES[-1]
_PSEUDO_ROWS = 0.1
_BLOCK = 4096


def nearby_sizes(
    lists: Integer[np.ndarray, "queries neighbours"],
    squares: Float[np.ndarray, " rows"],
    targets: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    spread: Float[np.ndarray, " rows"],
    mean: Float[np.ndarray, " queries"],
    unit: Float[np.ndarray, " queries"],
) -> Float[np.ndarray, "queries sizes"]:
    """Logarithms of sizes near each query, of residuals first, then of targets.

    Parameters
    ----------
    lists
        The nearest rows of each query, the nearest first; -1 for none.
    squares
        Squared standardised residual of each row; NaN where it is not known.
    targets, weight, spread
        Mean target of each row, how often it was repeated, and the squared deviations
        of the repeats from the mean.
    mean, unit
        Predicted mean and standard deviation of a new target at each query.

    Examples
    --------
    >>> one = np.ones(2)
    >>> lists = np.array([[0, 1]])
    >>> sizes = nearby_sizes(lists, 4 * one, one, one, 0 * one, np.zeros(1), np.ones(1))
    >>> np.exp(sizes[0, [0, -1]]).round(1)
    array([2., 1.])
    """
    lists = np.ascontiguousarray(lists[:, :LARGEST], np.int32)
    columns = [
        np.ascontiguousarray(column, np.float64)
        for column in (squares, targets, weight, spread)
    ]
    sizes = np.zeros((len(lists), 2 * len(SIZES)))
    limits = np.array(SIZES)

    def fill(block: slice) -> None:
        _fill_sizes(
            lists[block], *columns, mean[block], unit[block], limits, sizes[block]
        )

    for _ in block_results(fill, len(lists), _BLOCK):
        pass
    return sizes


@compiled
def _fill_sizes(lists, squares, targets, weight, spread, mean, unit, limits, sizes):
    """Sums over growing numbers of neighbours, and their logarithms."""
    n_limits = len(limits)
    for query in range(len(lists)):
        own = unit[query] * unit[query]
        residuals, counted = _PSEUDO_ROWS, _PSEUDO_ROWS
        deviations, total = _PSEUDO_ROWS * own, _PSEUDO_ROWS
        limit = 0
        for slot in range(lists.shape[1]):
            if slot == limits[limit]:
                sizes[query, limit] = 0.5 * np.log(residuals / counted)
                sizes[query, n_limits + limit] = 0.5 * np.log(deviations / total / own)
                limit += 1
                if limit == n_limits:
                    break
            row = lists[query, slot]
            if row < 0:
                continue
            if squares[row] == squares[row]:  # NaN is not equal to itself
                residuals += weight[row] * squares[row]
                counted += weight[row]
            distance = targets[row] - mean[query]
            deviations += weight[row] * distance * distance + spread[row]
            total += weight[row]
        while limit < n_limits:
            sizes[query, limit] = 0.5 * np.log(residuals / counted)
            sizes[query, n_limits + limit] = 0.5 * np.log(deviations / total / own)
            limit += 1
