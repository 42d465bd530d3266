"""Columns: a table as people have it, to a matrix of numbers.

A column is a number, a truth value, a category or a time. Categories become one column
of zeros and ones each; times become seconds, and cycles of the day, the week and the
year where the table is long enough to show them; missing values become the column's
mean and a column that says so. What is learned from one table is applied to every later
one, by name where columns have names, so their order does not matter.
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
from zonal.tables.rounding import rounded

__all__ = ["Columns", "Look"]

# Categories beyond the most frequent so many share a place.
_MOST_CATEGORIES = 50
# Different values that are counted at a time; the rare half is dropped beyond.
_MOST_COUNTED = 100_000
# Cycles in seconds, and how often a table must run through one to show it.
_CYCLES = {"day": 86_400.0, "week": 7 * 86_400.0, "year": 365.2425 * 86_400.0}
_TURNS = 2.0


@savable
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

    def numbers(self, values: Values, strict: bool, first_row: int) -> np.ndarray:
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


@savable
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
        return Look(categories, missing, place).at(table).columns()

    @property
    def names(self) -> list[Name]:
        return [column.name for column in self.columns]

    @property
    def input_names(self) -> list[str]:
        """Names by which the columns are found in a file."""
        if not self.named:
            raise ValueError(
                "the model was fitted to an array, whose columns have no names; fit it "
                "to a table to use it here"
            )
        return list(map(str, self.names))

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
        read = Table(table)
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

    def _unit_vectors(self, every: Sequence[Values], first_row: int) -> np.ndarray:
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
        # Here, so that tables without places are encoded without importing JAX.
        from zonal.prior.sphere import LatitudeLongitude

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


@dataclasses.dataclass(frozen=True, eq=False)
class Look:
    """What parts of a table have shown of its columns; looks at two parts merge.

    ``categories``, ``missing`` and ``place`` are those of `Columns.learn`.
    """

    categories: str | Sequence[Name] = "auto"
    missing: str = "error"
    place: Sequence[Name] | None = None
    seen: "tuple[_Seen, ...]" = ()
    named: bool = False

    def __post_init__(self) -> None:
        if self.missing not in ("error", "indicator"):
            raise ValueError(f"missing is 'error' or 'indicator', not {self.missing!r}")
        if isinstance(self.categories, str) and self.categories not in (
            "auto",
            "error",
        ):
            raise ValueError(
                "categories is 'auto', 'error' or a list of columns, "
                f"not {self.categories!r}"
            )

    def at(self, table: Any) -> "Look":
        """A look at one part alone."""
        read = Table(table)
        chosen = [] if isinstance(self.categories, str) else list(self.categories)
        unknown = [name for name in chosen if name not in read.names]
        if unknown:
            raise ValueError(f"there is no column {unknown[0]!r} to take categories of")
        places = _checked_place(self.place, read.names)
        kinds = dict.fromkeys(chosen, "category") | places
        seen = tuple(_Seen(name, kinds.get(name)) for name in read.names)
        for one, (_, values) in zip(seen, read.columns(), strict=True):
            one.add(values)
        return dataclasses.replace(self, seen=seen, named=read.named)

    def merged(self, other: "Look") -> "Look":
        """A look at both parts."""
        if not self.seen:
            return other
        if [one.name for one in self.seen] != [one.name for one in other.seen]:
            raise ValueError("parts of the table have different columns")
        pairs = zip(self.seen, other.seen, strict=True)
        seen = tuple(one.merged(two) for one, two in pairs)
        return dataclasses.replace(self, seen=seen)

    def columns(self) -> Columns:
        """How the columns become numbers."""
        for one in self.seen:
            if one.kind == "category" and self.categories == "error":
                raise ValueError(
                    f"column {one.name!r} holds texts or categories; encode it as "
                    "numbers, or pass categories='auto'"
                )
        every = tuple(one.column(self.missing) for one in self.seen)
        return Columns(every, self.named, self.missing)


@dataclasses.dataclass(eq=False)
class _Seen:
    """What the parts of a table have shown of a column so far.

    ``kind`` is what it was said to be, or what its first value showed.
    """

    name: Name
    kind: str | None
    lost: bool = False
    count: int = 0
    total: float = 0.0
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: float = np.inf
    last: float = -np.inf
    step: float = np.inf

    def add(self, values: Values) -> None:
        if self.kind in ("latitude", "longitude"):
            return
        self.lost |= bool(values.missing.any())
        if values.missing.all() and self.kind is None:
            return
        if self.kind is None:
            self.kind = values.kind
        if self.kind == "category":
            texts = values.as_kind("category", numbers_too=True)[~values.missing]
            known, counts = np.unique(texts, return_counts=True)
            places = [one.item() if hasattr(one, "item") else one for one in known]
            self.counts.update(dict(zip(places, counts.tolist(), strict=True)))
            return
        numbers = values.as_kind(self.kind)[~values.missing]
        numbers = numbers[np.isfinite(numbers)]
        self.count += len(numbers)
        self.total += float(numbers.sum())
        if self.kind == "time" and len(numbers):
            different = np.unique(numbers)
            self.first = min(self.first, float(different[0]))
            self.last = max(self.last, float(different[-1]))
            if len(different) > 1:
                self.step = min(self.step, float(np.min(np.diff(different))))

    def merged(self, other: "_Seen") -> "_Seen":
        """What both have seen."""
        kinds = {self.kind, other.kind} - {None}
        if len(kinds) > 1:
            raise ValueError(
                f"column {self.name!r} is a {self.kind} in some rows and a "
                f"{other.kind} in others"
            )
        # In place: a copy for every part of a table would take longer than the parts.
        counts = self.counts
        counts.update(other.counts)
        if len(counts) > _MOST_COUNTED:
            counts = collections.Counter(dict(counts.most_common(_MOST_COUNTED // 2)))
        between = abs(other.first - self.last)
        between = between if 0 < between < np.inf else np.inf
        return _Seen(
            self.name,
            kinds.pop() if kinds else None,
            self.lost or other.lost,
            self.count + other.count,
            self.total + other.total,
            counts,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.step, other.step, between),
        )

    def column(self, missing: str) -> Column:
        """How the column becomes numbers, now that all of it was seen."""
        kind = self.kind or "number"
        indicated = missing == "indicator" and self.lost
        if kind in ("latitude", "longitude"):
            return Column(self.name, kind)
        if kind == "category":
            # Of those equally frequent, the first in order.
            often = sorted(self.counts, key=lambda one: (-self.counts[one], one))
            places = tuple(sorted(often[:_MOST_CATEGORIES]))
            return Column(self.name, kind, places, indicated=indicated)
        fill = float(rounded(self.total / self.count)) if self.count else 0.0
        cycles = self._cycles() if kind == "time" else ()
        return Column(self.name, kind, (), cycles, fill, indicated)

    def _cycles(self) -> tuple[str, ...]:
        """Cycles that times run through, and are fine enough to resolve."""
        span = self.last - self.first
        return tuple(
            name
            for name, length in _CYCLES.items()
            if span >= _TURNS * length and self.step < length / 2
        )


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
