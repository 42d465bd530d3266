"""Tables for the command line: opened, inspected, and split into training and test."""

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import narwhals as nw
import numpy as np

from zonal.cli.output import format_count
from zonal.tables.batches import Batch, BatchReader, check_columns, values_of
from zonal.tables.files import list_files
from zonal.tables.streams import Stream

__all__ = [
    "ProgressReader",
    "RowSubset",
    "TargetProfile",
    "check_distinct",
    "check_output_path",
    "describe_dropped_rows",
    "guess_task",
    "open_tables",
    "profile_target",
    "select_labelled_rows",
]

# At most this many distinct integers are classes; more distinct strings are not.
_MOST_INTEGER_CLASSES = 10
_MOST_STRING_CLASSES = 100
# Smaller tables are used for training as a whole.
_LEAST_ROWS_TO_SPLIT = 30


def open_tables(paths: Sequence[str], delimiter: str | None = None) -> Stream:
    """The table in one or more files; ``-`` is CSV from the standard input."""
    if "-" in paths:
        if len(paths) > 1:
            raise ValueError("the standard input (-) cannot be combined with files")
        folder = click.get_current_context().with_resource(
            tempfile.TemporaryDirectory(prefix="zonal-")
        )
        copy = Path(folder) / "standard-input.csv"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        paths = [str(copy)]
    return Stream.files(paths[0] if len(paths) == 1 else paths, delimiter=delimiter)


def check_output_path(path: str, *others: str) -> Path:
    """The path of an output file, checked before any work is done.

    ``others`` are read or written by the same command and must not be overwritten.
    """
    out = Path(path)
    folder = out.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {out.name} to")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name a file to write")
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is not a regular file; name another file")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} is not writable; name a file elsewhere")
    in_use = list(others)
    for other in filter(os.path.isdir, others):
        in_use += list_files(other)
    if out.resolve() in [Path(other).resolve() for other in in_use]:
        raise ValueError(
            f"{out} is already read or written by this command; name another file"
        )
    return out


@dataclasses.dataclass(frozen=True)
class TargetProfile:
    """Facts about the target from one pass over the table.

    ``required`` are the columns whose missing values exclude a row: the target, and
    latitude and longitude. ``rows`` and ``test_rows`` count the others, ``dropped`` the
    excluded rows. ``values`` are the distinct values, or None if there are many.
    """

    name: str
    required: tuple[str, ...]
    rows: int
    test_rows: int
    dropped: int
    has_strings: bool
    values: tuple[Any, ...] | None


def profile_target(
    stream: BatchReader,
    target: str,
    test_share: float,
    seed: int,
    coordinates: Sequence[str] = (),
) -> TargetProfile:
    """Count rows and collect distinct values of the target in one pass."""
    required = (target, *coordinates)
    check_columns(stream, required)
    train_rows = test_rows = dropped = 0
    has_strings = False
    values: set[Any] | None = set()
    for batch, missing, is_test in _split_batches(
        stream, required, test_share, seed, required
    ):
        dropped += int(missing.sum())
        train_rows += int(np.sum(~missing & ~is_test))
        test_rows += int(np.sum(~missing & is_test))
        frame = nw.from_native(batch.frame, eager_only=True)
        _check_coordinates(frame, coordinates)
        dtype = frame.schema[target]
        if dtype.is_temporal():
            raise ValueError(
                f"{target!r} holds dates or times; convert them to numbers, such as "
                "days since the first, to predict them"
            )
        has_strings |= not dtype.is_numeric() and dtype != nw.Boolean
        present = values_of(batch.frame, target)[~missing]
        if dtype.is_float() and not np.isfinite(present).all():
            row = np.flatnonzero(~missing)[~np.isfinite(present)][0]
            raise ValueError(
                f"{batch.origin}: {target!r} is infinite in row "
                f"{batch.first_row + int(row)}; correct the row or remove it"
            )
        if values is not None:
            values |= set(present.tolist())
            values = values if len(values) <= _MOST_STRING_CLASSES else None
    total = train_rows + test_rows
    if total == 0:
        raise ValueError(f"no row has a value of {target!r}; nothing can be learned")
    if total < _LEAST_ROWS_TO_SPLIT:
        train_rows, test_rows = total, 0
    distinct = None if values is None else tuple(sorted(values, key=str))
    return TargetProfile(
        target, required, train_rows, test_rows, dropped, has_strings, distinct
    )


def _check_coordinates(frame: nw.DataFrame, coordinates: Sequence[str]) -> None:
    for name in coordinates:
        if not frame.schema[name].is_numeric():
            raise ValueError(
                f"{name!r} is not numeric; latitude and longitude must be in degrees"
            )


