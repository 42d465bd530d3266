"""Learning by neighbours: from standardised rows to a kernel, without features.

The objective is the mean leave-one-out log density of some thousands of rows, each
given its nearest rows among all. It resolves detail that a few hundred global features
treat as noise, and costs some 100 µs per row with its gradient. Densities are those of
Student's t, with tails that follow from the residuals (`zonal.learning.residuals`), so
that a few outliers do not decide.

1. Screen: starts from {rough, smooth} x {little, much noise} x {three scales} are
   judged by the density of a few hundred rows, without gradients.
2. Race: the best of them take some steps of L-BFGS; the density of other rows selects
   the winner. Noisy tables have a rough and a smooth optimum, and only the density
   ranks them.
3. Rounds: L-BFGS on a growing sample with fixed lists of neighbours, searched again
   before each round, until validation rows are no longer predicted better.
4. Noise and variance are fitted once the numbers of features and neighbours are chosen
   (`zonal.learning.sizes`).

A `State` goes into a round and another comes out; each round is reported as an `Info`.

Reference: Vecchia (1988); leave-one-out densities as in Rasmussen & Williams (2006),
section 5.4.2, with each row given its neighbours instead of all others.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int
from scipy.optimize import minimize, minimize_scalar

from zonal.engine.local import (
    LeaveOneOut,
    StoredRows,
    leave_one_out,
    noise_per_row,
)
from zonal.engine.neighbours import Neighbours
from zonal.learning.residuals import Fit, Residuals
from zonal.learning.schedule import NeighbourSchedule
from zonal.learning.starts import apart, directions, process_starts
from zonal.prior.kernels import ContinuousDepth, Kernel
from zonal.prior.parameters import free, free_gradient, named, with_free, with_values
from zonal.prior.process import LocalProcess
from zonal.prior.sphere import Sphere
from zonal.saving import savable
from zonal.tables.repeats import DistinctRows
from zonal.tables.sampling import row_bits

__all__ = [
    "Info",
    "State",
    "init",
    "learn",
    "noise_fitted",
    "round_of_steps",
]

# Limits of learned parameters. Scales beyond them change nothing; noise below its limit
# is a thousandth of the target's standard deviation or less.
_LIMITS = {
    "sphere.scales": (1e-5, 100.0),
    "kernel.beta": (1.2, 12.0),
    "variance": (1e-3, 1e4),
    "noise": (1e-6, 10.0),
}
# The noise is searched for within this distance of its present value, in logarithms.
_NOISE_RANGE = 3.0
# Noise over variance while parameters are learned: with less, most systems would have
# to be solved in float64.
_LEAST_RATIO = 1e-7


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """The state of learning between two rounds, and the best process so far.

    ``validation`` is the density of the validation rows that ``best`` reached, with
    noise and variance fitted to them.
    """

    process: LocalProcess
    best: LocalProcess
    validation: float = -np.inf
    rounds: int = 0
    without_gain: int = 0
    done: bool = False


@dataclasses.dataclass(frozen=True)
class Info:
    """The report of a round: densities are means per row, in nats."""

    stage: str
    number: int
    rows: int
    evaluations: int
    density: float
    validation: float
    seconds: float


def learn(
    rows: DistinctRows,
    settings: NeighbourSchedule | None = None,
    sphere: Sphere | None = None,
    kernel: Kernel | None = None,
    seed: int = 0,
    callback: Callable[[Info], Any] | None = None,
) -> tuple[State, tuple[Info, ...]]:
    """Learn sphere, kernel, variance and noise; stops by itself.

    Parameters
    ----------
    rows
        Distinct rows, standardised, with one or several standardised targets. All of
        them serve as neighbours.
    settings
        Tuning constants.
    sphere, kernel
        Kinds to learn, instead of `ARD` and `ContinuousDepth`; parameters without a
        gradient keep their values.
    seed
        Seed of all random choices.
    callback
        Called with each `Info`; learning stops if it returns a true value.

    Examples
    --------
    >>> from zonal.tables.repeats import merged_rows
    >>> generator = np.random.default_rng(0)
    >>> x = generator.normal(size=(500, 3))
    >>> y = np.sin(2 * x[:, 0]) + 0.1 * generator.normal(size=500)
    >>> state, report = learn(merged_rows(x, y))
    >>> bool(0.05 < np.sqrt(state.best.noise) < 0.2)
    True
    >>> int(np.argmax(state.best.sphere.scales))
    0
    """
    settings = NeighbourSchedule() if settings is None else settings
    infos: list[Info] = []

    def stops(info: Info) -> bool:
        infos.append(info)
        return callback is not None and bool(callback(info))

    state, info = init(rows, settings, sphere, kernel, seed)
    stopped = stops(info)
    while not state.done and not stopped:
        state, info = round_of_steps(rows, settings, state, seed)
        stopped = stops(info)
    return state, tuple(infos)


def init(
    rows: DistinctRows,
    settings: NeighbourSchedule,
    sphere: Sphere | None = None,
    kernel: Kernel | None = None,
    seed: int = 0,
    given: LocalProcess | None = None,
) -> tuple[State, Info]:
    """The state after a short race between starts, and its report.

    A ``given`` process, such as that of an earlier fit, takes part in the race.
    """
    begin = time.monotonic()
    if len(rows) < 2:
        raise ValueError(
            f"learning by neighbours needs at least 2 distinct rows, got {len(rows)}"
        )
    pool = _race_pool(rows, settings, seed)
    own, validation_rows = _split_rows(len(pool), settings, seed)
    screen, race = own[: settings.screen_rows], own[: settings.race_rows]
    few_validation_rows = validation_rows[: settings.race_rows]
    starts = process_starts(
        pool.x[screen], sphere, kernel, settings.scales, settings.betas, settings.noises
    )
    scores = _score_starts(pool, starts, screen, settings)
    order = np.argsort(-np.asarray(scores), kind="stable")
    evaluations, highest = len(starts), -np.inf
    best = settled = starts[order[0]]
    racers = apart([starts[i] for i in order], settings.racers)
    for start in racers if given is None else [given, *racers]:
        process = start
        for _ in range(settings.race_rounds):
            process, _, count = _climb(
                pool, process, race, settings, settings.race_steps
            )
            evaluations += count
        fitted, fit = noise_fitted(pool, process, few_validation_rows, settings)
        if fit.density > highest:
            best, settled, highest = process, fitted, fit.density
    _, validation_rows = _split_rows(len(rows), settings, seed)
    settled, fit = noise_fitted(rows, best, validation_rows, settings)
    info = Info(
        "race",
        0,
        len(race),
        evaluations,
        float(np.max(scores)),
        fit.density,
        time.monotonic() - begin,
    )
    return State(best, settled, fit.density), info


def round_of_steps(
    rows: DistinctRows, settings: NeighbourSchedule, state: State, seed: int = 0
) -> tuple[State, Info]:
    """One round of L-BFGS with fresh lists, judged by the validation rows."""
    begin = time.monotonic()
    others, validation_rows = _split_rows(len(rows), settings, seed)
    own = _window(others, settings, state.rounds)
    process, density, count = _climb(rows, state.process, own, settings, settings.steps)
    settled, fit = noise_fitted(rows, process, validation_rows, settings)
    validation = fit.density
    number = state.rounds + 1
    gain = validation - state.validation
    # Densities have heavy tails: one round without a gain may be chance.
    without_gain = 0 if gain > settings.tolerance else state.without_gain + 1
    done = number >= len(settings.sample_rows) or without_gain >= settings.patience
    best = settled if gain > 0 else state.best
    highest = max(validation, state.validation)
    info = Info(
        "round",
        number,
        len(own),
        count,
        density,
        validation,
        time.monotonic() - begin,
    )
    return State(process, best, highest, number, without_gain, done), info


def noise_fitted(
    rows: DistinctRows,
    process: LocalProcess,
    own: Int[np.ndarray, " own"],
    settings: NeighbourSchedule,
) -> tuple[LocalProcess, Fit]:
    """The process with noise and variance fitted to some rows, and the last fit.

    The noise is determined by a few pairs of close rows with different targets, so the
    fit needs many rows. The common scale of noise and variance is fitted along with the
    tails (`zonal.learning.residuals`); their ratio is found by a line search.
    """
    sample = _Sample.find(rows, process, own, settings.validation_neighbours)
    ratio = float(process.noise) / float(process.variance)

    def fit_scale(log_ratio: float) -> tuple[LocalProcess, Fit]:
        noise = float(process.variance) * np.exp(log_ratio)
        candidate = with_values(process, {"noise": noise})
        fit = sample.residuals(candidate).fit(settings.most_tails)
        return _rescaled(candidate, fit.scale), fit

    search = minimize_scalar(
        lambda log_ratio: -fit_scale(log_ratio)[1].density,
        bounds=(np.log(ratio) - _NOISE_RANGE, np.log(ratio) + _NOISE_RANGE),
        method="bounded",
        options={"xatol": 0.1, "maxiter": 8},
    )
    return fit_scale(float(search.x))  # pyright: ignore


def _rescaled(process: LocalProcess, factor: float) -> LocalProcess:
    """The process with variance and noise times a factor, within their limits."""
    values = {
        name: float(np.clip(factor * getattr(process, name), *_LIMITS[name]))
        for name in ("variance", "noise")
    }
    return with_values(process, values)


def _window(own: np.ndarray, settings: NeighbourSchedule, rounds: int) -> np.ndarray:
    """Rows of a round: not those of earlier rounds, as far as the table has others."""
    sizes = settings.sample_rows
    size = sizes[min(rounds, len(sizes) - 1)]
    return np.roll(own, -sum(sizes[:rounds]))[:size]


def _race_pool(
    rows: DistinctRows, settings: NeighbourSchedule, seed: int
) -> DistinctRows:
    """The rows that the race finds neighbours in: some of a large table."""
    if len(rows) <= settings.race_pool:
        return rows
    generator = np.random.default_rng(row_bits(seed))
    some = np.sort(generator.choice(len(rows), settings.race_pool, replace=False))
    return DistinctRows(
        rows.x[some], rows.y[some], rows.weight[some], rows.spread[some], some
    )


def _split_rows(
    count: int, settings: NeighbourSchedule, seed: int
) -> tuple[Int[np.ndarray, " own"], Int[np.ndarray, " validation_rows"]]:
    """Rows to learn from, and validation rows: a third of a small table."""
    order = np.random.default_rng(row_bits(seed)).permutation(count)
    size = min(settings.validation_rows, max(1, count // 3))
    return order[size:], order[:size]


@dataclasses.dataclass(frozen=True, eq=False)
class _Sample:
    """Rows with their lists of neighbours, and all rows in these lists."""

    rows: DistinctRows
    own: Int[np.ndarray, " own"]
    lists: Int[np.ndarray, "own k"]

    @classmethod
    def find(
        cls, rows: DistinctRows, process: LocalProcess, own: np.ndarray, k: int
    ) -> "_Sample":
        """Search all rows for neighbours, in the metric of a process."""
        points = directions(rows.x, process.sphere)
        lists, _ = Neighbours.build(points).query(points[own], k, own)
        used = np.unique(np.concatenate([own, lists[lists >= 0]]))
        index = np.full(len(rows) + 1, -1)
        index[used] = np.arange(len(used))
        subset = DistinctRows(
            rows.x[used].astype(np.float64),
            rows.y[used].reshape(len(used), -1),
            rows.weight[used],
            rows.spread[used].reshape(len(used), -1),
            used,
        )
        return cls(subset, index[own], index[lists])

    def leave_one_out(
        self, process: LocalProcess, gradient: bool, tails: float = 0.0
    ) -> LeaveOneOut:
        direction, radial = process.sphere.points(self.rows.x)
        variance = float(process.variance)
        noise = noise_per_row(
            float(process.noise), self.rows.weight, variance, _LEAST_RATIO
        )
        stored = StoredRows(
            np.asarray(direction), np.asarray(radial), self.rows.y, noise
        )
        return leave_one_out(
            stored,
            self.own,
            self.lists,
            process.table(),
            variance,
            gradient=gradient,
            tails=tails,
        )

    def residuals(
        self, process: LocalProcess, predicted: LeaveOneOut | None = None
    ) -> Residuals:
        """The residuals of the sample."""
        if predicted is None:
            predicted = self.leave_one_out(process, gradient=False)
        return Residuals(
            self.rows.y[self.own] - predicted.mean,
            predicted.variance,
            float(process.noise),
            self.rows.weight[self.own],
            self.rows.spread[self.own],
        )

    def density_and_gradient(
        self, process: LocalProcess, tails: float
    ) -> tuple[float, dict[str, np.ndarray]]:
        """Mean log density and its gradient in the value of each parameter."""
        predicted = self.leave_one_out(process, gradient=True, tails=tails)
        bar = predicted.gradient
        assert bar is not None, "leave_one_out was called with gradient=True"
        residuals = self.residuals(process, predicted)
        log_noise = bar.log_noise + residuals.repeats_slope
        gradients = {
            "kernel.beta": np.asarray(bar.beta),
            "variance": np.asarray(bar.log_variance / float(process.variance)),
            "noise": np.asarray(log_noise / float(process.noise)),
        }
        pulled = process.sphere.pull(self.rows.x, bar.directions, bar.radial)
        gradients |= {f"sphere.{name}": value for name, value in pulled.items()}
        return residuals.density(tails), {
            name: np.asarray(gradient / residuals.total)
            for name, gradient in gradients.items()
        }


def _climb(
    rows: DistinctRows,
    process: LocalProcess,
    own: np.ndarray,
    settings: NeighbourSchedule,
    steps: int,
) -> tuple[LocalProcess, float, int]:
    """Take some steps of L-BFGS with fixed lists of neighbours and fixed tails.

    Returns the process, its density and the number of evaluations.
    """
    sample = _Sample.find(rows, process, own, settings.neighbours)
    tails = sample.residuals(process).fit(settings.most_tails).tails
    names = _learned_names(process)
    limits = [
        np.tile(_limits(name, process), (len(free(process, [name])), 1))
        for name in names
    ]

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        candidate = with_free(process, vector, names)
        value, gradients = sample.density_and_gradient(candidate, tails)
        learned = {name: gradients[name] for name in names}
        return -value, -free_gradient(candidate, learned, vector, names)

    fit = minimize(
        objective,
        free(process, names),
        jac=True,
        method="L-BFGS-B",
        bounds=np.concatenate(limits),
        options={"maxiter": steps, "maxcor": 20, "maxfun": steps + 5, "maxls": 10},
    )
    return with_free(process, fit.x, names), -float(fit.fun), int(fit.nfev)


def _learned_names(process: LocalProcess) -> list[str]:
    """Names of the learned parameters: all but the power of the radius."""
    names = [name for name in named(process) if name.startswith("sphere.")]
    names = [name for name in names if name != "sphere.radial_order"]
    if isinstance(process.kernel, ContinuousDepth):
        names.append("kernel.beta")
    return [*names, "variance", "noise"]


def _limits(name: str, process: LocalProcess) -> tuple[float, float]:
    """Limits of the free value of a parameter."""
    low, high = _LIMITS.get(name, (-np.inf, np.inf))
    if name == "noise":
        low = max(low, _LEAST_RATIO * float(process.variance))
    return (np.log(low), np.log(high)) if name in _LIMITS else (low, high)


def _score_starts(
    rows: DistinctRows,
    starts: list[LocalProcess],
    own: np.ndarray,
    settings: NeighbourSchedule,
) -> list[float]:
    """Density of each start at its best scale; equal spheres share their lists."""
    scores, last, sample = [], None, None
    for start in starts:
        if start.sphere is not last or sample is None:
            last, sample = (
                start.sphere,
                _Sample.find(rows, start, own, settings.neighbours),
            )
        scores.append(sample.residuals(start).fit(settings.most_tails).density)
    return scores
