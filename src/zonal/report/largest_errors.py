"""Values of held-out rows as strings, for tables of a report."""

import datetime
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Int

from zonal.report.words import number
from zonal.scores.held_out import HeldOut
from zonal.tables.columns import Columns

__all__ = ["cells_of", "text"]


def cells_of(
    rows: HeldOut, columns: Columns, chosen: Int[np.ndarray, " chosen"]
) -> list[list[str]]:
    """The values of some rows as strings, a list for each of the model's columns."""
    part = nw.from_native(rows.taken(chosen), eager_only=True, pass_through=True)
    if not isinstance(part, nw.DataFrame):
        return [[text(one) for one in column] for column in part.T]
    by_name = columns.named and all(isinstance(one, str) for one in part.columns)
    names = columns.names if by_name else part.columns
    return [[text(one) for one in part.get_column(name)] for name in names]  # pyright: ignore


def text(value: Any) -> str:
    """A value of a table for a person to read."""
    if hasattr(value, "as_py"):  # pyarrow's own scalars
        value = value.as_py()
    if isinstance(value, str):
        return value
    # Pandas' own missing values say neither yes nor no when they are compared.
    if value is None or str(value) in ("nan", "<NA>", "NaT"):
        return "missing"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.number)):
        return number(float(value))
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")
    return str(value)
