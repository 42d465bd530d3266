"""The choice of a target's scale by leave-one-out densities.

Targets that are positive, between 0 and 1, or skewed may be easier to predict on
another scale (`zonal.tables.target_maps`). Sign, bounds, skewness and repeated values
of a sample say which maps are plausible; for most tables none is, and nothing else is
computed.

Otherwise one kernel is learned in a few steps for the mapped targets of all candidates
together. Its leave-one-out means of a row are the same linear combination of neighbours
for all of them, so one pass judges all candidates at one noise. Each takes the noise
that suits it best, and its density gets the shape of its residuals, as predictions do
(`zonal.likelihoods.noise.Calibration`), fitted to the other half of the rows. With the
slope of the map, densities are those of the target in its own units. A map is chosen if
it is clearly better than none.

Reference: Snelson, Rasmussen & Ghahramani (2003), "Warped Gaussian processes".
"""

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize_scalar

from zonal.engine.local import StoredRows, leave_one_out
from zonal.engine.neighbours import Neighbours
from zonal.learning.by_neighbours import init
from zonal.learning.recipe import Recipe, scaling_of
from zonal.learning.residuals import Residuals
from zonal.learning.schedule import MapSchedule
from zonal.learning.starts import directions
from zonal.likelihoods.base import Likelihood
from zonal.likelihoods.noise import Calibration
from zonal.prior.parameters import with_values
from zonal.prior.process import LocalProcess
from zonal.tables.chunks import Chunk, merged
from zonal.tables.repeats import DistinctRows, merged_rows
from zonal.tables.rounding import round_bits, round_to_width
from zonal.tables.scaling import ConstantWarning
from zonal.tables.sources import Source, source_of
from zonal.tables.target_maps import (
    Identity,
    Log,
    Logit,
    TargetMap,
    YeoJohnson,
    logit_below,
)

__all__ = ["choose_target_map", "plausible_maps"]

# Targets between 0 and 1 reach at least this near to a bound, if they are shares.
_NEAR_BOUND = 0.1
# The standard deviation of a normal variable in units of its interquartile range.
_NORMAL_WIDTH = 1 / 1.349


def choose_target_map(
    source: Source, likelihood: Likelihood, recipe: Recipe, output: int = 0
) -> TargetMap:
    """The map of the target that a recipe asks for, or that suits the rows best.

    Examples
    --------
    >>> from zonal import ArraySource, Gaussian
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(1000, 1))
    >>> y = np.sin(2 * x[:, 0]) + 0.5 * generator.normal(size=1000)
    >>> choose_target_map(ArraySource(x, y), Gaussian(), Recipe()).name
    'identity'
    >>> choose_target_map(ArraySource(x, np.exp(y)), Gaussian(), Recipe()).name
    'log'
    """
    transform = recipe.target_transform
    if isinstance(transform, tuple):
        return transform[output]
    if transform is None:
        return Identity()
    if not likelihood.conjugate:
        if transform == "auto":
            return Identity()
        raise ValueError(
            f"target_transform={transform!r} is for normal noise; leave it out for "
            f"{type(likelihood).__name__}"
        )
    if transform == "log":
        return Log()
    if transform == "logit":
        return logit_below(_bounds_of(source)[1])
    settings = recipe.schedule.maps
    # Sorted, so that the choice does not depend on the order of the rows.
    rows = merged(source.sample(settings.pool_rows, recipe.seed))
    if transform == "yeo-johnson":
        return _best_exponent(rows, recipe)
    best: TargetMap = Identity()
    if not _stays_as_it_is(rows, recipe):
        candidates = plausible_maps(rows.targets, settings)
        # A sample does not show all values.
        candidates = [
            candidate for candidate in candidates if _contains_all(candidate, source)
        ]
        if candidates:
            best = _best_map(rows, candidates, recipe)
    return _with_floor(best, rows, source, settings)


