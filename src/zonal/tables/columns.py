"""Columns: from tables of numbers, booleans, categories and times to a matrix.

Each category becomes a column of zeros and ones. Times become seconds, with the cycles
of day, week and year if the table is long enough to show them. Missing values become
the column's mean, and a column that indicates them. The encoding learned from one table
applies to all later ones. Named columns are matched by name, whatever their order.
"""

import collections
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.saving import savable
from zonal.tables.frames import Name, Table, Values
from zonal.tables.rounding import round_bits

__all__ = ["ColumnScan", "Columns"]

# Only the most frequent categories have a column of their own.
_MAX_CATEGORIES = 50
# Distinct values that are counted per column; beyond this, the rarer half is dropped.
_MAX_COUNTED = 100_000
# Cycles in seconds, and the number of periods that a table must span to show one.
_CYCLES = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}
_MIN_PERIODS = 2.0


@savable
@dataclasses.dataclass(frozen=True)
class Column:
    """The encoding of one column as numbers.

    ``kind`` is ``"number"``, ``"category"``, ``"time"``, or ``"latitude"`` and
    ``"longitude"``, which together become a unit vector. ``categories`` are those with
    an output column; ``fill`` replaces missing numbers; ``indicated`` adds an output
    column that indicates missing values.
    """

    name: Name
    kind: str
    categories: tuple[Any, ...] = ()
    cycles: tuple[str, ...] = ()
    fill: float = 0.0
    indicated: bool = False

    @property
    def outputs(self) -> list[str]:
        """Names of the output columns."""
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

    def encode(self, values: Values, strict: bool, first_row: int) -> np.ndarray:
        """Output columns of consecutive rows; ``strict`` rejects missing values."""
        missing = values.missing
        if strict:
            _check_missing(self.name, missing, first_row)
        allow_numbers = any(not isinstance(value, str) for value in self.categories)
        checked = values.as_kind(self.kind, first_row, allow_numbers)
        outputs: list[np.ndarray] = []
        if self.kind == "category":
            outputs += [checked == category for category in self.categories]
        else:
            numbers = np.asarray(checked, np.float64)
            _check_infinite(self.name, numbers, first_row)
            numbers = np.where(missing, self.fill, numbers)
            outputs.append(numbers)
            for cycle in self.cycles:
                angle = 2 * np.pi * numbers / _CYCLES[cycle]
                outputs += [np.sin(angle), np.cos(angle)]
        if self.indicated:
            outputs.append(missing)
        return np.column_stack([np.asarray(output, np.float64) for output in outputs])


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Columns:
    """The encoding of a table's columns as a matrix of numbers.

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
        """Learn the encoding from a table.

        Parameters
        ----------
        table
            A two-dimensional array, or a frame of pandas, polars or pyarrow.
        categories
            ``"auto"``: columns of strings and of the frame's categorical type are
            categories; ``"error"``: such columns raise ValueError; or the names (for
            arrays, the indices) of further columns to treat as categories.
        missing
            ``"error"``: missing values raise ValueError; ``"indicator"``: they are
            replaced by the mean, and a column is added that indicates them.
        place
            The columns of latitude and longitude in degrees, if there are any.
        """
        return ColumnScan(categories, missing, place).scan(table).columns()

    @property
    def names(self) -> list[Name]:
        return [column.name for column in self.columns]

    @property
    def input_names(self) -> list[str]:
        """Names of the columns to read from a file."""
        if not self.named:
            raise ValueError(
                "the model was fitted to an array, whose columns have no names; fit it "
                "to a table with named columns to use it here"
            )
        return list(map(str, self.names))

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of the matrix."""
        return [name for column in self.columns for name in column.outputs]

    @property
    def plain(self) -> bool:
        """Whether every column is one number, so that arrays need no encoding."""
        return all(
            column.kind == "number" and len(column.outputs) == 1
            for column in self.columns
        )

    def shares(self, outputs: Float[np.ndarray, " outputs"]) -> np.ndarray:
        """Values per output column, summed per input column."""
        ends = np.cumsum([0] + [len(column.outputs) for column in self.columns])
        return np.array(
            [outputs[start:stop].sum() for start, stop in itertools.pairwise(ends)]
        )

    def matrix(
        self, table: Any, first_row: int = 0
    ) -> Float[np.ndarray, "rows outputs"]:
        """The encoded table; an array of plain numbers is returned without a copy.

        ``first_row`` is the number of the table's first row in error messages.
        """
        read = Table(table)
        if self.named and read.named:
            self._check_names(read.names)
        elif len(read.names) != len(self.columns):
            raise ValueError(
                f"X has {len(read.names)} features, but zonal is expecting "
                f"{len(self.columns)} features as input"
            )
        strict = self.missing == "error"
        if self.plain and strict and (array := read.float_array) is not None:
            _check_array(array, self.names, first_row)
            return array
        by_name = self.named and read.named
        values_per_column = [
            read.column_named(column.name) if by_name else read.column(index)
            for index, column in enumerate(self.columns)
        ]
        blocks = [
            self._unit_vectors(values_per_column, first_row)
            if column.kind == "latitude"
            else column.encode(values, strict, first_row)
            for column, values in zip(self.columns, values_per_column, strict=True)
            if column.kind != "longitude"
        ]
        return np.hstack(blocks)

    def _unit_vectors(
        self, values_per_column: Sequence[Values], first_row: int
    ) -> np.ndarray:
        """Latitude and longitude as points on the sphere."""
        kinds = [column.kind for column in self.columns]
        degrees = []
        for kind in ("latitude", "longitude"):
            index = kinds.index(kind)
            name, values = self.names[index], values_per_column[index]
            numbers = values.as_kind("number", first_row)
            _check_missing(name, values.missing, first_row)
            _check_infinite(name, numbers, first_row)
            degrees.append(numbers)
        # Imported here, so that tables without coordinates do not import JAX.
        from zonal.prior.sphere import LatitudeLongitude

        return LatitudeLongitude().points(np.column_stack(degrees))[0]

    def _check_names(self, names: Sequence[Name]) -> None:
        absent = [name for name in self.names if name not in names]
        if absent:
            raise ValueError(
                f"column {absent[0]!r} is missing ({len(absent)} of the "
                f"{len(self.columns)} columns that the model was fitted to); add it"
            )
        extra = [name for name in names if name not in self.names]
        if extra:
            raise ValueError(
                f"the model was fitted without column {extra[0]!r} "
                f"({len(extra)} such columns); drop it"
            )


