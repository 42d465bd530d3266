"""The schedule: sizes and tolerances of learning and solving, in one place."""

import dataclasses

__all__ = [
    "DEFAULT",
    "MapSchedule",
    "NeighbourSchedule",
    "NoiseSearch",
    "Schedule",
    "SizeSchedule",
    "default_schedule",
]


@dataclasses.dataclass(frozen=True)
class NeighbourSchedule:
    """Tuning constants of learning by neighbours; all were chosen by measurement.

    Parameters
    ----------
    neighbours, validation_neighbours
        Neighbours per row, while learning and for validation rows. More are slower, and
        rank starts and rounds as predictions would.
    screen_rows, race_rows, sample_rows, validation_rows
        Rows that rank the starts, rows of the race, rows of each round, and rows that
        decide when to stop.
    racers, race_rounds, race_steps, race_pool
        Starts in the race, its rounds and steps per round, and the largest number of
        rows that its neighbours come from; those of later rounds come from all rows.
    steps
        Steps of L-BFGS per round, with the same lists of neighbours.
    tolerance, patience
        Learning ends early after ``patience`` successive rounds that gain less than
        ``tolerance`` on the validation rows, in nats per row.
    most_tails
        Largest inverse of the degrees of freedom of residuals. Heavy tails give
        outliers less influence, but make mean squared errors worse.
    betas, noises, scales
        Starts to screen: the kernel's decay, the noise variance, and factors of equal
        scales.
    """

    neighbours: int = 64
    validation_neighbours: int = 128
    screen_rows: int = 300
    race_rows: int = 500
    sample_rows: tuple[int, ...] = (2_000, 4_000, 4_000, 4_000)
    validation_rows: int = 2_000
    racers: int = 4
    race_rounds: int = 3
    race_steps: int = 8
    race_pool: int = 200_000
    steps: int = 15
    tolerance: float = 2e-3
    patience: int = 2
    most_tails: float = 1 / 30
    betas: tuple[float, ...] = (2.0, 3.5)
    noises: tuple[float, ...] = (0.02, 0.4)
    scales: tuple[float, ...] = (0.1, 0.3, 1.0)


@dataclasses.dataclass(frozen=True)
class NoiseSearch:
    """A search for the noise.

    Parameters
    ----------
    rows
        Rows whose densities are compared.
    reach
        Farthest distance from the start, in logarithms.
    steps
        Steps of the line search.
    most_tails
        Largest inverse of the degrees of freedom of residuals; 0 for normal densities.
    """

    rows: int
    reach: float
    steps: int
    most_tails: float = 1.0


@dataclasses.dataclass(frozen=True)
class SizeSchedule:
    """Tuning constants of the choice of sizes; all were chosen by measurement.

    Parameters
    ----------
    candidates
        Numbers of features and of neighbours to choose from.
    n_features, n_neighbors
        Numbers to choose from where the other one is given.
    close, close_neighbors
        The first search for the noise, and its number of neighbours; it has no
        features. A few pairs of close rows decide it, so it takes many rows, and they
        must not count as outliers.
    judged, final
        The searches that follow, with each of the candidates, and with the chosen one.
    candidate_rows
        Rows that phases are drawn from.
    most_work
        Largest work of a pass: rows times squared features. So a table of features
        never has more than some hundred million numbers.
    least_gain, least_errors
        The gain in density, in nats per row and in standard errors, for which larger
        sizes are worth their cost.
    """

    candidates: tuple[tuple[int, int], ...] = (
        (0, 128),
        (512, 0),
        (64, 128),
        (0, 200),
        (64, 200),
        (256, 64),
        (0, 240),
        (512, 32),
    )
    n_features: tuple[int, ...] = (0, 64, 256, 512)
    n_neighbors: tuple[int, ...] = (32, 64, 128, 200, 240)
    close: NoiseSearch = NoiseSearch(12_000, 4.0, 8, most_tails=0.0)
    close_neighbors: int = 32
    judged: NoiseSearch = NoiseSearch(2_500, 0.5, 1)
    final: NoiseSearch = NoiseSearch(3_000, 0.5, 3)
    candidate_rows: int = 6_000
    most_work: float = 2e10
    least_gain: float = 2e-3
    least_errors: float = 1.5


