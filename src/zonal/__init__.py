"""Gaussian processes on tabular data at millions of rows.

The kernel is that of an infinitely wide deep network whose depth is continuous and
learned; the inducing features are spherical harmonics, complete or sparse.

A name is imported when it is first asked for: JAX and scikit-learn take seconds, which
``zonal --help`` and a shell that completes a word have no use for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonal.bands import Band, CompleteLevel
    from zonal.basis import Basis
    from zonal.calibration import Calibration
    from zonal.distributions import PredictiveDistribution
    from zonal.estimators import (
        SphericalGPClassifier,
        SphericalGPRegressor,
        SphericalHarmonicFeatures,
        load,
    )
    from zonal.frame import Frame, whiten
    from zonal.generalised import GeneralisedModel, LatentPrediction, fit_likelihood
    from zonal.kernels import (
        NTK,
        ArcCosine,
        ContinuousDepth,
        FreeSpectrum,
        equivalent_depth,
    )
    from zonal.likelihoods import (
        Bernoulli,
        Heteroscedastic,
        Labels,
        NegativeBinomial,
        Poisson,
        Softmax,
        StudentT,
    )
    from zonal.model import Model, fit
    from zonal.posterior import Posterior, Prediction
    from zonal.process import Process
    from zonal.recipe import Recipe
    from zonal.report import write_report
    from zonal.sources import ArraySource
    from zonal.sphere import ARD, LatitudeLongitude, Projection, UnitVectors
    from zonal.streams import Stream

__all__ = [
    "ARD",
    "NTK",
    "ArcCosine",
    "ArraySource",
    "Band",
    "Basis",
    "Bernoulli",
    "Calibration",
    "CompleteLevel",
    "ContinuousDepth",
    "Frame",
    "FreeSpectrum",
    "GeneralisedModel",
    "Heteroscedastic",
    "Labels",
    "LatentPrediction",
    "LatitudeLongitude",
    "Model",
    "NegativeBinomial",
    "Poisson",
    "Posterior",
    "Prediction",
    "PredictiveDistribution",
    "Process",
    "Projection",
    "Recipe",
    "Softmax",
    "SphericalGPClassifier",
    "SphericalGPRegressor",
    "SphericalHarmonicFeatures",
    "Stream",
    "StudentT",
    "UnitVectors",
    "equivalent_depth",
    "fit",
    "fit_likelihood",
    "load",
    "whiten",
    "write_report",
]

__version__ = "0.1.0"

_NAMES = {
    "bands": ("Band", "CompleteLevel"),
    "basis": ("Basis",),
    "calibration": ("Calibration",),
    "distributions": ("PredictiveDistribution",),
    "estimators": (
        "SphericalGPClassifier",
        "SphericalGPRegressor",
        "SphericalHarmonicFeatures",
        "load",
    ),
    "frame": ("Frame", "whiten"),
    "generalised": ("GeneralisedModel", "LatentPrediction", "fit_likelihood"),
    "kernels": (
        "NTK",
        "ArcCosine",
        "ContinuousDepth",
        "FreeSpectrum",
        "equivalent_depth",
    ),
    "likelihoods": (
        "Bernoulli",
        "Heteroscedastic",
        "Labels",
        "NegativeBinomial",
        "Poisson",
        "Softmax",
        "StudentT",
    ),
    "model": ("Model", "fit"),
    "process": ("Process",),
    "posterior": ("Posterior", "Prediction"),
    "recipe": ("Recipe",),
    "report": ("write_report",),
    "sources": ("ArraySource",),
    "sphere": ("ARD", "LatitudeLongitude", "Projection", "UnitVectors"),
    "streams": ("Stream",),
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'zonal' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"zonal.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
