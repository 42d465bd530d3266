"""Random samples of rows, the same whether a table is in memory, files or a cluster."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from zonal.tables.chunks import Chunk, joined

__all__ = ["Draw", "draw_rows", "merge_draws", "row_bits", "thin"]

# Second seed: our random numbers differ from those of others with the same seed.
_OWN_SEED = 0x7A6F6E616C


def row_bits(seed: int) -> np.random.PCG64:
    """Random bits for the choice of rows.

    They differ from those of ``default_rng(seed)``. Many example tables are drawn with
    the latter, and the rows with the smallest keys would be those with the smallest
    values.
    """
    return np.random.PCG64([seed, _OWN_SEED])


def thin(rows: Chunk, count: int, seed: int) -> Chunk:
    """At most ``count`` of the rows, drawn uniformly, in their order."""
    if count >= len(rows):
        return rows
    generator = np.random.default_rng(row_bits(seed))
    return rows[np.sort(generator.choice(len(rows), count, replace=False))]


@dataclasses.dataclass(frozen=True, eq=False)
class Draw:
    """A sample of ``count`` rows: those whose random keys are smallest."""

    count: int
    keys: np.ndarray
    rows: Chunk

    def drop_excess(self) -> "Draw":
        """The draw without rows beyond the ``count`` smallest keys."""
        if len(self.keys) <= self.count:
            return self
        smallest = np.sort(np.argpartition(self.keys, self.count - 1)[: self.count])
        return Draw(self.count, self.keys[smallest], self.rows[smallest])


def draw_rows(
    count: int, seed: int, chunks: Iterable[Chunk], first_row: int = 0
) -> Draw:
    """The rows of chunks that draw the smallest random keys.

    ``first_row`` is the first chunk's position in the table: keys belong to positions,
    so parts of a table can be drawn separately and merged.
    """
    bits = row_bits(seed)
    bits.advance(first_row)
    generator = np.random.default_rng(bits)
    draw: Draw | None = None
    waiting: list[Draw] = []
    limit = np.inf
    for chunk in chunks:
        keys = generator.random(len(chunk))
        small = np.flatnonzero((keys < limit) & chunk.counts)
        waiting.append(Draw(count, keys[small], chunk[small]))
        if draw is None or sum(len(part.keys) for part in waiting) > count // 2:
            draw = _concatenate([draw, *waiting])
            waiting = []
            if len(draw.keys) == count:
                limit = float(draw.keys.max())
    if draw is None:
        raise ValueError(
            "the source has no rows, or every weight is zero; give it at least one row "
            "of positive weight"
        )
    return _concatenate([draw, *waiting])


def merge_draws(first: Draw, second: Draw) -> Draw:
    """The draw from two parts of a table together, in the order of their rows."""
    return _concatenate([first, second])


def _concatenate(optional_draws: "list[Draw | None]") -> Draw:
    draws = [draw for draw in optional_draws if draw is not None]
    if len(draws) == 1:
        return draws[0].drop_excess()
    keys = np.concatenate([draw.keys for draw in draws])
    rows = joined([draw.rows for draw in draws])
    return Draw(draws[0].count, keys, rows).drop_excess()
