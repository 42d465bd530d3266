"""The globe: predictions on a grid of latitudes and longitudes, to be turned."""

import base64
import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.prediction import Prediction
from zonal.prior.sphere import LatitudeLongitude, UnitVectors
from zonal.scores.held_out import HeldOut

__all__ = ["Globe", "Layer", "globe_of"]

_STEP = 2.5
_MOST_POINTS = 400
_MOST_CLASSES = 9


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """One number at every point of the grid: what it is called, and its values.

    ``ramp`` says which colours it is shown in: those of what is predicted, or of what
    is not known.
    """

    name: str
    ramp: str
    values: Float[np.ndarray, "latitudes longitudes"]


@dataclasses.dataclass(frozen=True, eq=False)
class Globe:
    """Layers on a grid whose rows go from north to south, and some held-out rows.

    Grid points are the middles of cells of ``_STEP`` degrees, from longitude −180 on.
    """

    layers: tuple[Layer, ...]
    points: Float[np.ndarray, "points 2"]

    def stored(self) -> dict[str, Any]:
        """What the script reads: values as whole numbers of 16 bits, in base64."""
        layers = []
        for layer in self.layers:
            low, high = float(layer.values.min()), float(layer.values.max())
            scaled = (layer.values - low) / max(high - low, 1e-300) * 65535
            data = base64.b64encode(scaled.round().astype("<u2").tobytes()).decode()
            layers.append({"low": low, "high": high, "ramp": layer.ramp, "data": data})
        height, width = self.layers[0].values.shape
        points = self.points.round(2).tolist()
        return {"rows": height, "columns": width, "layers": layers, "points": points}


def globe_of(model: Any, rows: HeldOut) -> Globe | None:
    """Predictions all around, if rows are nothing but places on a sphere like ours."""
    kind = _kind(model)
    if kind is None:
        return None
    latitude = np.arange(90 - _STEP / 2, -90, -_STEP)
    longitude = np.arange(-180 + _STEP / 2, 180, _STEP)
    grid = np.array([(one, other) for one in latitude for other in longitude])
    degrees = kind == "degrees"
    x = grid if degrees else LatitudeLongitude().points(grid)[0]
    shape = (len(latitude), len(longitude))
    layers = tuple(
        Layer(name, ramp, np.asarray(values, np.float64).reshape(shape))
        for name, ramp, values in _layers(model, model.models_[0].predict(x), rows)
    )
    given = model.columns_.matrix(rows.taken(rows.sample(_MOST_POINTS)))
    return Globe(layers, given if degrees else _degrees(given))


def _kind(model: Any) -> str | None:
    """How the model takes places: as degrees, as vectors, or not at all."""
    sphere = model.process_.basis.sphere
    if isinstance(sphere, LatitudeLongitude):
        return "degrees"
    if isinstance(sphere, UnitVectors):
        return "vectors" if sphere.size == 3 else None
    kinds = {column.kind for column in model.columns_.columns}
    return "vectors" if kinds == {"latitude", "longitude"} else None


def _layers(
    model: Any, prediction: Prediction, rows: HeldOut
) -> list[tuple[str, str, np.ndarray]]:
    likelihood = prediction.likelihood
    if not likelihood.classifies:
        name = f"deviation of a new {rows.target}"
        deviation = np.sqrt(prediction.variance_y)
        if likelihood.real:
            name = "deviation of that prediction, without noise"
            deviation = np.sqrt(prediction.variance_f)
        return [
            (f"predicted {rows.target}", "value", prediction.mean),
            (name, "doubt", deviation),
        ]
    chance = prediction.probabilities()
    shown = [1] if chance.shape[1] == 2 else range(min(chance.shape[1], _MOST_CLASSES))
    doubt = ("probability that the predicted class is wrong", "doubt")
    found = [
        (f"probability of {model.classes_[code]}", "value", chance[:, code])
        for code in shown
    ]
    return [*found, (*doubt, 1 - chance.max(axis=1))]


def _degrees(vectors: np.ndarray) -> np.ndarray:
    x, y, z = vectors.T
    latitude = np.rad2deg(np.arctan2(z, np.hypot(x, y)))
    return np.column_stack([latitude, np.rad2deg(np.arctan2(y, x))])
