"""Repeated rows: each distinct row once, with what its repetitions say together.

Rows with equal inputs make a kernel matrix singular, and a search for neighbours return
copies. Under normal noise of variance σ² the targets y_i of weights w_i at one input
are worth one target ȳ = Σ w_i y_i / W of weight W = Σ w_i, with the noise σ²/W, and
what is left of the likelihood depends on their spread Σ w_i (y_i − ȳ)² alone:

    Π N(y_i; f, σ²)^{w_i} = N(ȳ; f, σ²/W) · (2πσ²)^{(1−W)/2} W^{−1/2} exp(−spread/2σ²).
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

__all__ = ["DistinctRows", "merged_rows"]

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
        Inputs, and weighted means of the targets that came with them.
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
    """Each distinct row of inputs once; rows of weight zero are left out.

    Examples
    --------
    >>> x = np.array([[1.0], [2.0], [1.0]])
    >>> rows = merged_rows(x, np.array([3.0, 7.0, 5.0]))
    >>> rows.x[:, 0], rows.y, rows.weight, rows.spread
    (array([1., 2.]), array([4., 7.]), array([2., 1.]), array([2., 0.]))
    """
    weight = np.ones(len(x)) if weight is None else np.asarray(weight, np.float64)
    kept = np.flatnonzero(weight > 0)
    first, place = _distinct(x[kept])
    count = len(first)
    group = np.full(len(x), -1, np.int64)
    group[kept] = place
    weight, targets = weight[kept], np.asarray(y, np.float64)[kept]
    total = np.bincount(place, weight, count)
    columns = targets.reshape(len(kept), -1)
    mean, spread = np.empty((2, count, columns.shape[1]))
    for output, target in enumerate(columns.T):
        # Differences from one of the targets: equal targets have no spread at all.
        origin = target[first]
        apart = np.bincount(place, weight * (target - origin[place]), count) / total
        rest = target - origin[place] - apart[place]
        mean[:, output] = origin + apart
        spread[:, output] = np.bincount(place, weight * rest**2, count)
    shape = (count, *targets.shape[1:])
    return DistinctRows(
        x[kept[first]], mean.reshape(shape), total, spread.reshape(shape), group
    )


def _distinct(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row of each distinct one, in order, and which of these each row is."""
    order, new = _sorted_by_hash(x)
    if order is None or new is None:
        return _sorted_by_value(x)
    run = np.cumsum(new) - 1
    # The sort is stable, so a run begins with its first row.
    heads = order[new]
    rank = np.empty(len(heads), np.int64)
    by_first = np.argsort(heads)
    rank[by_first] = np.arange(len(heads))
    place = np.empty(len(x), np.int64)
    place[order] = rank[run]
    return heads[by_first], place


def _sorted_by_hash(x: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """An order with equal rows side by side and where they begin; None on collision."""
    code = np.concatenate(
        [np.zeros(0, np.uint64)]
        + [_hashed(x[start : start + _BLOCK]) for start in range(0, len(x), _BLOCK)]
    )
    order = np.argsort(code, kind="stable")
    code = code[order]
    same_code = code[1:] == code[:-1]
    suspects = np.flatnonzero(same_code)
    equal = np.all(x[order[suspects]] == x[order[suspects + 1]], axis=1)
    if not equal.all():
        return None, None
    return order, np.concatenate([[True], ~same_code])[: len(x)]


def _hashed(x: np.ndarray) -> np.ndarray:
    """A number for each row, nearly always different for different rows."""
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


def _sorted_by_value(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, first, place = np.unique(
        np.asarray(x, np.float64) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    by_first = np.argsort(first)
    rank = np.empty(len(first), np.int64)
    rank[by_first] = np.arange(len(first))
    return first[by_first], rank[place.ravel()]
