"""Tables for the command line: opened, looked at, and split into learning and test."""

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

from zonal.cli.words import counted
from zonal.tables.batches import Batch, BatchReader, check_columns, values_of
from zonal.tables.files import list_files
from zonal.tables.streams import Stream

__all__ = [
    "Part",
    "TargetLook",
    "Watched",
    "answered",
    "check_roles",
    "checked_output",
    "guessed_task",
    "left_out",
    "look_at",
    "opened",
]

# So few different whole numbers are taken for classes, and so many texts for none.
_FEW_NUMBERS = 10
_MANY_TEXTS = 100
# Tables of fewer rows are learned from as a whole.
_LEAST_TO_SPLIT = 30


def opened(paths: Sequence[str], delimiter: str | None = None) -> Stream:
    """The table in some files; ``-`` is CSV from the standard input."""
    if "-" in paths:
        if len(paths) > 1:
            raise ValueError("the standard input (-) cannot be read beside files")
        folder = click.get_current_context().with_resource(
            tempfile.TemporaryDirectory(prefix="zonal-")
        )
        kept = Path(folder) / "standard-input.csv"
        with kept.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        paths = [str(kept)]
    return Stream.files(paths[0] if len(paths) == 1 else paths, delimiter=delimiter)


def checked_output(path: str, *others: str) -> Path:
    """A file that can be written, told before the work is done and not after.

    ``others`` are read or written by the same command, and must not be lost.
    """
    out = Path(path)
    folder = out.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {out.name} in")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name a file to write")
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is no file that can be replaced; name another")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written to; name a file elsewhere")
    taken = list(others)
    for other in filter(os.path.isdir, others):
        taken += list_files(other)
    if out.resolve() in [Path(one).resolve() for one in taken]:
        raise ValueError(f"{out} is read or written already; name another file")
    return out


@dataclasses.dataclass(frozen=True)
class TargetLook:
    """What one reading of the target tells.

    ``values`` are all different ones where they are few, otherwise None; ``rows`` and
    ``test_rows`` are those to learn from and those kept aside. ``missing`` rows lack
    one of the columns that are ``needed``: the target, or a place.
    """

    name: str
    needed: tuple[str, ...]
    rows: int
    test_rows: int
    missing: int
    texts: bool
    values: tuple[Any, ...] | None


def look_at(
    stream: BatchReader, target: str, share: float, seed: int, place: Sequence[str] = ()
) -> TargetLook:
    """Read the target once: how many rows there are, and what they hold."""
    needed = (target, *place)
    check_columns(stream, needed)
    count = [0, 0]
    missing, texts, values = 0, False, set()
    for batch, lost, aside in _told_apart(stream, needed, share, seed, needed):
        missing += int(lost.sum())
        for part in (0, 1):
            count[part] += int(np.sum(~lost & (aside == bool(part))))
        frame = nw.from_native(batch.frame, eager_only=True)
        for name in place:
            if not frame.schema[name].is_numeric():
                raise ValueError(f"{name!r} holds no numbers; a place is in degrees")
        kind = frame.schema[target]
        if kind.is_temporal():
            raise ValueError(
                f"{target!r} holds dates or times; turn them into numbers, such as "
                "days since the first, to predict them"
            )
        texts |= not kind.is_numeric() and kind != nw.Boolean
        found = values_of(batch.frame, target)[~lost]
        if kind.is_float() and not np.isfinite(found).all():
            row = batch.first_row + int(np.flatnonzero(~lost)[~np.isfinite(found)][0])
            raise ValueError(
                f"{batch.origin}: {target!r} is infinite in row {row}; correct the row "
                "or remove it"
            )
        if values is not None:
            values |= set(found.tolist())
            values = values if len(values) <= _MANY_TEXTS else None
    if sum(count) == 0:
        raise ValueError(f"no row has a value of {target!r}; there is nothing to learn")
    if sum(count) < _LEAST_TO_SPLIT:
        count = [sum(count), 0]
    every = None if values is None else tuple(sorted(values, key=str))
    return TargetLook(target, needed, count[0], count[1], missing, texts, every)


