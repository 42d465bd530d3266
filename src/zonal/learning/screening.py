"""Screening for columns that are informative only together.

A target such as the sign of a product of two columns among thirty is invisible in
every single column, and nearly so to a kernel that weights all columns equally: no
gradient leads to it. Pairs of columns reveal it, and all pairs take only two matrix
products.
"""

import numpy as np
from jaxtyping import Float

from zonal.tables.chunks import Chunk

__all__ = ["paired_scales"]

# Quantile bins per column.
_BINS = 8
# The most rows and columns to examine.
_ROWS = 16_000
_COLUMNS = 256
# A pair must explain this share of the target beyond its columns, and exceed chance by
# this many standard deviations.
_LEAST_SHARE = 0.02
_STANDARD_DEVIATIONS = 8.0
# Scale of uninformative columns, relative to the largest.
_FLOOR = 0.05


def paired_scales(
    rows: Chunk, targets: Float[np.ndarray, "rows targets"], seed: int = 0
) -> Float[np.ndarray, " inputs"] | None:
    """Relative scales of columns by the information in pairs about the targets.

    None, unless some pair explains twice as much as all columns do individually.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(2000, 10))
    >>> product = x[:, 3] * x[:, 7]
    >>> scales = paired_scales(Chunk(x, product), product[:, None])
    >>> np.flatnonzero(scales > 0.5).tolist()
    [3, 7]
    >>> paired_scales(Chunk(x, x[:, 3]), x[:, [3]]) is None
    True
    """
    columns = rows.x.shape[1]
    if not 2 <= columns <= _COLUMNS:
        return None
    sample = np.random.default_rng(seed).permutation(len(rows))[:_ROWS]
    alone, paired = _explained(rows[sample], targets[sample])
    beyond = paired - alone[:, None] - alone[None, :]
    np.fill_diagonal(beyond, 0.0)
    chance = _STANDARD_DEVIATIONS * np.sqrt(2 * _BINS**2) / len(sample)
    if beyond.max() < max(_LEAST_SHARE, chance, 2 * alone.clip(0).sum()):
        return None
    adds = paired - alone[None, :]
    np.fill_diagonal(adds, 0.0)
    most = adds.max(axis=1).clip(0)
    return np.maximum(np.sqrt(most / most.max()), _FLOOR)


def _explained(
    rows: Chunk, targets: Float[np.ndarray, "rows targets"]
) -> tuple[np.ndarray, np.ndarray]:
    """Share of the targets explained by columns, alone and in pairs, net of chance."""
    count, columns = rows.x.shape
    weight = rows.weights.astype(np.float32)
    bins = np.column_stack([_binned(column) for column in rows.x.T])
    ones = np.zeros((count, columns, _BINS), np.float32)
    np.put_along_axis(ones, bins[:, :, None], 1.0, axis=2)
    ones = ones.reshape(count, -1)
    cells = ones.T @ (weight[:, None] * ones)
    divisor = np.where(cells > 0, cells, np.inf)
    centred = targets - np.average(targets, axis=0, weights=weight)
    squares, total = np.zeros(cells.shape), 0.0
    for target in centred.T:
        sums = ones.T @ ((weight * target)[:, None].astype(np.float32) * ones)
        squares += sums**2 / divisor
        total += float(weight @ target**2)
    if total == 0:
        return np.zeros(columns), np.zeros((columns, columns))
    tiles = columns, _BINS, columns, _BINS
    share = squares.reshape(tiles).sum(axis=(1, 3)) / total
    used = np.sum(cells.reshape(tiles) > 0, axis=(1, 3))
    share = 1 - (1 - share) * (count - 1) / np.maximum(count - used, 1)
    return np.diag(share).copy(), share


def _binned(column: Float[np.ndarray, " rows"]) -> np.ndarray:
    """Index of each row's quantile bin; all bins have about as many rows."""
    inner = np.quantile(column, np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.searchsorted(inner, column)
