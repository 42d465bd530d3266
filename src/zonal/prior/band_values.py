"""Where kernel values are computed: in NumPy for few points, by XLA for many."""

from collections.abc import Callable
from types import ModuleType

import numpy as np

from zonal.prior import band_values_numpy, band_values_xla
from zonal.prior.bands import BandKernel

__all__ = ["engine_for", "numpy_shape"]


def engine_for(points: int, *shapes: BandKernel) -> ModuleType:
    """The module to evaluate bands' kernels with at so many points."""
    few = all(band_values_numpy.suits(shape, points) for shape in shapes)
    return band_values_numpy if few else band_values_xla


def numpy_shape(shape: BandKernel) -> Callable[[np.ndarray], np.ndarray]:
    """A band's kernel as a NumPy function in float64."""
    return lambda t: engine_for(t.size, shape).shape_values(shape, t)
