"""Effects: the average prediction while one column is changed and the others stay."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from zonal.generalised import GeneralisedModel, LatentPrediction
from zonal.likelihoods.classes import ClassLikelihood, Softmax
from zonal.model import Model
from zonal.prior.sphere import UnitVectors
from zonal.scores.held_out import HeldOut
from zonal.scores.relevance import column_names, relevance_of

__all__ = ["Course", "Effect", "effects_of"]

_MOST_COLUMNS = 4
# Rows to average over, values of a column, and functions that make a band.
_ROWS = 150
_VALUES = 21
_DRAWS = 60
_MOST_CATEGORIES = 12
_MOST_CLASSES = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """An average prediction and where 90 % of functions of the model have it."""

    name: str
    mean: Float[np.ndarray, " values"]
    low: Float[np.ndarray, " values"]
    high: Float[np.ndarray, " values"]


@dataclasses.dataclass(frozen=True, eq=False)
class Effect:
    """What one column does. ``at`` are its values: numbers, or names of categories."""

    name: str
    kind: str
    at: np.ndarray | list[str]
    courses: tuple[Course, ...]


def effects_of(model: Any, rows: HeldOut, frequent: Sequence[int]) -> list[Effect]:
    """Effects of the most relevant columns.

    ``frequent`` are the codes of the classes to tell of, empty for numbers. Columns
    that cannot be changed alone (unit vectors, places) or have one value are left out.
    """
    if isinstance(model.process_.basis.sphere, UnitVectors):
        return []
    x = model.columns_.matrix(rows.taken(rows.sample(_ROWS)))
    weight = rows.weight[rows.sample(_ROWS)]
    wide = model.columns_.matrix(rows.taken(rows.sample(5000)))
    engine = model.models_[0]
    functions = engine.sample_functions(_DRAWS, 0)
    ends = np.cumsum([0] + [len(column.outputs) for column in model.columns_.columns])
    names, found = column_names(model), []
    for place in _order(model):
        column, part = model.columns_.columns[place], slice(*ends[place : place + 2])
        if column.kind in ("latitude", "longitude"):
            continue
        at, codes = _values(column, wide[:, part])
        if len(at) < 2:
            continue
        swept = np.tile(x, (len(at), 1))
        swept[:, part] = np.repeat(codes, len(x), axis=0)
        shape = (len(at), len(x), -1)
        mean = _predicted(engine, swept).reshape(shape)
        mean = np.average(mean, axis=1, weights=weight)
        draws = _drawn(engine, functions(swept), swept)
        draws = draws.reshape(len(at), len(x), _DRAWS, -1)
        draws = np.average(draws, axis=1, weights=weight)
        low, high = np.quantile(draws, [0.05, 0.95], axis=1)
        outputs = list(frequent)[:_MOST_CLASSES] or [0]
        courses = tuple(
            Course(_class_name(model, one), mean[:, one], low[:, one], high[:, one])
            for one in outputs
        )
        found.append(Effect(names[place], column.kind, at, courses))
        if len(found) == _MOST_COLUMNS:
            break
    return found


def _order(model: Any) -> np.ndarray:
    """Columns that matter, the most relevant first."""
    relevance = relevance_of(model)
    if relevance is None:
        return np.arange(model.n_features_in_)
    order = np.argsort(-relevance, kind="stable")
    return order[relevance[order] > 0]


def _class_name(model: Any, code: int) -> str:
    return str(model.classes_[code]) if hasattr(model, "classes_") else ""


def _values(column: Any, numbers: np.ndarray) -> tuple[Any, np.ndarray]:
    """Values of a column to go through, and the numbers that stand for each."""
    size = numbers.shape[1]
    lost = numbers[:, -1] > 0 if column.indicated else np.zeros(len(numbers), bool)
    if column.kind == "category":
        counts = numbers[:, : len(column.categories)].sum(axis=0)
        often = np.sort(np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES])
        names = [str(column.categories[one]) for one in often]
        codes = np.eye(size)[often]
        if lost.any():
            names, codes = [*names, "missing"], np.vstack([codes, np.eye(size)[-1]])
        return names, codes
    known = numbers[~lost]
    if len(known) == 0:
        return np.zeros(0), known
    # Values that occur: what stands beside them, such as cycles of time, fits them.
    order = np.argsort(known[:, 0], kind="stable")
    places = np.linspace(0.02, 0.98, _VALUES) * (len(known) - 1)
    chosen = known[order[places.round().astype(int)]]
    at, first = np.unique(chosen[:, 0], return_index=True)
    return at, chosen[first]


def _predicted(engine: Model | GeneralisedModel, x: np.ndarray) -> np.ndarray:
    """Predicted means, or probabilities of each class, as columns."""
    prediction = engine.predict(x)
    if isinstance(prediction, LatentPrediction) and isinstance(
        prediction.likelihood, ClassLikelihood
    ):
        return prediction.probabilities()
    return prediction.mean[:, None]


def _drawn(
    engine: Model | GeneralisedModel, functions: np.ndarray, x: np.ndarray
) -> Float[np.ndarray, "rows draws outputs"]:
    """What functions drawn from the model say of the target's mean or of classes."""
    if isinstance(engine, Model):
        return functions[:, :, None]
    likelihood = engine.likelihood
    if isinstance(likelihood, Softmax):
        return softmax(functions, axis=2)
    centre, none = engine.scaling.mean(x), np.zeros(functions[:, 0].shape)
    found = []
    for number in range(functions.shape[1]):
        one = functions[:, number]
        if isinstance(likelihood, ClassLikelihood):
            found.append(likelihood.probabilities(one, none))
            continue
        width = engine.scaling.target_width
        found.append(LatentPrediction(likelihood, one, none, centre, width).mean)
    return np.stack(found, axis=1).reshape(len(x), functions.shape[1], -1)
