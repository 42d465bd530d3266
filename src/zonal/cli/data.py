"""Tables for the command line: opened, looked at, and split into learning and test."""

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import narwhals as nw
import numpy as np

from zonal.cli.words import counted, note
from zonal.streams import Batch, Stream, check_columns, values_of

__all__ = [
    "Part",
    "TargetLook",
    "Watched",
    "answered",
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


def checked_output(path: str) -> Path:
    """A file that can be written, told before the work is done and not after."""
    out = Path(path)
    folder = out.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} to write {out.name} in")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name a file to write")
    probe = Path(f"{out}.part")
    probe.touch()
    probe.unlink()
    return out


@dataclasses.dataclass(frozen=True)
class TargetLook:
    """What one reading of the target tells.

    ``values`` are all different ones where they are few, otherwise None; ``rows`` and
    ``test_rows`` are those to learn from and those kept aside.
    """

    name: str
    rows: int
    test_rows: int
    missing: int
    texts: bool
    values: tuple[Any, ...] | None


def look_at(stream: Stream, target: str, share: float, seed: int) -> TargetLook:
    """Read the target once: how many rows there are, and what they hold."""
    check_columns(stream, [target])
    count = [0, 0]
    missing, texts, values = 0, False, set()
    for batch, lost, aside in _told_apart(stream, target, share, seed, [target]):
        missing += int(lost.sum())
        for part in (0, 1):
            count[part] += int(np.sum(~lost & (aside == bool(part))))
        column = nw.from_native(batch.frame, eager_only=True).get_column(target)
        texts |= not column.dtype.is_numeric() and column.dtype != nw.Boolean
        if values is not None:
            values |= set(values_of(batch.frame, target)[~lost].tolist())
            values = values if len(values) <= _MANY_TEXTS else None
    if sum(count) == 0:
        raise ValueError(f"no row has a value of {target!r}; there is nothing to learn")
    if sum(count) < _LEAST_TO_SPLIT:
        count = [sum(count), 0]
    found = None if values is None else tuple(sorted(values, key=str))
    return TargetLook(target, count[0], count[1], missing, texts, found)


def guessed_task(look: TargetLook) -> tuple[str, str]:
    """Regression or classification, and a word on why."""
    values = look.values
    if look.texts and values is None:
        raise ValueError(
            f"{look.name!r} has more than {_MANY_TEXTS} different texts, too many to "
            "be told apart; name another --target, or --task classification if they "
            "are classes nevertheless"
        )
    if values is not None:
        kind = counted(len(values), "different text" if look.texts else "value")
        whole = not look.texts and all(one == int(one) for one in values)
        if look.texts or len(values) == 2 or (whole and len(values) <= _FEW_NUMBERS):
            return "classification", f"it has {kind}"
    return "regression", "it has many different numbers"


def _told_apart(
    stream: Stream, target: str, share: float, seed: int, columns: Sequence[str]
) -> Iterator[tuple[Batch, np.ndarray, np.ndarray]]:
    """Batches, with rows that have no target and rows that are kept for a test."""
    generator = np.random.default_rng([seed, *b"test"])
    for batch in stream.batches(columns):
        values = nw.from_native(batch.frame, eager_only=True).get_column(target)
        lost = values.is_null()
        if values.dtype.is_float():
            lost = lost | values.is_nan()
        aside = generator.random(len(values)) < share
        yield batch, lost.to_numpy().astype(bool), aside


class Part(Stream):
    """Some rows and columns of a table: those to learn from, or those kept aside.

    Rows without a target are in neither.
    """

    def __init__(
        self,
        stream: Stream,
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
        read = list(dict.fromkeys([*wanted, self._look.name]))
        kind, row = "kept aside" if self._test else "to learn from", 0
        for batch, lost, aside in _told_apart(
            self._stream, self._look.name, self._share, self._seed, read
        ):
            kept = ~lost & (aside == self._test)
            part = nw.from_native(batch.frame, eager_only=True).filter(kept.tolist())
            if len(part):
                # Rows are counted among those of their part.
                origin = f"{batch.origin}, rows {kind}"
                yield Batch(part.select(wanted).to_native(), origin, row)
                row += len(part)


def left_out(look: TargetLook) -> str:
    """That rows without a target are not used."""
    return f"left out, because {look.name!r} is missing: {counted(look.missing, 'row')}"


def answered(
    stream: Stream, model: Any, target: str, weight: str | None = None
) -> Stream:
    """The columns of a table that a model knows, and the rows that have a target."""
    names = [*map(str, model.columns_.names), *filter(None, [target, weight])]
    check_columns(stream, names)
    look = look_at(stream, target, 0.0, 0)
    if look.missing:
        note(left_out(look))
    return Part(stream, look, names, 0.0, 0)


class Watched(Stream):
    """A stream that tells how far it has been read."""

    def __init__(self, stream: Stream, told: Callable[[int, int | None], None]):
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
