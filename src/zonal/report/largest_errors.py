"""The held-out rows with the largest errors, as a table."""

from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Int

from zonal.report.formatting import (
    format_number,
    format_percent,
    format_value,
    truncate,
)
from zonal.report.sections import render_table
from zonal.scores.classification import ClassificationScores
from zonal.scores.held_out import HeldOut
from zonal.scores.regression import RegressionScores
from zonal.scores.relevance import get_column_names
from zonal.tables.columns import Columns

__all__ = ["format_rows", "render_largest_errors"]

_ROWS = 10
_MOST_COLUMNS = 8
_LONGEST_NAME = 24


def render_largest_errors(
    model: Any,
    rows: HeldOut,
    scores: RegressionScores | ClassificationScores,
    column_order: Int[np.ndarray, " columns"],
) -> str:
    """Table of the ten rows with the largest errors, with their first columns."""
    if isinstance(scores, RegressionScores):
        indices = np.argsort(-np.abs(scores.standardised_error), kind="stable")[:_ROWS]
        predictions = _describe_regression(model, rows, scores, indices)
        names = ["predicted", "90 % interval", "error / standard deviation"]
    else:
        indices = np.argsort(scores.true_class_probability, kind="stable")[:_ROWS]
        predictions = _describe_classification(rows, scores, indices)
        names = ["predicted", "its probability", "probability of the true class"]
    columns = column_order[:_MOST_COLUMNS].tolist()
    column_names = [
        truncate(get_column_names(model)[column], _LONGEST_NAME) for column in columns
    ]
    values = format_rows(rows, model.columns_, indices)
    body = [
        [str(rows.row_numbers[row]), *prediction, *(values[c][line] for c in columns)]
        for line, (row, prediction) in enumerate(zip(indices, predictions, strict=True))
    ]
    return render_table(
        "Rows with the largest errors",
        ["row", rows.target, *names, *column_names],
        body,
    )


def _describe_regression(
    model: Any, rows: HeldOut, scores: RegressionScores, indices: np.ndarray
) -> list[list[str]]:
    intervals = model.predict_interval(
        rows.select_rows(indices), 0.9, **rows.select_exposure(indices)
    )
    return [
        [
            format_number(float(rows.y[row])),
            format_number(float(scores.mean[row])),
            f"{format_number(low)} to {format_number(high)}",
            format_number(float(scores.standardised_error[row]), 3),
        ]
        for row, (low, high) in zip(
            indices, intervals.reshape(len(indices), 2), strict=True
        )
    ]


def _describe_classification(
    rows: HeldOut, scores: ClassificationScores, indices: np.ndarray
) -> list[list[str]]:
    predicted = scores.probabilities.argmax(axis=1)
    return [
        [
            scores.names[int(rows.y[row])],
            scores.names[predicted[row]],
            format_percent(scores.probabilities[row].max()),
            format_percent(float(scores.true_class_probability[row]), 2),
        ]
        for row in indices
    ]


def format_rows(
    rows: HeldOut, columns: Columns, indices: Int[np.ndarray, " chosen"]
) -> list[list[str]]:
    """Values of some rows as strings, one list per column of the model."""
    table = rows.select_rows(indices)
    frame = nw.from_native(table, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return [[format_value(value) for value in column] for column in frame.T]
    by_name = columns.named and all(isinstance(name, str) for name in frame.columns)
    names = columns.names if by_name else frame.columns
    return [
        [format_value(value) for value in frame.get_column(name)]  # pyright: ignore
        for name in names
    ]
