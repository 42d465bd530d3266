"""A fit in a process of its own, to be killed at any moment."""

import os
import signal
import unittest.mock

import numpy as np

from zonal import SphericalGPClassifier, SphericalGPRegressor, saving
from zonal.learning.schedule import NeighbourSchedule, Schedule

ROWS = 300
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(ROWS, 3))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * GENERATOR.normal(size=ROWS)
TARGETS = {
    "gaussian": Y,
    "student-t": Y,
    "two classes": np.where(Y > 0, "up", "down"),
    "three classes": np.digitize(Y, [-0.5, 0.5]),
}

# Small samples, in two sizes, and many short rounds.
SMALL = Schedule(
    most_rows=120,
    least_rows=50,
    fewest_rows=50,
    start_rows=50,
    validation_rows=0,
    rough_levels=10,
    smooth_levels=10,
    round_steps=3,
    tolerance=0.05,
    fewest_inferred_rows=110,
    pass_tolerance=1e-4,
    by_neighbours=NeighbourSchedule(
        sample_rows=(50,), racers=1, race_rounds=1, race_steps=3, steps=3
    ),
)


def estimator(kind, **options):
    if kind.endswith("classes"):
        return SphericalGPClassifier(20, **options)
    # Features alone: those are learned in rounds of many steps.
    options = {"n_neighbors": 0} | options
    return SphericalGPRegressor(20, likelihood=kind, **options)


def predictions(kind, model):
    if kind.endswith("classes"):
        return model.predict_proba(X)
    return np.stack(model.predict(X, return_std=True))


def train(kind, path, result, dies_in_write):
    """Fit, and leave predictions; on request the process dies half-way in a write."""
    writes = 0

    def synced(file):
        nonlocal writes
        writes += 1
        if writes == dies_in_write:
            os.ftruncate(file, os.fstat(file).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    unittest.mock.patch("zonal.learning.schedule.DEFAULT", SMALL).start()
    unittest.mock.patch.object(saving.os, "fsync", synced).start()
    model = estimator(kind).fit(X, TARGETS[kind], checkpoint=path)
    np.save(result, predictions(kind, model))
