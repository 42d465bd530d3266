"""The globe: predictions on a grid of latitudes and longitudes."""

import base64
import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.prediction import Prediction
from zonal.prior.sphere import LatitudeLongitude, UnitVectors
from zonal.scores.held_out import HeldOut

__all__ = ["Globe", "Layer", "compute_globe"]

_DEGREES_PER_CELL = 2.5
_MOST_POINTS = 400
_MOST_CLASSES = 9


@dataclasses.dataclass(frozen=True, eq=False)
class Layer:
    """A named value at every point of the grid.

    ``ramp`` selects the colours: ``"value"`` for predictions, ``"doubt"`` for their
    uncertainty.
    """

    name: str
    ramp: str
    values: Float[np.ndarray, "latitudes longitudes"]


@dataclasses.dataclass(frozen=True, eq=False)
class Globe:
    """Layers on a grid, and some held-out rows as points.

    Grid points are the centres of cells, with rows from north to south and columns from
    longitude −180 to 180.
    """

    layers: tuple[Layer, ...]
    points: Float[np.ndarray, "points 2"]

    def encode(self) -> dict[str, Any]:
        """Data for the script of the page: values as 16-bit integers in base64."""
        layers = []
        for layer in self.layers:
            low, high = float(layer.values.min()), float(layer.values.max())
            scaled = (layer.values - low) / max(high - low, 1e-300) * 65535
            data = base64.b64encode(scaled.round().astype("<u2").tobytes()).decode()
            layers.append({"low": low, "high": high, "ramp": layer.ramp, "data": data})
        height, width = self.layers[0].values.shape
        points = self.points.round(2).tolist()
        return {"rows": height, "columns": width, "layers": layers, "points": points}


def compute_globe(model: Any, rows: HeldOut) -> Globe | None:
    """Predictions on the whole globe; None unless every row is just a location."""
    encoding = _get_encoding(model)
    if encoding is None:
        return None
    step = _DEGREES_PER_CELL
    latitude = np.arange(90 - step / 2, -90, -step)
    longitude = np.arange(-180 + step / 2, 180, step)
    grid = np.stack(np.meshgrid(latitude, longitude, indexing="ij"), -1).reshape(-1, 2)
    in_degrees = encoding == "degrees"
    x = grid if in_degrees else LatitudeLongitude().points(grid)[0]
    shape = (len(latitude), len(longitude))
    layers = tuple(
        Layer(name, ramp, np.asarray(values, np.float64).reshape(shape))
        for name, ramp, values in _compute_layers(
            model, model.models_[0].predict(x), rows
        )
    )
    points = model.columns_.matrix(rows.select_rows(rows.sample(_MOST_POINTS)))
    return Globe(layers, points if in_degrees else _convert_to_degrees(points))


def _get_encoding(model: Any) -> str | None:
    """Encoding of locations, as degrees or vectors; None if rows are not locations."""
    sphere = model.process_.basis.sphere
    if isinstance(sphere, LatitudeLongitude):
        return "degrees"
    if isinstance(sphere, UnitVectors):
        return "vectors" if sphere.size == 3 else None
    kinds = {column.kind for column in model.columns_.columns}
    return "vectors" if kinds == {"latitude", "longitude"} else None


def _compute_layers(
    model: Any, prediction: Prediction, rows: HeldOut
) -> list[tuple[str, str, np.ndarray]]:
    likelihood = prediction.likelihood
    if not likelihood.classifies:
        name = f"Standard deviation of {rows.target}"
        std = np.sqrt(prediction.variance_y)
        if likelihood.conjugate:
            name = "Standard deviation, without noise"
            std = np.sqrt(prediction.variance_f)
        return [
            (f"Predicted {rows.target}", "value", prediction.mean),
            (name, "doubt", std),
        ]
    probabilities = prediction.probabilities()
    count = probabilities.shape[1]
    codes = [1] if count == 2 else range(min(count, _MOST_CLASSES))
    error = 1 - probabilities.max(axis=1)
    return [
        *(
            (f"Probability of {model.classes_[code]}", "value", probabilities[:, code])
            for code in codes
        ),
        ("Probability that the predicted class is wrong", "doubt", error),
    ]


def _convert_to_degrees(vectors: np.ndarray) -> np.ndarray:
    x, y, z = vectors.T
    latitude = np.rad2deg(np.arctan2(z, np.hypot(x, y)))
    return np.column_stack([latitude, np.rad2deg(np.arctan2(y, x))])
