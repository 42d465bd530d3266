"""Gaussian processes on tabular data at millions of rows.

The kernel is that of an infinitely wide deep network whose depth is continuous and
learned; the inducing features are spherical harmonics, complete or sparse. Regressions
predict from features and from the nearest rows.

Public names stand once, in the block below, in the order in which a person meets them.
A name is imported when it is first asked for: JAX and scikit-learn take seconds to
import, which ``zonal --help`` and a shell that completes a word have no use for.
"""

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    # isort: off
    # Estimators, and what belongs to them.
    from zonal.estimators.regressor import SphericalGPRegressor as SphericalGPRegressor
    from zonal.estimators.classifier import (
        SphericalGPClassifier as SphericalGPClassifier,
    )
    from zonal.estimators.transformer import (
        SphericalHarmonicFeatures as SphericalHarmonicFeatures,
    )
    from zonal.estimators.loading import load as load
    from zonal.report.writing import write_report as write_report
    from zonal.tables.streams import Stream as Stream
    from zonal.prediction import (
        PredictiveDistribution as PredictiveDistribution,
        Prediction as Prediction,
    )

    # The engine in a table's units.
    from zonal.model import Model as Model, fit as fit
    from zonal.learning.recipe import Recipe as Recipe
    from zonal.tables.sources import ArraySource as ArraySource

    # Likelihoods.
    from zonal.likelihoods.noise import Gaussian as Gaussian, Calibration as Calibration
    from zonal.likelihoods.classes import (
        Bernoulli as Bernoulli,
        Softmax as Softmax,
        Labels as Labels,
    )
    from zonal.likelihoods.counts import (
        Poisson as Poisson,
        NegativeBinomial as NegativeBinomial,
    )
    from zonal.likelihoods.reals import (
        StudentT as StudentT,
        Heteroscedastic as Heteroscedastic,
    )

    # The prior: kernels, spheres, bands.
    from zonal.prior.kernels import (
        ContinuousDepth as ContinuousDepth,
        NTK as NTK,
        ArcCosine as ArcCosine,
        FreeSpectrum as FreeSpectrum,
        equivalent_depth as equivalent_depth,
    )
    from zonal.prior.sphere import (
        ARD as ARD,
        Projection as Projection,
        LatitudeLongitude as LatitudeLongitude,
        UnitVectors as UnitVectors,
    )
    from zonal.prior.bands import Band as Band, CompleteLevel as CompleteLevel
    from zonal.prior.basis import Basis as Basis
    from zonal.prior.process import Process as Process

    # The engine's own terms.
    from zonal.engine.features import Frame as Frame, whiten as whiten
    from zonal.engine.posterior import Posterior as Posterior
    # isort: on


def _public_names() -> dict[str, str]:
    """Where each public name is defined, read from the block above."""
    source = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    return {
        name.name: statement.module
        for block in source.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for name in statement.names
    }


_MODULES = _public_names()
__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'zonal' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
