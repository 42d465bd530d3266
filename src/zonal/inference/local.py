"""Solutions by features and nearest rows: the stored rows, and predictions from them.

A new row is predicted from the posterior of the features' weights and from its nearest
rows in the learned metric (`zonal.engine.full_scale`). Each distinct row is stored
once, and the posterior follows from sums over rows, so adding, forgetting and merging
are exact: the result is the same as for rows stored from the beginning.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int

from zonal.engine.full_scale import FeatureSums, FullScale
from zonal.engine.inducing import GlobalFeatures
from zonal.engine.local import StoredRows, conditionals, noise_per_row
from zonal.engine.nearby import nearby_sizes
from zonal.engine.neighbours import Neighbours
from zonal.engine.posterior import Marginals, normals_of_rows
from zonal.inference.joint import JointDraw, joint_covariance
from zonal.inference.solving import add_rows, forget_rows, merge_rows, without_rows
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.size_trend import SizeTrend
from zonal.prior.basis import Basis
from zonal.prior.parameters import Fields
from zonal.prior.process import LocalProcess, Process
from zonal.saving import savable
from zonal.tables.chunks import Chunk
from zonal.tables.sources import Source
from zonal.tables.stored import StoredTable, stored_inputs

__all__ = ["LocalSolution"]

# Fewest nearest rows that sizes of residuals are taken from, neighbours that residuals
# are predicted from, and the largest number of residuals.
_LEAST_NEARBY = 32
_RESIDUAL_NEIGHBORS = 64
_MOST_RESIDUALS = 200_000


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class LocalSolution(Fields):
    """A process with features, and the stored rows that it predicts from.

    ``sums`` are those of the stored rows. ``bound`` is the sum of leave-one-out log
    densities of the rows, estimated on a sample of them; NaN after rows were added or
    forgotten. ``squares`` are the squared standardised leave-one-out residuals of the
    stored rows, and ``trend`` is their trend along columns, for noise that varies; None
    where they are not computed yet.
    """

    features: GlobalFeatures
    likelihood: Likelihood
    table: StoredTable
    n_neighbors: int
    sums: FeatureSums
    bound: float = np.nan
    squares: Float[np.ndarray, " distinct"] | None = None
    trend: SizeTrend | None = None

    @classmethod
    def solve(
        cls,
        features: GlobalFeatures,
        likelihood: Likelihood,
        table: StoredTable,
        n_neighbors: int,
        bound: float = np.nan,
    ) -> "LocalSolution":
        """The solution of stored rows, in one pass over them."""
        sums = FeatureSums.collect(features, _stored(features, table))
        return cls(features, likelihood, table, n_neighbors, sums, bound)

    @property
    def process(self) -> LocalProcess:
        """The learned prior, and its noise."""
        return self.features.process

    @property
    def processes(self) -> tuple[Process, ...]:
        """The prior, as a basis without features."""
        prior = self.process
        basis = Basis(prior.sphere, prior.kernel, (), prior.variance)
        return (Process(basis, prior.noise),)

    @property
    def n_features(self) -> int:
        """Number of global features."""
        return len(self.features)

    @property
    def level_variances(self) -> Float[np.ndarray, " levels"]:
        """The prior variance of the lowest levels."""
        return self.process.level_variances

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
    def given(self) -> FullScale:
        """The stored rows on the sphere, with the posterior of the features."""
        return FullScale(self.features, _stored(self.features, self.table), self.sums)

    @functools.cached_property
    def _index(self) -> Neighbours:
        return Neighbours.build(_directions(self.features, self.table.x)[0])

    @property
    def marginals(self) -> Callable[[Chunk], Marginals]:
        """Marginals of the function at standardised rows."""
        self._prepare()
        return lambda chunk: self.predict(chunk.x, self.likelihood.uses_nearby)

    @property
    def left_out(self) -> Callable[[Chunk], Marginals]:
        """Leave-one-out predictions of the rows of a chunk."""
        self._prepare()
        return self._left_out

    def _prepare(self) -> None:
        """Compute once what threads share."""
        if len(self.table):
            _ = self._index, self.given.weights, self.given.root
            if self.likelihood.uses_nearby:
                _ = self.known_squares

    def predict(
        self, x: Float[np.ndarray, "rows inputs"], nearby: bool = False
    ) -> Marginals:
        """Marginals at standardised rows; with sizes of residuals nearby on request."""
        direction, radial = _directions(self.features, x)
        lists = self.lists(direction)
        found = _clipped(
            self.given.predict(self.given.queries(direction, radial), lists)
        )
        if not nearby:
            return found
        return found._replace(nearby=self.nearby(x, found, lists))

    def nearby(
        self,
        x: Float[np.ndarray, "rows inputs"],
        found: Marginals,
        lists: Int[np.ndarray, "rows k"] | None = None,
    ) -> Float[np.ndarray, "rows sizes"]:
        """Sizes of residuals and targets near rows with these marginals.

        The last column is one for rows that repeat a stored row. ``lists`` are their
        nearest rows, which are searched if they are not given.
        """
        direction, _ = _directions(self.features, x)
        if lists is None or lists.shape[1] < _LEAST_NEARBY:
            lists = self._nearest(direction, max(self.n_neighbors, _LEAST_NEARBY))
        variance = found.variance[:, 0] + float(self.process.noise)
        sizes = nearby_sizes(
            lists,
            self.known_squares,
            self.table.y,
            self.table.weight,
            self.table.spread,
            found.mean[:, 0],
            np.sqrt(variance),
        )
        assert self.trend is not None, "calibration has found the trend"
        trend = self.trend.at(stored_inputs(x))
        return np.column_stack([sizes, trend, self._repeats(direction, lists)])

    def _repeats(
        self, direction: np.ndarray, lists: np.ndarray
    ) -> Bool[np.ndarray, " rows"]:
        """Whether the nearest row of each direction is the same row."""
        if lists.shape[1] == 0:
            return np.zeros(len(direction), bool)
        nearest = self.given.rows.directions[np.maximum(lists[:, 0], 0)]
        return (lists[:, 0] >= 0) & np.all(nearest == direction, axis=1)

    @functools.cached_property
    def known_squares(self) -> Float[np.ndarray, " distinct"]:
        """Squared standardised leave-one-out residual of each row; NaN if not known.

        Of a row with repeats it is their mean, each predicted from other rows. They are
        predicted from neighbours alone, which is faster, and of a large table
        those of some rows, drawn by their values, are enough.
        """
        if self.squares is not None:
            return self.squares
        table, rows = self.table, np.arange(len(self.table))
        if len(table) > _MOST_RESIDUALS:
            keys = normals_of_rows(table.x, 1, 0)[:, 0]
            rows = np.sort(np.argpartition(keys, _MOST_RESIDUALS)[:_MOST_RESIDUALS])
        direction, radial = _directions(self.features, table.x)
        noise = _noise(self.process, table.weight)
        stored = StoredRows(direction, radial, table.y[:, None], noise)
        found = conditionals(
            stored,
            stored.queries(rows),
            self._nearest(direction[rows], _RESIDUAL_NEIGHBORS, rows),
            self.process.table(),
            float(self.process.variance),
        )
        squares = np.full(len(table), np.nan, np.float32)
        error = (table.y[rows] - found.mean[:, 0]) ** 2
        error += table.spread[rows] / table.weight[rows]
        unit = np.maximum(found.variance, 0.0) + float(self.process.noise)
        squares[rows] = error / unit
        return squares

    def left_out_rows(self, own: Int[np.ndarray, " rows"]) -> Marginals:
        """Marginals of distinct stored rows, given all rows but their repeats."""
        self._prepare()
        direction = self.given.rows.directions[own]
        return _clipped(self.given.leave_out(own, self.lists(direction, own)))

    def _left_out(self, chunk: Chunk) -> Marginals:
        own = self.table.find(chunk.x)
        if np.any(own < 0):
            raise ValueError(
                f"row {np.flatnonzero(own < 0)[0]} is not among the rows that the "
                "model was fitted to; use predict for new rows"
            )
        direction = self.given.rows.directions[own]
        lists = self.lists(direction, own)
        found = _clipped(self.given.leave_out(own, lists))
        mean, variance, _ = found
        nearby = None
        if self.likelihood.uses_nearby:
            nearby = self.nearby(chunk.x, found, lists)
        # Repetitions of the row remain, as another observation of the function.
        rest = self.table.weight[own] - chunk.weights * chunk.precisions
        repeated = rest > 1e-9 * self.table.weight[own]
        rest = np.where(repeated, rest, 1.0)
        total = self.table.weight[own] * self.table.y[own]
        others = (total - chunk.weights * chunk.precisions * chunk.targets) / rest
        noise = np.where(repeated, _noise(self.process, rest), np.inf)
        gain = variance[:, 0] / (variance[:, 0] + noise)
        others = np.where(repeated, others, 0.0)
        updated = mean[:, 0] + gain * (others - mean[:, 0])
        return Marginals(updated[:, None], variance * (1 - gain)[:, None], nearby)

    def lists(
        self,
        direction: Float[np.ndarray, "rows d"],
        own: Int[np.ndarray, " rows"] | None = None,
    ) -> Int[np.ndarray, "rows k"]:
        """The stored rows nearest to each direction, without the rows ``own``."""
        return self._nearest(direction, self.n_neighbors, own)

    def _nearest(
        self, direction: np.ndarray, k: int, own: np.ndarray | None = None
    ) -> Int[np.ndarray, "rows k"]:
        k = max(min(k, len(self.table) - (own is not None)), 0)
        if k == 0:
            return np.zeros((len(direction), 0), np.int32)
        return self._index.query(direction, k, own)[0]

    def covariance(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows rows"]:
        """Joint covariance of the function at a few rows, given all their neighbours.

        Computed densely in float64. The rows share the union of their neighbours, so
        variances are at most those of single predictions.
        """
        direction, radial = _directions(self.features, x)
        queries = self.given.queries(direction, radial)
        return joint_covariance(self.given, queries, self.lists(direction))

    def sample_functions(
        self, count: int, seed: int = 0
    ) -> Callable[[np.ndarray], Float[np.ndarray, "rows samples latents"]]:
        """Draw functions; call the result with standardised rows.

        Rows of one call are drawn jointly, see `zonal.inference.joint`.
        """
        draw = JointDraw(self.given, self.n_neighbors, count, seed)

        def at(x: np.ndarray) -> np.ndarray:
            direction, radial = _directions(self.features, x)
            return draw(direction, radial, self.lists)[:, :, None]

        return at

    @property
    def effective_parameters(self) -> float:
        """Not defined: every new row has neighbours and weights of its own."""
        raise TypeError(
            "predictions from neighbours have no number of effective parameters; fit "
            "with n_neighbors=0 to have one"
        )

    def with_table(self, table: StoredTable, sums: FeatureSums) -> "LocalSolution":
        """The same process with other stored rows."""
        return dataclasses.replace(
            self, table=table, sums=sums, bound=np.nan, squares=None
        )

    def sums_of(self, table: StoredTable) -> FeatureSums:
        """The sums of some rows."""
        return FeatureSums.collect(self.features, _stored(self.features, table))


def _directions(
    features: GlobalFeatures, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors and radial factors of standardised rows, in float32."""
    # Rounding to float32 makes a stored row and the same new row agree.
    direction, radial = features.process.sphere.points(stored_inputs(x))
    return direction.astype(np.float32), radial.astype(np.float32)