def _with_floor(
    target_map: TargetMap, rows: Chunk, source: Source, settings: MapSchedule
) -> TargetMap:
    """The map with a floor at zero, if it has no bound and no target is negative."""
    if not isinstance(target_map, Identity | YeoJohnson):
        return target_map
    if len(rows) < settings.least_rows or rows.targets.min() < 0:
        return target_map
    if _bounds_of(source)[0] < 0:
        return target_map
    return dataclasses.replace(target_map, floor=0.0)


def _stays_as_it_is(rows: Chunk, recipe: Recipe) -> bool:
    """Whether no map is tried, because there is nothing to judge by.

    Known precisions are those of the target as it is. A time limit changes nothing: a
    fit that is resumed with another limit needs the same map.
    """
    few = len(rows) < recipe.schedule.maps.least_rows
    return few or recipe.most_steps == 0 or rows.precision is not None


def plausible_maps(
    y: Float[np.ndarray, " rows"], settings: MapSchedule | None = None
) -> list[TargetMap]:
    """Maps that may suit targets, by their bounds and quantiles; often none.

    Examples
    --------
    >>> y = np.random.default_rng(0).normal(size=1000)
    >>> plausible_maps(y), [each.name for each in plausible_maps(np.exp(y))]
    ([], ['log', 'yeo-johnson'])
    """
    settings = MapSchedule() if settings is None else settings
    values, counts = np.unique(y, return_counts=True)
    repeated = counts.max() > settings.most_repeated * len(y)
    if repeated or len(values) < settings.least_distinct:
        return []
    candidates: list[TargetMap] = []
    low, high = np.quantile(y, [0.05, 0.95])
    if 0 < values[0] < _NEAR_BOUND and 1 - _NEAR_BOUND < values[-1] < 1:
        candidates.append(Logit())
    if values[0] > 0 and high > settings.least_ratio * low:
        candidates.append(Log())
    distance = np.abs(y - np.median(y))
    # The mean of a target with such outliers is decided by them on any scale.
    extreme = distance.max() > settings.most_extreme * np.median(distance)
    if abs(_skewness(y)) > settings.least_skewness and not extreme:
        candidates.append(yeo_johnson_of(y))
    return candidates


def _skewness(y: Float[np.ndarray, " rows"]) -> float:
    """Skewness of targets of any size that are not all equal."""
    # Both steps avoid overflow.
    y = y / np.max(np.abs(y))
    distance = y - np.mean(y)
    distance /= np.max(np.abs(distance))
    return float(np.mean(distance**3) / np.mean(distance**2) ** 1.5)


def yeo_johnson_of(y: Float[np.ndarray, " rows"]) -> YeoJohnson:
    """The map whose exponent makes targets as normal as possible.

    Its centre is zero for targets that are never negative, and else the median.
    """
    centre, low, high = np.median(y), *np.quantile(y, [0.25, 0.75])
    width = _NORMAL_WIDTH * (high - low)
    if y.min() >= 0:
        positive = y[y > 0]
        centre, width = 0.0, np.median(positive) if len(positive) else 0.0
    if not width > 0:
        width = np.std(y) or 1.0
    width = float(round_bits(float(width)))
    centre = float(round_to_width(centre, width))

    def loss(exponent: float) -> float:
        return -_normal_density(YeoJohnson(exponent, centre, width), y)

    search = minimize_scalar(loss, bounds=(0, 2), method="bounded")
    exponent = round(float(search.x), 3)  # pyright: ignore[reportAttributeAccessIssue]
    return YeoJohnson(exponent, centre, width)


def _normal_density(target_map: TargetMap, y: Float[np.ndarray, " rows"]) -> float:
    """Mean log density of targets that are normal on a map's scale, plus a constant."""
    deviation = max(float(np.std(target_map.forward(y))), np.finfo(np.float64).tiny)
    return float(np.mean(target_map.log_slope(y))) - float(np.log(deviation))


def _contains_all(target_map: TargetMap, source: Source) -> bool:
    """Whether all targets of a source are within the bounds of a map."""
    if not np.isfinite(target_map.lower):
        return True
    return bool(np.all(target_map.contains(np.array(_bounds_of(source)))))


