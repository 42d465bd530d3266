"""Global features of a kernel with all its levels.

The lowest levels are complete: their features are the spherical harmonics. All levels
above them have one set of features, from phases V on the sphere,

    φ(x) = √v ρ(x) L⁻¹ κ(V, s(x)),    L Lᵀ = κ(V, V),

where κ is the kernel of these levels and v their variance. φ(x)·φ(x') is the part of
the covariance that the function's values at the phases determine (the Nyström
approximation). What is left, k(x, x') - φ(x)·φ(x'), is local, and predicted from the
nearest rows.

κ is looked up in the `AngleTable` that predictions from neighbours use, so features and
neighbours have one and the same kernel. Whitening amplifies the rounding of kernel
values a thousandfold, so it is done in float64, and features are rounded only then.
"""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Integer
from scipy.linalg import solve_triangular

from zonal.engine.blas import single_threaded_blas, triangular_product
from zonal.engine.features import complete_frame
from zonal.engine.inducing_loops import combine_rows, evaluate_kernel
from zonal.engine.lanes import empty_lanes
from zonal.engine.linalg import first_factor
from zonal.engine.local import StoredRows
from zonal.engine.passes import block_results
from zonal.prior.angles import AngleTable
from zonal.prior.bands import CompleteLevel
from zonal.prior.parameters import Fields
from zonal.prior.phases import drawn_phases
from zonal.prior.polynomials import gegenbauer_level, harmonic_count
from zonal.prior.process import LocalProcess
from zonal.saving import savable

__all__ = ["GlobalFeatures", "combined", "squared_chords"]