def _place_kinds(
    place: Sequence[Name] | None, names: Sequence[Name]
) -> dict[Name, str]:
    """The kinds of the columns of latitude and longitude, if there are any."""
    if place is None:
        return {}
    if len(place) != 2 or any(name not in names for name in place):
        raise ValueError(
            "a place must name two columns of the table, latitude then longitude, "
            f"not {place!r}"
        )
    return {place[0]: "latitude", place[1]: "longitude"}


@dataclasses.dataclass(frozen=True, eq=False)
class ColumnScan:
    """Statistics of a table's columns, from which their encoding is chosen.

    Scans of two parts of a table merge into the scan of both. ``categories``,
    ``missing`` and ``place`` are those of `Columns.learn`.
    """

    categories: str | Sequence[Name] = "auto"
    missing: str = "error"
    place: Sequence[Name] | None = None
    statistics: "tuple[_ColumnStatistics, ...]" = ()
    named: bool = False

    def __post_init__(self) -> None:
        if self.missing not in ("error", "indicator"):
            raise ValueError(
                f"missing must be 'error' or 'indicator', not {self.missing!r}"
            )
        if isinstance(self.categories, str) and self.categories not in (
            "auto",
            "error",
        ):
            raise ValueError(
                "categories must be 'auto', 'error' or a list of columns, "
                f"not {self.categories!r}"
            )

    def scan(self, table: Any) -> "ColumnScan":
        """The scan of one part of a table alone, with the same settings."""
        read = Table(table)
        chosen = [] if isinstance(self.categories, str) else list(self.categories)
        unknown = [name for name in chosen if name not in read.names]
        if unknown:
            raise ValueError(
                f"categories names column {unknown[0]!r}, which the table does not have"
            )
        kinds = dict.fromkeys(chosen, "category") | _place_kinds(self.place, read.names)
        statistics = tuple(
            _ColumnStatistics(name, kinds.get(name)) for name in read.names
        )
        for column, values in zip(statistics, read.columns(), strict=True):
            column.add(values)
        return dataclasses.replace(self, statistics=statistics, named=read.named)

    def merge(self, other: "ColumnScan") -> "ColumnScan":
        """The scan of both parts."""
        if not self.statistics:
            return other
        names, other_names = (
            [column.name for column in scan.statistics] for scan in (self, other)
        )
        if names != other_names:
            raise ValueError(
                f"parts of the table have different columns, {names} and "
                f"{other_names}; pass parts with the same columns"
            )
        pairs = zip(self.statistics, other.statistics, strict=True)
        merged = tuple(first.merge(second) for first, second in pairs)
        return dataclasses.replace(self, statistics=merged)

    def columns(self) -> Columns:
        """The encoding of the columns."""
        for column in self.statistics:
            if column.kind == "category" and self.categories == "error":
                raise ValueError(
                    f"column {column.name!r} holds strings or categories; encode it as "
                    "numbers, or pass categories='auto'"
                )
        columns = tuple(column.encoding(self.missing) for column in self.statistics)
        return Columns(columns, self.named, self.missing)


