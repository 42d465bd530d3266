"""Runs of learning by neighbours: limits, interrupts, checkpoints, full disks."""

import dataclasses
import warnings

import numpy as np
import pytest

from zonal import ARD, ArraySource, Recipe, fit
from zonal.learning import neighbour_run
from zonal.learning.checkpoints import CheckpointWarning
from zonal.learning.schedule import NeighbourSchedule, NoiseSearch, SizeSchedule
from zonal.learning.state import LearningStoppedWarning
from zonal.tables.repeats import merged_rows

QUICK = dataclasses.replace(
    Recipe().schedule,
    by_neighbours=NeighbourSchedule(
        screen_rows=40, race_rows=60, sample_rows=(100, 150), racers=1, race_rounds=1
    ),
    sizes=SizeSchedule(
        candidates=((0, 12), (16, 12)),
        close=NoiseSearch(150, 2.0, 3),
        judged=NoiseSearch(60, 0.5, 2),
        final=NoiseSearch(60, 0.5, 2),
    ),
)
RECIPE = Recipe(schedule=QUICK)


def table():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    return x, np.sin(2 * x[:, 0]) + 0.1 * generator.normal(size=200)


def predictions(model):
    x = np.random.default_rng(1).normal(size=(9, 2))
    return model.predict(x).mean


def stop_after(number):
    steps = []

    def callback(step):
        steps.append(step)
        return len(steps) >= number

    return callback


def test_a_stopped_run_has_the_sizes_that_were_given():
    recipe = dataclasses.replace(RECIPE, n_features=10, n_neighbors=7)
    with pytest.warns(LearningStoppedWarning, match="a callback"):
        model = fit(ArraySource(*table()), recipe, callback=stop_after(1))
    assert (model.n_features, model.n_neighbors) == (10, 7)
    assert np.isfinite(model.bound)
    with pytest.warns(LearningStoppedWarning, match="a callback"):
        model = fit(ArraySource(*table()), RECIPE, callback=stop_after(1))
    assert model.n_features == 0
    assert np.isfinite(model.bound)


def test_an_interrupt_of_the_choice_keeps_the_kernel(monkeypatch):
    rows = merged_rows(*table())
    expected = neighbour_run.NeighbourRun(rows, RECIPE)._learn_process()
    choose, calls = neighbour_run.choose_sizes, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return choose(*arguments)

    monkeypatch.setattr(neighbour_run, "choose_sizes", interrupted)
    with pytest.warns(LearningStoppedWarning, match="an interrupt"):
        (sizes,) = neighbour_run.NeighbourRun(rows, RECIPE).learn()
    np.testing.assert_array_equal(
        sizes.features.process.sphere.scales, expected.sphere.scales
    )
    assert len(calls) == 2


def test_a_checkpoint_goes_on_with_another_limit(tmp_path):
    path = tmp_path / "run.zonal"
    whole = fit(ArraySource(*table()), RECIPE)
    with pytest.warns(LearningStoppedWarning):
        fit(ArraySource(*table()), RECIPE, callback=stop_after(2), checkpoint=path)
    assert path.exists()
    hurried = dataclasses.replace(RECIPE, max_seconds=1000.0)
    steps = []
    resumed = fit(
        ArraySource(*table()), hurried, callback=steps.append, checkpoint=path
    )
    assert next(step.stage for step in steps) == "round"
    np.testing.assert_array_equal(predictions(resumed), predictions(whole))
    assert not path.exists()


def test_a_limit_that_passes_at_the_end_leaves_no_checkpoint(tmp_path):
    path = tmp_path / "run.zonal"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(
            ArraySource(*table()),
            RECIPE,
            callback=lambda step: step.stage == "sizes",
            checkpoint=path,
        )
    assert not path.exists()


def test_a_full_disk_costs_the_checkpoint_alone(tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(neighbour_run, "save_progress", full)
    with pytest.warns(CheckpointWarning, match="no space left"):
        model = fit(ArraySource(*table()), RECIPE, checkpoint=tmp_path / "run.zonal")
    np.testing.assert_array_equal(
        predictions(model), predictions(fit(ArraySource(*table()), RECIPE))
    )


def test_the_radial_order_is_kept():
    model = fit(ArraySource(*table()), dataclasses.replace(RECIPE, radial_order=1.0))
    sphere = model.process.basis.sphere
    assert isinstance(sphere, ARD)
    assert sphere.radial_order == 1.0
