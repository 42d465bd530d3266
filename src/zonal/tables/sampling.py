"""Sampling: rows drawn evenly from a table, the same ones wherever they lie."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from zonal.tables.chunks import Chunk, joined

__all__ = ["Drawn", "draw", "row_bits", "thin", "two_drawn"]

# Keeps our random numbers apart from those of others with the same seed.
_OWN_BITS = 0x7A6F6E616C


def row_bits(seed: int) -> np.random.PCG64:
    """Random bits to choose rows by.

    Not those of ``default_rng(seed)``: many a table was drawn with them, and the rows
    with the smallest keys would be those with the smallest values.
    """
    return np.random.PCG64([seed, _OWN_BITS])


def thin(rows: Chunk, count: int, seed: int) -> Chunk:
    """At most ``count`` of the rows, drawn evenly, in their order."""
    if count >= len(rows):
        return rows
    generator = np.random.default_rng(row_bits(seed))
    return rows[np.sort(generator.choice(len(rows), count, replace=False))]


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


def draw(count: int, seed: int, chunks: Iterable[Chunk], first_row: int = 0) -> Drawn:
    """The rows of some chunks that draw the smallest keys."""
    bits = row_bits(seed)
    bits.advance(first_row)
    generator = np.random.default_rng(bits)
    kept: Drawn | None = None
    waiting: list[Drawn] = []
    limit = np.inf
    for chunk in chunks:
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