@dataclasses.dataclass(eq=False)
class _ColumnStatistics:
    """Statistics of one column over the rows seen so far.

    ``kind`` is given, or that of the first value. ``first``, ``last`` and ``step`` (the
    smallest difference) describe times.
    """

    name: Name
    kind: str | None
    has_missing: bool = False
    count: int = 0
    total: float = 0.0
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: float = np.inf
    last: float = -np.inf
    step: float = np.inf

    def add(self, values: Values) -> None:
        if self.kind in ("latitude", "longitude"):
            return
        self.has_missing |= bool(values.missing.any())
        if values.missing.all() and self.kind is None:
            return
        if self.kind is None:
            self.kind = values.kind
        if self.kind == "category":
            self._count(values.as_kind("category", allow_numbers=True)[~values.missing])
            return
        numbers = values.as_kind(self.kind)[~values.missing]
        numbers = numbers[np.isfinite(numbers)]
        self.count += len(numbers)
        self.total += float(numbers.sum())
        if self.kind == "time" and len(numbers):
            self._add_times(np.unique(numbers))

    def _count(self, values: np.ndarray) -> None:
        categories, counts = np.unique(values, return_counts=True)
        plain = [
            category.item() if hasattr(category, "item") else category
            for category in categories
        ]
        self.counts.update(dict(zip(plain, counts.tolist(), strict=True)))

    def _add_times(self, times: np.ndarray) -> None:
        self.first = min(self.first, float(times[0]))
        self.last = max(self.last, float(times[-1]))
        if len(times) > 1:
            self.step = min(self.step, float(np.min(np.diff(times))))

    def merge(self, other: "_ColumnStatistics") -> "_ColumnStatistics":
        """The statistics over the rows of both."""
        kinds = {self.kind, other.kind} - {None}
        if len(kinds) > 1:
            raise ValueError(
                f"column {self.name!r} is a {self.kind} in some rows and a "
                f"{other.kind} in others; convert it to one type"
            )
        # In place: copying the counts for each part would take longer than the parts.
        counts = self.counts
        counts.update(other.counts)
        if len(counts) > _MAX_COUNTED:
            counts = collections.Counter(dict(counts.most_common(_MAX_COUNTED // 2)))
        gap = abs(other.first - self.last)
        gap = gap if 0 < gap < np.inf else np.inf
        return _ColumnStatistics(
            self.name,
            kinds.pop() if kinds else None,
            self.has_missing or other.has_missing,
            self.count + other.count,
            self.total + other.total,
            counts,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.step, other.step, gap),
        )

    def encoding(self, missing: str) -> Column:
        """The encoding that suits all rows."""
        kind = self.kind or "number"
        indicated = missing == "indicator" and self.has_missing
        if kind in ("latitude", "longitude"):
            return Column(self.name, kind)
        if kind == "category":
            # Of equally frequent categories, the first in order.
            by_frequency = sorted(self.counts, key=lambda key: (-self.counts[key], key))
            frequent = tuple(sorted(by_frequency[:_MAX_CATEGORIES]))
            return Column(self.name, kind, frequent, indicated=indicated)
        fill = float(round_bits(self.total / self.count)) if self.count else 0.0
        cycles = self._cycles() if kind == "time" else ()
        return Column(self.name, kind, (), cycles, fill, indicated)

    def _cycles(self) -> tuple[str, ...]:
        """Cycles that the times span and resolve."""
        span = self.last - self.first
        return tuple(
            name
            for name, length in _CYCLES.items()
            if span >= _MIN_PERIODS * length and self.step < length / 2
        )


def _check_array(array: np.ndarray, names: Sequence[Name], first_row: int) -> None:
    if np.isfinite(array).all():
        return
    for name, column in zip(names, array.T, strict=True):
        _check_missing(name, np.isnan(column), first_row)
        _check_infinite(name, column, first_row)


def _check_missing(name: Name, missing: np.ndarray, first_row: int) -> None:
    if missing.any():
        raise ValueError(
            f"column {name!r} has {missing.sum()} missing values (NaN; "
            f"{_row_list(missing, first_row)}); pass missing='indicator' or impute them"
        )


def _check_infinite(name: Name, numbers: np.ndarray, first_row: int) -> None:
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"column {name!r} has {infinite.sum()} infinite values (inf; "
            f"{_row_list(infinite, first_row)}); remove or replace them"
        )


def _row_list(mask: np.ndarray, first_row: int) -> str:
    rows = first_row + np.flatnonzero(mask)
    listed = ", ".join(map(str, rows[:3]))
    return f"rows {listed}{', ...' if len(rows) > 3 else ''}"
