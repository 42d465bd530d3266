"""Limits under which tables of a few hundred rows count as large."""

from zonal.learning.schedule import Schedule

# Learn from few rows in no time, so that tests see the passes over all rows.
SMALL = Schedule(
    start_rows=100,
    validation_rows=50,
    rough_levels=20,
    round_steps=10,
    tolerance=1.0,
    most_rows=200,
    fewest_rows=100,
)


def few_rows_are_many(patch):
    """Take a few hundred rows for a large table."""
    patch.setattr("zonal.learning.schedule.DEFAULT", SMALL)
    patch.setattr("zonal.tables.batches.BATCH_ROWS", 128)