# Added to the diagonal of κ(V, V); it can only lower what the features capture.
_JITTERS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
# Rows whose features fit in the cache, and lanes of a vector of float64.
_BLOCK = 512
_LANES = 8
# Rows whose mean direction is a phase.
_AVERAGED = 2
# The share of the features that complete levels may take.
_COMPLETE_SHARE = 0.25


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class GlobalFeatures(Fields):
    """Features of a process: ``complete`` levels from 0 up, then phases for the rest.

    The features of the phases come first.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> process = LocalProcess(ARD.isotropic(1), ContinuousDepth(beta=2.0), 4.0)
    >>> features = GlobalFeatures(process, 1, np.eye(2))
    >>> phi = features.at(np.eye(2, dtype=np.float32), np.ones(2))
    >>> (phi @ phi.T).round(3)
    array([[4.   , 2.227],
           [2.227, 4.   ]], dtype=float32)
    >>> round(4 * float(process.table().kernel(np.array(2.0))), 3)
    2.227
    """

    process: LocalProcess
    complete: int
    phases: Float[np.ndarray, "phases d"]

    @classmethod
    def draw(
        cls,
        process: LocalProcess,
        directions: Float[np.ndarray, "rows d"],
        count: int,
        seed: int = 0,
    ) -> "GlobalFeatures":
        """At most ``count`` features, with phases drawn from the directions of rows.

        As many levels are complete as a quarter of the features allows.
        """
        dimension = process.sphere.dimension
        complete, spent = 0, 0
        while True:
            more = harmonic_count(complete, dimension)
            if spent + more > max(min(count, 1), _COMPLETE_SHARE * count):
                break
            complete, spent = complete + 1, spent + more
        rest = AngleTable.build(process.kernel, dimension, complete)
        wanted = min(count - spent, len(directions))
        phases = np.zeros((0, dimension))
        if rest.share > 0 and wanted > 0:
            points = directions.astype(np.float64)
            points /= np.linalg.norm(points, axis=1, keepdims=True)
            drawn = drawn_phases(
                points,
                wanted,
                lambda t: rest.kernel(np.maximum(2 - 2 * t, 0.0)),
                seed=seed,
            )
            phases = _centres(drawn, points)
        return cls(process, complete, phases)

    def __len__(self) -> int:
        dimension = self.process.sphere.dimension
        levels = range(self.complete)
        return len(self.phases) + sum(
            harmonic_count(level, dimension) for level in levels
        )

    @functools.cached_property
    def rest(self) -> AngleTable:
        """The kernel of the levels that are not complete."""
        dimension = self.process.sphere.dimension
        return AngleTable.build(self.process.kernel, dimension, self.complete)

    @property
    def rest_variance(self) -> float:
        """The variance of the levels that are not complete, at radius one."""
        return float(self.process.variance) * self.rest.share

    def stored(
        self,
        directions: Float[np.ndarray, "rows d"],
        radial: Float[np.ndarray, " rows"],
        targets: Float[np.ndarray, "rows outputs"],
        noise: Float[np.ndarray, " rows"],
    ) -> StoredRows:
        """Rows to choose neighbours from, with their features."""
        features = self.at(directions, radial)
        return StoredRows(
            directions, radial, targets, noise, features, len(self.phases)
        )

    @functools.cached_property
    def _inverse(self) -> Float[np.ndarray, "phases phases"]:
        """L⁻¹."""
        squares = squared_chords(self.phases, self.phases)
        factored = first_factor(self.rest.kernel(squares), _JITTERS)
        assert factored is not None, "a kernel matrix with jitter is positive definite"
        size = len(self.phases)
        inverse = solve_triangular(factored[0], np.eye(size), lower=True)
        return np.ascontiguousarray(inverse)

    @functools.cached_property
    def _by_lane(self) -> np.ndarray:
        """Coordinates of the phases, side by side in vectors of one register."""
        padded = -(-len(self.phases) // _LANES) * _LANES
        points = np.ones((padded, self.phases.shape[1]))
        points[: len(self.phases)] = self.phases
        flat = empty_lanes(padded // _LANES * points.shape[1], np.dtype(np.float64))
        lanes = points.reshape(-1, _LANES, points.shape[1]).swapaxes(1, 2)
        flat[:] = lanes.ravel()
        return flat

    def at(
        self,
        directions: Float[np.ndarray, "rows d"],
        radial: Float[np.ndarray, " rows"],
    ) -> Float[np.ndarray, "rows features"]:
        """Features of rows, in float32; equal rows have equal features."""
        directions = np.ascontiguousarray(directions, np.float64)
        features = np.empty((len(directions), len(self)), np.float32)
        root = np.sqrt(self.rest_variance)
        scale = np.asarray(radial, np.float64)

        def fill(block: slice) -> None:
            part, own = features[block], directions[block]
            if len(self.phases):
                values = np.empty((len(part), len(self.phases)))
                room = empty_lanes(1, values.dtype)
                evaluate_kernel(
                    own,
                    root * scale[block],
                    self._by_lane,
                    self.rest.double[0],
                    room,
                    np.empty(_LANES, np.int32),
                    values,
                )
                triangular_product(values, slice(0, len(self.phases)), self._inverse)
                part[:, : len(self.phases)] = values
            for columns, level in self._low_levels():
                part[:, columns] = scale[block, None] * self._harmonics(own, level)

        if len(self):
            with single_threaded_blas():
                for _ in block_results(fill, len(directions), _BLOCK):
                    pass
        return features

    def _low_levels(self):
        """The columns of each complete level, and the level."""
        dimension, start = self.process.sphere.dimension, len(self.phases)
        for level in range(self.complete):
            stop = start + harmonic_count(level, dimension)
            yield slice(start, stop), level
            start = stop

    def _harmonics(self, directions: np.ndarray, level: int) -> np.ndarray:
        """Features of one complete level, for rows of radius one."""
        dimension = self.process.sphere.dimension
        frame = complete_frame(CompleteLevel(level), dimension)
        cosine = np.clip(directions @ np.asarray(frame.phases).T, -1.0, 1.0)
        values = gegenbauer_level(cosine, level, dimension)
        root = np.sqrt(float(self.process.variance) * self.rest.low[level])
        return root * (np.asarray(values) @ np.asarray(frame.whitening).T)


def _centres(drawn: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The mean direction of the points nearest to each drawn one.

    A phase is then no row of the table, so that a row can be forgotten.
    """
    count = min(_AVERAGED, len(points))
    sums = np.empty_like(drawn)
    for start in range(0, len(drawn), _BLOCK):
        block = slice(start, start + _BLOCK)
        nearest = np.argpartition(-drawn[block] @ points.T, count - 1, axis=1)
        sums[block] = points[nearest[:, :count]].sum(axis=1)
    return sums / np.linalg.norm(sums, axis=1, keepdims=True)


def squared_chords(
    s: Float[np.ndarray, "left d"], t: Float[np.ndarray, "right d"]
) -> Float[np.ndarray, "left right"]:
    """Squared distances between unit vectors, exact for close ones."""
    total = np.zeros((len(s), len(t)))
    for left, right in zip(s.T, t.T, strict=True):
        total += (left[:, None] - right) ** 2
    return total


def combined(
    features: Float[np.ndarray, "rows features"],
    lists: Integer[np.ndarray, "queries k"],
    weights: Float[np.ndarray, "queries k"],
    queried: Float[np.ndarray, "queries features"],
) -> Float[np.ndarray, "queries features"]:
    """φ* - Σ a_n φ_n: features of queries, less those that their neighbours explain."""
    rest = np.array(queried, np.float32, order="C")
    lists = np.ascontiguousarray(lists, np.int32)

    def combine(block: slice) -> None:
        combine_rows(features, lists[block], weights[block], rest[block])

    for _ in block_results(combine, len(rest), _BLOCK):
        pass
    return rest
