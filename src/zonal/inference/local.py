"""Solutions by nearest rows: the stored rows, and predictions from them.

A new row is predicted from its nearest rows in the learned metric, as a Gaussian
process conditioned on those rows alone (`zonal.engine.local`). Each distinct row is
stored once, so adding, forgetting and merging are exact: the result is the same as for
rows stored from the beginning.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from zonal.engine.local import Queries, StoredRows, conditionals
from zonal.engine.neighbours import Neighbours
from zonal.engine.posterior import Marginals, normals_of_rows
from zonal.inference.solving import add_rows, forget_rows, merge_rows, without_rows
from zonal.likelihoods.base import Likelihood
from zonal.prior.angles import AngleTable
from zonal.prior.basis import Basis
from zonal.prior.parameters import Fields
from zonal.prior.process import LocalProcess, Process
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.repeats import DistinctRows, merged_rows
from zonal.tables.sources import Source

__all__ = ["LocalSolution", "StoredTable"]

_BLOCK = 65_536


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class StoredTable:
    """Distinct rows: inputs in float32, mean target, weight, and squared deviations."""

    x: Float[np.ndarray, "distinct inputs"]
    y: Float[np.ndarray, " distinct"]
    weight: Float[np.ndarray, " distinct"]
    spread: Float[np.ndarray, " distinct"]

    @classmethod
    def of(cls, source: Source) -> "StoredTable":
        """All rows of a source; those of weight zero are left out."""
        parts = [
            cls._merged(
                chunk.x.astype(np.float32),
                chunk.targets,
                chunk.weights * chunk.precisions,
                np.zeros(len(chunk)),
            )
            for chunk in source.chunks(_BLOCK)
        ]
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
    def rows(self) -> float:
        """Rows, counted by weight."""
        return float(self.weight.sum())

    def without(self, other: "StoredTable") -> "StoredTable":
        """These rows without others, which must be among them."""
        index = self.find(other.x)
        missing = np.flatnonzero(index < 0)
        if len(missing) == 0:
            # The tolerance allows for rounding of sums of weights.
            missing = np.flatnonzero(
                other.weight > self.weight[index] * (1 + 1e-9) + 1e-12
            )
        if len(missing):
            raise ValueError(
                f"row {missing[0]} of the rows to forget is not in the model as often "
                f"as it is given ({len(missing)} such rows); forget rows that were "
                "fitted or added, with the same weights"
            )
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

    def find(self, x: Float[np.ndarray, "rows inputs"]) -> Int[np.ndarray, " rows"]:
        """The index of each row in this table, -1 for rows that are not in it."""
        both = np.concatenate([self.x, x.astype(np.float32)])
        group = merged_rows(both, np.zeros(len(both))).group[len(self) :]
        # Distinct rows are in order of appearance, so those of this table are first.
        return np.where(group < len(self), group, -1)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class LocalSolution(Fields):
    """A process and the stored rows that it predicts from.

    ``bound`` is the sum of leave-one-out log densities of the rows, estimated on a
    sample of them; NaN after rows were added or forgotten.
    """

    process: LocalProcess
    likelihood: Likelihood
    table: StoredTable
    n_neighbors: int
    bound: float = np.nan

    @property
    def processes(self) -> tuple[Process, ...]:
        """The prior, as a basis without features."""
        prior = self.process
        basis = Basis(prior.sphere, prior.kernel, (), prior.variance)
        return (Process(basis, prior.noise),)

    @property
    def offsets(self) -> Float[np.ndarray, " latents"]:
        """The prior mean of the standardised function, which is zero."""
        return np.zeros(1)

    @property
    def statistics(self) -> tuple[StoredTable, ...]:
        """The stored rows."""
        return (self.table,)

    @property
    def rows(self) -> float:
        """Rows, counted by weight."""
        return self.table.rows

    @functools.cached_property
    def _kernel(self) -> AngleTable:
        return self.process.table()

    @functools.cached_property
    def _stored(self) -> StoredRows:
        direction, radial = self._directions(self.table.x)
        noise = float(self.process.noise) / self.table.weight
        return StoredRows(direction, radial, self.table.y[:, None], noise)

    @functools.cached_property
    def _index(self) -> Neighbours:
        return Neighbours.build(self._stored.directions)

    def _directions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Unit vectors and radial factors of standardised rows, in float32."""
        # Rounding to float32 makes a stored row and the same new row agree.
        direction, radial = self.process.sphere.points(x.astype(np.float32))
        return direction.astype(np.float32), radial.astype(np.float32)

    @property
    def marginals(self) -> Callable[[Chunk], Marginals]:
        """Marginals of the function at standardised rows, given their nearest rows."""
        self._prepare()
        return lambda chunk: self._given(chunk.x, np.full(len(chunk), -1))

    @property
    def left_out(self) -> Callable[[Chunk], Marginals]:
        """Leave-one-out predictions of the rows of a chunk."""
        self._prepare()
        return self._left_out

    def _prepare(self) -> None:
        """Build the index before threads use it, so that it is built only once."""
        if len(self.table):
            _ = self._index, self._kernel

    def _left_out(self, chunk: Chunk) -> Marginals:
        own = self.table.find(chunk.x)
        if np.any(own < 0):
            raise ValueError(
                f"row {np.flatnonzero(own < 0)[0]} is not among the rows that the "
                "model was fitted to; use predict for new rows"
            )
        mean, variance = self._given(chunk.x, own)
        # Repetitions of the row remain, as another observation of the function.
        rest = self.table.weight[own] - chunk.weights * chunk.precisions
        repeated = rest > 1e-9 * self.table.weight[own]
        rest = np.where(repeated, rest, 1.0)
        total = self.table.weight[own] * self.table.y[own]
        others = (total - chunk.weights * chunk.precisions * chunk.targets) / rest
        noise = np.where(repeated, float(self.process.noise) / rest, np.inf)
        gain = variance[:, 0] / (variance[:, 0] + noise)
        others = np.where(repeated, others, 0.0)
        updated = mean[:, 0] + gain * (others - mean[:, 0])
        return Marginals(updated[:, None], variance * (1 - gain)[:, None])

    def _given(self, x: np.ndarray, own: np.ndarray) -> Marginals:
        direction, radial = self._directions(x)
        if len(self.table) == 0:
            prior = float(self.process.variance) * radial.astype(np.float64) ** 2
            return Marginals(np.zeros((len(x), 1)), prior[:, None])
        k = min(self.n_neighbors, len(self.table))
        lists, _ = self._index.query(direction, k, own)
        result = conditionals(
            self._stored,
            Queries(direction, radial),
            lists,
            self._kernel,
            float(self.process.variance),
        )
        return Marginals(result.mean, np.maximum(result.variance, 0.0)[:, None])

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint covariance of the function at a few rows, given all their neighbours.

        Computed densely in float64. The rows share the union of their neighbours, so
        variances are at most those of single predictions.
        """
        direction, radial = self._directions(x)
        if len(self.table) == 0:
            return self._between(direction, radial, direction, radial)
        k = min(self.n_neighbors, len(self.table))
        lists, _ = self._index.query(direction, k)
        used = np.unique(lists[lists >= 0])
        stored = self._stored
        points, factors = stored.directions[used], stored.radial[used]
        among = self._between(points, factors, points, factors)
        among[np.diag_indices_from(among)] += stored.noise[used].astype(np.float64)
        cross = self._between(points, factors, direction, radial)
        prior = self._between(direction, radial, direction, radial)
        return prior - cross.T @ np.linalg.solve(among, cross)

    def _between(
        self, s: np.ndarray, r: np.ndarray, t: np.ndarray, q: np.ndarray
    ) -> np.ndarray:
        squares = np.sum((s[:, None].astype(np.float64) - t[None]) ** 2, axis=2)
        scale = float(self.process.variance) * np.outer(r, q).astype(np.float64)
        return scale * self._kernel.kernel(squares)

    def sample_functions(self, count: int, seed: int = 0):
        """Draw functions, which have the same value at repeated rows.

        Given the data, values at different rows are independent.
        """

        def at(x: np.ndarray) -> np.ndarray:
            mean, variance = self.marginals(Chunk(x))
            standard = normals_of_rows(x, count, seed)
            return (mean + np.sqrt(variance) * standard)[:, :, None]

        return at

    @property
    def effective_parameters(self) -> float:
        """Not defined: every new row has neighbours and weights of its own."""
        raise TypeError(
            "predictions from neighbours have no number of effective parameters; fit "
            "with n_neighbors=0 to have one"
        )

    def with_table(self, table: StoredTable) -> "LocalSolution":
        """The same process with other stored rows."""
        return dataclasses.replace(self, table=table, bound=np.nan)


@add_rows.register
def _(solution: LocalSolution, source: Source) -> LocalSolution:
    added = StoredTable.of(source)
    return solution.with_table(StoredTable.joined([solution.table, added]))


@forget_rows.register
def _(solution: LocalSolution, source: Source) -> LocalSolution:
    return solution.with_table(solution.table.without(StoredTable.of(source)))


@merge_rows.register
def _(solution: LocalSolution, other: LocalSolution) -> LocalSolution:
    return solution.with_table(StoredTable.joined([solution.table, other.table]))


@without_rows.register
def _(solution: LocalSolution) -> LocalSolution:
    table = solution.table
    empty = StoredTable(table.x[:0], table.y[:0], table.weight[:0], table.spread[:0])
    return solution.with_table(empty)
