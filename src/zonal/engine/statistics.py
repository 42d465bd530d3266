"""Statistics: sums over rows that hold all that inference needs of the data.

For unit features φ (no scale, no depth in them) and radial factors ρ the sums are

    G = Σ w a ρ² φφᵀ,   h = Σ w a ρ y φ,   Σ w a y²,   Σ w,   Σ w log a,

with row weights w and known precisions a; and, for the bound, the variance of each
row that each band leaves uncaptured, ρ² (1 - |φ_b|²). They form a monoid: statistics of
two tables add up to those of both, and rows can be removed again. So streaming,
forgetting, merging and distribution all use the same `+` and `-`.

Chunk products run in the features' precision (float32 through BLAS's symmetric product,
by default) and are summed in float64.
"""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from zonal.engine.features import Frame
from zonal.engine.passes import chunk_results
from zonal.prior.basis import Basis
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sources import Source

__all__ = ["Statistics", "Uncaptured", "collect"]


# The largest table of uncaptured parts, and the rows that summarise a larger one.
_MOST_ROWS = 500_000
_SKETCH_ROWS = 100_000


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Uncaptured:
    """The uncaptured variance of each row in each incomplete band, times the precision.

    ``parts`` holds a ρ² (1 - |φ_b|²), ``prior`` a ρ²: all that a penalty needs per row.
    ``count`` is how often a row counts: 1, its weight, or -1 where it was removed.
    Beyond half a million rows, the table holds averages of neighbours (`summary`) and
    ``exact`` is False; the bound is then a close approximation, all else is exact.
    """

    parts: Float[np.ndarray, "rows bands"]
    prior: Float[np.ndarray, " rows"]
    count: Float[np.ndarray, " rows"]
    exact: bool = True

    @classmethod
    def empty(cls, n_bands: int) -> "Uncaptured":
        none = np.zeros(0, np.float32)
        return cls(np.zeros((0, n_bands), np.float32), none, none)

    def __len__(self) -> int:
        return len(self.count)

    def joined(self, others: Iterable["Uncaptured"]) -> "Uncaptured":
        tables = [self, *others]
        combined = Uncaptured(
            *(
                np.concatenate([getattr(table, name) for table in tables])
                for name in ("parts", "prior", "count")
            ),
            exact=all(table.exact for table in tables),
        )
        return (
            combined.summary(_SKETCH_ROWS) if len(combined) > _MOST_ROWS else combined
        )

    def summary(self, most: int) -> "Uncaptured":
        """At most ``most`` rows that represent all: averages of neighbours.

        Rows are sorted by their uncaptured variance and averaged in runs, so the error
        of a sum of smooth functions is of second order in the width of a run.
        """
        if len(self) <= most:
            return self
        order = np.argsort(self.parts.sum(axis=1), kind="stable")
        starts = np.linspace(0, len(self), most, endpoint=False).astype(int)
        count = self.count[order].astype(np.float64)
        total = np.add.reduceat(count, starts)
        weight = np.where(np.abs(total) > 1e-9, total, np.inf)

        def mean(values: np.ndarray) -> np.ndarray:
            scaled = (values[order].astype(np.float64).T * count).T
            # Removed rows count negatively, and may outweigh their neighbours.
            return np.maximum((np.add.reduceat(scaled, starts, axis=0).T / weight).T, 0)

        columns = mean(self.parts), mean(self.prior), total
        dtype = self.parts.dtype
        return Uncaptured(*(part.astype(dtype) for part in columns), exact=False)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over rows in the unit features of one basis."""

    gram: Float[np.ndarray, "features features"]
    moment: Float[np.ndarray, " features"]
    squares: float
    rows: float
    log_precision: float
    uncaptured: Uncaptured

    @classmethod
    def zero(cls, basis: Basis) -> "Statistics":
        """The statistics of no rows."""
        size = basis.n_features
        return cls(
            np.zeros((size, size)),
            np.zeros(size),
            0.0,
            0.0,
            0.0,
            Uncaptured.empty(len(basis.incomplete)),
        )

    def __add__(self, other: "Statistics") -> "Statistics":
        return self._combine(other, 1.0)

    def __sub__(self, other: "Statistics") -> "Statistics":
        return self._combine(other, -1.0)

    def _combine(self, other: "Statistics", sign: float) -> "Statistics":
        if self.moment.shape != other.moment.shape:
            raise ValueError(
                f"statistics of {len(self.moment)} and {len(other.moment)} features "
                "belong to different bases"
            )
        theirs = dataclasses.replace(
            other.uncaptured, count=sign * other.uncaptured.count
        )
        return Statistics(
            self.gram + sign * other.gram,
            self.moment + sign * other.moment,
            self.squares + sign * other.squares,
            self.rows + sign * other.rows,
            self.log_precision + sign * other.log_precision,
            self.uncaptured.joined([theirs]),
        )


def collect(frame: Frame, source: Source) -> Statistics:
    """The statistics of all rows, in one pass."""
    (statistics,) = collect_all(frame, [source])
    return statistics


def collect_all(frame: Frame, sources: Sequence[Source]) -> tuple[Statistics, ...]:
    """The statistics of each source, in one pass over the inputs that they share."""
    if len(sources) == 1:
        return sources[0].reduced(functools.partial(_collect, frame), _add)
    return _collect(frame, *sources)


def _collect(frame: Frame, *sources: Source) -> tuple[Statistics, ...]:
    totals = [RunningSum(frame.basis) for _ in sources]
    visit = functools.partial(chunk_statistics, frame)
    for parts in chunk_results(visit, *sources):
        for total, part in zip(totals, parts, strict=True):
            total.add(part)
    return tuple(total.result() for total in totals)


def _add(
    left: tuple[Statistics, ...], right: tuple[Statistics, ...]
) -> tuple[Statistics, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


class RunningSum:
    """Sums statistics in place; joins the rows' tables from time to time."""

    def __init__(self, basis: Basis):
        self._total = Statistics.zero(basis)
        self._tables: list[Uncaptured] = []
        self._waiting = 0

    def add(self, part: Statistics) -> None:
        total = self._total
        np.add(total.gram, part.gram, out=total.gram)
        np.add(total.moment, part.moment, out=total.moment)
        self._total = dataclasses.replace(
            total,
            squares=total.squares + part.squares,
            rows=total.rows + part.rows,
            log_precision=total.log_precision + part.log_precision,
        )
        self._tables.append(part.uncaptured)
        self._waiting += len(part.uncaptured)
        if self._waiting > _MOST_ROWS:
            self._join()

    def _join(self) -> None:
        table = self._total.uncaptured.joined(self._tables)
        self._total = dataclasses.replace(self._total, uncaptured=table)
        self._tables, self._waiting = [], 0

    def result(self) -> Statistics:
        self._join()
        return self._total


