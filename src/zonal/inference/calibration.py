"""Calibration: the law of new targets, from errors of held-out predictions.

With nearest rows, leave-one-out predictions of some rows are exact and cheap. But the
residuals of a row's neighbours know its target, which those of a new row's neighbours
do not. So residuals nearby are those of a table without these rows. A large table gives
enough rows at once; of a small one, several parts are taken out in turn.

With features alone, leave-one-out predictions have a closed form, and a ridge
regression of the size of residuals on columns and features says how wide errors are at
a row.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from zonal.engine.passes import chunk_results
from zonal.engine.posterior import Marginals
from zonal.inference.local import LocalSolution, StoredTable
from zonal.inference.solution import Solution
from zonal.likelihoods.size_trend import SizeTrend, fit_ridge, log_sizes, pieces
from zonal.tables.chunks import Chunk
from zonal.tables.sampling import row_bits
from zonal.tables.sources import Source, source_of

__all__ = ["calibrate"]

# Rows to predict in all, the share of a table that is taken out at once, and how often.
_HELD_OUT = 5_000
_SHARE = 0.2
_MOST_PARTS = 5
# Distinct rows that residuals nearby need.
_LEAST_TABLE = 8
# With features alone: rows to predict, and the work (rows times squared features) that
# takes a second or two.
_MOST_ROWS = 20_000
_LEAST_ROWS = 2_000
_WORK = 1e10
# Most rows of the regression of sizes on columns.
_TREND_ROWS = 20_000


@functools.singledispatch
def calibrate(solution: Any, source: Source, seed: int = 0) -> Any:
    """The solution with its likelihood calibrated on held-out errors.

    The source has the standardised rows that were fitted. Only normal noise is
    calibrated; solutions with other likelihoods are returned unchanged.
    """
    raise TypeError(f"cannot calibrate {type(solution).__name__}")


@calibrate.register
def _(solution: LocalSolution, source: Source, seed: int = 0) -> LocalSolution:
    count = source.n_rows or int(solution.table.rows)
    size = min(max(int(_SHARE * count), 1), _HELD_OUT)
    n_parts = min(-(-_HELD_OUT // size), _MOST_PARTS)
    rows = source.sample(min(n_parts * size, count), seed)
    if len(rows) < 2:
        return solution
    order = np.random.default_rng(row_bits(seed)).permutation(len(rows))
    parts = np.array_split(order, min(n_parts, len(rows)))
    found = [_leave_out(solution, rows[part]) for part in parts]
    marginals = _joined(found)
    nearby = dataclasses.replace(rows[np.concatenate(parts)], nearby=marginals.nearby)
    likelihood = solution.likelihood.calibrate(
        nearby, marginals.mean, marginals.variance
    )
    solution = dataclasses.replace(solution, likelihood=likelihood)
    return _with_sizes(solution) if likelihood.uses_nearby else solution


def _leave_out(solution: LocalSolution, rows: Chunk) -> Marginals:
    """Leave-one-out marginals of rows, and residuals nearby that do not know them."""
    found = solution.left_out(rows)
    table = solution.table.without(StoredTable.of(source_of(rows)))
    if len(table) < _LEAST_TABLE:
        return found
    others = _with_sizes(solution.with_table(table, solution.sums))
    return found._replace(nearby=others.nearby(rows.x, found))


def _with_sizes(solution: LocalSolution) -> LocalSolution:
    """The solution with the residuals of its rows, and their trend along columns."""
    table, squares = solution.table, solution.known_squares
    rows = np.flatnonzero(np.isfinite(squares))
    if len(rows) > _TREND_ROWS:
        generator = np.random.default_rng(row_bits(0))
        rows = np.sort(generator.choice(rows, _TREND_ROWS, replace=False))
    trend, _ = SizeTrend.fit(
        table.x[rows], squares[rows].astype(np.float64), table.weight[rows]
    )
    return dataclasses.replace(solution, squares=squares, trend=trend)


def _joined(parts: list[Marginals]) -> Marginals:
    nearby = [part.nearby for part in parts if part.nearby is not None]
    return Marginals(
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.variance for part in parts]),
        np.concatenate(nearby) if len(nearby) == len(parts) else None,
    )


@calibrate.register
def _(solution: Solution, source: Source, seed: int = 0) -> Solution:
    if not solution.likelihood.conjugate:
        return solution
    affordable = int(_WORK / solution.n_features**2)
    rows = source.sample(min(max(affordable, _LEAST_ROWS), _MOST_ROWS), seed)
    left_out = _joined(list(chunk_results(solution.left_out, source_of(rows))))
    noise = float(solution.processes[0].noise) / rows.precisions
    unit = np.sqrt(left_out.variance[:, 0] + noise)
    squares = ((rows.targets - left_out.mean[:, 0]) / unit) ** 2
    features, radial = solution.posteriors[0].frame.unit_features(rows.x)
    knots = SizeTrend.knots_of(rows.x)
    along = pieces(rows.x, knots)
    columns = np.hstack([along, features * radial[:, None]])
    slopes, nearby = fit_ridge(columns, log_sizes(squares), rows.weights)
    n_pieces = along.shape[1]
    level = float(np.average(columns @ slopes, weights=rows.weights))
    trend = SizeTrend.of_slopes(knots, slopes[:n_pieces], level)
    known = dataclasses.replace(rows, nearby=nearby[:, None])
    likelihood = solution.likelihood.calibrate(known, left_out.mean, left_out.variance)
    solution = dataclasses.replace(solution, likelihood=likelihood)
    if not likelihood.uses_nearby:
        return solution
    return dataclasses.replace(solution, trend=trend, sizes=slopes[n_pieces:])
