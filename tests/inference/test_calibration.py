"""Calibration sees errors like those of new rows."""

import dataclasses

import numpy as np
import pytest

from zonal import ArraySource, Calibration, Recipe, fit, load
from zonal.inference.calibration import calibrate
from zonal.inference.local import LocalSolution
from zonal.inference.solving import add_rows, forget_rows
from zonal.likelihoods.row_law import RowLaw
from zonal.tables.chunks import Chunk
from zonal.tables.sources import source_of

ROWS = 2000
# By nearest rows, by both, and by features alone.
KINDS = {
    "neighbors": Recipe(n_features=0, n_neighbors=64),
    "both": Recipe(n_features=40, n_neighbors=32),
    "features": Recipe(n_features=60, n_neighbors=0, most_steps=20),
}


def noise_at(x):
    return 0.3 * np.exp(1.2 * x[:, 1])


def table(count, seed, noise=noise_at):
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, size=(count, 2))
    return x, np.sin(2 * x[:, 0]) + noise(x) * generator.normal(size=count)


@pytest.fixture(scope="module", params=KINDS)
def model(request, few_rounds):
    recipe = dataclasses.replace(KINDS[request.param], seed=0)
    return fit(ArraySource(*table(ROWS, 0)), recipe)


def test_predicted_deviations_follow_the_noise(model):
    x, y = table(1000, 1)
    prediction = model.predict(x)
    deviation = np.sqrt(prediction.variance_y)
    assert isinstance(model.likelihood.row_law, RowLaw)
    assert np.corrcoef(deviation, noise_at(x))[0, 1] > 0.9
    low, high = prediction.quantiles(np.array([0.05, 0.95])).T
    inside = (low < y) & (y < high)
    for third in np.array_split(np.argsort(deviation), 3):
        assert np.mean(inside[third]) == pytest.approx(0.9, abs=0.05)
    draws = prediction.draw(400, np.random.default_rng(0))
    shares = np.mean(draws < prediction.quantiles(np.array([0.3])), axis=1)
    assert shares.mean() == pytest.approx(0.3, abs=0.01)


def test_a_saved_model_has_the_same_law(model, tmp_path):
    from zonal import SphericalGPRegressor

    x, y = table(300, 2)
    estimator = SphericalGPRegressor(n_features=0, n_neighbors=20).fit(x, y)
    estimator.models_ = (model,)
    estimator.save(tmp_path / "model")
    loaded = load(tmp_path / "model").models_[0]
    np.testing.assert_array_equal(
        loaded.predict(x).variance_y, model.predict(x).variance_y
    )


def test_rows_that_come_and_go_leave_the_law_unchanged(model):
    x, y = table(200, 3)
    rows = model.scaling.chunk(Chunk(x, y))
    there = add_rows(model.solution, source_of(rows))
    back = forget_rows(there, source_of(rows))
    new = Chunk(model.scaling.inputs(table(50, 4)[0]))
    before, after = model.solution.marginals(new), back.marginals(new)
    assert before.nearby is not None
    np.testing.assert_allclose(after.nearby, before.nearby, atol=1e-4)
    if isinstance(model.solution, LocalSolution):
        # Residuals of all rows are those of a solution that had them from the start.
        again = forget_rows(there, source_of(rows)).known_squares
        np.testing.assert_allclose(again, back.known_squares, rtol=1e-3, atol=1e-6)
        assert len(back.known_squares) == len(back.table)


def test_residuals_are_those_of_refits():
    x, y = table(60, 5)
    recipe = Recipe(n_features=0, n_neighbors=64, calibrated=False, most_steps=0)
    model = fit(ArraySource(x, y), recipe)
    assert model.likelihood.calibration == Calibration()
    table_, squares = model.solution.table, model.solution.known_squares
    rows = model.scaling.chunk(Chunk(x, y))
    for row in range(0, 60, 7):
        rest = forget_rows(model.solution, source_of(rows[row : row + 1]))
        guess = rest.predict(rows.x[row : row + 1])
        variance = guess.variance[0, 0] + float(model.process.noise)
        expected = (rows.targets[row] - guess.mean[0, 0]) ** 2 / variance
        own = table_.find(rows.x[row : row + 1])[0]
        assert squares[own] == pytest.approx(expected, rel=1e-3)


def test_a_repeated_row_has_the_residuals_of_its_repeats():
    x, y = table(40, 6)
    x, y = np.vstack([x, x[:1], x[:1]]), np.append(y, [y[0] + 0.4, y[0] - 0.1])
    recipe = Recipe(n_features=0, n_neighbors=64, calibrated=False, most_steps=0)
    model = fit(ArraySource(x, y), recipe)
    rows = model.scaling.chunk(Chunk(x, y))
    repeats = np.array([0, 40, 41])
    rest = forget_rows(model.solution, source_of(rows[repeats]))
    guess = rest.predict(rows.x[:1])
    variance = guess.variance[0, 0] + float(model.process.noise)
    expected = np.mean((rows.targets[repeats] - guess.mean[0, 0]) ** 2 / variance)
    own = model.solution.table.find(rows.x[:1])[0]
    assert model.solution.known_squares[own] == pytest.approx(expected, rel=1e-2)


def test_rows_that_occur_twice_promise_nothing_of_new_rows():
    x, y = table(400, 9)
    x_test, y_test = table(400, 10)
    recipe = Recipe(n_features=0, n_neighbors=64, seed=0)
    once = fit(ArraySource(x, y), recipe).predict(x_test)
    twice = fit(ArraySource(np.repeat(x, 2, axis=0), np.repeat(y, 2)), recipe)
    prediction = twice.predict(x_test)
    density = prediction.log_density(y_test).mean()
    assert density > once.log_density(y_test).mean() - 0.15
    low, high = prediction.quantiles(np.array([0.05, 0.95])).T
    assert 0.84 < np.mean((low < y_test) & (y_test < high)) < 0.96


def test_rows_that_repeat_stored_ones_are_recognised(model):
    if not isinstance(model.solution, LocalSolution):
        return
    known, new = table(5, 0)[0], table(5, 11)[0]
    x = model.scaling.inputs(np.vstack([known, new]))
    nearby = model.solution.marginals(Chunk(x)).nearby
    np.testing.assert_array_equal(nearby[:, -1], [1] * 5 + [0] * 5)


def test_of_a_large_table_some_residuals_are_known(monkeypatch):
    monkeypatch.setattr("zonal.inference.local._MOST_RESIDUALS", 100)
    x, y = table(400, 7)
    order = np.random.default_rng(0).permutation(400)
    recipe = Recipe(n_features=0, n_neighbors=40, most_steps=0)
    one = fit(ArraySource(x, y), recipe).solution
    other = fit(ArraySource(x[order], y[order]), recipe).solution
    assert np.isfinite(one.known_squares).sum() == 100
    index = one.table.find(other.table.x)
    known = np.isfinite(one.known_squares[index])
    np.testing.assert_array_equal(known, np.isfinite(other.known_squares))


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_few_rows_are_calibrated(count):
    x, y = table(count, 8)
    recipe = Recipe(n_features=0, n_neighbors=10, most_steps=0, calibrated=False)
    model = fit(ArraySource(x, y), recipe)
    rows = model.scaling.chunk(Chunk(x, y))
    solution = calibrate(model.solution, source_of(rows))
    variance = solution.likelihood.spread(
        Chunk(np.empty((1, 0)), nearby=np.zeros((1, 10))), *np.ones((2, 1, 1))
    )[1]
    assert 0.1 < variance[0] < 100
