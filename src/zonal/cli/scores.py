"""What a model is worth on rows with known targets, read a batch at a time."""

import collections
from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np

from zonal.estimators import SphericalGPClassifier
from zonal.report.classes import class_scores
from zonal.report.rows import HeldOut, held_out
from zonal.report.scores import STATED, regression_scores
from zonal.streams import Stream, check_columns, naming, read_ahead, values_of

__all__ = ["measured", "metric_lines"]


def measured(
    model: Any, stream: Stream, target: str, weight: str | None = None
) -> dict[str, Any]:
    """Scores on all rows of a stream, as plain numbers by name."""
    if isinstance(model, SphericalGPClassifier):
        return _of_classes(model, stream, target, weight)
    return _of_numbers(model, stream, target, weight)


def _of_numbers(
    model: Any, stream: Stream, target: str, weight: str | None
) -> dict[str, Any]:
    sums: dict[str, float] = collections.defaultdict(float)
    inside = np.zeros(len(STATED))
    rows = 0
    for part in _parts(model, stream, target, weight):
        found = model.predict_dist(part.table)
        found = found[0] if isinstance(found, list) else found
        scores, total = regression_scores(found, part), float(part.weight.sum())
        rows += len(part)
        for name, mean in (
            ("weight", 1.0),
            ("y", np.average(part.y, weights=part.weight)),
            ("yy", np.average(part.y**2, weights=part.weight)),
            ("error", scores.rmse**2),
            ("density", scores.log_density),
            ("crps", np.nan if scores.crps is None else scores.crps),
        ):
            sums[name] += total * float(mean)
        inside += total * np.array([share for _, share in scores.headline])
    means = {name: value / sums["weight"] for name, value in sums.items()}
    variance = max(means["yy"] - means["y"] ** 2, 0.0)
    return {
        "rows": rows,
        "rmse": float(np.sqrt(means["error"])),
        "r2": 1 - means["error"] / variance if variance > 0 else np.nan,
        "nll": -means["density"],
        "crps": means["crps"],
        "coverage": {
            f"{stated:.0%}": share
            for stated, share in zip(STATED, inside / sums["weight"], strict=True)
        },
    }


def _of_classes(
    model: Any, stream: Stream, target: str, weight: str | None
) -> dict[str, Any]:
    parts = []
    for part in _parts(model, stream, target, weight):
        parts.append((model.predict_proba(part.table), part.y, part.weight))
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
    model: Any, stream: Stream, target: str, weight: str | None
) -> Iterator[HeldOut]:
    """Rows with their targets, checked, a batch at a time."""
    inputs = list(map(str, model.columns_.names))
    more = [target] if weight is None else [target, weight]
    check_columns(stream, [*inputs, *more])
    none = True
    for frame, origin, _ in read_ahead(stream.batches([*inputs, *more])):
        none = False
        weights = None if weight is None else values_of(frame, weight)
        table = nw.from_native(frame).select(inputs).to_native()
        with naming(origin):
            yield held_out(model, table, values_of(frame, target), weights)
    if none:
        raise ValueError("the table has no rows; give it at least one")


def metric_lines(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Scores with a word on what each means."""
    found = [("test rows", f"{metrics['rows']:,}", "not learned from")]
    if "rmse" in metrics:
        found += [
            ("RMSE", f"{metrics['rmse']:.4g}", "error, as a root mean square"),
            ("R²", f"{metrics['r2']:.4f}", "share of the variance explained"),
            ("NLL", f"{metrics['nll']:.4f}", "minus the mean log density; low is good"),
        ]
        if np.isfinite(metrics["crps"]):
            words = "error of whole distributions; low is good"
            found.append(("CRPS", f"{metrics['crps']:.4g}", words))
        found += [
            (f"{stated} intervals", f"{share:.1%}", "of the rows lie inside")
            for stated, share in metrics["coverage"].items()
        ]
        return found
    frequent = (
        f"the most frequent class alone would give {metrics['most_frequent']:.4f}"
    )
    found.append(("accuracy", f"{metrics['accuracy']:.4f}", frequent))
    if np.isfinite(metrics["auc"]):
        words = "one half is guessing, one is perfect"
        found.append(("AUC", f"{metrics['auc']:.4f}", words))
    return [
        *found,
        ("log loss", f"{metrics['log_loss']:.4f}", "of the true classes; low is good"),
        ("ECE", f"{metrics['ece']:.4f}", "how far stated probabilities are off"),
    ]
