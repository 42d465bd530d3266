"""Gaussian processes on tabular data at millions of rows.

The kernel is that of an infinitely wide deep network whose depth is continuous and
learned; the inducing features are spherical harmonics, complete or sparse.
"""

from zonal.bands import Band, CompleteLevel
from zonal.basis import Basis
from zonal.frame import Frame, whiten
from zonal.kernels import (
    NTK,
    ArcCosine,
    ContinuousDepth,
    FreeSpectrum,
    equivalent_depth,
)
from zonal.sphere import ARD, LatitudeLongitude, Projection, UnitVectors

__all__ = [
    "ARD",
    "NTK",
    "ArcCosine",
    "Band",
    "Basis",
    "CompleteLevel",
    "ContinuousDepth",
    "Frame",
    "FreeSpectrum",
    "LatitudeLongitude",
    "Projection",
    "UnitVectors",
    "equivalent_depth",
    "whiten",
]

__version__ = "0.1.0"
