"""Columns: a table as people have it, to a matrix of numbers.

A column is a number, a truth value, a category or a time. Categories become one column
of zeros and ones each; times become seconds, and cycles of the day, the week and the
year where the table is long enough to show them; missing values become the column's
mean and a column that says so. What is learned from one table is applied to every later
one, by name where columns have names, so their order does not matter.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from jaxtyping import Float
from scipy.sparse import issparse

from zonal.sphere import LatitudeLongitude

__all__ = ["Columns"]

# Categories beyond the most frequent so many share a place.
_MOST_CATEGORIES = 50
# Cycles in seconds, and how often a table must run through one to show it.
_CYCLES = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}
_TURNS = 2.0

Name = Hashable


@dataclasses.dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    ``kind`` is ``"number"``, ``"category"``, ``"time"``, or ``"latitude"`` and
    ``"longitude"``, which together become a unit vector. ``categories`` are those
    with a place of their own; ``fill`` stands for a missing number; ``indicated`` says
    whether missing values are told of by a column of their own.
    """

    name: Name
    kind: str
    categories: tuple[Any, ...] = ()
    cycles: tuple[str, ...] = ()
    fill: float = 0.0
    indicated: bool = False

    @property
    def outputs(self) -> list[str]:
        """Names of the numbers it becomes."""
        if self.kind == "longitude":
            return []
        if self.kind == "latitude":
            return [f"{self.name}:{axis}" for axis in "xyz"]
        if self.kind == "category":
            names = [f"{self.name}={value}" for value in self.categories]
        else:
            names = [str(self.name)]
            for cycle in self.cycles:
                names += [f"{self.name}:sin_{cycle}", f"{self.name}:cos_{cycle}"]
        return [*names, f"{self.name}:missing"] if self.indicated else names

    def numbers(self, values: "_Values", strict: bool, first_row: int) -> np.ndarray:
        """The numbers of some rows, one column each."""
        lost = values.missing
        if strict and lost.any():
            _refuse_missing(self.name, lost, first_row)
        parts = []
        numbers_too = any(not isinstance(one, str) for one in self.categories)
        known = values.as_kind(self.kind, first_row, numbers_too)
        if self.kind == "category":
            parts += [known == value for value in self.categories]
        else:
            numbers = np.asarray(known, np.float64)
            _refuse_infinite(self.name, numbers, first_row)
            numbers = np.where(lost, self.fill, numbers)
            parts.append(numbers)
            for cycle in self.cycles:
                turn = 2 * np.pi * numbers / _CYCLES[cycle]
                parts += [np.sin(turn), np.cos(turn)]
        if self.indicated:
            parts.append(lost)
        return np.column_stack([np.asarray(part, np.float64) for part in parts])


