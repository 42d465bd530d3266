"""Conditionals of rows given their nearest rows, and leave-one-out densities.

For a query with neighbours n, covariances K of the neighbours with each other plus
their noise, and k of the neighbours with the query,

    a = K⁻¹ k,    mean = aᵀ y,    variance = k** - aᵀ k.

With features φ, the covariances are those that the features leave uncaptured,
k(x, x') - φ(x)·φ(x').

Systems are solved in float32, several rows at a time. A system that is too close to
singular for that is solved again in float64, with noise of at least 1e-8 of the prior
variance (1e-5 with features). Where even that does not suffice, a pivot is lifted to
1e-9 of its diagonal entry, as if that neighbour had more noise; so results are always
finite.

Threads work on chunks of rows whose bounds do not depend on the number of threads, and
their gradients are added in the order of the rows.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Integer, Shaped
from scipy.special import gammaln

from zonal.engine.passes import block_results
from zonal.engine.systems import make_room, scatter, solve_rows
from zonal.prior.angles import AngleTable

__all__ = [
    "Conditionals",
    "Gradient",
    "LeaveOneOut",
    "Queries",
    "StoredRows",
    "conditionals",
    "leave_one_out",
    "log_student",
    "noise_per_row",
]

_CHUNK = 512
# Limits of a row's noise relative to the prior variance.
_LEAST_ROW_NOISE, _MOST_ROW_NOISE = 1e-10, 1e10
# Least pivots relative to the diagonal. The rounding error of the kernel, 1e-7, changes
# smaller ones by more than one percent.
_LEAST_PIVOT = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}
# Least noise relative to the prior variance, in float64. The table of the kernel is
# exact to 4e-10 there, so the matrix of equal rows with less noise may not be positive
# definite, and with lifted pivots solutions would grow from row to row.
_LEAST_NOISE = 1e-8
# The same with features. They are float32, so the kernel that they leave is known to
# 1e-7 of the variance, and matrices of a hundred rows have eigenvalues down to -1e-6.
_LEAST_NOISE_LEFT = 1e-5


@dataclasses.dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows that neighbours are chosen from.

    Parameters
    ----------
    directions, radial
        Unit vectors on the sphere, and radial factors r^p.
    targets
        One column per output. All outputs share covariances and noise.
    noise
        Noise variance of each row.
    features
        Features whose part of the covariance is handled elsewhere.
    overlap
        The number of leading features that the kernel contains: the covariance is the
        kernel minus their products. The others belong to levels that the kernel lacks.
        By default all overlap.
    """

    directions: Shaped[np.ndarray, "rows d"]
    radial: Shaped[np.ndarray, " rows"]
    targets: Shaped[np.ndarray, "rows outputs"]
    noise: Shaped[np.ndarray, " rows"]
    features: Shaped[np.ndarray, "rows features"] | None = None
    overlap: int | None = None

    def __post_init__(self) -> None:
        _store_plain(self)
        if self.overlap is None:
            object.__setattr__(self, "overlap", self.known_features.shape[1])

    @property
    def known_features(self) -> Float[np.ndarray, "rows features"]:
        """The features, of which there may be none."""
        assert self.features is not None, "missing features are stored as no columns"
        return self.features

    def queries(self, indices: Integer[np.ndarray, " queries"]) -> "Queries":
        """Some of the rows as points to predict at."""
        return Queries(
            self.directions[indices],
            self.radial[indices],
            self.noise[indices],
            self.known_features[indices],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Queries:
    """Points at which the function is predicted.

    ``noise`` is the variance that will be added to that of the function; it only
    decides which rows need float64.
    """

    directions: Shaped[np.ndarray, "rows d"]
    radial: Shaped[np.ndarray, " rows"]
    noise: Shaped[np.ndarray, " rows"] | None = None
    features: Shaped[np.ndarray, "rows features"] | None = None

    def __post_init__(self) -> None:
        if self.noise is None:
            object.__setattr__(self, "noise", np.zeros(len(self.directions)))
        _store_plain(self)

    @property
    def known_features(self) -> Float[np.ndarray, "rows features"]:
        """The features, of which there may be none."""
        assert self.features is not None, "missing features are stored as no columns"
        return self.features


@dataclasses.dataclass(frozen=True, eq=False)
class Conditionals:
    """Means and variances of the function at queries, without noise."""

    mean: Float[np.ndarray, "queries outputs"]
    variance: Float[np.ndarray, " queries"]
    weights: Float[np.ndarray, "queries neighbours"] | None
    repeated: int
    lifted: int


@dataclasses.dataclass(frozen=True, eq=False)
class Gradient:
    """Gradient of the sum of log densities over rows and outputs."""

    directions: Float[np.ndarray, "rows d"]
    radial: Float[np.ndarray, " rows"]
    log_variance: float
    log_noise: float
    beta: float


@dataclasses.dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Log densities of rows given their neighbours, with means and variances.

    ``variance`` is that of the function, without noise.
    """

    log_density: Float[np.ndarray, "queries outputs"]
    mean: Float[np.ndarray, "queries outputs"]
    variance: Float[np.ndarray, " queries"]
    gradient: Gradient | None
    repeated: int
    lifted: int


def noise_per_row(
    noise: float,
    weight: Float[np.ndarray, " rows"],
    variance: float,
    least: float = _LEAST_ROW_NOISE,
) -> Float[np.ndarray, " rows"]:
    """Noise variance of rows with weights, within what float32 can solve.

    Beyond these limits a row determines the function, or has no information.

    Examples
    --------
    >>> noise_per_row(0.1, np.array([1.0, 2.0, 1e300, 1e-300]), 1.0)
    array([1.e-01, 5.e-02, 1.e-10, 1.e+10])
    """
    fewest = noise / (_MOST_ROW_NOISE * variance)
    return noise / np.clip(weight, fewest, noise / (least * variance))


def _store_plain(points: StoredRows | Queries) -> None:
    """Check all arrays, and store them in the layout of the compiled code."""
    rows = len(points.directions)
    for field in dataclasses.fields(points):
        value = getattr(points, field.name)
        if field.name == "overlap":
            continue
        if field.name == "features" and value is None:
            value = np.zeros((rows, 0))
        value = _plain(value, np.float32)
        if len(value) != rows:
            raise ValueError(f"{field.name} has {len(value)} rows, directions {rows}")
        if not np.isfinite(np.sum(value, dtype=np.float64)):
            bad = np.argwhere(~np.isfinite(value))[0][0]
            raise ValueError(f"{field.name} is not finite in row {bad}")
        object.__setattr__(points, field.name, value)


def _plain(values: np.ndarray, dtype: type) -> np.ndarray:
    """A contiguous writable array, so that one compiled version suffices."""
    return np.require(values, dtype, ["C", "A", "W"])


def conditionals(
    rows: StoredRows,
    queries: Queries,
    neighbours: Integer[np.ndarray, "queries neighbours"],
    table: AngleTable,
    variance: float,
    *,
    dtype: type = np.float32,
    weights: bool = False,
) -> Conditionals:
    """Mean and variance of the function at queries given their neighbours.

    Parameters
    ----------
    neighbours
        Indices into ``rows``; -1 for none.
    variance
        Prior variance at radius one.
    dtype
        The precision of the first attempt: float32, or float64.
    weights
        Whether to return the weights of the neighbours' targets as well.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> table = AngleTable.build(ContinuousDepth(beta=2.0), dimension=2)
    >>> pair = np.eye(2)
    >>> rows = StoredRows(pair, np.ones(2), np.array([[1.0], [2.0]]), np.zeros(2))
    >>> middle = Queries(np.full((1, 2), 0.5**0.5), np.ones(1))
    >>> found = conditionals(rows, middle, np.array([[0, 1]]), table, 1.0)
    >>> found.mean.round(3), found.variance.round(3)
    (array([[1.282]]), array([0.432]))
    """
    given = _Systems.make(
        rows, queries, np.zeros((0, 0)), neighbours, table, variance, dtype
    )
    outputs = given.outputs(weights)
    none = _no_gradients(0, 0, 0)
    repeated = lifted = 0
    for counts in block_results(
        lambda part: given.solve(part, outputs, none), len(neighbours), _CHUNK
    ):
        repeated, lifted = repeated + counts[0], lifted + counts[1]
    mean, found, weight, _ = outputs
    return Conditionals(mean, found, weight if weights else None, repeated, lifted)


def leave_one_out(
    rows: StoredRows,
    indices: Integer[np.ndarray, " queries"],
    neighbours: Integer[np.ndarray, "queries neighbours"],
    table: AngleTable,
    variance: float,
    *,
    dtype: type = np.float32,
    gradient: bool = True,
    tails: float = 0.0,
) -> LeaveOneOut:
    """Log density of stored rows given their neighbours, and its gradient.

    Parameters
    ----------
    indices
        Indices into ``rows``. A row's list of neighbours must not contain the row.
    neighbours, variance, dtype
        As for `conditionals`.
    gradient
        Whether to return the gradient of the sum of all log densities as well.
    tails
        One over the degrees of freedom of Student's t; 0 for normal densities.
    """
    indices = _plain(indices, np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(rows.radial):
        raise ValueError("indices must lie between 0 and the last stored row")
    if gradient and rows.overlap:
        raise ValueError("there is no gradient with features; pass gradient=False")
    queries = rows.queries(indices)
    targets = rows.targets[indices]
    given = _Systems.make(
        rows, queries, targets, neighbours, table, variance, dtype, tails
    )
    if np.any(given.neighbours == indices[:, None]):
        bad = np.argwhere(given.neighbours == indices[:, None])[0][0]
        raise ValueError(f"row {indices[bad]} is in its own list of neighbours")
    outputs = given.outputs(weights=False)
    total, repeated, lifted = _Total.zero(rows), 0, 0

    def solve(part: slice):
        size = (part.stop - part.start, neighbours.shape[1] + 1)
        shape = (*size, rows.directions.shape[1]) if gradient else (0, 0, 0)
        gradients = _no_gradients(*shape)
        return part, given.solve(part, outputs, gradients), gradients

    for part, counts, gradients in block_results(solve, len(indices), _CHUNK):
        repeated, lifted = repeated + counts[0], lifted + counts[1]
        if gradient:
            total.add(given.neighbours[part], indices[part], gradients)
    mean, found, _, _ = outputs
    spread = (found + queries.noise)[:, None]  # pyright: ignore[reportOperatorIssue]
    squares = (targets - mean) ** 2 / spread
    return LeaveOneOut(
        log_student(squares, tails) - 0.5 * np.log(spread),
        mean,
        found,
        total.gradient() if gradient else None,
        repeated,
        lifted,
    )


def log_student(
    squares: Float[np.ndarray, "*rows"], tails: float
) -> Float[np.ndarray, "*rows"]:
    """Log density of Student's t with 1 / ``tails`` degrees of freedom, at its square.

    Normal for tails of zero.

    Examples
    --------
    >>> log_student(np.array([4.0]), 0.2).round(3)
    array([-2.732])
    >>> log_student(np.array([4.0]), 0.0).round(3)
    array([-2.919])
    """
    if tails == 0:
        return -0.5 * (np.log(2 * np.pi) + squares)
    half = 0.5 / tails
    norm = gammaln(half + 0.5) - gammaln(half) - 0.5 * np.log(np.pi / tails)
    return norm - (half + 0.5) * np.log1p(tails * squares)


def _no_gradients(queries: int, points: int, dimension: int):
    """Zero arrays for the gradients of a chunk."""
    return (
        np.zeros((queries, points, dimension)),
        np.zeros((queries, points)),
        np.zeros((queries, 3)),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Systems:
    """Arguments of the compiled code, except the precision."""

    rows: StoredRows
    queries: Queries
    targets: np.ndarray
    neighbours: np.ndarray
    table: AngleTable
    variance: float
    double: bool
    tails: float

    @classmethod
    def make(
        cls, rows, queries, targets, neighbours, table, variance, dtype, tails=0.0
    ):
        neighbours = _plain(neighbours, np.int32)
        if len(neighbours) != len(queries.directions):
            raise ValueError(
                f"{len(neighbours)} lists of neighbours for "
                f"{len(queries.directions)} queries"
            )
        if neighbours.size and not (
            neighbours.min() >= -1 and neighbours.max() < len(rows.directions)
        ):
            raise ValueError("neighbours must lie between -1 and the last stored row")
        for name in ("directions", "features"):
            stored, asked = getattr(rows, name).shape, getattr(queries, name).shape
            if stored[1] != asked[1]:
                raise ValueError(
                    f"{name} have {stored[1]} columns in the stored rows, "
                    f"{asked[1]} in the queries"
                )
        if not (np.isfinite(variance) and variance > 0):
            raise ValueError(f"the variance must be positive, got {variance}")
        targets = _plain(targets, np.float32)
        double = np.dtype(dtype) == np.float64
        return cls(
            rows, queries, targets, neighbours, table, float(variance), double, tails
        )

    def outputs(self, weights: bool):
        n, k = self.neighbours.shape
        return (
            np.zeros((n, self.rows.targets.shape[1])),
            np.zeros(n),
            np.zeros((n, k) if weights else (0, k), np.float32),
            np.zeros(n, np.bool_),
        )

    def _least_noise(self, dtype: np.dtype) -> float:
        if dtype == np.float32:
            return 0.0
        return _LEAST_NOISE_LEFT if self.rows.overlap else _LEAST_NOISE

    def solve(self, part: slice, outputs, gradients) -> tuple[int, int]:
        """Solve some queries; count those in float64 and those with lifted pivots."""
        order, repeated = np.arange(part.start, part.stop), 0
        if not self.double:
            self._solve(np.dtype(np.float32), part.start, order, outputs, gradients)
            order = order[outputs[3][part]]
            repeated = len(order)
        if len(order) == 0:
            return 0, 0
        self._solve(np.dtype(np.float64), part.start, order, outputs, gradients)
        return repeated, int(outputs[3][order].sum())

    def _solve(self, dtype: np.dtype, start: int, order, outputs, gradients) -> None:
        rows, queries = self.rows, self.queries
        coefficients = self.table.single if dtype == np.float32 else self.table.double
        solve_rows(
            (rows.directions, rows.radial, rows.targets, rows.noise, rows.features),
            (
                queries.directions,
                queries.radial,
                self.targets,
                queries.noise,
                queries.features,
            ),
            self.neighbours,
            order,
            *coefficients,
            self.variance,
            _LEAST_PIVOT[dtype],
            self._least_noise(dtype),
            rows.overlap,
            float(self.tails),
            outputs,
            gradients,
            start,
            *make_room(
                self.neighbours.shape[1],
                rows.targets.shape[1],
                rows.directions.shape[1],
                rows.overlap,
                dtype,
            ),
        )


@dataclasses.dataclass(eq=False)
class _Total:
    """Gradients of chunks, added in the order of the rows."""

    directions: np.ndarray
    radial: np.ndarray
    numbers: np.ndarray

    @classmethod
    def zero(cls, rows: StoredRows) -> "_Total":
        n, d = rows.directions.shape
        return cls(np.zeros((n, d)), np.zeros(n), np.zeros(3))

    def add(self, neighbours: np.ndarray, indices: np.ndarray, gradients) -> None:
        directions, radial, numbers = gradients
        scatter(self.directions, self.radial, neighbours, indices, directions, radial)
        self.numbers += numbers.sum(axis=0)

    def gradient(self) -> Gradient:
        log_variance, log_noise, beta = map(float, self.numbers)
        return Gradient(self.directions, self.radial, log_variance, log_noise, beta)
