"""Calibration: the law of new targets, from errors of held-out predictions.

With nearest rows, leave-one-out predictions of some rows are exact and cheap. But the
residuals of a row's neighbours know its target, which those of a new row's neighbours
do not. So residuals nearby are those of a table without these rows. A large table gives
enough rows at once; of a small one, several parts are taken out in turn.

Rows without repeats stand for new rows that repeat none; where there are few, rows with
repeats are left out with all of these. Repeated rows that are left out alone stand for
new rows that repeat a stored one.

With features alone, leave-one-out predictions have a closed form, and a ridge
regression of the size of residuals on columns and features says how wide errors are at
a row.
"""

import dataclasses
import functools
from typing import Any

import numpy as np
from jaxtyping import Int

from zonal.engine.passes import chunk_results
from zonal.engine.posterior import Marginals
from zonal.inference.local import LocalSolution
from zonal.inference.solution import Solution
from zonal.likelihoods.size_trend import SizeTrend, fit_ridge, log_sizes, pieces
from zonal.tables.chunks import Chunk, joined
from zonal.tables.sampling import row_bits, thin
from zonal.tables.sources import Source, source_of
from zonal.tables.stored import StoredTable

__all__ = ["calibrate"]

# Rows to predict in all, the share of a table that is taken out at once, and how often.
_HELD_OUT = 5_000
_SHARE = 0.2
_MOST_PARTS = 5
# Distinct rows that residuals nearby need, repeated rows that a law of their own needs,
# and rows without repeats that are enough to stand for new rows.
_LEAST_TABLE, _LEAST_REPEATED, _LEAST_SINGLE = 8, 40, 400
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
    table = solution.table
    count = source.n_rows or int(table.rows)
    size = min(max(int(_SHARE * count), 1), _HELD_OUT)
    n_parts = min(-(-_HELD_OUT // size), _MOST_PARTS)
    rows = source.sample(min(n_parts * size, count), seed)
    if len(table) < _LEAST_TABLE:
        left_out = solution.left_out(rows)
        likelihood = solution.likelihood.calibrate(rows, *left_out[:2])
        return dataclasses.replace(solution, likelihood=likelihood)
    index = table.find(rows.x)
    repeats = table.weight[index] > 1.5 * rows.weights * rows.precisions
    own, first = np.unique(index, return_index=True)
    single = ~repeats[first]
    if np.sum(single) >= _LEAST_SINGLE:
        own, first = own[single], first[single]
    order = np.random.default_rng(row_bits(seed)).permutation(len(own))
    parts = np.array_split(order, min(n_parts, len(own)))
    found = [_leave_out(solution, rows[first[part]], own[part]) for part in parts]
    chosen = [rows[first[part]] for part in parts]
    again = thin(rows[repeats], size, seed)
    if len(again) >= _LEAST_REPEATED:
        left_out = _leave_one_repeat_out(solution, again)
        assert left_out.nearby is not None
        # All repeats of some rows were taken out together.
        repeated = left_out.nearby[:, -1] > 0
        chosen.append(again[repeated])
        found.append(
            Marginals(
                left_out.mean[repeated],
                left_out.variance[repeated],
                left_out.nearby[repeated],
            )
        )
    marginals, chosen = _joined(found), joined(chosen)
    known = Chunk(
        chosen.x, chosen.y, precision=chosen.precision, nearby=marginals.nearby
    )
    likelihood = solution.likelihood.calibrate(
        known, marginals.mean, marginals.variance
    )
    solution = dataclasses.replace(solution, likelihood=likelihood)
    return _with_sizes(solution) if likelihood.uses_nearby else solution


def _leave_out(
    solution: LocalSolution, rows: Chunk, own: Int[np.ndarray, " rows"]
) -> Marginals:
    """Marginals of rows without their repeats, and residuals that do not know them."""
    kept = np.ones(len(solution.table), bool)
    kept[own] = False
    others = solution.table.part(np.flatnonzero(kept))
    return _with_nearby(solution, rows, solution.left_out_rows(own), others)


def _leave_one_repeat_out(solution: LocalSolution, rows: Chunk) -> Marginals:
    """Marginals of rows given all others, their repeats among them."""
    others = solution.table.without(StoredTable.of(source_of(rows)))
    return _with_nearby(solution, rows, solution.left_out(rows), others)


def _with_nearby(
    solution: LocalSolution, rows: Chunk, found: Marginals, table: StoredTable
) -> Marginals:
    """Marginals with the residuals nearby that the rows of a table have."""
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
    # No row counts as the repeat of another one.
    nearby = np.column_stack([nearby, np.zeros(len(rows))])
    known = dataclasses.replace(rows, nearby=nearby)
    likelihood = solution.likelihood.calibrate(known, left_out.mean, left_out.variance)
    solution = dataclasses.replace(solution, likelihood=likelihood)
    if not likelihood.uses_nearby:
        return solution
    return dataclasses.replace(solution, trend=trend, sizes=slopes[n_pieces:])