@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """How the columns of a table become a matrix of numbers.

    Examples
    --------
    >>> import pyarrow
    >>> table = pyarrow.table({"age": [30, None, 50], "town": ["Ulm", "Bonn", "Ulm"]})
    >>> columns = Columns.learn(table, missing="indicator")
    >>> columns.outputs
    ['age', 'age:missing', 'town=Bonn', 'town=Ulm']
    >>> columns.matrix(table)
    array([[30.,  0.,  0.,  1.],
           [40.,  1.,  1.,  0.],
           [50.,  0.,  0.,  1.]])
    """

    columns: tuple[Column, ...]
    named: bool = False
    missing: str = "error"

    @classmethod
    def learn(
        cls,
        table: Any,
        categories: str | Sequence[Name] = "auto",
        missing: str = "error",
        place: Sequence[Name] | None = None,
    ) -> "Columns":
        """Look at a table.

        Parameters
        ----------
        table
            A two-dimensional array, or a frame of pandas, polars or pyarrow.
        categories
            ``"auto"``: columns of texts and of a frame's own categorical type;
            ``"error"``: such columns are refused; or the names (for arrays, the
            numbers) of further columns whose values are to be taken as categories.
        missing
            ``"error"`` refuses missing values; ``"indicator"`` fills them with the
            mean and adds a column that says so.
        place
            The columns of latitude and of longitude in degrees, if there are such.
        """
        if missing not in ("error", "indicator"):
            raise ValueError(f"missing is 'error' or 'indicator', not {missing!r}")
        if isinstance(categories, str) and categories not in ("auto", "error"):
            raise ValueError(
                "categories is 'auto', 'error' or a list of columns, "
                f"not {categories!r}"
            )
        chosen = [] if isinstance(categories, str) else list(categories)
        read = _Table(table)
        unknown = [name for name in chosen if name not in read.names]
        if unknown:
            raise ValueError(f"there is no column {unknown[0]!r} to take categories of")
        places = _checked_place(place, read.names)
        found = []
        for name, values in read.columns():
            if name in places:
                found.append(Column(name, places[name]))
                continue
            kind = "category" if name in chosen else values.kind
            if kind == "category" and categories == "error":
                raise ValueError(
                    f"column {name!r} holds texts or categories; encode it as numbers, "
                    "or pass categories='auto'"
                )
            found.append(_learned(name, kind, values, missing))
        return cls(tuple(found), read.named, missing)

    @property
    def names(self) -> list[Name]:
        return [column.name for column in self.columns]

    @property
    def outputs(self) -> list[str]:
        """Names of the matrix's columns."""
        return [name for column in self.columns for name in column.outputs]

    @property
    def plain(self) -> bool:
        """Whether every column is a number and nothing is to be done."""
        return all(
            column.kind == "number" and len(column.outputs) == 1
            for column in self.columns
        )

    def shares(self, outputs: Float[np.ndarray, " outputs"]) -> np.ndarray:
        """Sums of what belongs to the outputs, column by column."""
        ends = np.cumsum([0] + [len(column.outputs) for column in self.columns])
        return np.array(
            [outputs[start:stop].sum() for start, stop in itertools.pairwise(ends)]
        )

    def matrix(
        self, table: Any, first_row: int = 0
    ) -> Float[np.ndarray, "rows outputs"]:
        """The numbers of a table with the same columns; arrays may pass as they are."""
        read = _Table(table)
        if self.named and read.named:
            self._check_names(read.names)
        elif len(read.names) != len(self.columns):
            raise ValueError(
                f"X has {len(read.names)} features, but zonal is expecting "
                f"{len(self.columns)} features as input"
            )
        strict = self.missing == "error"
        if self.plain and strict and (array := read.floating) is not None:
            _check_array(array, self.names, first_row)
            return array
        by_name = self.named and read.named
        every = [
            read.named_as(column.name) if by_name else read.at(place)
            for place, column in enumerate(self.columns)
        ]
        parts = [
            self._unit_vectors(every, first_row)
            if column.kind == "latitude"
            else column.numbers(values, strict, first_row)
            for column, values in zip(self.columns, every, strict=True)
            if column.kind != "longitude"
        ]
        return np.hstack(parts)

    def _unit_vectors(self, every: "Sequence[_Values]", first_row: int) -> np.ndarray:
        """Latitude and longitude as points on the sphere."""
        kinds = [column.kind for column in self.columns]
        pair = []
        for kind in ("latitude", "longitude"):
            name, values = self.names[kinds.index(kind)], every[kinds.index(kind)]
            numbers = values.as_kind("number", first_row)
            if values.missing.any():
                _refuse_missing(name, values.missing, first_row)
            _refuse_infinite(name, numbers, first_row)
            pair.append(numbers)
        return LatitudeLongitude().points(np.column_stack(pair))[0]

    def _check_names(self, names: Sequence[Name]) -> None:
        lost = [name for name in self.names if name not in names]
        if lost:
            raise ValueError(
                f"column {lost[0]!r} is missing ({len(lost)} of {len(self.columns)} "
                "columns that the model was fitted to); add it"
            )
        extra = [name for name in names if name not in self.names]
        if extra:
            raise ValueError(
                f"column {extra[0]!r} was not there when the model was fitted "
                f"({len(extra)} such columns); drop it"
            )


def _checked_place(
    place: Sequence[Name] | None, names: Sequence[Name]
) -> dict[Name, str]:
    if place is None:
        return {}
    if len(place) != 2 or any(name not in names for name in place):
        raise ValueError(
            f"a place is a column of latitudes and one of longitudes, not {place!r}"
        )
    return {place[0]: "latitude", place[1]: "longitude"}


def _learned(name: Name, kind: str, values: "_Values", missing: str) -> Column:
    lost = values.missing
    indicated = missing == "indicator" and bool(lost.any())
    if kind == "category":
        texts = values.as_kind("category", numbers_too=True)[~lost]
        known, counts = np.unique(texts, return_counts=True)
        often = np.argsort(-counts, kind="stable")[:_MOST_CATEGORIES]
        places = tuple(known[place] for place in np.sort(often))
        places = tuple(one.item() if hasattr(one, "item") else one for one in places)
        return Column(name, kind, places, indicated=indicated)
    numbers = values.values[~lost]
    numbers = numbers[np.isfinite(numbers)]
    fill = float(numbers.mean()) if len(numbers) else 0.0
    cycles = ()
    if kind == "time" and len(numbers):
        cycles = _cycles(numbers)
    return Column(name, kind, (), cycles, fill, indicated)


def _cycles(seconds: np.ndarray) -> tuple[str, ...]:
    """Cycles that a column of times runs through, and is fine enough to resolve."""
    different = np.unique(seconds)
    if len(different) < 3:
        return ()
    span, step = different[-1] - different[0], np.min(np.diff(different))
    return tuple(
        name
        for name, length in _CYCLES.items()
        if span >= _TURNS * length and step < length / 2
    )


