"""A report of a fitted model on held-out rows: one HTML file for people to look at.

`rows` checks what is given; `scores`, `classes`, `effects`, `learned` and `globe`
compute numbers; `drawing`, `figures` and `model_figures` draw them as SVG; `sections`
and `page` put them in order. The file needs no network: styles, script and figures are
all in it.
"""

import os
from pathlib import Path
from typing import Any

from zonal.report.page import page_of
from zonal.scores.held_out import held_out

__all__ = ["write_report"]


def write_report(
    model: Any,
    X: Any,  # noqa: N803 (scikit-learn calls a table X)
    y: Any,
    path: str | os.PathLike,
    *,
    title: str | None = None,
    sample_weight: Any = None,
    exposure: Any = None,
) -> None:
    """Write what a fitted model makes of held-out rows to one HTML file.

    Parameters
    ----------
    model
        A fitted `SphericalGPRegressor` of one target, or `SphericalGPClassifier`.
    X
        Rows that the model was not fitted to: a frame or an array, as in ``predict``.
    y
        Their targets or classes. They are called what a series of them is called, or
        what they were called when the model was fitted.
    path
        The file to write. It appears as a whole or not at all.
    title
        What stands at the top; by default the target and the kind of model.
    sample_weight
        How often each row counts.
    exposure
        What each row's rate is multiplied by, for counts; one without it. (Effects of
        columns are those of one unit all the same.)

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from zonal import SphericalGPRegressor
    >>> from zonal.report.writing import write_report
    >>> X = np.linspace(-1, 1, 80)[:, None]
    >>> y = np.sin(4 * X[:, 0])
    >>> model = SphericalGPRegressor(n_features=20).fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model, X[1::2], y[1::2], f"{folder}/sine.html", title="A sine")
    ...     "A sine" in Path(f"{folder}/sine.html").read_text(encoding="utf-8")
    True
    """
    rows = held_out(model, X, y, sample_weight, exposure)
    page = page_of(model, rows, title)
    beside = Path(f"{os.fspath(path)}.part")
    try:
        beside.write_text(page, encoding="utf-8")
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
