"""Scores on rows with known targets, read a batch at a time."""

import collections
from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.scores.classes import class_scores
from zonal.scores.held_out import HeldOut, held_out
from zonal.scores.numbers import STATED, regression_scores
from zonal.tables.batches import BatchReader, prefix_errors, read_ahead, values_of

__all__ = ["measured"]


def measured(
    model: Any, stream: BatchReader, target: str, weight: str | None = None
) -> dict[str, Any]:
    """Scores on all rows of a stream, as plain numbers by name."""
    if isinstance(model, SphericalGPClassifier):
        return _of_classes(model, stream, target, weight)
    return _of_numbers(model, stream, target, weight)


def _of_numbers(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> dict[str, Any]:
    sums: dict[str, float] = collections.defaultdict(float)
    inside = np.zeros(len(STATED))
    rows, total, centre, squares = 0, 0.0, 0.0, 0.0
    for part in _parts(model, stream, target, weight):
        found = model.predict_dist(part.table)
        scores = regression_scores(found, part)
        some, mean = float(part.weight.sum()), np.average(part.y, weights=part.weight)
        rows += len(part)
        # Squares around the mean so far: those around zero may be all that is seen.
        apart = float(mean) - centre
        squares += some * scores.deviation**2 + apart**2 * some * total / (some + total)
        total += some
        centre += apart * some / total
        sums["error"] += some * scores.rmse**2
        sums["density"] += some * scores.log_density
        sums["crps"] += some * (np.nan if scores.crps is None else scores.crps)
        inside += some * np.array([share for _, share in scores.headline])
    if not total > 0:
        raise ValueError("every weight is zero: no row is left to measure on")
    return {
        "rows": rows,
        "rmse": float(np.sqrt(sums["error"] / total)),
        "r2": 1 - sums["error"] / squares if squares > 0 else np.nan,
        "nll": -sums["density"] / total,
        "crps": sums["crps"] / total,
        "coverage": {
            f"{stated:.0%}": share
            for stated, share in zip(STATED, inside / total, strict=True)
        },
    }


def _of_classes(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> dict[str, Any]:
    parts = []
    for part in _parts(model, stream, target, weight):
        parts.append((model.predict_proba(part.table), part.y, part.weight))
    if not parts:
        raise ValueError("every weight is zero: no row is left to measure on")
    chance, codes, weights = map(np.concatenate, zip(*parts, strict=True))
    rows = HeldOut(None, codes, weights, np.arange(len(codes)), target)
    scores = class_scores(chance, tuple(map(str, model.classes_)), rows)
    return {
        "rows": len(codes),
        "accuracy": scores.accuracy,
        "most_frequent": scores.frequent,
        "auc": np.nan if scores.area is None else scores.area,
        "log_loss": scores.log_loss,
        "ece": scores.ece,
    }


def _parts(
    model: Any, stream: BatchReader, target: str, weight: str | None
) -> Iterator[HeldOut]:
    """Rows with their targets, checked, a batch at a time."""
    inputs = model.columns_.input_names
    more = [target] if weight is None else [target, weight]
    none = True
    for frame, origin, _ in read_ahead(stream.batches([*inputs, *more])):
        none = False
        weights = None if weight is None else values_of(frame, weight)
        if weights is not None and np.all(weights == 0):
            continue
        table = nw.from_native(frame).select(inputs).to_native()
        with prefix_errors(origin):
            yield held_out(model, table, values_of(frame, target), weights)
    if none:
        raise ValueError("the table has no rows; give it at least one")
