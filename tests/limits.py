"""Schedules of tests: few rounds, and few rows that count as many."""

from zonal.learning.schedule import NeighbourSchedule, Schedule, SizeSchedule

# Learning by neighbours takes longer than all that follows it. For tests of what
# follows, short spectra, one start, few steps and two pairs of sizes are enough.
FEW_ROUNDS = Schedule(
    rough_levels=10,
    smooth_levels=10,
    by_neighbours=NeighbourSchedule(
        racers=1, race_rounds=1, sample_rows=(400, 400), steps=8
    ),
    sizes=SizeSchedule(candidates=((0, 64), (64, 64))),
)

# Learn from few rows in no time, so that tests see the passes over all rows.
SMALL = Schedule(
    start_rows=100,
    validation_rows=50,
    rough_levels=20,
    by_neighbours=FEW_ROUNDS.by_neighbours,
    sizes=FEW_ROUNDS.sizes,
    round_steps=10,
    tolerance=1.0,
    most_rows=200,
    fewest_rows=100,
)


def few_rows_are_many(patch):
    """Take a few hundred rows for a large table."""
    patch.setattr("zonal.learning.schedule.DEFAULT", SMALL)
    patch.setattr("zonal.tables.batches.BATCH_ROWS", 128)
