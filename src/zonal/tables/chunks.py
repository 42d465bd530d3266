"""Chunks: some rows of a table as numbers, with their targets and weights."""

import dataclasses

import numpy as np
from jaxtyping import Float

__all__ = ["Chunk", "by_output", "joined", "merged"]


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """Some rows: inputs, targets if known, weights, precisions and exposures.

    ``weight`` repeats a row: weight 2 is the row twice. ``precision`` is the known
    relative precision of a row: precision 4 means half the standard deviation of the
    noise. ``exposure`` multiplies the rate of a row if the target is a count. None
    stands for ones. ``nearby`` are sizes of residuals and targets near a row that is
    predicted (`zonal.engine.nearby`).
    """

    x: Float[np.ndarray, "rows inputs"]
    y: Float[np.ndarray, "rows ..."] | None = None
    weight: Float[np.ndarray, " rows"] | None = None
    precision: Float[np.ndarray, " rows"] | None = None
    exposure: Float[np.ndarray, " rows"] | None = None
    nearby: Float[np.ndarray, "rows sizes"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | np.ndarray) -> "Chunk":
        def part(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[rows]

        return Chunk(
            self.x[rows],
            part(self.y),
            part(self.weight),
            part(self.precision),
            part(self.exposure),
            part(self.nearby),
        )

    @property
    def counts(self) -> np.ndarray:
        """Whether each row has positive weight."""
        return np.ones(len(self), bool) if self.weight is None else self.weight > 0

    @property
    def targets(self) -> Float[np.ndarray, "rows ..."]:
        """The targets, which new rows do not have."""
        if self.y is None:
            raise ValueError("these rows have no targets; pass y with them")
        return np.asarray(self.y, np.float64)

    @property
    def conditions(self) -> "Chunk":
        """The rows without inputs and targets: what a likelihood needs of new rows."""
        return dataclasses.replace(
            self, x=np.empty((len(self), 0)), y=None, weight=None
        )

    @property
    def weights(self) -> Float[np.ndarray, " rows"]:
        """The weight of each row; ones where none are given."""
        return _default_ones(self.weight, len(self))

    @property
    def precisions(self) -> Float[np.ndarray, " rows"]:
        """The precision of each row; ones where none are given."""
        return _default_ones(self.precision, len(self))


def _default_ones(values: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count) if values is None else np.asarray(values, np.float64)


def merged(rows: Chunk) -> Chunk:
    """The distinct rows, sorted, with the weights of equal rows added up.

    Results then depend neither on the order of the rows nor on whether a row occurs
    twice or has twice the weight.
    """
    rows = rows[rows.counts]
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    columns = [rows.x, rows.targets.reshape(len(rows), -1)]
    columns += [
        values[:, None]
        for values in (rows.precision, rows.exposure)
        if values is not None
    ]
    table = np.hstack([column.astype(np.float64, copy=False) for column in columns])
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(group.ravel(), weight)
    return dataclasses.replace(rows[first], weight=total)


def joined(chunks: list[Chunk]) -> Chunk:
    """One chunk with the rows of all chunks, in order."""

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
        column("y"),
        column("weight"),
        column("precision"),
        column("exposure"),
        column("nearby"),
    )


def by_output(rows: Chunk) -> list[Chunk]:
    """One chunk per target, each with all rows."""
    if rows.y is None or rows.y.ndim == 1:
        return [rows]
    return [dataclasses.replace(rows, y=target) for target in rows.y.T]
