"""Frames: tables of pandas, polars and pyarrow, and arrays, column by column.

A column of any type is read as numbers, strings or seconds, with a mask of missing
values.
"""

import dataclasses
import datetime
from collections.abc import Hashable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

__all__ = ["Name", "Table", "Values", "as_2d_array", "check_not_lazy"]

Name = Hashable


class Table:
    """A frame or an array, column by column."""

    def __init__(self, table: Any):
        if issparse(table):
            raise TypeError(
                "Sparse data was passed, but dense data is required: pass "
                "X.toarray(), or reduce the number of columns first, for instance "
                "with sklearn.decomposition.TruncatedSVD"
            )
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        self._frame = frame if isinstance(frame, nw.DataFrame) else None
        if self._frame is not None:
            self.named = all(isinstance(name, str) for name in self._frame.columns)
            self.names: list[Name] = list(self._frame.columns)
        else:
            self._array = as_2d_array(table)
            self.named = False
            self.names = list(range(self._array.shape[1]))

    @property
    def float_array(self) -> np.ndarray | None:
        """The table, if it is an array of float32 or float64; otherwise None."""
        if self._frame is None and self._array.dtype in (np.float32, np.float64):
            return self._array
        return None

    def columns(self) -> Iterator["Values"]:
        """All columns, from left to right."""
        return map(self.column, range(len(self.names)))

    def column_named(self, name: Name) -> "Values":
        """The column with this name."""
        return self.column(self.names.index(name))

    def column(self, index: int) -> "Values":
        """The column at this index."""
        name = self.names[index]
        if self._frame is None:
            return _from_array(name, self._array[:, index])
        return _from_series(name, self._frame.get_column(name))  # pyright: ignore


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """The values of one column, their kind, and a mask of missing values.

    ``kind`` is ``"number"``, ``"category"`` or ``"time"``.
    """

    name: Name
    kind: str
    values: np.ndarray
    missing: np.ndarray

    def as_kind(
        self, kind: str, first_row: int = 0, allow_numbers: bool = False
    ) -> np.ndarray:
        """The values, after a check that they are of the kind that was fitted.

        With ``allow_numbers``, numbers are valid categories.
        """
        if kind == "category" and self.kind == "number" and allow_numbers:
            return _none_where(self.missing, self.values.astype(object))
        if self.kind != kind and not self.missing.all():
            row = first_row + int(np.argmin(self.missing))
            raise ValueError(
                f"column {self.name!r} was a {kind} when the model was fitted and is a "
                f"{self.kind} now: row {row} has {self.values[row - first_row]!r}; "
                f"convert the column to the type it had"
            )
        return self.values


def _from_series(name: Name, series: Any) -> Values:
    dtype = series.dtype
    missing = series.is_null().to_numpy().astype(bool)
    if missing.all():
        return Values(name, "number", np.full(len(missing), np.nan), missing)
    if dtype.is_numeric() or dtype == nw.Boolean:
        # NumPy has no type for integers or booleans with missing values.
        numbers = series.cast(nw.Float64).to_numpy().astype(np.float64)
        return Values(name, "number", numbers, missing | np.isnan(numbers))
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        return _from_array(name, series.to_numpy())
    values = np.empty(len(missing), object)
    values[:] = series.to_list()
    return _from_objects(name, values)


def _from_array(name: Name, values: np.ndarray) -> Values:
    kind = values.dtype.kind
    if kind in "mM":
        return _from_times(name, values)
    if kind in "US":
        missing = np.zeros(len(values), bool)
        return Values(name, "category", values.astype(str).astype(object), missing)
    if kind == "O":
        return _from_objects(name, values)
    if kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers")
    numbers = values.astype(np.float64, copy=False)
    return Values(name, "number", numbers, np.isnan(numbers))


def _from_times(name: Name, values: np.ndarray) -> Values:
    missing = np.isnat(values)
    # Whole seconds first: nanoseconds would not reach beyond the year 2262.
    whole = values.astype(f"{values.dtype.kind}8[s]")
    seconds = whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "s")
    return Values(name, "time", np.where(missing, np.nan, seconds), missing)


def _from_objects(name: Name, values: np.ndarray) -> Values:
    """A column of Python objects, all of them numbers, strings or times."""
    missing = np.array([_is_missing(value) for value in values], bool)
    types = {type(value) for value in values[~missing]}

    def all_are(*expected: type) -> bool:
        return all(issubclass(found, expected) for found in types)

    if all_are(int, float, np.number, np.bool_):
        numbers = np.where(missing, np.nan, values)
        return Values(name, "number", numbers.astype(np.float64), missing)
    if all_are(datetime.date):
        times = [
            _in_utc(time) if isinstance(time, datetime.datetime) else time
            for time in np.where(missing, np.datetime64("NaT"), values)
        ]
        return _from_times(name, np.array(times, "M8[us]"))
    if bytes in types:
        raise TypeError(
            f"column {name!r} holds bytes, not strings; decode it, or write the file "
            "in UTF-8"
        )
    if all_are(str):
        return Values(name, "category", _none_where(missing, values), missing)
    if not all_are(int, float, str, dict, list, set, tuple) and len(types) == 1:
        # Categories of a type of their own, such as intervals, by their names.
        pairs = zip(values, missing, strict=True)
        strings = [None if is_missing else str(value) for value, is_missing in pairs]
        return Values(name, "category", np.array(strings, object), missing)
    type_names = ", ".join(sorted(found.__name__ for found in types))
    raise TypeError(
        "argument must be a string or a number: each column must hold values of one "
        f"type, and column {name!r} holds {type_names}; convert it to one of them"
    )


def _in_utc(time: datetime.datetime) -> datetime.datetime:
    """The time in UTC without its zone, as all kinds of frames store it."""
    if time.tzinfo is None:
        return time
    return time.astimezone(datetime.UTC).replace(tzinfo=None)


def _none_where(missing: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values, with None for those that are missing."""
    values = values.copy()
    values[missing] = None
    return values


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    same = value == value
    # A comparison that is not a boolean, as that of pandas.NA, means missing too.
    if isinstance(same, (bool, np.bool_)):
        return not same
    return not isinstance(same, np.ndarray)


def check_not_lazy(table: Any) -> None:
    """Raise TypeError for a lazy frame, which is a query without rows."""
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise TypeError(
            f"a {type(table).__name__} holds no rows yet: pass X.collect(), or, if "
            "the rows do not fit in memory, write them with X.sink_parquet(...) and "
            "pass the file"
        )


def as_2d_array(table: Any) -> np.ndarray:
    """A table that is not a frame, as an array of rows and columns."""
    check_not_lazy(table)
    array = np.asarray(table)
    if array.dtype.kind in "OUS" and not hasattr(table, "dtype"):
        # Rows of mixed types: NumPy would turn numbers into strings.
        array = np.array(table, dtype=object)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: "
            "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row"
        )
    for count, unit in zip(array.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {unit}(s) (shape={array.shape}) while a minimum "
                "of 1 is required."
            )
    return array
