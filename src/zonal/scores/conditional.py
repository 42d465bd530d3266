"""Conditional coverage: coverage of intervals by bins of what is known of each row."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from zonal.likelihoods.counts import CountLikelihood
from zonal.scores.held_out import HeldOut
from zonal.scores.regression import compute_binomial_range
from zonal.scores.relevance import get_column_names, get_relevance
from zonal.tables.frames import Table
from zonal.tables.rounding import round_bits
from zonal.tables.sampling import row_bits

__all__ = [
    "INTERVAL_LEVEL",
    "MOST_INTERVALS",
    "THIRDS",
    "ConditionalCoverage",
    "Covariate",
    "Intervals",
    "RowIntervals",
    "choose_bin_count",
    "compute_conditional_coverage",
    "compute_intervals",
    "compute_row_intervals",
    "divide_by_quantiles",
    "read_numeric_columns",
]

INTERVAL_LEVEL = 0.9
# Quantiles of some likelihoods are found by iteration; more rows would add little.
MOST_INTERVALS = 100_000
THIRDS = 3
_MOST_BINS, _ROWS_PER_BIN = 10, 50
_MOST_COLUMNS = 2
# Kinds of columns whose values have an order.
_NUMERIC_KINDS = ("number", "time", "latitude", "longitude")

Rows = Float[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """Central 90 % intervals of some rows, and which of them contain the target.

    ``probability`` is the predicted probability of each interval. It exceeds 90 % for
    counts, whose intervals end at integers.
    """

    mean: Rows
    std: Rows
    width: Rows
    inside: Rows
    probability: Rows
    weight: Rows


@dataclasses.dataclass(frozen=True, eq=False)
class Covariate:
    """A number known of each row before its target; NaN where it is missing.

    ``kind`` is ``"prediction"`` if the model predicts it, or else that of the column:
    ``"number"`` or ``"time"``.
    """

    name: str
    values: Rows
    kind: str = "number"


@dataclasses.dataclass(frozen=True, eq=False)
class RowIntervals:
    """Intervals of some rows, with their numbers in the table and two columns of it."""

    row_numbers: Int[np.ndarray, " rows"]
    intervals: Intervals
    columns: tuple[Covariate, ...]

    @property
    def covariates(self) -> list[Covariate]:
        """Predicted standard deviation, prediction, and columns."""
        # Predictions of a row differ in the last digits from batch to batch.
        std, mean = round_bits(self.intervals.std), round_bits(self.intervals.mean)
        return [
            Covariate("predicted standard deviation", std, "prediction"),
            Covariate("prediction", mean, "prediction"),
            *self.columns,
        ]

    def __getitem__(self, indices: Int[np.ndarray, " chosen"]) -> "RowIntervals":
        """Some of the rows."""
        parts = {
            field.name: getattr(self.intervals, field.name)[indices]
            for field in dataclasses.fields(self.intervals)
        }
        columns = tuple(
            dataclasses.replace(column, values=column.values[indices])
            for column in self.columns
        )
        return RowIntervals(self.row_numbers[indices], Intervals(**parts), columns)

    def sample(self, count: int) -> "RowIntervals":
        """At most `count` random rows in their order; the same at every call."""
        size = len(self.row_numbers)
        if size <= count:
            return self
        generator = np.random.default_rng(row_bits(0))
        return self[np.sort(generator.choice(size, count, replace=False))]

    @classmethod
    def joined(cls, parts: Sequence["RowIntervals"]) -> "RowIntervals":
        """Intervals of batches with the same columns, one below the other."""
        intervals = {
            field.name: np.concatenate(
                [getattr(part.intervals, field.name) for part in parts]
            )
            for field in dataclasses.fields(Intervals)
        }
        columns = zip(*(part.columns for part in parts), strict=True)
        return cls(
            np.concatenate([part.row_numbers for part in parts]),
            Intervals(**intervals),
            tuple(
                dataclasses.replace(
                    same[0], values=np.concatenate([column.values for column in same])
                )
                for same in columns
            ),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ConditionalCoverage:
    """Coverage and mean width of 90 % intervals in bins of a covariate.

    Bins are in ascending order. ``low`` and ``high`` are the least and the greatest
    value in each, ``share`` is its share of the weight. ``expected`` is the coverage of
    correct intervals, and ``range_low`` to ``range_high`` the central 95 % range of
    their observed coverage.
    """

    name: str
    kind: str
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    share: Float[np.ndarray, " bins"]
    effective_rows: Float[np.ndarray, " bins"]
    coverage: Float[np.ndarray, " bins"]
    expected: Float[np.ndarray, " bins"]
    range_low: Float[np.ndarray, " bins"]
    range_high: Float[np.ndarray, " bins"]
    mean_width: Float[np.ndarray, " bins"]

    def __len__(self) -> int:
        return len(self.low)


def compute_intervals(distribution: Any, y: Rows, weight: Rows) -> Intervals:
    """Intervals of a `PredictiveDistribution` with an entry for each row."""
    low, high = distribution.interval(INTERVAL_LEVEL).T
    probability = np.full(len(y), INTERVAL_LEVEL)
    if isinstance(distribution.prediction.likelihood, CountLikelihood):
        below = np.where(low > 0, distribution.cdf(np.maximum(low - 1, 0)), 0.0)
        probability = np.minimum(distribution.cdf(high) - below, 1.0)
    return Intervals(
        mean=distribution.mean(),
        std=distribution.std(),
        width=high - low,
        inside=((low <= y) & (y <= high)).astype(np.float64),
        probability=probability,
        weight=weight,
    )


def read_numeric_columns(model: Any, table: Any) -> list[Covariate]:
    """Values of the two most relevant columns with numbers or times.

    Without relevances, as for points on a sphere, these are the first two columns.
    """
    columns = model.columns_.columns
    relevance = get_relevance(model)
    order = np.arange(len(columns))
    if relevance is not None:
        order = np.argsort(-relevance, kind="stable")
        order = order[relevance[order] > 0]
    numeric = [int(i) for i in order if columns[i].kind in _NUMERIC_KINDS]
    names, read = get_column_names(model), Table(table)
    by_name = model.columns_.named and read.named
    covariates = []
    for index in numeric[:_MOST_COLUMNS]:
        column = columns[index]
        values = read.column_named(column.name) if by_name else read.column(index)
        kind = "time" if column.kind == "time" else "number"
        numbers = np.asarray(values.as_kind(kind), np.float64)
        numbers = np.where(values.missing, np.nan, numbers)
        covariates.append(Covariate(names[index], numbers, kind))
    return covariates


def compute_row_intervals(
    model: Any, distribution: Any, rows: HeldOut, chosen: Int[np.ndarray, " chosen"]
) -> RowIntervals:
    """Intervals of some rows; ``distribution`` has an entry for each row of all.

    Predicting the chosen rows again is faster than the quantiles of all.
    """
    table = rows.table
    if len(chosen) < len(rows):
        table = rows.select_rows(chosen)
        predicted = model.predict_dist(table, **rows.select_exposure(chosen))
        distribution = predicted[0] if isinstance(predicted, list) else predicted
    return RowIntervals(
        row_numbers=rows.row_numbers[chosen],
        intervals=compute_intervals(distribution, rows.y[chosen], rows.weight[chosen]),
        columns=tuple(read_numeric_columns(model, table)),
    )


def choose_bin_count(effective_rows: float) -> int:
    """Three to ten bins, with 50 rows or more in each if there are more than three."""
    return int(np.clip(effective_rows // _ROWS_PER_BIN, THIRDS, _MOST_BINS))


def divide_by_quantiles(
    values: Rows, weight: Rows, count: int
) -> Int[np.ndarray, " rows"]:
    """Index of the bin of each row: at most `count` bins of similar total weight.

    Rows with equal values share a bin, so there are fewer bins than `count` if few
    values are distinct. No bin is empty, and the order of rows has no influence.

    Examples
    --------
    >>> values = np.array([3.0, 1.0, 2.0, 1.0, 5.0, 4.0])
    >>> divide_by_quantiles(values, np.ones(6), 3)
    array([1, 0, 1, 0, 2, 2])
    >>> divide_by_quantiles(values, np.array([1.0, 1.0, 1.0, 1.0, 20.0, 1.0]), 2)
    array([0, 0, 0, 0, 1, 0])
    """
    if len(values) == 0:
        return np.zeros(0, int)
    # Weights of equal values are sorted too: sums do not depend on the order of rows.
    order = np.lexsort((weight, values))
    ordered = values[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    # Weight of all rows up to each distinct value.
    cumulative = np.cumsum(weight[order])[is_last]
    starts, done = [0], 0.0
    for bins_left in range(count, 1, -1):
        end = done + (cumulative[-1] - done) / bins_left
        nearest = starts[-1] + int(np.abs(cumulative[starts[-1] :] - end).argmin())
        if nearest == len(cumulative) - 1:
            break
        starts.append(nearest + 1)
        done = cumulative[nearest]
    ranks = np.empty(len(order), int)
    ranks[order] = np.cumsum(is_last) - is_last
    return np.searchsorted(starts, ranks, side="right") - 1


def compute_conditional_coverage(
    covariate: Covariate, intervals: Intervals, count: int
) -> ConditionalCoverage:
    """Coverage in at most `count` bins; rows without a value are left out."""
    present = np.flatnonzero(~np.isnan(covariate.values))
    values, weight = covariate.values[present], intervals.weight[present]
    bins = divide_by_quantiles(values, weight, count)
    size = int(bins.max()) + 1 if len(bins) else 0
    total = np.bincount(bins, weight, size)

    def average(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(bins, weight * numbers[present], size) / total

    low, high = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(low, bins, values)
    np.maximum.at(high, bins, values)
    effective_rows = total**2 / np.bincount(bins, weight**2, size)
    # Rounded, because a range ends at whole rows: 0.9 must not become 0.8999…9.
    expected = np.minimum(np.round(average(intervals.probability), 9), 1.0)
    ranges = [
        compute_binomial_range(float(probability), float(rows))
        for probability, rows in zip(expected, effective_rows, strict=True)
    ]
    range_low, range_high = np.array(ranges, np.float64).reshape(size, 2).T
    return ConditionalCoverage(
        name=covariate.name,
        kind=covariate.kind,
        low=low,
        high=high,
        share=total / total.sum(),
        effective_rows=effective_rows,
        coverage=np.minimum(average(intervals.inside), 1.0),
        expected=expected,
        range_low=range_low,
        range_high=range_high,
        mean_width=average(intervals.width),
    )
