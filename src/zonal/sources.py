"""Sources: where rows come from, a chunk at a time.

A source can be read again and again, always in the same order, in chunks whose size
does not depend on how many rows there are. Everything that learns from data goes
through this one door; files and clusters are further sources of the same kind.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from jaxtyping import Float

__all__ = ["ArraySource", "Chunk", "Source"]

CHUNK_ROWS = 4096
# Keeps our random numbers apart from those of others with the same seed.
_OWN_BITS = 0x7A6F6E616C

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows: inputs, targets, and what else is known of each.

    ``weight`` repeats a row: weight 2 is the row twice. ``precision`` is what is known
    of its noise: precision 4 means half the standard deviation. ``exposure`` is what a
    row's rate is multiplied by where the target counts. None stands for ones.
    """

    x: Float[np.ndarray, "rows inputs"]
    y: Float[np.ndarray, "rows ..."]
    weight: Float[np.ndarray, " rows"] | None = None
    precision: Float[np.ndarray, " rows"] | None = None
    exposure: Float[np.ndarray, " rows"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | np.ndarray) -> "Chunk":
        def part(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[rows]

        return Chunk(
            self.x[rows],
            self.y[rows],
            part(self.weight),
            part(self.precision),
            part(self.exposure),
        )

    @property
    def counts(self) -> np.ndarray:
        """Which rows weigh anything."""
        return np.ones(len(self), bool) if self.weight is None else self.weight > 0

    def thinned(self, rows: int, seed: int) -> "Chunk":
        """At most so many of the rows, drawn evenly, in their order."""
        if rows >= len(self):
            return self
        generator = np.random.default_rng(row_bits(seed))
        return self[np.sort(generator.choice(len(self), rows, replace=False))]


def row_bits(seed: int) -> np.random.PCG64:
    """Random bits to choose rows by.

    Not those of ``default_rng(seed)``: many a table was drawn with them, and the rows
    with the smallest keys would be those with the smallest values.
    """
    return np.random.PCG64([seed, _OWN_BITS])


class Source(abc.ABC):
    """A stream of chunks that can be read more than once."""

    @property
    @abc.abstractmethod
    def n_inputs(self) -> int:
        """Columns of the inputs."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int | None:
        """How many rows there are, or None where only reading tells."""

    @abc.abstractmethod
    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """All rows in order, at most ``size`` at a time."""

    def sample(self, count: int, seed: int = 0) -> Chunk:
        """Rows drawn evenly without replacement, in their order; all if there are few.

        Rows of weight zero are as if they were not there.
        Each row draws a random key, the same wherever it is read from, and the rows
        with the smallest keys are taken: one pass, holding little more than the sample.
        """
        return self.reduced(functools.partial(drawn_from, count, seed), two_drawn).rows

    def reduced(
        self, function: "Callable[[Source], Result]", combine: Callable[..., Result]
    ) -> Result:
        """What ``function`` makes of all rows.

        Sources that lie in parts on several machines apply it to every part there and
        combine what comes out, two at a time.
        """
        return function(self)

    @property
    def first_row(self) -> int:
        """How many rows of the table come before these."""
        return 0


@dataclasses.dataclass(frozen=True, eq=False)
class Drawn:
    """Rows of a table that have drawn the smallest keys."""

    count: int
    keys: np.ndarray
    rows: Chunk

    def cut(self) -> "Drawn":
        """No more than were asked for."""
        if len(self.keys) <= self.count:
            return self
        stay = np.sort(np.argpartition(self.keys, self.count - 1)[: self.count])
        return Drawn(self.count, self.keys[stay], self.rows[stay])


def drawn_from(count: int, seed: int, source: Source) -> Drawn:
    """Rows with the smallest keys of all that a source has."""
    bits = row_bits(seed)
    bits.advance(source.first_row)
    generator = np.random.default_rng(bits)
    kept: Drawn | None = None
    waiting: list[Drawn] = []
    limit = np.inf
    for chunk in source.chunks():
        keys = generator.random(len(chunk))
        small = np.flatnonzero((keys < limit) & chunk.counts)
        waiting.append(Drawn(count, keys[small], chunk[small]))
        if kept is None or sum(len(one.keys) for one in waiting) > count // 2:
            kept = _all_drawn([kept, *waiting])
            waiting = []
            if len(kept.keys) == count:
                limit = float(kept.keys.max())
    if kept is None:
        raise ValueError("the source has no rows; give it at least one")
    return _all_drawn([kept, *waiting])


def two_drawn(one: Drawn, other: Drawn) -> Drawn:
    """Those with the smallest keys of two parts of a table, in their order."""
    return _all_drawn([one, other])


def _all_drawn(parts: "list[Drawn | None]") -> Drawn:
    every = [part for part in parts if part is not None]
    if len(every) == 1:
        return every[0].cut()
    keys = np.concatenate([part.keys for part in every])
    return Drawn(every[0].count, keys, joined([part.rows for part in every])).cut()


def merged(rows: Chunk) -> Chunk:
    """The same rows in an order of their own, each once, with the weights added up.

    Whatever is learned from them then depends neither on the order that they came in
    nor on whether a row came twice or with twice the weight.
    """
    rows = rows[rows.counts]
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    columns = [rows.x, rows.y.reshape(len(rows), -1)]
    columns += [
        one[:, None] for one in (rows.precision, rows.exposure) if one is not None
    ]
    table = np.hstack([one.astype(np.float64, copy=False) for one in columns])
    _, first, place = np.unique(table, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(place.ravel(), weight)
    return dataclasses.replace(rows[first], weight=total)


def joined(chunks: list[Chunk]) -> Chunk:
    """Chunks one below the other."""

    def column(name: str) -> np.ndarray | None:
        parts = [getattr(chunk, name) for chunk in chunks]
        if all(part is None for part in parts):
            return None
        sizes = [len(chunk) for chunk in chunks]
        filled = [
            np.ones(size) if part is None else part
            for part, size in zip(parts, sizes, strict=True)
        ]
        return np.concatenate(filled)

    return Chunk(
        np.concatenate([chunk.x for chunk in chunks]),
        np.concatenate([chunk.y for chunk in chunks]),
        column("weight"),
        column("precision"),
        column("exposure"),
    )


class ArraySource(Source):
    """Rows held in memory as NumPy arrays.

    Parameters
    ----------
    x, y
        Inputs, one row each, and their targets.
    weight, precision, exposure
        How often each row counts, how precise its target is, and what its rate is
        multiplied by; ones by default.

    Examples
    --------
    >>> source = ArraySource(np.zeros((5, 2)), np.arange(5.0))
    >>> [len(chunk) for chunk in source.chunks(size=2)]
    [2, 2, 1]
    """

    def __init__(self, x, y, weight=None, precision=None, exposure=None):
        x, y = np.asarray(x), np.asarray(y)
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
            raise ValueError(
                f"x must be (rows, columns) and y (rows,); got {x.shape} and {y.shape}"
            )
        if len(x) == 0:
            raise ValueError("the table has no rows; give it at least one")
        self._all = checked(x, y, weight, precision, exposure)
        for name in ("weight", "precision", "exposure"):
            column = getattr(self._all, name)
            if column is not None and not np.any(column > 0):
                raise ValueError(f"every {name} is zero: no row is left to learn from")

    @property
    def n_inputs(self) -> int:
        return self._all.x.shape[1]

    @property
    def n_rows(self) -> int:
        return len(self._all)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        for start in range(0, len(self._all), size):
            yield self._all[start : start + size]

    def sample(self, count: int, seed: int = 0) -> Chunk:
        if count >= len(self._all) and self._all.counts.all():
            return self._all
        keys = np.random.default_rng(row_bits(seed)).random(len(self._all))
        rows = np.flatnonzero(self._all.counts)
        if count < len(rows):
            smallest = np.argpartition(keys[rows], count - 1)[:count]
            rows = np.sort(rows[smallest])
        return self._all[rows]


def by_output(rows: Chunk) -> list[Chunk]:
    """The same rows with one target each, where they have several."""
    if rows.y.ndim == 1:
        return [rows]
    return [dataclasses.replace(rows, y=target) for target in rows.y.T]


def source_of(rows: Chunk) -> ArraySource:
    """Rows that were drawn, to be read again and again."""
    return ArraySource(rows.x, rows.y, rows.weight, rows.precision, rows.exposure)


def _floating(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype in (np.float32, np.float64):
        return values
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == bool):
        raise ValueError(f"{name} must hold numbers, not {values.dtype}")
    if np.iscomplexobj(values):
        raise ValueError(f"{name} must hold real numbers, not {values.dtype}")
    return values.astype(np.float64)


def checked(
    x, y, weight=None, precision=None, exposure=None, first_row: int = 0
) -> Chunk:
    """Rows as floating-point numbers that are finite; others are refused."""
    rows = Chunk(
        _floating(x, "x"),
        _floating(y, "y"),
        positive(weight, "weight", len(x), first_row),
        positive(precision, "precision", len(x), first_row),
        positive(exposure, "exposure", len(x), first_row),
    )
    if not (np.isfinite(rows.x).all() and np.isfinite(rows.y).all()):
        for column in range(rows.x.shape[1]):
            _refuse(rows.x[:, column], f"column {column}", first_row)
        _refuse(rows.y, "the target", first_row)
    return rows


def positive(values, name: str, count: int, first_row: int) -> np.ndarray | None:
    """One positive number for each row; weights may be zero."""
    if values is None:
        return None
    values = np.asarray(values, np.float64)
    if values.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), got {values.shape}")
    enough = values >= 0 if name == "weight" else values > 0
    bad = np.flatnonzero(~(np.isfinite(values) & enough))
    if len(bad):
        least = "0 or more" if name == "weight" else "positive"
        raise ValueError(
            f"{name} must be finite and {least}; row {first_row + bad[0]} has "
            f"{values[bad[0]]:g}: correct it or remove the row"
        )
    return values


def _refuse(values: np.ndarray, name: str, first_row: int) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        rows = ", ".join(str(first_row + row) for row in bad[:3])
        more = ", ..." if len(bad) > 3 else ""
        raise ValueError(
            f"{name} has {len(bad)} values that are not finite (rows {rows}{more}); "
            "remove or impute them"
        )
