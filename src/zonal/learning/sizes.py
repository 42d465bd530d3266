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
from zonal.engine.local import StoredRows
from zonal.engine.neighbours import Neighbours
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


@dataclasses.dataclass(frozen=True, eq=False)
class Sizes:
    """The choice: features (of the process with its final noise), and neighbours.

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
    best = candidates[0]
    if len(candidates) > 1:
        ratio, highest = judge.noise_ratio(), -np.inf
        for sizes in candidates:
            density = judge.fit(*sizes, ratio, settings.judged).density
            least_gain = settings.least_gain if np.isfinite(highest) else 0.0
            if density > highest + least_gain:
                best, highest = sizes, density
    return tuple(output.final_sizes(best) for output in judge.outputs())


class _Fit(NamedTuple):
    """The ratio of noise to variance, the variance, and the density they reach."""

    ratio: float
    scale: float
    density: float


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

    def noise_ratio(self) -> float:
        """The ratio of noise to variance that suits many rows with few neighbours.

        The search goes on where it ends at the end of its range: where there is no
        noise, the learned ratio can be far too large.
        """
        settings, search = self.settings, self.settings.close
        ratio = float(self.process.noise) / float(self.process.variance)
        for _ in range(_MOST_SEARCHES):
            before = ratio
            ratio = self.fit(0, settings.close_neighbors, before, search).ratio
            if abs(np.log(ratio / before)) < _INSIDE * search.reach:
                break
        return ratio

    def final_sizes(self, sizes: tuple[int, int]) -> Sizes:
        """The features with the noise and the variance that suit these sizes best."""
        fit = self.fit(*sizes, self.noise_ratio(), self.settings.final)
        fitted = {"variance": fit.scale, "noise": fit.scale * fit.ratio}
        process = with_values(self.process, fitted)
        features = dataclasses.replace(self.features(sizes[0]), process=process)
        return Sizes(features, sizes[1], fit.density)

    @property
    def _spread(self) -> Float[np.ndarray, "rows outputs"]:
        return self.rows.spread.reshape(len(self.rows), -1)

    @property
    def _targets(self) -> Float[np.ndarray, "rows outputs"]:
        return self.rows.y.reshape(len(self.rows), -1)

    @functools.cached_property
    def _radial(self) -> Float[np.ndarray, " rows"]:
        return self.process.sphere.points(self.rows.x)[1]

    @functools.lru_cache(maxsize=2)  # noqa: B019 - the judge lives as long as the choice
    def _stored(self, n_features: int) -> tuple[GlobalFeatures, StoredRows]:
        """Features of variance one, and the rows with them and noise of one."""
        process = with_values(self.process, {"variance": 1.0})
        drawn = self.order[-self.settings.candidate_rows :]
        features = GlobalFeatures.draw(
            process, self.points[drawn], n_features, self.seed
        )
        noise = np.ones(len(self.rows))
        return features, features.stored(
            self.points, self._radial, self._targets, noise
        )

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def _lists(self, n_neighbors: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        own = np.sort(self.order[:n_rows])
        k = min(n_neighbors, len(self.rows) - 1)
        if k == 0:
            return own, np.zeros((len(own), 0), np.int32)
        return own, self.index.query(self.points[own], k, own)[0]

    def features(self, n_features: int) -> GlobalFeatures:
        """Features of variance one."""
        return self._stored(n_features)[0]

    def fit(
        self, n_features: int, n_neighbors: int, ratio: float, search: NoiseSearch
    ) -> _Fit:
        """Fit noise and variance, starting at a ratio of noise to variance.

        The ratio is found by a line search; the common scale has a closed form.
        """
        features, stored = self._stored(n_features)
        own, lists = self._lists(n_neighbors, search.rows)
        best = _Fit(ratio, 1.0, -np.inf)

        def loss(log_ratio: float) -> float:
            nonlocal best
            noise = float(np.exp(log_ratio))
            density, scale = self._density(features, stored, own, lists, noise)
            if density > best.density:
                best = _Fit(noise, scale, density)
            return -density

        minimize_scalar(
            loss,
            bounds=np.log(ratio) + search.reach * np.array([-1.0, 1.0]),
            method="bounded",
            options={"xatol": 0.05, "maxiter": search.steps},
        )
        return best

    def _density(
        self,
        features: GlobalFeatures,
        stored: StoredRows,
        own: np.ndarray,
        lists: np.ndarray,
        noise: float,
    ) -> tuple[float, float]:
        """Mean log density with the best common scale of noise and variance, and it.

        With Σ e²/s over W targets, the scale c gives -½ (W log c + Σ e²/(c s)), which
        is largest at c = Σ e²/s / W. Repeated rows count with their own spread.
        """
        weight = self.rows.weight
        rows = dataclasses.replace(stored, noise=noise / weight)
        given = FullScale.of(features, rows, np.float32)
        found = given.leave_out(own, lists)
        outputs = self._targets.shape[1]
        own_weight = weight[own][:, None]
        total = float(own_weight.sum()) * outputs
        spread = found.variance[:, None] + noise / own_weight
        repeats = self._spread[own]
        squares = np.sum((self._targets[own] - found.mean) ** 2 / spread)
        squares += repeats.sum() / noise
        logs = np.sum(np.log(2 * np.pi * spread) * np.ones(outputs))
        logs += outputs * np.sum(
            (own_weight - 1) * np.log(2 * np.pi * noise) + np.log(own_weight)
        )
        scale = max(float(squares) / total, 1e-12)
        value = -0.5 * (logs / total + np.log(scale) + float(squares) / total / scale)
        return float(value), scale
