"""Partial dependence: the average prediction as a function of one column."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.model import Model
from zonal.prior.sphere import UnitVectors
from zonal.scores.held_out import HeldOut
from zonal.scores.relevance import get_column_names, get_relevance

__all__ = ["DependenceCurve", "PartialDependence", "compute_partial_dependence"]

_MOST_COLUMNS = 4
_MOST_CATEGORIES = 12
_MOST_CLASSES = 4
# Rows to average over, and rows whose values form the grid.
_ROWS = 150
_GRID_ROWS = 5000
_GRID_SIZE = 21
# Posterior functions that form a band.
_DRAWS = 60


@dataclasses.dataclass(frozen=True, eq=False)
class DependenceCurve:
    """An average prediction, and the central 90 % of functions of the posterior."""

    name: str
    mean: Float[np.ndarray, " values"]
    low: Float[np.ndarray, " values"]
    high: Float[np.ndarray, " values"]


@dataclasses.dataclass(frozen=True, eq=False)
class PartialDependence:
    """Curves over the values of a column, which are numbers or names of categories."""

    name: str
    kind: str
    values: np.ndarray | list[str]
    curves: tuple[DependenceCurve, ...]


def compute_partial_dependence(
    model: Any, rows: HeldOut, class_codes: Sequence[int]
) -> list[PartialDependence]:
    """Partial dependence on the four most relevant columns.

    ``class_codes`` are the classes to show, empty for regression. Columns that cannot
    be changed alone (unit vectors, latitude and longitude) or have a single value are
    left out.
    """
    if isinstance(model.process_.basis.sphere, UnitVectors):
        return []
    chosen = rows.sample(_ROWS)
    x = model.columns_.matrix(rows.select_rows(chosen))
    grid_x = model.columns_.matrix(rows.select_rows(rows.sample(_GRID_ROWS)))
    engine = model.models_[0]
    functions = engine.sample_functions(_DRAWS, 0)
    ends = np.cumsum([0] + [len(column.outputs) for column in model.columns_.columns])
    names, results = get_column_names(model), []
    outputs = list(class_codes)[:_MOST_CLASSES] or [0]
    for index in _order_columns(model):
        column, part = model.columns_.columns[index], slice(*ends[index : index + 2])
        if column.kind in ("latitude", "longitude"):
            continue
        values, encoded = _choose_grid(column, grid_x[:, part])
        if len(values) < 2:
            continue
        changed = np.tile(x, (len(values), 1))
        changed[:, part] = np.repeat(encoded, len(x), axis=0)
        mean, low, high = _average(
            engine, functions, changed, len(values), rows.weight[chosen]
        )
        curves = tuple(
            DependenceCurve(
                _get_class_name(model, code), mean[:, code], low[:, code], high[:, code]
            )
            for code in outputs
        )
        results.append(PartialDependence(names[index], column.kind, values, curves))
        if len(results) == _MOST_COLUMNS:
            break
    return results


def _average(
    engine: Model,
    functions: Any,
    x: np.ndarray,
    n_values: int,
    weight: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Averages over rows for each value: of predictions, and a band of functions."""
    n_rows = len(weight)
    predictions = engine.predict(x).outcome().reshape(n_values, n_rows, -1)
    mean = np.average(predictions, axis=1, weights=weight)
    draws = functions(x).reshape(n_values, n_rows, _DRAWS, -1)
    averages = np.average(draws, axis=1, weights=weight)
    low, high = np.quantile(averages, [0.05, 0.95], axis=1)
    return mean, low, high


def _order_columns(model: Any) -> np.ndarray:
    """Indices of columns with positive relevance, the most relevant first."""
    relevance = get_relevance(model)
    if relevance is None:
        return np.arange(model.n_features_in_)
    order = np.argsort(-relevance, kind="stable")
    return order[relevance[order] > 0]


def _get_class_name(model: Any, code: int) -> str:
    return str(model.classes_[code]) if hasattr(model, "classes_") else ""


def _choose_grid(column: Any, encoded: np.ndarray) -> tuple[Any, np.ndarray]:
    """Values of a column to evaluate, and their encodings."""
    size = encoded.shape[1]
    missing = encoded[:, -1] > 0 if column.indicated else np.zeros(len(encoded), bool)
    if column.kind == "category":
        counts = encoded[:, : len(column.categories)].sum(axis=0)
        frequent = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES])
        names = [str(column.categories[code]) for code in frequent]
        rows = np.eye(size)[frequent]
        if missing.any():
            names, rows = [*names, "missing"], np.vstack([rows, np.eye(size)[-1]])
        return names, rows
    present = encoded[~missing]
    if len(present) == 0:
        return np.zeros(0), present
    # Whole encodings of existing rows, so that the cycles of a time fit its value.
    order = np.argsort(present[:, 0], kind="stable")
    positions = np.linspace(0.02, 0.98, _GRID_SIZE) * (len(present) - 1)
    chosen = present[order[positions.round().astype(int)]]
    values, first = np.unique(chosen[:, 0], return_index=True)
    return values, chosen[first]
