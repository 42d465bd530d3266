"""Repeated rows: each distinct row once, with the combined targets of its repeats.

Rows with equal inputs make a kernel matrix singular, and fill lists of neighbours with
copies. Under normal noise of variance σ² the targets y_i of weights w_i at one input
are equivalent to one target ȳ = Σ w_i y_i / W of weight W = Σ w_i, with noise σ²/W. The
rest of the likelihood depends on their spread Σ w_i (y_i − ȳ)² alone:

    Π N(y_i; f, σ²)^{w_i} = N(ȳ; f, σ²/W) · (2πσ²)^{(1−W)/2} W^{−1/2} exp(−spread/2σ²).
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

__all__ = ["DistinctRows", "RowIndex", "merged_rows"]

# Rows hashed at a time: their columns fit in the cache.
_BLOCK = 4096
# Odd multipliers of a 64-bit mixing step (SplitMix64).
_MIX_ONE = np.uint64(0xBF58476D1CE4E5B9)
_MIX_TWO = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True, eq=False)
class DistinctRows:
    """Distinct rows in the order of their first appearance.

    Parameters
    ----------
    x, y
        Inputs, and weighted means of their targets.
    weight
        Sums of weights.
    spread
        Weighted sums of squares of the targets about their mean, for each output.
    group
        The distinct row that each original row became, -1 for rows of weight zero.
    """

    x: Float[np.ndarray, "distinct inputs"]
    y: Float[np.ndarray, "distinct ..."]
    weight: Float[np.ndarray, " distinct"]
    spread: Float[np.ndarray, "distinct ..."]
    group: Int[np.ndarray, " rows"]

    def __len__(self) -> int:
        return len(self.x)


def merged_rows(
    x: Float[np.ndarray, "rows inputs"],
    y: Float[np.ndarray, "rows ..."],
    weight: Float[np.ndarray, " rows"] | None = None,
) -> DistinctRows:
    """Each distinct row of inputs once; rows of weight zero are omitted.

    Examples
    --------
    >>> x = np.array([[1.0], [2.0], [1.0]])
    >>> rows = merged_rows(x, np.array([3.0, 7.0, 5.0]))
    >>> rows.x[:, 0], rows.y, rows.weight, rows.spread
    (array([1., 2.]), array([4., 7.]), array([2., 1.]), array([2., 0.]))
    """
    weight = np.ones(len(x)) if weight is None else np.asarray(weight, np.float64)
    used = np.flatnonzero(weight > 0)
    first, index = _find_distinct(x[used])
    count = len(first)
    group = np.full(len(x), -1, np.int64)
    group[used] = index
    weight, targets = weight[used], np.asarray(y, np.float64)[used]
    total = np.bincount(index, weight, count)
    columns = targets.reshape(len(used), -1)
    mean, spread = np.empty((2, count, columns.shape[1]))
    for output, target in enumerate(columns.T):
        # Differences from the first target give equal targets a spread of exactly zero.
        origin = target[first]
        shift = np.bincount(index, weight * (target - origin[index]), count) / total
        rest = target - origin[index] - shift[index]
        mean[:, output] = origin + shift
        spread[:, output] = np.bincount(index, weight * rest**2, count)
    shape = (count, *targets.shape[1:])
    return DistinctRows(
        x[used[first]], mean.reshape(shape), total, spread.reshape(shape), group
    )


@dataclasses.dataclass(frozen=True, eq=False)
class RowIndex:
    """An index of distinct rows that finds equal ones.

    Examples
    --------
    >>> index = RowIndex.of(np.array([[1.0], [2.0]]))
    >>> index.find(np.array([[2.0], [3.0], [1.0]]))
    array([ 1, -1,  0])
    """

    x: Float[np.ndarray, "distinct inputs"]
    codes: np.ndarray
    order: Int[np.ndarray, " distinct"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "distinct inputs"]) -> "RowIndex":
        """The index of some rows."""
        codes = _codes(x)
        order = np.argsort(codes, kind="stable")
        return cls(x, codes[order], order)

    def find(self, x: Float[np.ndarray, "rows inputs"]) -> Int[np.ndarray, " rows"]:
        """The index of each row, -1 for rows that are not there."""
        indices = np.full(len(x), -1, np.int64)
        codes = _codes(x)
        position = np.searchsorted(self.codes, codes)
        open_rows = np.arange(len(x))
        while True:
            # Different rows with the same code stand next to each other.
            open_rows = open_rows[position[open_rows] < len(self.codes)]
            same_code = self.codes[position[open_rows]] == codes[open_rows]
            open_rows = open_rows[same_code]
            if len(open_rows) == 0:
                return indices
            candidates = self.order[position[open_rows]]
            same = np.all(self.x[candidates] == x[open_rows], axis=1)
            indices[open_rows[same]] = candidates[same]
            open_rows = open_rows[~same]
            position[open_rows] += 1


def _codes(x: np.ndarray) -> np.ndarray:
    """The hash of every row."""
    return np.concatenate(
        [np.zeros(0, np.uint64)]
        + [_hash_rows(x[start : start + _BLOCK]) for start in range(0, len(x), _BLOCK)]
    )


def _find_distinct(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First occurrences of distinct rows, in order, and each row's index among them."""
    order, new = _sorted_by_hash(x)
    if order is None or new is None:
        return _sort_by_value(x)
    run = np.cumsum(new) - 1
    # The sort is stable, so a run begins with its first row.
    heads = order[new]
    rank = np.empty(len(heads), np.int64)
    by_first = np.argsort(heads)
    rank[by_first] = np.arange(len(heads))
    index = np.empty(len(x), np.int64)
    index[order] = rank[run]
    return heads[by_first], index


def _sorted_by_hash(x: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """An order that groups equal rows, and where groups begin; None on collision."""
    code = _codes(x)
    order = np.argsort(code, kind="stable")
    code = code[order]
    same_code = code[1:] == code[:-1]
    suspects = np.flatnonzero(same_code)
    equal = np.all(x[order[suspects]] == x[order[suspects + 1]], axis=1)
    if not equal.all():
        return None, None
    return order, np.concatenate([[True], ~same_code])[: len(x)]


def _hash_rows(x: np.ndarray) -> np.ndarray:
    """One number per row; different rows nearly always have different numbers."""
    # Adding zero turns -0.0 into 0.0, which equals it.
    bits = np.ascontiguousarray((x.astype(np.float64) + 0.0).T).view(np.uint64)
    code = np.zeros(len(x), np.uint64)
    with np.errstate(over="ignore"):
        for column in bits:
            code = (code + _STEP) ^ column
            code = (code ^ (code >> np.uint64(30))) * _MIX_ONE
            code = (code ^ (code >> np.uint64(27))) * _MIX_TWO
            code ^= code >> np.uint64(31)
    return code


def _sort_by_value(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, first, index = np.unique(
        np.asarray(x, np.float64) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    by_first = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[by_first] = np.arange(len(first))
    return first[by_first], rank[index.ravel()]
