"""Estimators for Dask clusters; they need the extra ``zonal[dask]``."""

try:
    import dask  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError('clusters need Dask: pip install "zonal[dask]"') from error

from zonal.dask.estimators import DaskSphericalGPClassifier, DaskSphericalGPRegressor

__all__ = ["DaskSphericalGPClassifier", "DaskSphericalGPRegressor"]