def guessed_task(look: TargetLook) -> tuple[str, str]:
    """Regression or classification, and a word on why."""
    values = look.values
    if look.texts and values is None:
        raise ValueError(
            f"{look.name!r} has more than {_MANY_TEXTS} different texts, too many to "
            "be told apart; name another --target, or --task classification if they "
            "are classes nevertheless"
        )
    if look.texts and values is not None:
        return "classification", f"it has {counted(len(values), 'different text')}"
    if values is not None:
        whole = all(one == int(one) for one in values)
        few = 2 < len(values) <= _FEW_NUMBERS and whole
        if len(values) == 2 or few:
            return "classification", f"it has {counted(len(values), 'value')}"
    return "regression", "it has numbers, and no few whole ones"


def _told_apart(
    stream: BatchReader,
    needed: Sequence[str],
    share: float,
    seed: int,
    columns: Sequence[str],
) -> Iterator[tuple[Batch, np.ndarray, np.ndarray]]:
    """Batches, with rows that lack what is needed, and rows kept for a test."""
    generator = np.random.default_rng([seed, *b"test"])
    for batch in stream.batches(columns):
        frame = nw.from_native(batch.frame, eager_only=True)
        lost = np.zeros(len(frame), bool)
        for name in needed:
            values = frame.get_column(name)
            lost |= values.is_null().to_numpy().astype(bool)
            if values.dtype.is_float():
                lost |= values.is_nan().fill_null(True).to_numpy().astype(bool)
        yield batch, lost, generator.random(len(frame)) < share


class Part(BatchReader):
    """Some rows and columns of a table: those to learn from, or those kept aside.

    Rows that lack a target or a place are in neither.
    """

    def __init__(
        self,
        stream: BatchReader,
        look: TargetLook,
        names: Sequence[str],
        share: float,
        seed: int,
        test: bool = False,
    ):
        self._stream, self._look, self._names = stream, look, list(names)
        self._share = share if look.test_rows else 0.0
        self._seed, self._test = seed, test

    @property
    def names(self) -> list[str]:
        return self._names

    @property
    def n_rows(self) -> int:
        return self._look.test_rows if self._test else self._look.rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        wanted = self._names if columns is None else list(columns)
        needed = self._look.needed
        read = list(dict.fromkeys([*wanted, *needed]))
        part_of = ""
        if self._share:
            part_of = ", rows kept aside" if self._test else ", rows to learn from"
        row = 0
        for batch, lost, aside in _told_apart(
            self._stream, needed, self._share, self._seed, read
        ):
            kept = ~lost & (aside == self._test)
            part = nw.from_native(batch.frame, eager_only=True).filter(kept.tolist())
            if len(part):
                # Rows are counted among those of their part.
                origin = f"{batch.origin}{part_of}"
                yield Batch(part.select(wanted).to_native(), origin, row)
                row += len(part)


def left_out(look: TargetLook) -> str:
    """That rows are not used, and why."""
    why = " or ".join(map(repr, look.needed))
    return f"left out, because {why} is missing: {counted(look.missing, 'row')}"


def check_roles(*names: str | None) -> None:
    """Refuse a column that is to be two things at once."""
    given = [name for name in names if name is not None]
    for name in given:
        if given.count(name) > 1:
            raise ValueError(f"column {name!r} cannot be two things at once")


def answered(
    stream: BatchReader,
    model: Any,
    target: str,
    weight: str | None,
    say: Callable[[str], None],
) -> BatchReader:
    """The columns of a table that a model knows, and the rows that have a target."""
    names = [*model.columns_.input_names, target, *([] if weight is None else [weight])]
    check_roles(*names)
    check_columns(stream, names)
    look = look_at(stream, target, 0.0, 0)
    if look.missing:
        say(left_out(look))
    return Part(stream, look, names, 0.0, 0)


class Watched(BatchReader):
    """A stream that tells how far it has been read."""

    def __init__(self, stream: BatchReader, told: Callable[[int, int | None], None]):
        self._stream, self._told = stream, told

    @property
    def names(self) -> list[str]:
        return self._stream.names

    @property
    def n_rows(self) -> int | None:
        return self._stream.n_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[Batch]:
        done = 0
        for batch in self._stream.batches(columns):
            self._told(done, self.n_rows)
            yield batch
            done += nw.from_native(batch.frame, eager_only=True).shape[0]
        self._told(done, self.n_rows)