def chunk_statistics(frame: Frame, *chunks: Chunk) -> list[Statistics]:
    """The statistics of one chunk; products are in the frame's precision.

    Several chunks are the same inputs with several targets.
    """
    unit, radial = frame.unit_features(chunks[0].x)
    return [
        row_statistics(
            frame.basis, unit, radial, chunk.targets, chunk.weights, chunk.precisions
        )
        for chunk in chunks
    ]


def row_statistics(
    basis: Basis,
    unit: Float[np.ndarray, "rows features"],
    radial: Float[np.ndarray, " rows"],
    y: Float[np.ndarray, " rows"],
    weight: Float[np.ndarray, " rows"],
    precision: Float[np.ndarray, " rows"],
) -> Statistics:
    """The statistics of rows whose features are known."""
    radial = radial.astype(np.float64)
    table = uncaptured_of(basis, unit, radial, weight, precision)
    target = (weight * precision * radial * y).astype(unit.dtype)
    root = radial * np.sqrt(weight * precision)
    moment = target @ unit
    if not np.all(root == 1.0):
        unit = unit * root.astype(unit.dtype)[:, None]
    return Statistics(
        unit.T @ unit,
        moment.astype(np.float64),
        float(np.sum(weight * precision * y**2)),
        float(weight.sum()),
        float(np.sum(weight * np.log(precision))),
        table,
    )


def uncaptured_of(
    basis: Basis,
    unit: np.ndarray,
    radial: np.ndarray,
    weight: np.ndarray,
    precision: np.ndarray,
) -> Uncaptured:
    """The variance of some rows that each incomplete band leaves; never negative."""
    prior = precision * radial**2
    parts = np.zeros((len(radial), len(basis.incomplete)), unit.dtype)
    for column, index in enumerate(basis.incomplete):
        features = unit[:, basis.slices[index]]
        captured = np.einsum("ij,ij->i", features, features)
        parts[:, column] = np.maximum(0.0, prior * (1 - captured))
    return Uncaptured(parts, prior.astype(unit.dtype), weight.astype(unit.dtype))
