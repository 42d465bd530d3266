"""Scores of a model on rows with known targets, read one batch at a time."""

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.scores.classification import score_classification
from zonal.scores.conditional import (
    MOST_INTERVALS,
    THIRDS,
    ConditionalCoverage,
    RowIntervals,
    compute_conditional_coverage,
    compute_row_intervals,
)
from zonal.scores.held_out import HeldOut, check_held_out
from zonal.scores.regression import HEADLINE_LEVELS, score_regression
from zonal.tables.batches import BatchReader, prefix_errors, read_ahead, values_of
from zonal.tables.sampling import row_bits

__all__ = ["score_stream"]

_PIT_BINS = 10


def score_stream(
    model: Any, stream: BatchReader, target: str, weight: str | None = None
) -> dict[str, Any]:
    """Scores over all rows of a stream, as plain numbers by name."""
    if isinstance(model, SphericalGPClassifier):
        return _score_classifier(model, stream, target, weight)
    return _score_regressor(model, stream, target, weight)


def _score_regressor(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> dict[str, Any]:
    sums: dict[str, float] = collections.defaultdict(float)
    covered = np.zeros(len(HEADLINE_LEVELS))
    pit = np.zeros(_PIT_BINS)
    sample = _IntervalSample(MOST_INTERVALS, np.empty(0))
    n_rows, total, mean, squares = 0, 0.0, 0.0, 0.0
    for batch in _held_out_batches(model, stream, target, weight):
        distribution = model.predict_dist(batch.table)
        scores = score_regression(distribution, batch, _PIT_BINS)
        sample = sample.add(model, distribution, batch, n_rows)
        batch_total = float(batch.weight.sum())
        batch_mean = float(np.average(batch.y, weights=batch.weight))
        n_rows += len(batch)
        # Chan, Golub & LeVeque (1983): squares around the running mean, because sums
        # of raw squares lose all digits when targets lie far from zero.
        shift = batch_mean - mean
        squares += batch_total * scores.target_std**2
        squares += shift**2 * batch_total * total / (batch_total + total)
        total += batch_total
        mean += shift * batch_total / total
        crps = np.nan if scores.crps is None else scores.crps
        sums["squared_error"] += batch_total * scores.rmse**2
        sums["log_density"] += batch_total * scores.mean_log_density
        sums["crps"] += batch_total * crps
        pit += batch_total * scores.pit_histogram
        covered += batch_total * np.array([share for _, share in scores.coverage])
    if not total > 0:
        raise ValueError("all weights are zero: there are no rows to score")
    return {
        "rows": n_rows,
        "rmse": float(np.sqrt(sums["squared_error"] / total)),
        "r2": 1 - sums["squared_error"] / squares if squares > 0 else np.nan,
        "nll": -sums["log_density"] / total,
        "crps": sums["crps"] / total,
        "coverage": {
            f"{level:.0%}": share
            for level, share in zip(HEADLINE_LEVELS, covered / total, strict=True)
        },
        "pit_histogram": (pit / total).tolist(),
        "conditional_coverage": sample.score(),
    }


@dataclasses.dataclass(frozen=True, eq=False)
class _IntervalSample:
    """Intervals of at most ``count`` rows, those with the smallest random keys.

    Keys belong to the positions of rows, so that batches of any size give the same
    sample.
    """

    count: int
    keys: np.ndarray
    rows: RowIntervals | None = None

    def add(
        self, model: Any, distribution: Any, batch: HeldOut, first_row: int
    ) -> "_IntervalSample":
        """The sample of these rows as well; ``first_row`` is their position."""
        bits = row_bits(0)
        bits.advance(first_row)
        keys = np.random.default_rng(bits).random(len(batch))
        chosen = np.arange(len(batch))
        if len(self.keys) == self.count:
            chosen = np.flatnonzero(keys < self.keys.max())
        if len(chosen) == 0:
            return self
        rows = compute_row_intervals(model, distribution, batch, chosen)
        if self.rows is not None:
            rows = RowIntervals.joined([self.rows, rows])
        keys = np.append(self.keys, keys[chosen])
        if len(keys) > self.count:
            smallest = np.sort(np.argpartition(keys, self.count - 1)[: self.count])
            keys, rows = keys[smallest], rows[smallest]
        return _IntervalSample(self.count, keys, rows)

    def score(self) -> list[dict[str, Any]]:
        """Coverage by thirds of each covariate, as plain numbers."""
        if self.rows is None:
            return []
        return [
            _describe_bins(
                compute_conditional_coverage(covariate, self.rows.intervals, THIRDS)
            )
            for covariate in self.rows.covariates
        ]


def _describe_bins(coverage: ConditionalCoverage) -> dict[str, Any]:
    """Bins as plain numbers by name, for programs."""
    bins = [
        {
            "from": _describe_value(coverage.low[index], coverage.kind),
            "to": _describe_value(coverage.high[index], coverage.kind),
            "share": float(coverage.share[index]),
            "coverage": float(coverage.coverage[index]),
            "expected": float(coverage.expected[index]),
            "range": [
                float(coverage.range_low[index]),
                float(coverage.range_high[index]),
            ],
            "mean_width": float(coverage.mean_width[index]),
        }
        for index in range(len(coverage))
    ]
    return {"by": coverage.name, "bins": bins}


def _describe_value(value: float, kind: str) -> float | str:
    """A number, or a time in ISO 8601."""
    return str(np.datetime64(round(value), "s")) if kind == "time" else float(value)


def _score_classifier(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> dict[str, Any]:
    # Rankings such as the AUC need the probabilities of all rows at once.
    batches = [
        (model.predict_proba(batch.table), batch.y, batch.weight)
        for batch in _held_out_batches(model, stream, target, weight)
    ]
    if not batches:
        raise ValueError("all weights are zero: there are no rows to score")
    probabilities, codes, weights = map(np.concatenate, zip(*batches, strict=True))
    rows = HeldOut(None, codes, weights, np.arange(len(codes)), target)
    scores = score_classification(probabilities, tuple(map(str, model.classes_)), rows)
    return {
        "rows": len(codes),
        "accuracy": scores.accuracy,
        "most_frequent": scores.majority_share,
        "auc": np.nan if scores.auc is None else scores.auc,
        "log_loss": scores.log_loss,
        "ece": scores.ece,
    }


def _held_out_batches(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> Iterator[HeldOut]:
    """Checked rows with their targets, one batch at a time."""
    inputs = model.columns_.input_names
    needed = [*inputs, target] if weight is None else [*inputs, target, weight]
    empty = True
    for frame, origin, _ in read_ahead(stream.batches(needed)):
        empty = False
        weights = None if weight is None else values_of(frame, weight)
        if weights is not None and np.all(weights == 0):
            continue
        table = nw.from_native(frame).select(inputs).to_native()
        with prefix_errors(origin):
            yield check_held_out(model, table, values_of(frame, target), weights)
    if empty:
        raise ValueError("the table has no rows; give at least one")
