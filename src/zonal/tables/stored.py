"""The rows that a model stores: each distinct row once, with its weight and targets."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int

from zonal.prior.parameters import Fields
from zonal.saving import savable
from zonal.tables.repeats import DistinctRows, RowIndex, merged_rows
from zonal.tables.sources import Source, checked

__all__ = ["StoredTable", "stored_inputs"]

# Rows that are read at a time.
_BLOCK = 65_536
# Larger standardised inputs could be beyond the range of float32.
_FARTHEST = 1e38
# Squares of larger standardised targets would be.
_FARTHEST_TARGET = 1e18


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class StoredTable(Fields):
    """Distinct rows: inputs in float32, mean target, weight, and squared deviations."""

    x: Float[np.ndarray, "distinct inputs"]
    y: Float[np.ndarray, " distinct"]
    weight: Float[np.ndarray, " distinct"]
    spread: Float[np.ndarray, " distinct"]

    @classmethod
    def of(cls, source: Source) -> "StoredTable":
        """All rows of a source; those of weight zero are left out."""
        parts, first_row = [], 0
        for chunk in source.chunks(_BLOCK):
            checked(chunk.x, chunk.targets, first_row=first_row)
            _check_targets(chunk.targets, first_row)
            first_row += len(chunk)
            weight = chunk.weights * chunk.precisions
            spread = np.zeros(len(chunk))
            parts.append(
                cls._merged(stored_inputs(chunk.x), chunk.targets, weight, spread)
            )
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: "list[StoredTable]") -> "StoredTable":
        """The rows of several tables, each distinct row once."""
        if len(parts) == 1:
            return parts[0]
        columns = [
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("x", "y", "weight", "spread")
        ]
        return cls._merged(*columns)

    @classmethod
    def _merged(
        cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray, spread: np.ndarray
    ) -> "StoredTable":
        distinct = merged_rows(x, y, weight)
        known = distinct.group >= 0
        before = np.bincount(
            distinct.group[known], spread[known], minlength=len(distinct)
        )
        return cls(
            np.ascontiguousarray(distinct.x, np.float32),
            distinct.y,
            distinct.weight,
            distinct.spread + before,
        )

    @staticmethod
    def side_by_side(tables: "list[StoredTable]") -> DistinctRows:
        """The same rows with several targets, as input of learning."""
        first = tables[0]
        return DistinctRows(
            first.x.astype(np.float64),
            np.column_stack([table.y for table in tables]),
            first.weight,
            np.column_stack([table.spread for table in tables]),
            np.arange(len(first)),
        )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        columns = (self.x, self.y, self.weight, self.spread)
        return sum(column.nbytes for column in columns)

    @property
    def rows(self) -> float:
        """Rows, counted by weight."""
        return float(self.weight.sum())

    def without(self, other: "StoredTable") -> "StoredTable":
        """These rows without others, which must be among them."""
        index = self.find(other.x)
        weight, y, spread = self.weight.copy(), self.y.copy(), self.spread.copy()
        rest = weight[index] - other.weight
        removed = rest <= 1e-9 * weight[index]
        rest = np.where(removed, 1.0, rest)
        total = weight[index] * y[index] - other.weight * other.y
        mean = np.where(removed, 0.0, total / rest)
        # Squared deviations from the old mean are those from the two new means, plus
        # the squared distances of these means from the old one.
        shift = rest * (mean - y[index]) ** 2 + other.weight * (other.y - y[index]) ** 2
        spread[index] = np.maximum(spread[index] - other.spread - shift, 0.0)
        weight[index], y[index] = np.where(removed, 0.0, rest), mean
        remaining = weight > 0
        return StoredTable(
            self.x[remaining], y[remaining], weight[remaining], spread[remaining]
        )

    def lacks(self, other: "StoredTable") -> Int[np.ndarray, " missing"]:
        """Indices of the others' rows that are not among these as often."""
        index = self.find(other.x)
        known = np.where(index < 0, 0.0, np.append(self.weight, 0.0)[index])
        # The tolerance allows for rounding of sums of weights.
        return np.flatnonzero(other.weight > known * (1 + 1e-9) + 1e-12 * (known > 0))

    @functools.cached_property
    def _row_index(self) -> RowIndex:
        return RowIndex.of(self.x)

    def find(self, x: Float[np.ndarray, "rows inputs"]) -> Int[np.ndarray, " rows"]:
        """The index of each row in this table, -1 for rows that are not in it."""
        return self._row_index.find(stored_inputs(x))

    def part(self, rows: Int[np.ndarray, " part"]) -> "StoredTable":
        """Some of the rows."""
        return StoredTable(
            self.x[rows], self.y[rows], self.weight[rows], self.spread[rows]
        )


def _check_targets(y: np.ndarray, first_row: int) -> None:
    far = np.flatnonzero(np.abs(y) > _FARTHEST_TARGET)
    if len(far):
        raise ValueError(
            f"the target in row {first_row + far[0]} is {abs(y[far[0]]):.1e} standard "
            "deviations of the fitted targets away from their mean; correct it, remove "
            "the row, or fit again"
        )


def stored_inputs(x: np.ndarray) -> Float[np.ndarray, "rows inputs"]:
    """Inputs in float32; rows beyond its range keep their direction."""
    size = np.abs(x).max(axis=1, initial=0.0)
    far = np.flatnonzero(size > _FARTHEST)
    if len(far):
        x = np.array(x, np.float64)
        x[far] *= (_FARTHEST / size[far])[:, None]
    return x.astype(np.float32)