def _bounds_of(source: Source) -> tuple[float, float]:
    """The smallest and the largest target."""
    return source.reduced(_find_bounds, _join_bounds)


def _find_bounds(source: Source) -> tuple[float, float]:
    bounds = np.inf, -np.inf
    for chunk in source.chunks():
        targets = chunk.targets[chunk.counts]
        if len(targets):
            bounds = _join_bounds(bounds, (targets.min(), targets.max()))
    return bounds


def _join_bounds(
    first: tuple[float, float], second: tuple[float, float]
) -> tuple[float, float]:
    return float(min(first[0], second[0])), float(max(first[1], second[1]))


def _best_map(
    rows: Chunk, candidates: Sequence[TargetMap], recipe: Recipe
) -> TargetMap:
    """The map of the highest density; each has to be clearly better than simpler ones.

    Candidates are in the order in which they are preferred. Yeo-Johnson maps are tried
    with several exponents.
    """
    settings = recipe.schedule.maps
    judge = _Judge.of(rows, [Identity(), *candidates], recipe)
    if judge is None:
        return Identity()
    best: TargetMap = Identity()
    density = judge.densities([best])[:, 0]
    for candidate in candidates:
        group = _with_exponents(candidate, settings)
        densities = judge.densities(group)
        index = int(np.argmax(judge.weight @ densities))
        if judge.is_clear(densities[:, index] - density):
            best, density = group[index], densities[:, index]
    return best


def _best_exponent(rows: Chunk, recipe: Recipe) -> TargetMap:
    """The Yeo-Johnson map of the highest density."""
    candidate = yeo_johnson_of(rows.targets)
    judge = None
    if not _stays_as_it_is(rows, recipe):
        judge = _Judge.of(rows, [Identity(), candidate], recipe)
    if judge is None:
        return candidate
    group = _with_exponents(candidate, recipe.schedule.maps)
    return group[int(np.argmax(judge.weight @ judge.densities(group)))]


def _with_exponents(candidate: TargetMap, settings: MapSchedule) -> list[TargetMap]:
    """A Yeo-Johnson map with other exponents too; any other map alone."""
    if not isinstance(candidate, YeoJohnson):
        return [candidate]
    exponents = (candidate.exponent, *settings.exponents)
    return [dataclasses.replace(candidate, exponent=each) for each in exponents]


