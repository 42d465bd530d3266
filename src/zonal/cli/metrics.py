"""Scores as table rows for people to read."""

from typing import Any

import numpy as np

__all__ = ["describe_metrics"]


def describe_metrics(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Names and values of scores, each with an explanation."""
    table = [("test rows", f"{metrics['rows']:,}", "")]
    if "rmse" in metrics:
        return table + _describe_regression(metrics)
    return table + _describe_classification(metrics)


def _describe_regression(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    table = [
        ("RMSE", f"{metrics['rmse']:.4g}", "root mean squared error"),
        ("R²", f"{metrics['r2']:.4f}", "share of the variance explained"),
        ("NLL", f"{metrics['nll']:.4f}", "mean negative log density; lower is better"),
    ]
    if np.isfinite(metrics["crps"]):
        meaning = "continuous ranked probability score; lower is better"
        table.append(("CRPS", f"{metrics['crps']:.4g}", meaning))
    table += [
        (f"{level} intervals", f"{share:.1%}", "of the test rows lie inside")
        for level, share in metrics["coverage"].items()
    ]
    # Models saved by version 0.1 have no conditional coverage.
    for conditional in metrics.get("conditional_coverage", []):
        table += _describe_conditional_coverage(conditional)
    return table


def _describe_conditional_coverage(
    conditional: dict[str, Any],
) -> list[tuple[str, str, str]]:
    """Coverage in groups of rows, lowest first; nothing where all rows are equal."""
    bins = conditional["bins"]
    if len(bins) < 2:
        return []
    shares = " ".join(f"{group['coverage']:.0%}" for group in bins)
    meaning = f"90% intervals, in {len(bins)} groups by {conditional['by']}"
    return [("coverage", shares, meaning)]


def _describe_classification(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    majority = (
        f"always predicting the most frequent class: {metrics['most_frequent']:.4f}"
    )
    table = [("accuracy", f"{metrics['accuracy']:.4f}", majority)]
    if np.isfinite(metrics["auc"]):
        meaning = "area under the ROC curve; 0.5 is guessing, 1 is perfect"
        table.append(("AUC", f"{metrics['auc']:.4f}", meaning))
    log_loss = "mean negative log probability of the true class; lower is better"
    return [
        *table,
        ("log loss", f"{metrics['log_loss']:.4f}", log_loss),
        ("ECE", f"{metrics['ece']:.4f}", "expected calibration error"),
    ]
