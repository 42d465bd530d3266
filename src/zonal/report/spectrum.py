"""The learned spectrum, compared with those of infinitely wide networks."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.prior.kernels import NTK

__all__ = ["Spectrum", "compute_spectrum"]

_DEPTHS = (1, 3, 10)


@dataclasses.dataclass(frozen=True, eq=False)
class Spectrum:
    """Share of each level in the prior variance, learned and of networks.

    ``layers`` is the depth of the network with the nearest spectrum.
    """

    shares: Float[np.ndarray, " levels"]
    networks: dict[int, np.ndarray]
    layers: int
    beta: float


def compute_spectrum(model: Any) -> Spectrum:
    """The spectrum of a fitted model, and those of networks of 1, 3 and 10 layers."""
    weights = model.level_weights_
    dimension = model.process_.basis.sphere.dimension
    networks = {
        layers: NTK(layers).level_weights(dimension, len(weights) - 1)
        for layers in _DEPTHS
    }
    # A constant target leaves no prior variance to divide by.
    total = max(weights.sum(), np.finfo(np.float64).tiny)
    depth = model.depth_
    return Spectrum(weights / total, networks, depth.layers, depth.beta)