@dataclasses.dataclass(frozen=True)
class MapSchedule:
    """Tuning constants of the choice of a target's scale; all chosen by measurement.

    Parameters
    ----------
    pool_rows, judged_rows
        Rows that serve as neighbours, and how many of them are predicted.
    learning
        The race that learns one kernel for all scales.
    noises
        Factors of its noise to choose from, for each scale.
    least_rows
        Fewest distinct rows with which scales are compared.
    least_gain, least_errors
        A scale must gain this many nats per row over the next simpler one, and this
        many standard errors.
    least_skewness, least_ratio
        Where a scale is plausible: the skewness, and for logarithms the ratio of the
        95 % quantile to the 5 % quantile.
    most_extreme
        Scales of Yeo and Johnson are not plausible for targets that are farther from
        the median than this, in units of their median distance.
    most_repeated, least_distinct
        Targets that repeat one value more often than this share, or have fewer distinct
        values, stay as they are.
    most_equal
        Rows whose target is that of a larger share of rows do not decide alone.
    exponents
        Exponents of Yeo and Johnson to choose from.
    """

    pool_rows: int = 6_000
    judged_rows: int = 1_000
    learning: NeighbourSchedule = NeighbourSchedule(
        neighbours=32,
        validation_neighbours=32,
        screen_rows=200,
        race_rows=400,
        validation_rows=400,
        racers=1,
        race_rounds=1,
    )
    noises: tuple[float, ...] = (0.02, 0.1, 0.4, 1.0, 3.0)
    least_rows: int = 100
    least_gain: float = 0.02
    least_errors: float = 2.0
    least_skewness: float = 0.7
    least_ratio: float = 2.5
    most_extreme: float = 1e4
    most_repeated: float = 0.3
    least_distinct: int = 20
    most_equal: float = 0.01
    exponents: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.25, 1.5, 1.75, 2.0)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Tuning constants of a fit; every default was chosen by measurement.

    Parameters
    ----------
    smooth_beta, rough_levels, smooth_levels
        Last levels of the spectrum of rough and of smooth functions. A function is
        smooth if β of its kernel, learned by neighbours, is at least ``smooth_beta``.
    start_rows, start_steps
        Size of the trial that decides between a given start and a fresh one.
    candidate_rows
        Rows from which phases are drawn.
    least_rows, growth
        Rows of the smallest sample, and the factor to the next.
    round_steps, tolerance
        Steps of a round, and the gain per row below which a round is the last on its
        sample.
    wide_steps, most_wide, wide_work
        Steps with the features of the solution, their largest number, and rows times
        squared features per step (some seconds).
    validation_rows
        Validation rows, if the sample leaves any.
    least_features
        Fewest features, even for very few rows.
    exact_rows
        Tables up to this many rows are learned from exactly, as dense Gaussian
        processes.
    most_rows, fewest_rows
        Rows of the largest sample with 512 features or less, and with many more.
    more_to_solve, solve_work, work_per_second
        The solution has at most this many times the features learned with, rows times
        squared features at most this (ten seconds on two cores), and this for every
        second of a time limit.
    fewest_inferred_rows
        Rows of the largest sample for likelihoods that need several passes, however
        many functions they have.
    turn_steps, turn_passes, turn_tolerance
        Steps of learning between two inferences, and passes and tolerance of these.
    pass_tolerance
        Relative change of the bound that ends passes over all rows.
    by_neighbours, sizes
        Constants of learning by neighbours, and of the choice of sizes that follows.
    maps
        Constants of the choice of the target's scale.
    """

    smooth_beta: float = 3.0
    rough_levels: int = 60
    smooth_levels: int = 20
    start_rows: int = 3_000
    start_steps: int = 12
    candidate_rows: int = 6_000
    least_rows: int = 16_000
    growth: int = 4
    round_steps: int = 50
    tolerance: float = 5e-4
    wide_steps: int = 12
    most_wide: int = 2048
    wide_work: float = 5e10
    validation_rows: int = 4_000
    least_features: int = 64
    exact_rows: int = 400
    most_rows: int = 60_000
    fewest_rows: int = 3_000
    more_to_solve: int = 4
    solve_work: float = 5e11
    work_per_second: float = 1e10
    fewest_inferred_rows: int = 6_000
    turn_steps: int = 15
    turn_passes: int = 12
    turn_tolerance: float = 1e-5
    pass_tolerance: float = 1e-5
    by_neighbours: NeighbourSchedule = NeighbourSchedule()
    sizes: SizeSchedule = SizeSchedule()
    maps: MapSchedule = MapSchedule()

    def affordable_sample(self, n_features: int) -> int:
        """Rows with which a step with ``n_features`` features takes about a second.

        Examples
        --------
        >>> Schedule().affordable_sample(512), Schedule().affordable_sample(1024)
        (60000, 15000)
        """
        share = min(1.0, (512 / max(n_features, 1)) ** 2)
        return max(self.fewest_rows, int(self.most_rows * share))


DEFAULT = Schedule()


def default_schedule() -> Schedule:
    """The schedule of a recipe unless it sets another."""
    return DEFAULT
