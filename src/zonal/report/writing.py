"""A report of a fitted model on held-out rows, as one HTML file.

`zonal.scores` checks the rows and computes scores; `partial_dependence`, `spectrum` and
`globe` compute the other results; `drawing`, `score_figures`, `interval_figures` and
`model_figures` draw SVG; `largest_errors`, `settings` and `sections` write HTML, and
`page` assembles it. The file needs no network: it includes styles, script and figures.
"""

import os
from pathlib import Path
from typing import Any

from zonal.report.page import build_page
from zonal.scores.held_out import check_held_out

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
    """Write a report of a fitted model on held-out rows to one HTML file.

    Parameters
    ----------
    model
        A fitted `SphericalGPRegressor` with one target, or `SphericalGPClassifier`.
    X
        Rows that the model was not fitted to: a data frame or an array, as for
        ``predict``.
    y
        Targets or classes of these rows. The target is named after the series, or as
        it was when the model was fitted.
    path
        The file to write. It appears complete or not at all.
    title
        Title of the report; by default "Predicted" and the name of the target.
    sample_weight
        Weight of each row.
    exposure
        Exposure of each row, which multiplies its rate, for counts; 1 by default.
        Partial dependence always uses an exposure of 1.

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
    rows = check_held_out(model, X, y, sample_weight, exposure)
    page = build_page(model, rows, title)
    temporary = Path(f"{os.fspath(path)}.part")
    try:
        temporary.write_text(page, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
