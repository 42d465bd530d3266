"""The number of features and of neighbours, and the final fit of noise and variance.

Smooth or noisy functions gain from features, rough ones from neighbours alone, smooth
ones with little noise from many neighbours. The leave-one-out density of some rows
decides, among sizes with which a core predicts some ten thousand rows per second. With
each of them, noise and variance are fitted first: what features do not capture is no
noise once there are neighbours.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize_scalar

from zonal.engine.full_scale import FullScale
from zonal.engine.inducing import GlobalFeatures
from zonal.engine.local import StoredRows, noise_per_row
from zonal.engine.neighbours import Neighbours
from zonal.learning.residuals import Residuals
from zonal.learning.schedule import NoiseSearch, SizeSchedule
from zonal.learning.starts import directions
from zonal.prior.parameters import with_values
from zonal.prior.process import LocalProcess
from zonal.tables.repeats import DistinctRows
from zonal.tables.sampling import row_bits

__all__ = ["Sizes", "choose_sizes"]

# Searches for the noise, and the share of their range that is not its end.
_MOST_SEARCHES = 5
_INSIDE = 0.9
# Noise over variance; less noise is added where systems are solved.
_LEAST_RATIO = 1e-8


@dataclasses.dataclass(frozen=True, eq=False)
class Sizes:
    """The chosen features (of the process with its final noise) and neighbours.

    ``density`` is the mean leave-one-out log density per row.
    """

    features: GlobalFeatures
    n_neighbors: int
    density: float


def choose_sizes(
    rows: DistinctRows,
    process: LocalProcess,
    n_features: int | None = None,
    n_neighbors: int | None = None,
    seed: int = 0,
    settings: SizeSchedule | None = None,
) -> tuple[Sizes, ...]:
    """Choose sizes that are not given by leave-one-out density, and fit the noise.

    Outputs share the sizes, and each has its own noise and variance.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> from zonal.tables.repeats import merged_rows
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(300, 2))
    >>> y = x[:, 0] + 0.1 * generator.normal(size=300)
    >>> process = LocalProcess(ARD.isotropic(2), ContinuousDepth(beta=3.0), 10.0, 1.0)
    >>> (sizes,) = choose_sizes(merged_rows(x, y), process, n_features=16)
    >>> len(sizes.features), bool(0.05 < np.sqrt(sizes.features.process.noise) < 0.2)
    (16, True)
    """
    settings = SizeSchedule() if settings is None else settings
    judge = _Judge.of(rows, process, settings, seed)
    candidates = _candidates(len(rows), settings, n_features, n_neighbors)
    best = judge.best_of(candidates) if len(candidates) > 1 else candidates[0]
    return tuple(output.final_sizes(best) for output in judge.outputs())


class _Given(NamedTuple):
    """Features of variance one, and all rows with them and noise of one."""

    features: GlobalFeatures
    rows: StoredRows


class _Nearest(NamedTuple):
    """The rows that judge, and the rows nearest to each."""

    own: Int[np.ndarray, " own"]
    lists: Int[np.ndarray, "own k"]


class _Best(NamedTuple):
    """The ratio of noise to variance, the variance, and the density they reach.

    The density is a mean; ``of_rows`` has those of single rows.
    """

    ratio: float
    variance: float
    density: float
    of_rows: Float[np.ndarray, " own"]


def _candidates(
    n_rows: int,
    settings: SizeSchedule,
    n_features: int | None,
    n_neighbors: int | None,
) -> list[tuple[int, int]]:
    """Pairs of sizes to try, the cheapest first; none that the table is too small for.

    Of pairs that all have every row as a neighbour, the first is tried. Its number of
    neighbours stays as it is, because rows may be added to the model.
    """
    if n_features is not None and n_neighbors is not None:
        return [(n_features, n_neighbors)]
    if n_features is not None:
        pairs = [(n_features, k) for k in settings.n_neighbors]
    elif n_neighbors is not None:
        pairs = [(count, n_neighbors) for count in settings.n_features]
    else:
        pairs = list(settings.candidates)
    affordable = [
        (count, k)
        for count, k in pairs
        if (n_features is not None or count**2 * n_rows <= settings.most_work)
        and (n_features is not None or count <= n_rows)
    ]
    distinct: dict[tuple[int, int], tuple[int, int]] = {}
    for count, k in affordable:
        distinct.setdefault((count, min(k, n_rows - 1)), (count, k))
    return list(distinct.values())


@dataclasses.dataclass(frozen=True, eq=False)
class _Judge:
    """The rows on the sphere, and the rows that judge, in random order."""

    rows: DistinctRows
    process: LocalProcess
    settings: SizeSchedule
    seed: int
    order: Int[np.ndarray, " rows"]
    points: Float[np.ndarray, "rows d"]
    index: Neighbours

    @classmethod
    def of(
        cls,
        rows: DistinctRows,
        process: LocalProcess,
        settings: SizeSchedule,
        seed: int,
    ) -> "_Judge":
        points = directions(rows.x, process.sphere)
        order = np.random.default_rng(row_bits(seed)).permutation(len(rows))
        index = Neighbours.build(points)
        return cls(rows, process, settings, seed, order, points, index)

    def outputs(self) -> "list[_Judge]":
        """A judge of each output."""
        columns, spread = self._targets, self._spread
        if columns.shape[1] == 1:
            return [self]
        return [
            dataclasses.replace(
                self,
                rows=dataclasses.replace(
                    self.rows, y=columns[:, [output]], spread=spread[:, [output]]
                ),
            )
            for output in range(columns.shape[1])
        ]

    def best_of(self, candidates: list[tuple[int, int]]) -> tuple[int, int]:
        """The sizes of highest density; larger ones have to be clearly better."""
        fits, settings = self._fits(candidates), self.settings
        best = candidates[0]
        for sizes in candidates[1:]:
            gains = fits[sizes].of_rows - fits[best].of_rows
            error = settings.least_errors * np.std(gains) / np.sqrt(len(gains))
            gain = fits[sizes].density - fits[best].density
            if gain > max(settings.least_gain, error):
                best = sizes
        return best

    def _fits(self, candidates: list[tuple[int, int]]) -> dict[tuple[int, int], _Best]:
        """The density of each pair of sizes."""
        search, fits = self.settings.judged, {}
        # Features of all rows are the largest arrays: those of one number at a time.
        for n_features in sorted({count for count, _ in candidates}):
            given = self._with_features(n_features)
            for count, k in candidates:
                if count == n_features:
                    nearest = self._find_nearest(k, search.rows)
                    fit = self._fit(given, nearest, self._close_ratio, search)
                    fits[count, k] = fit
        return fits

    @functools.cached_property
    def _close_ratio(self) -> float:
        """The ratio of noise to variance that suits many rows with few neighbours.

        The search goes on where it ends at the end of its range: where there is no
        noise, the learned ratio can be far too large.
        """
        settings, search = self.settings, self.settings.close
        given = self._with_features(0)
        nearest = self._find_nearest(settings.close_neighbors, search.rows)
        ratio = float(self.process.noise) / float(self.process.variance)
        for _ in range(_MOST_SEARCHES):
            before = ratio
            ratio = self._fit(given, nearest, before, search).ratio
            inside = abs(np.log(ratio / before)) < _INSIDE * search.reach
            if inside or ratio <= _LEAST_RATIO:
                break
        return ratio

    def final_sizes(self, sizes: tuple[int, int]) -> Sizes:
        """The features with the noise and the variance that suit these sizes best."""
        n_features, n_neighbors = sizes
        search = self.settings.final
        given = self._with_features(n_features)
        nearest = self._find_nearest(n_neighbors, search.rows)
        fit = self._fit(given, nearest, self._close_ratio, search)
        fitted = {"variance": fit.variance, "noise": fit.variance * fit.ratio}
        process = with_values(self.process, fitted)
        features = dataclasses.replace(given.features, process=process)
        return Sizes(features, n_neighbors, fit.density)

    @property
    def _spread(self) -> Float[np.ndarray, "rows outputs"]:
        return self.rows.spread.reshape(len(self.rows), -1)

    @property
    def _targets(self) -> Float[np.ndarray, "rows outputs"]:
        return self.rows.y.reshape(len(self.rows), -1)

    @functools.cached_property
    def _radial(self) -> Float[np.ndarray, " rows"]:
        return self.process.sphere.points(self.rows.x)[1]

    def _with_features(self, n_features: int) -> _Given:
        """All rows, with ``n_features`` features or a few less."""
        process = with_values(self.process, {"variance": 1.0})
        drawn = self.order[-self.settings.candidate_rows :]
        features = GlobalFeatures.draw(
            process, self.points[drawn], n_features, self.seed
        )
        noise = np.ones(len(self.rows))
        rows = features.stored(self.points, self._radial, self._targets, noise)
        return _Given(features, rows)

    def _find_nearest(self, n_neighbors: int, n_rows: int) -> _Nearest:
        """Lists of neighbours for the first rows of the random order."""
        own = np.sort(self.order[:n_rows])
        k = min(n_neighbors, len(self.rows) - 1)
        if k == 0:
            return _Nearest(own, np.zeros((len(own), 0), np.int32))
        return _Nearest(own, self.index.query(self.points[own], k, own)[0])

    def _fit(
        self, given: _Given, nearest: _Nearest, ratio: float, search: NoiseSearch
    ) -> _Best:
        """Fit noise and variance, starting at a ratio of noise to variance.

        The density with the tails of the residuals decides the ratio, so that a few
        outliers do not. The variance is the one that suits normal densities.
        """
        best = _Best(ratio, 1.0, -np.inf, np.zeros(len(nearest.own)))

        def loss(log_ratio: float) -> float:
            nonlocal best
            noise = max(float(np.exp(log_ratio)), _LEAST_RATIO)
            residuals = self._residuals(given, nearest, noise)
            fit = residuals.fit(search.most_tails)
            if fit.density > best.density:
                # Repeats that are equal cannot make less noise than the least.
                least = residuals.distinct_scale if noise == _LEAST_RATIO else 0.0
                scale = max(residuals.normal_scale, least)
                of_rows = residuals.row_densities(fit.tails, fit.scale)
                best = _Best(residuals.noise, scale, fit.density, of_rows)
            return -fit.density

        minimize_scalar(
            loss,
            bounds=np.log(ratio) + search.reach * np.array([-1.0, 1.0]),
            method="bounded",
            options={"xatol": 0.05, "maxiter": search.steps},
        )
        return best

    def _residuals(self, given: _Given, nearest: _Nearest, noise: float) -> Residuals:
        """Leave-one-out residuals of the rows that judge, with a variance of one."""
        weight = self.rows.weight
        own, lists = nearest
        rows = dataclasses.replace(given.rows, noise=noise_per_row(noise, weight, 1.0))
        left_out = FullScale.of(given.features, rows, np.float32).leave_out(own, lists)
        return Residuals(
            self._targets[own] - left_out.mean,
            left_out.variance,
            noise,
            weight[own],
            self._spread[own],
        )