def guess_task(profile: TargetProfile) -> tuple[str, str]:
    """Regression or classification, with the reason."""
    values = profile.values
    if profile.has_strings:
        if values is None:
            raise ValueError(
                f"{profile.name!r} has more than {_MOST_STRING_CLASSES} distinct "
                "strings, too many for classes; choose another --target, or pass "
                "--task classification if they are classes"
            )
        reason = f"it has {format_count(len(values), 'distinct string')}"
        return "classification", reason
    if values is not None:
        integers = all(value == int(value) for value in values)
        few_integers = 2 < len(values) <= _MOST_INTEGER_CLASSES and integers
        if len(values) == 2 or few_integers:
            return "classification", f"it has {len(values)} distinct values"
        if len(values) == 1:
            return "regression", "it has a single value"
    reason = f"it has more than {_MOST_INTEGER_CLASSES} distinct numbers, or fractions"
    return "regression", reason


def _split_batches(
    stream: BatchReader,
    required: Sequence[str],
    test_share: float,
    seed: int,
    columns: Sequence[str],
) -> Iterator[tuple[Batch, np.ndarray, np.ndarray]]:
    """Batches, with masks of rows that miss a required value, and of test rows."""
    generator = np.random.default_rng([seed, *b"test"])
    for batch in stream.batches(columns):
        frame = nw.from_native(batch.frame, eager_only=True)
        missing = np.zeros(len(frame), bool)
        for name in required:
            values = frame.get_column(name)
            missing |= values.is_null().to_numpy().astype(bool)
            if values.dtype.is_float():
                missing |= values.is_nan().fill_null(True).to_numpy().astype(bool)
        yield batch, missing, generator.random(len(frame)) < test_share


class RowSubset(BatchReader):
    """The training rows or the test rows of a table, with some of its columns.

    Rows that miss a required value are in neither.
    """

    def __init__(
        self,
        stream: BatchReader,
        profile: TargetProfile,
        names: Sequence[str],
        test_share: float,
        seed: int,
        test: bool = False,
    ):
        self._stream, self._profile, self._names = stream, profile, list(names)
        self._test_share = test_share if profile.test_rows else 0.0
        self._seed, self._test = seed, test

    @property
    def names(self) -> list[str]:
        return self._names

    @property
    def n_rows(self) -> int:
        return self._profile.test_rows if self._test else self._profile.rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        wanted = self._names if columns is None else list(columns)
        required = self._profile.required
        to_read = list(dict.fromkeys([*wanted, *required]))
        subset = ""
        if self._test_share:
            subset = ", test rows" if self._test else ", training rows"
        first_row = 0
        for batch, missing, is_test in _split_batches(
            self._stream, required, self._test_share, self._seed, to_read
        ):
            chosen = ~missing & (is_test == self._test)
            frame = nw.from_native(batch.frame, eager_only=True)
            rows = frame.filter(chosen.tolist())
            if len(rows):
                # Row numbers in messages count the rows of the subset.
                origin = f"{batch.origin}{subset}"
                yield Batch(rows.select(wanted).to_native(), origin, first_row)
                first_row += len(rows)


def describe_dropped_rows(profile: TargetProfile) -> str:
    """A sentence on rows that are not used."""
    columns = " or ".join(map(repr, profile.required))
    return f"{format_count(profile.dropped, 'row')} dropped: {columns} is missing"


def check_distinct(*names: str | None) -> None:
    """Raise an error if a column has two roles."""
    given = [name for name in names if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"column {name!r} cannot have two roles")


def select_labelled_rows(
    stream: BatchReader,
    model: Any,
    target: str,
    weight: str | None,
    print_line: Callable[[str], None],
) -> BatchReader:
    """The columns of a table that a model needs, and the rows that have a target."""
    names = [*model.columns_.input_names, target, *([] if weight is None else [weight])]
    check_distinct(*names)
    check_columns(stream, names)
    profile = profile_target(stream, target, 0.0, 0)
    if profile.dropped:
        print_line(describe_dropped_rows(profile))
    return RowSubset(stream, profile, names, 0.0, 0)


class ProgressReader(BatchReader):
    """A stream that reports how many rows have been read."""

    def __init__(self, stream: BatchReader, report: Callable[[int, int | None], None]):
        self._stream, self._report = stream, report

    @property
    def names(self) -> list[str]:
        return self._stream.names

    @property
    def n_rows(self) -> int | None:
        return self._stream.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        done = 0
        for batch in self._stream.batches(columns):
            self._report(done, self.n_rows)
            yield batch
            done += nw.from_native(batch.frame, eager_only=True).shape[0]
        self._report(done, self.n_rows)