class _Table:
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

    def columns(self) -> Iterator[tuple[Name, "_Values"]]:
        for place, name in enumerate(self.names):
            yield name, self.at(place)

    def named_as(self, name: Name) -> "_Values":
        """The column of a name."""
        return self.at(self.names.index(name))

    def at(self, place: int) -> "_Values":
        """The column at a place."""
        name = self.names[place]
        if self._frame is None:
            return _of_array(name, self._array[:, place])
        return _of_series(name, self._frame.get_column(name))  # pyright: ignore


@dataclasses.dataclass(frozen=True, eq=False)
class _Values:
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


def _of_series(name: Name, series: Any) -> _Values:
    dtype = series.dtype
    lost = series.is_null().to_numpy().astype(bool)
    if lost.all():
        return _Values(name, "number", np.full(len(lost), np.nan), lost)
    if dtype.is_numeric() or dtype == nw.Boolean:
        # Whole and truth columns with gaps have no NumPy form of their own.
        numbers = series.cast(nw.Float64).to_numpy().astype(np.float64)
        return _Values(name, "number", numbers, lost | np.isnan(numbers))
    if dtype in (nw.Datetime, nw.Date, nw.Duration):
        return _of_array(name, series.to_numpy())
    values = np.empty(len(lost), object)
    values[:] = series.to_list()
    return _of_objects(name, values)


def _of_array(name: Name, values: np.ndarray) -> _Values:
    kind = values.dtype.kind
    if kind in "mM":
        return _of_times(name, values)
    if kind in "US":
        lost = np.zeros(len(values), bool)
        return _Values(name, "category", values.astype(str).astype(object), lost)
    if kind == "O":
        return _of_objects(name, values)
    if kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers")
    numbers = values.astype(np.float64, copy=False)
    return _Values(name, "number", numbers, np.isnan(numbers))


def _of_times(name: Name, values: np.ndarray) -> _Values:
    lost = np.isnat(values)
    # Whole seconds first: nanoseconds would not reach beyond the year 2262.
    whole = values.astype(f"{values.dtype.kind}8[s]")
    seconds = whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "s")
    return _Values(name, "time", np.where(lost, np.nan, seconds), lost)


def _of_objects(name: Name, values: np.ndarray) -> _Values:
    """A column of Python objects: numbers, texts or times, but of one kind."""
    lost = np.array([_is_missing(one) for one in values], bool)
    kinds = {type(one) for one, gone in zip(values, lost, strict=True) if not gone}

    def are(*expected: type) -> bool:
        return all(issubclass(kind, expected) for kind in kinds)

    if are(int, float, np.number, np.bool_):
        numbers = np.where(lost, np.nan, values)
        return _Values(name, "number", numbers.astype(np.float64), lost)
    if are(datetime.date):
        times = np.where(lost, np.datetime64("NaT"), values)
        naive = [
            one.replace(tzinfo=None) if isinstance(one, datetime.datetime) else one
            for one in times
        ]
        return _of_times(name, np.array(naive, "M8[us]"))
    if are(str):
        return _Values(name, "category", _without(values, lost), lost)
    if not are(int, float, str, dict, list, set, tuple) and len(kinds) == 1:
        # Categories of a kind of their own, such as intervals, by their names.
        pairs = zip(values, lost, strict=True)
        texts = [None if gone else str(one) for one, gone in pairs]
        return _Values(name, "category", np.array(texts, object), lost)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise TypeError(
        f"argument must be a string or a number, and column {name!r} of one of both "
        f"throughout; it holds {names}"
    )


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


def two_dimensional(table: Any) -> np.ndarray:
    """A table that is no frame, as an array of rows and columns."""
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


def _check_array(array: np.ndarray, names: Sequence[Name], first_row: int) -> None:
    if np.isfinite(array).all():
        return
    for place, name in enumerate(names):
        column = array[:, place]
        lost = np.isnan(column)
        if lost.any():
            _refuse_missing(name, lost, first_row)
        _refuse_infinite(name, column, first_row)


def _refuse_missing(name: Name, lost: np.ndarray, first_row: int) -> None:
    raise ValueError(
        f"column {name!r} has {lost.sum()} missing values (NaN; "
        f"{_rows(lost, first_row)}); pass missing='indicator' or impute them"
    )


def _refuse_infinite(name: Name, numbers: np.ndarray, first_row: int) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"column {name!r} has {infinite.sum()} infinite values (inf; "
            f"{_rows(infinite, first_row)}); remove or replace them"
        )


def _rows(chosen: np.ndarray, first_row: int) -> str:
    places = np.flatnonzero(chosen)
    listed = ", ".join(str(first_row + row) for row in places[:3])
    return f"rows {listed}{', ...' if len(places) > 3 else ''}"
