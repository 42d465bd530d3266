"""What the model has learned: its spectrum, what features capture, columns, steps."""

import dataclasses
import datetime
import platform
from importlib.metadata import version
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.estimators.summary import statistics_of
from zonal.prior.kernels import NTK
from zonal.report.words import number
from zonal.scores.held_out import HeldOut

__all__ = [
    "Spectrum",
    "fitted_rows",
    "settings_of",
    "spectrum_of",
]

_DEPTHS = (1, 3, 10)


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum:
    """Shares of the levels in the prior variance, and those of networks.

    ``layers`` is the depth of the network with the nearest spectrum.
    """

    shares: Float[np.ndarray, " levels"]
    networks: dict[int, np.ndarray]
    layers: int
    beta: float


def spectrum_of(model: Any) -> Spectrum:
    """The learned spectrum beside those of networks of some depths."""
    weights = model.level_weights_
    dimension = model.process_.basis.sphere.dimension
    depth = model.depth_
    networks = {
        layers: NTK(layers).level_weights(dimension, len(weights) - 1)
        for layers in _DEPTHS
    }
    whole = max(weights.sum(), np.finfo(np.float64).tiny)
    return Spectrum(weights / whole, networks, depth.layers, depth.beta)


def fitted_rows(model: Any) -> float:
    """Rows that the model was fitted to, counted by weight."""
    return float(statistics_of(model).rows)


def settings_of(model: Any, rows: HeldOut) -> list[tuple[str, str]]:
    """What a person needs to do the same again."""
    from zonal import __version__

    given = [
        ("model", type(model).__name__),
        ("date", datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")),
        ("rows fitted to", number(fitted_rows(model), 9)),
        ("rows held out", number(float(len(rows)), 9)),
        ("columns", str(model.n_features_in_)),
        ("numbers made of them", str(len(model.columns_.outputs))),
        ("zonal", __version__),
        ("Python", platform.python_version()),
    ]
    given += [(name, version(name)) for name in ("numpy", "jax", "scikit-learn")]
    parameters = model.get_params(deep=False)
    return given + [(f"{name} =", _said(value)) for name, value in parameters.items()]


def _said(value: Any) -> str:
    if isinstance(value, (list, tuple)) and any(callable(one) for one in value):
        names = [getattr(one, "__name__", type(one).__name__) for one in value]
        return ", ".join(names)
    said = repr(value)
    return said if len(said) <= 300 else said[:299] + "…"
