"""Scores as lines for people to read."""

from typing import Any

import numpy as np

__all__ = ["metric_lines"]


def metric_lines(metrics: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Scores with a word on what each means."""
    found = [("measured on", f"{metrics['rows']:,}", "rows")]
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
