"""Learning by neighbours, against dense processes and functions that are known."""

import dataclasses

import numpy as np
import pytest

from zonal import ARD, NTK, ContinuousDepth, LatitudeLongitude, Projection
from zonal.learning.by_neighbours import (
    State,
    _race_pool,
    _Sample,
    init,
    learn,
    noise_fitted,
    round_of_steps,
)
from zonal.learning.schedule import NeighbourSchedule
from zonal.prior.parameters import named, with_values
from zonal.prior.process import LocalProcess
from zonal.tables.repeats import merged_rows

QUICK = NeighbourSchedule(
    screen_rows=100,
    race_rows=200,
    sample_rows=(300, 400),
    validation_rows=200,
    racers=2,
    race_rounds=1,
)


def table(rows=900, columns=3, noise=0.1, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns))
    y = np.sin(2 * x[:, 0]) + noise * generator.normal(size=rows)
    return x, y


def process(columns=3, sphere=None):
    sphere = ARD(np.linspace(0.2, 0.5, columns)) if sphere is None else sphere
    return LocalProcess(sphere, ContinuousDepth(beta=2.5), variance=1.7, noise=0.05)


NORMAL = dataclasses.replace(QUICK, validation_neighbours=10, most_tails=0.0)


def mean_log_density(rows, prior, own, k, tails=0.0):
    return _Sample.find(rows, prior, own, k).residuals(prior).density(tails)


def dense_leave_one_out(rows, prior, own):
    """Log densities of rows given all others, by the inverse of the whole matrix."""
    points, _ = prior.sphere.points(rows.x)
    squares = np.sum((points[:, None] - points[None, :]) ** 2, axis=2)
    covariance = prior.variance * prior.table().kernel(squares)
    noise = prior.noise / rows.weight
    inverse = np.linalg.inv(covariance + np.diag(noise))
    spread = 1 / np.diag(inverse)
    error = (inverse @ rows.y) * spread
    density = -0.5 * (np.log(2 * np.pi * spread) + error**2 / spread)
    return density[own]


def test_with_all_rows_as_neighbours_it_is_the_dense_leave_one_out():
    rows = merged_rows(*table(rows=60))
    own = np.array([3, 17, 40])
    found = mean_log_density(rows, process(), own, k=59)
    expected = dense_leave_one_out(rows, process(), own).mean()
    assert found == pytest.approx(expected, abs=2e-5)


def test_repeated_rows_count_by_their_weight():
    x, y = table(rows=40)
    rows = merged_rows(np.vstack([x, x]), np.concatenate([y, y + 0.2]))
    prior, own = process(), np.arange(5)
    # Both targets of a row, given those of all others: the mean of the pair has half
    # the noise, and their difference is normal with twice the noise.
    pair = -0.5 * (np.log(4 * np.pi * prior.noise) + 0.2**2 / (2 * prior.noise))
    expected = (dense_leave_one_out(rows, prior, own) + pair).sum() / 10
    assert mean_log_density(rows, prior, own, k=39) == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("tails", [0.0, 0.25])
@pytest.mark.parametrize("kind", ["ard", "projection", "outputs"])
def test_the_gradient_is_that_of_differences(kind, tails):
    x, y = table(rows=300)
    if kind == "outputs":
        y = np.column_stack([y, x[:, 1] ** 2])
    rows = merged_rows(np.vstack([x, x[:50]]), np.concatenate([y, y[:50] + 0.1]))
    sphere = Projection.random(3, 2) if kind == "projection" else None
    prior = dataclasses.replace(process(sphere=sphere), noise=0.3)
    sample = _Sample.find(rows, prior, np.arange(0, 300, 3), 10)
    _, gradients = sample.density_and_gradient(prior, tails)
    for name, value in named(prior, gradients.keys() - {"sphere.radial_order"}).items():
        # Steps are large because densities are made of float32 kernels.
        step = 5e-3 * np.abs(value).max()
        for place in np.ndindex(value.shape):
            ends = []
            for sign in (1, -1):
                moved = value.copy()
                moved[place] += sign * step
                candidate = with_values(prior, {name: moved})
                ends.append(sample.residuals(candidate).density(tails))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert gradients[name][place] == pytest.approx(slope, rel=0.02, abs=2e-3)


