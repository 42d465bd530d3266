"""Load fitted estimators from files."""

import os
from typing import Any

from zonal import conversion as conversion  # registers older formats
from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.regressor import SphericalGPRegressor
from zonal.saving import FileError, read

__all__ = ["load"]

_ESTIMATORS = {
    kind.__name__: kind for kind in (SphericalGPRegressor, SphericalGPClassifier)
}


def load(path: str | os.PathLike) -> SphericalGPRegressor | SphericalGPClassifier:
    """A fitted model from a file that ``save`` wrote, with bit-identical predictions.

    The file holds plain numbers and strings, and reading it runs no code.

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
    contents = read(path, "model")
    kind = _ESTIMATORS.get(contents.get("estimator", ""))
    if kind is None:
        raise FileError(
            f"{os.fspath(path)} contains no known estimator; it may have been written "
            "by a newer version of zonal"
        )
    # Version 0.1 had no neighbours and no scales of targets: its models have none after
    # ``refresh`` either.
    older: dict[str, Any] = {"n_neighbors": 0}
    if kind is SphericalGPRegressor:
        older["target_transform"] = None
    model = kind(**{**older, **contents["parameters"]})
    model._accept(contents["columns"], contents["models"], contents["known"])
    model.metrics_ = contents["metrics"]
    return model
