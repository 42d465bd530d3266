"""The schedule: sizes and tolerances of learning and solving, in one place."""

import dataclasses

__all__ = ["DEFAULT", "Schedule", "default_schedule"]


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Tuning constants of a fit; every default was chosen by measurement.

    Parameters
    ----------
    start_scales
        Scales of the inputs to start learning from.
    paired_scales
        Scales of the most informative columns if columns are informative only in pairs.
    start_levels
        Last levels of the spectrum to start learning with.
    start_rows, start_features, start_steps
        Size of the trials that choose between scales.
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
    exact_rows, exact_start_rows, exact_steps
        Tables up to this many rows are learned from exactly, as dense Gaussian
        processes, with trials of this size.
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
    """

    start_scales: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    paired_scales: tuple[float, ...] = (0.2, 0.5)
    start_levels: tuple[int, ...] = (20, 60)
    start_rows: int = 3_000
    start_features: int = 256
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
    exact_start_rows: int = 100
    exact_steps: int = 6
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
