"""Limits under which tables of a few hundred rows count as large."""


def few_rows_are_many(patch):
    """Learn from few rows in no time, so that what tests look at is the passes."""
    for name, value in {
        "_START_ROWS": 100,
        "_HELD_OUT_ROWS": 50,
        "_START_SCALES": (0.2,),
        "_START_LEVELS": (20,),
        "_ROUND": 10,
        "_TOLERANCE": 1.0,
    }.items():
        patch.setattr(f"zonal.learning.by_bound.{name}", value)
    patch.setattr("zonal.learning.recipe._MOST_ROWS", 200)
    patch.setattr("zonal.learning.recipe._FEWEST_ROWS", 100)
    patch.setattr("zonal.tables.batches.BATCH_ROWS", 128)
