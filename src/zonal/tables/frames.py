"""Frames: tables of pandas, polars and pyarrow, and arrays, column by column.

Whatever a column is held as, it is read as numbers, texts or seconds, with a mask of
what is missing.
"""

import dataclasses
import datetime
from collections.abc import Hashable, Iterator
from typing import Any

import narwhals as nw
import numpy as np
from scipy.sparse import issparse

__all__ = ["Name", "Table", "Values", "refuse_lazy", "two_dimensional"]

Name = Hashable


class Table:
    """A frame or an array, column by column."""

    def __init__(self, table: Any):
        if issparse(table):
            raise TypeError(
                "Sparse data was passed, but dense data is required: give "
                "X.toarray(), or reduce the columns first, for instance with "
                "sklearn.decomposition.TruncatedSVD"
            )
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        self._frame = frame if isinstance(frame, nw.DataFrame) else None
        if self._frame is not None:
            self.named = all(isinstance(name, str) for name in self._frame.columns)
            self.names: list[Name] = list(self._frame.columns)
        else:
            self._array = two_dimensional(table)
            self.named = False
            self.names = list(range(self._array.shape[1]))

    @property
    def floating(self) -> np.ndarray | None:
        """The whole as floating-point numbers, where it is that already."""
        if self._frame is None and self._array.dtype in (np.float32, np.float64):
            return self._array
        return None

    def columns(self) -> Iterator[tuple[Name, "Values"]]:
        for place, name in enumerate(self.names):
            yield name, self.at(place)

    def named_as(self, name: Name) -> "Values":
        """The column of a name."""
        return self.at(self.names.index(name))

    def at(self, place: int) -> "Values":
        """The column at a place."""
        name = self.names[place]
        if self._frame is None:
            return _of_array(name, self._array[:, place])
        return _of_series(name, self._frame.get_column(name))  # pyright: ignore


@dataclasses.dataclass(frozen=True, eq=False)
class Values:
    """One column: what kind it seems to be, and which values are missing."""

    name: Name
    kind: str
    values: np.ndarray
    missing: np.ndarray

    def as_kind(
        self, kind: str, first_row: int = 0, numbers_too: bool = False
    ) -> np.ndarray:
        """The values, which must be of the kind that was fitted to.

        ``numbers_too`` takes numbers for categories.
        """
        if kind == "category" and self.kind == "number" and numbers_too:
            return _without(self.values.astype(object), self.missing)
        if self.kind != kind and not self.missing.all():
            row = first_row + int(np.argmin(self.missing))
            raise ValueError(
                f"column {self.name!r} was a {kind} when the model was fitted and is a "
                f"{self.kind} now; row {row} has {self.values[row - first_row]!r}"
            )
        return self.values


def _of_series(name: Name, series: Any) -> Values:
    dtype = series.dtype
    lost = series.is_null().to_numpy().astype(bool)
    if lost.all():
        return Values(name, "number", np.full(len(lost), np.nan), lost)
    if dtype.is_numeric() or dtype == nw.Boolean:
        # Whole and truth columns with gaps have no NumPy form of their own.
        numbers = series.cast(nw.Float64).to_numpy().astype(np.float64)
        return Values(name, "number", numbers, lost | np.isnan(numbers))
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        return _of_array(name, series.to_numpy())
    values = np.empty(len(lost), object)
    values[:] = series.to_list()
    return _of_objects(name, values)


def _of_array(name: Name, values: np.ndarray) -> Values:
    kind = values.dtype.kind
    if kind in "mM":
        return _of_times(name, values)
    if kind in "US":
        lost = np.zeros(len(values), bool)
        return Values(name, "category", values.astype(str).astype(object), lost)
    if kind == "O":
        return _of_objects(name, values)
    if kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers")
    numbers = values.astype(np.float64, copy=False)
    return Values(name, "number", numbers, np.isnan(numbers))


def _of_times(name: Name, values: np.ndarray) -> Values:
    lost = np.isnat(values)
    # Whole seconds first: nanoseconds would not reach beyond the year 2262.
    whole = values.astype(f"{values.dtype.kind}8[s]")
    seconds = whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "s")
    return Values(name, "time", np.where(lost, np.nan, seconds), lost)


def _of_objects(name: Name, values: np.ndarray) -> Values:
    """A column of Python objects: numbers, texts or times, but of one kind."""
    lost = np.array([_is_missing(one) for one in values], bool)
    kinds = {type(one) for one, gone in zip(values, lost, strict=True) if not gone}

    def are(*expected: type) -> bool:
        return all(issubclass(kind, expected) for kind in kinds)

    if are(int, float, np.number, np.bool_):
        numbers = np.where(lost, np.nan, values)
        return Values(name, "number", numbers.astype(np.float64), lost)
    if are(datetime.date):
        times = np.where(lost, np.datetime64("NaT"), values)
        naive = [
            _in_utc(one) if isinstance(one, datetime.datetime) else one for one in times
        ]
        return _of_times(name, np.array(naive, "M8[us]"))
    if bytes in kinds:
        raise TypeError(
            f"column {name!r} holds bytes, not texts; decode it, or write the file in "
            "UTF-8"
        )
    if are(str):
        return Values(name, "category", _without(values, lost), lost)
    if not are(int, float, str, dict, list, set, tuple) and len(kinds) == 1:
        # Categories of a kind of their own, such as intervals, by their names.
        pairs = zip(values, lost, strict=True)
        texts = [None if gone else str(one) for one, gone in pairs]
        return Values(name, "category", np.array(texts, object), lost)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"argument must be a string or a number, and column {name!r} of one of both "
        f"throughout; it holds {names}"
    )


def _in_utc(time: datetime.datetime) -> datetime.datetime:
    """A time without its zone, which frames of all kinds keep as UTC inside."""
    if time.tzinfo is None:
        return time
    return time.astimezone(datetime.UTC).replace(tzinfo=None)


def _without(values: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """The values, with None for those that are missing."""
    values = values.copy()
    values[lost] = None
    return values


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    same = value == value
    # What says neither yes nor no of itself, as pandas.NA, is missing too.
    return not same if isinstance(same, (bool, np.bool_)) else not _is_array(same)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def refuse_lazy(table: Any) -> None:
    """Refuse a frame that is a plan, with no rows as yet."""
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):
        raise TypeError(
            f"a {type(table).__name__} holds no rows yet: pass X.collect(), or, if "
            "they do not fit in memory, X.sink_parquet(...) and the file"
        )


def two_dimensional(table: Any) -> np.ndarray:
    """A table that is no frame, as an array of rows and columns."""
    refuse_lazy(table)
    array = np.asarray(table)
    if array.dtype.kind in "OUS" and not hasattr(table, "dtype"):
        # Lists of mixed rows: keep numbers numbers.
        array = np.array(table, dtype=object)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: "
            "X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is one row"
        )
    for count, what in zip(array.shape, ("sample", "feature"), strict=True):
        if count == 0:
            raise ValueError(
                f"Found array with 0 {what}(s) (shape={array.shape}) while a minimum "
                "of 1 is required."
            )
    return array
