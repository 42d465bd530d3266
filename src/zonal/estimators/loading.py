"""Fitted estimators, read from files."""

import os

from zonal import conversion as conversion  # registers older formats
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.saving import FileError, read

__all__ = ["load"]

_ESTIMATORS = {
    kind.__name__: kind for kind in (SphericalGPRegressor, SphericalGPClassifier)
}


def load(path: str | os.PathLike) -> SphericalGPRegressor | SphericalGPClassifier:
    """Read a model that ``save`` wrote; it predicts the same to the last bit.

    The file holds plain numbers, and reading it runs no code.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from zonal import SphericalGPRegressor, load
    >>> X = np.linspace(-1, 1, 30)[:, None]
    >>> model = SphericalGPRegressor().fit(X, np.sin(3 * X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/sine.zonal")
    ...     again = load(f"{folder}/sine.zonal")
    >>> bool(np.all(model.predict(X) == again.predict(X)))
    True
    """
    found = read(path, "model")
    kind = _ESTIMATORS.get(found.get("estimator", ""))
    if kind is None:
        raise FileError(f"{os.fspath(path)} holds no estimator that zonal knows")
    model = kind(**found["parameters"])
    model._accept(found["columns"], found["models"], found["known"])
    model.metrics_ = found["metrics"]
    return model
