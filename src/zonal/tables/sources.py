"""Sources: streams of rows, one chunk at a time.

A source can be read repeatedly, always in the same order, in chunks whose size does not
depend on the number of rows. All learning reads data through this interface; files and
clusters are other implementations of it.
"""

import abc
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from zonal.tables.chunks import Chunk
from zonal.tables.sampling import Draw, draw_rows, merge_draws, row_bits

__all__ = ["ArraySource", "Source"]

CHUNK_ROWS = 4096

Result = TypeVar("Result")


class Source(abc.ABC):
    """A stream of chunks that can be read more than once."""

    @property
    @abc.abstractmethod
    def n_inputs(self) -> int:
        """Number of input columns."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int | None:
        """Number of rows, or None if unknown before reading."""

    @abc.abstractmethod
    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """All rows in order, at most ``size`` at a time."""

    def sample(self, count: int, seed: int = 0) -> Chunk:
        """Rows drawn uniformly without replacement, in order; all if there are few.

        Rows of weight zero are ignored. Each row draws a random key that does not
        depend on where it is read, and the rows with the smallest keys are taken: one
        pass that holds little more than the sample.
        """
        return self.reduced(functools.partial(_draw, count, seed), merge_draws).rows

    def reduced(
        self, function: "Callable[[Source], Result]", combine: Callable[..., Result]
    ) -> Result:
        """The result of ``function`` on all rows.

        Sources distributed over several machines apply it to each part there and
        combine the results pairwise.
        """
        return function(self)

    @property
    def first_row(self) -> int:
        """Number of rows of the table before these."""
        return 0


def _draw(count: int, seed: int, source: Source) -> Draw:
    return draw_rows(count, seed, source.chunks(), source.first_row)


class ArraySource(Source):
    """Rows held in memory as NumPy arrays.

    Parameters
    ----------
    x, y
        Inputs, and targets of the rows; new rows have no targets.
    weight, precision, exposure
        How often each row counts, the relative precision of its target, and the factor
        of its rate; ones by default.

    Examples
    --------
    >>> source = ArraySource(np.zeros((5, 2)), np.arange(5.0))
    >>> [len(chunk) for chunk in source.chunks(size=2)]
    [2, 2, 1]
    """

    def __init__(self, x, y=None, weight=None, precision=None, exposure=None):
        x = np.asarray(x)
        y = None if y is None else np.asarray(y)
        target = x.shape[:1] if y is None else y.shape
        if x.ndim != 2 or target != x.shape[:1]:
            raise ValueError(
                f"x must be (rows, columns) and y (rows,); got {x.shape} and {target}"
            )
        if len(x) == 0:
            raise ValueError("the table has no rows; give it at least one")
        self._all = checked(x, y, weight, precision, exposure)
        for name in ("weight", "precision", "exposure"):
            column = getattr(self._all, name)
            if column is not None and not np.any(column > 0):
                raise ValueError(
                    f"every {name} is zero, so no row is left to learn from; "
                    f"give some row a positive {name}"
                )

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


def source_of(rows: Chunk) -> ArraySource:
    """A source of rows that were drawn."""
    return ArraySource(rows.x, rows.y, rows.weight, rows.precision, rows.exposure)


def _as_floating(values: np.ndarray, name: str) -> np.ndarray:
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
    """Rows as floating-point numbers; raises an error if any is not finite."""
    rows = Chunk(
        _as_floating(x, "x"),
        None if y is None else _as_floating(y, "y"),
        positive(weight, "weight", len(x), first_row),
        positive(precision, "precision", len(x), first_row),
        positive(exposure, "exposure", len(x), first_row),
    )
    if not np.isfinite(rows.x).all():
        for column in range(rows.x.shape[1]):
            _check_finite(rows.x[:, column], f"column {column}", first_row)
    if rows.y is not None:
        _check_finite(rows.y, "the target", first_row)
    return rows


def positive(values, name: str, count: int, first_row: int) -> np.ndarray | None:
    """One positive number per row; weights may be zero."""
    if values is None:
        return None
    values = np.asarray(values, np.float64)
    if values.shape != (count,):
        raise ValueError(f"{name} must have shape ({count},), got {values.shape}")
    in_range = values >= 0 if name == "weight" else values > 0
    bad = np.flatnonzero(~(np.isfinite(values) & in_range))
    if len(bad):
        least = "0 or more" if name == "weight" else "positive"
        raise ValueError(
            f"{name} must be finite and {least}; row {first_row + bad[0]} has "
            f"{values[bad[0]]:g}: correct it or remove the row"
        )
    return values


def _check_finite(values: np.ndarray, name: str, first_row: int) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        rows = ", ".join(str(first_row + row) for row in bad[:3])
        more = ", ..." if len(bad) > 3 else ""
        raise ValueError(
            f"{name} has {len(bad)} values that are not finite (rows {rows}{more}); "
            "remove or impute them"
        )