def test_noise_and_variance_are_fitted_by_density():
    x, y = table(rows=400, noise=0.3)
    rows = merged_rows(np.vstack([x, x[:50]]), np.concatenate([y, y[:50] + 0.4]))
    own = np.arange(0, 400, 2)
    fitted, (_, tails, density) = noise_fitted(rows, process(), own, NORMAL)
    assert tails == 0
    assert density == pytest.approx(mean_log_density(rows, fitted, own, 10), abs=1e-4)
    for name in ("variance", "noise"):
        for factor in (0.8, 1.25):
            other = with_values(fitted, {name: factor * getattr(fitted, name)})
            assert mean_log_density(rows, other, own, 10) < density


def test_noise_relevance_and_prediction_are_found():
    rows = merged_rows(*table(rows=1500))
    state, report = learn(rows, QUICK)
    scales = state.best.sphere.scales
    assert scales[0] > 3 * max(scales[1:])
    assert np.sqrt(state.best.noise) == pytest.approx(0.1, rel=0.2)
    # Normal noise of deviation 0.1 has the log density 0.88; the function costs some.
    assert 0.7 < state.validation < 0.95
    assert [info.stage for info in report] == ["race"] + ["round"] * (len(report) - 1)


def test_gross_errors_do_not_decide():
    """One target in fifty is off by ten deviations of the function."""
    x, y = table(rows=1500)
    y[::50] += 7 * np.sign(np.sin(np.arange(30)))
    rows = merged_rows(x, y)
    robust, _ = learn(rows, dataclasses.replace(QUICK, most_tails=0.5))
    assert np.sqrt(robust.best.noise) == pytest.approx(0.1, rel=0.5)
    assert robust.best.sphere.scales[0] > 3 * max(robust.best.sphere.scales[1:])


def test_columns_that_matter_only_together_are_found():
    generator = np.random.default_rng(3)
    x = generator.normal(size=(2500, 10))
    y = np.sign(x[:, 2]) * x[:, 7] + 0.1 * generator.normal(size=2500)
    state, _ = learn(
        merged_rows(x, y), dataclasses.replace(QUICK, sample_rows=(600,) * 3)
    )
    assert set(np.argsort(state.best.sphere.scales)[-2:]) == {2, 7}


def test_the_same_seed_learns_the_same():
    rows = merged_rows(*table())
    one, _ = learn(rows, QUICK, seed=5)
    two, _ = learn(rows, QUICK, seed=5)
    for name, value in named(one.best).items():
        np.testing.assert_array_equal(value, named(two.best)[name])


def test_a_state_goes_on_as_the_uninterrupted_run():
    rows = merged_rows(*table())
    whole, _ = learn(rows, QUICK)
    state, _ = init(rows, QUICK)
    while not state.done:
        state, _ = round_of_steps(rows, QUICK, State(**vars(state)))
    assert state.validation == whole.validation


def test_a_callback_stops():
    rows = merged_rows(*table())
    state, report = learn(rows, QUICK, callback=lambda info: info.number == 1)
    assert len(report) == 2
    assert not state.done


def test_a_native_sphere_and_a_given_kernel():
    generator = np.random.default_rng(0)
    x = np.column_stack(
        [generator.uniform(-90, 90, 600), generator.uniform(-180, 180, 600)]
    )
    y = np.sin(np.radians(x[:, 0])) + 0.1 * generator.normal(size=600)
    rows = merged_rows(x, y)
    state, _ = learn(rows, QUICK, LatitudeLongitude(), NTK(depth=2))
    assert state.best.kernel.depth == 2
    assert np.sqrt(state.best.noise) == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("rows", [3, 10])
def test_very_few_rows(rows):
    state, _ = learn(merged_rows(*table(rows=rows)), QUICK)
    assert np.isfinite(state.validation)


def test_one_row_is_an_error():
    with pytest.raises(ValueError, match="2 distinct rows"):
        learn(merged_rows(*table(rows=1)), QUICK)


def test_the_race_of_a_large_table_has_neighbours_among_some_rows():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * generator.normal(size=600)
    rows = merged_rows(x, y)
    settings = NeighbourSchedule(racers=1, race_rounds=1, sample_rows=(300,))
    few = dataclasses.replace(settings, race_pool=300)
    pool = _race_pool(rows, few, 0)
    assert len(pool) == 300
    np.testing.assert_array_equal(pool.x, rows.x[pool.group])
    assert _race_pool(rows, settings, 0) is rows
    state, _ = init(rows, few)
    whole, _ = init(rows, settings)
    # Both judge by the same validation rows, given all rows.
    assert state.validation == pytest.approx(whole.validation, abs=0.2)
