"""Settings, versions and row counts that a reader needs to reproduce a fit."""

import datetime
import platform
from importlib.metadata import version
from typing import Any

from zonal.report.formatting import format_number, truncate
from zonal.scores.held_out import HeldOut

__all__ = ["count_training_rows", "list_settings"]

_LONGEST_VALUE = 300


def count_training_rows(model: Any) -> float:
    """Number of rows that the model was fitted to, counted by weight."""
    return float(model.n_samples_seen_)


def list_settings(model: Any, rows: HeldOut) -> list[tuple[str, str]]:
    """Names and values: the model, the data, versions and parameters."""
    from zonal import __version__

    now = datetime.datetime.now(datetime.UTC)
    facts = [
        ("model", type(model).__name__),
        ("date", now.strftime("%Y-%m-%d %H:%M UTC")),
        ("training rows", format_number(count_training_rows(model), 9)),
        ("held-out rows", format_number(float(len(rows)), 9)),
        ("columns", str(model.n_features_in_)),
        ("encoded columns", str(len(model.columns_.outputs))),
        ("zonal", __version__),
        ("Python", platform.python_version()),
    ]
    packages = [(name, version(name)) for name in ("numpy", "jax", "scikit-learn")]
    parameters = [
        (f"{name} =", _format_parameter(value))
        for name, value in model.get_params(deep=False).items()
    ]
    return facts + packages + parameters


def _format_parameter(value: Any) -> str:
    if isinstance(value, (list, tuple)) and any(callable(item) for item in value):
        # The addresses in the representation of functions help nobody.
        names = [getattr(item, "__name__", type(item).__name__) for item in value]
        return ", ".join(names)
    return truncate(repr(value), _LONGEST_VALUE)