def _stored(features: GlobalFeatures, table: StoredTable) -> StoredRows:
    direction, radial = _directions(features, table.x)
    noise = _noise(features.process, table.weight)
    return features.stored(direction, radial, table.y[:, None], noise)


def _noise(process: LocalProcess, weight: np.ndarray) -> np.ndarray:
    return noise_per_row(float(process.noise), weight, float(process.variance))


def _clipped(found: Marginals) -> Marginals:
    """Marginals of one function; variances below zero are rounding."""
    return Marginals(found.mean, np.maximum(found.variance, 0.0)[:, None])


@add_rows.register
def _(solution: LocalSolution, source: Source) -> LocalSolution:
    return _joined(solution, StoredTable.of(source))


@merge_rows.register
def _(solution: LocalSolution, other: LocalSolution) -> LocalSolution:
    return _joined(solution, other.table, other.sums)


@forget_rows.register
def _(solution: LocalSolution, source: Source) -> LocalSolution:
    forgotten = StoredTable.of(source)
    missing = solution.table.lacks(forgotten)
    if len(missing):
        raise ValueError(
            f"row {_first_row(source, forgotten.part(missing))} of the rows to forget "
            f"is not in the model as often as it is given ({len(missing)} such rows); "
            "forget rows that were fitted or added, with the same weights"
        )
    table = solution.table.without(forgotten)
    before = solution.table.part(solution.table.find(forgotten.x))
    # A row that was there several times may remain.
    rest = table.find(forgotten.x)
    after = table.part(rest[rest >= 0])
    sums = solution.sums - solution.sums_of(before) + solution.sums_of(after)
    return solution.with_table(table, sums)


def _first_row(source: Source, table: StoredTable) -> int:
    """The first row of a source that is in a table."""
    first_row = 0
    for chunk in source.chunks():
        found = np.flatnonzero((table.find(chunk.x) >= 0) & (chunk.weights > 0))
        if len(found):
            return first_row + int(found[0])
        first_row += len(chunk)
    return first_row


@without_rows.register
def _(solution: LocalSolution) -> LocalSolution:
    empty = solution.table.part(np.zeros(0, np.int64))
    return solution.with_table(empty, solution.sums_of(empty))


def _joined(
    solution: LocalSolution, added: StoredTable, added_sums: FeatureSums | None = None
) -> LocalSolution:
    """The solution with more rows; a row that both have is counted anew."""
    table = StoredTable.joined([solution.table, added])
    found = solution.table.find(added.x)
    if added_sums is None:
        added_sums = solution.sums_of(added)
    sums = solution.sums + added_sums
    both = found >= 0
    if both.any():
        separate = solution.sums_of(solution.table.part(found[both]))
        separate += solution.sums_of(added.part(np.flatnonzero(both)))
        once = solution.sums_of(table.part(table.find(added.x[both])))
        sums = sums - separate + once
    return solution.with_table(table, sums)