@dataclasses.dataclass(frozen=True, eq=False)
class _Judge:
    """Rows with a kernel that was learned for several maps of their target.

    ``weight`` are those of the judged rows ``own``, which sum to one. ``rare`` marks
    judged rows whose target few other rows have.
    """

    x: Float[np.ndarray, "rows inputs"]
    y: Float[np.ndarray, " rows"]
    process: LocalProcess
    own: Int[np.ndarray, " own"]
    weight: Float[np.ndarray, " own"]
    rare: Bool[np.ndarray, " own"]
    lists: Int[np.ndarray, "own k"]
    settings: MapSchedule

    @classmethod
    def of(
        cls, rows: Chunk, maps: Sequence[TargetMap], recipe: Recipe
    ) -> "_Judge | None":
        """Learn a kernel; None if there are too few distinct rows."""
        settings = recipe.schedule.maps
        with warnings.catch_warnings():
            # The scaling of the whole table warns.
            warnings.simplefilter("ignore", ConstantWarning)
            scaling = scaling_of(source_of(rows), recipe)
        x = scaling.inputs(rows.x)
        group = merged_rows(x, rows.targets).group
        _, first = np.unique(group, return_index=True)
        if len(first) < settings.least_rows:
            return None
        # Of equal rows one is left: means of targets would depend on the map.
        x, y, weight = x[first], rows.targets[first], rows.weights[first]
        targets = _standardised(maps, y)[0]
        one, none = np.ones(len(x)), np.zeros_like(targets)
        distinct = DistinctRows(x, targets, one, none, np.arange(len(x)))
        state, _ = init(
            distinct, settings.learning, recipe.sphere, recipe.kernel, recipe.seed
        )
        process = state.best
        points = directions(x, process.sphere)
        order = np.random.default_rng(recipe.seed).permutation(len(x))
        own = np.sort(order[: settings.judged_rows])
        neighbours = min(settings.learning.neighbours, len(x) - 1)
        lists = Neighbours.build(points).query(points[own], neighbours, own)[0]
        weight = weight[own] / weight[own].sum()
        _, value, counts = np.unique(y, return_inverse=True, return_counts=True)
        rare = counts[value[own]] <= settings.most_equal * len(y)
        return cls(x, y, process, own, weight, rare, lists, settings)

    def is_clear(self, gain: Float[np.ndarray, " own"]) -> bool:
        """Whether a gain in density per row is large and no chance.

        The density of a value that many rows have grows with the slope of a map there,
        which says nothing of other rows; so these have to gain too.
        """
        settings = self.settings
        mean = float(self.weight @ gain)
        error = float(np.sqrt(self.weight**2 @ (gain - mean) ** 2))
        of_rare = float(self.weight[self.rare] @ gain[self.rare])
        clear = mean > max(settings.least_gain, settings.least_errors * error)
        return clear and of_rare > settings.least_gain * float(
            self.weight[self.rare].sum()
        )

    def densities(self, maps: Sequence[TargetMap]) -> Float[np.ndarray, "own maps"]:
        """Log density of each judged target in its own units, by map."""
        targets, log_slopes = _standardised(maps, self.y)
        best: list[Residuals | None] = [None] * len(maps)
        highest = np.full(len(maps), -np.inf)
        for factor in self.settings.noises:
            noise = factor * float(self.process.noise)
            for index, residuals in enumerate(self._residuals(targets, noise)):
                density = residuals.fit().density
                if best[index] is None or density > highest[index]:
                    best[index], highest[index] = residuals, density
        shaped = [_shaped_density(residuals) for residuals in best if residuals]
        return np.column_stack(shaped) + log_slopes[self.own]

    def _residuals(
        self, targets: Float[np.ndarray, "rows maps"], noise: float
    ) -> list[Residuals]:
        """Leave-one-out residuals of the judged rows for each map."""
        process = with_values(self.process, {"noise": noise})
        direction, radial = process.sphere.points(self.x)
        stored = StoredRows(
            np.asarray(direction),
            np.asarray(radial),
            targets,
            np.full(len(self.x), noise),
        )
        predicted = leave_one_out(
            stored,
            self.own,
            self.lists,
            process.table(),
            float(process.variance),
            gradient=False,
        )
        one, none = np.ones(len(self.own)), np.zeros((len(self.own), 1))
        errors = targets[self.own] - predicted.mean
        return [
            Residuals(errors[:, [index]], predicted.variance, noise, one, none)
            for index in range(errors.shape[1])
        ]


def _standardised(
    maps: Sequence[TargetMap], y: Float[np.ndarray, " rows"]
) -> tuple[Float[np.ndarray, "rows maps"], Float[np.ndarray, "rows maps"]]:
    """A mapped and standardised target for each map, and the logs of its slopes."""
    targets, log_slopes = np.empty((2, len(y), len(maps)))
    for index, target_map in enumerate(maps):
        mapped = target_map.forward(y)
        width = max(float(np.std(mapped)), np.finfo(np.float64).tiny)
        targets[:, index] = (mapped - np.mean(mapped)) / width
        log_slopes[:, index] = target_map.log_slope(y) - np.log(width)
    return targets, log_slopes


def _shaped_density(residuals: Residuals) -> Float[np.ndarray, " rows"]:
    """Log densities of errors, with the shape of those of the other half of rows."""
    errors = residuals.errors[:, 0]
    unit = np.sqrt(residuals.variance + residuals.noise)
    # The widths of a calibration are relative to residuals of about one.
    scale = np.sqrt(max(float(np.mean((errors / unit) ** 2)), 1e-12))
    z = errors / (scale * unit)
    density = np.empty(len(z))
    even = np.arange(len(z)) % 2 == 0
    for half in (even, ~even):
        density[half] = Calibration.of(z[~half]).log_density(z[half])
    return density - np.log(scale * unit)
