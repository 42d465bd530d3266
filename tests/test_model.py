"""A model of a table, in the table's own units."""

import dataclasses
import gc
import warnings

import numpy as np
import pytest
from limits import FEW_ROUNDS
from threadpoolctl import threadpool_info, threadpool_limits

from zonal import ArraySource, Prediction, Recipe, UnitVectors, fit
from zonal.inference.local import LocalSolution
from zonal.tables.scaling import ConstantWarning

SMALL = Recipe(
    n_features=40,
    n_neighbors=0,
    solve_features=40,
    most_steps=20,
    schedule=FEW_ROUNDS,
)
NEIGHBORS = Recipe(schedule=FEW_ROUNDS)
RECIPES = {"neighbors": NEIGHBORS, "features": SMALL}


def table(rows=400, seed=0):
    """Columns and target in odd units."""
    generator = np.random.default_rng(seed)
    inner = generator.normal(size=(rows, 3))
    smooth = np.sin(2 * inner[:, 0]) + 0.5 * inner[:, 1]
    y = smooth + 0.2 * generator.normal(size=rows)
    return inner * [1e-6, 1e6, 3.0] + [0, 5e6, -2], 1e4 * y - 7e4, 1e4 * smooth - 7e4


def in_float64(model):
    if model.stores_rows:
        return model
    solution = dataclasses.replace(model.solution, dtype=np.float64)
    return dataclasses.replace(model, solution=solution)


@pytest.fixture(params=RECIPES, scope="module")
def recipe(request):
    return RECIPES[request.param]


@pytest.fixture(scope="module")
def model(recipe):
    x, y, _ = table()
    return fit(ArraySource(x, y), recipe)


def test_it_predicts_in_units_of_the_table(model):
    x, y, smooth = table(2000, seed=1)
    prediction = model.predict(x)
    assert np.sqrt(np.mean((prediction.mean - smooth) ** 2)) < 1500
    assert model.noise == pytest.approx(2000, rel=0.2)
    quantiles = prediction.quantiles(np.array([0.05, 0.95]))
    inside = np.mean((quantiles[:, 0] < y) & (y < quantiles[:, 1]))
    assert inside == pytest.approx(0.9, abs=0.04)


def test_the_bound_knows_the_units(model, recipe):
    """A target divided by c has a log density higher by log c per row."""
    x, y, _ = table()
    other = fit(ArraySource(x, y / 2**13), recipe)
    assert model.bound == pytest.approx(other.bound - 400 * np.log(2**13), rel=1e-9)


def test_add_forget_and_merge_equal_the_sums_of_all_rows(model):
    x, y, _ = table()
    more_x, more_y, _ = table(100, seed=2)
    places = table(50, seed=3)[0]
    grown = model.add(ArraySource(more_x, more_y))
    everything = model.emptied().add(
        ArraySource(np.vstack([x, more_x]), np.concatenate([y, more_y]))
    )
    merged = model.merge(model.emptied().add(ArraySource(more_x, more_y)))
    back = grown.forget(ArraySource(more_x, more_y))
    for one, truth in ((grown, everything), (merged, everything), (back, model)):
        a, b = (in_float64(each).predict(places) for each in (one, truth))
        assert np.abs(a.mean - b.mean).max() < 1e-6 * model.scaling.target_width
        # Nearest rows are taken in float32.
        tolerance = 1e-5 if one.stores_rows else 1e-6
        assert np.allclose(a.variance_y, b.variance_y, rtol=tolerance)
        if not one.stores_rows:
            assert one.bound == pytest.approx(truth.bound, rel=1e-9)
    assert model.statistics.rows == 400


def test_models_of_different_fits_do_not_merge(model, recipe):
    x, y, _ = table()
    other = fit(ArraySource(x, y + 1), recipe)
    with pytest.raises(ValueError, match="standardise their tables differently"):
        model.merge(other)
    moved = dataclasses.replace(model, solution=with_noise(model.solution, 0.5))
    with pytest.raises(ValueError, match="different parameters"):
        model.merge(moved)
    with pytest.raises(ValueError, match=r"cannot be taken out|is not in the model"):
        model.forget(ArraySource(np.vstack([x, x]), np.concatenate([y, y])))


def with_noise(solution, noise):
    """A solution whose process has other noise, as that of another fit would."""
    if isinstance(solution, LocalSolution):
        process = dataclasses.replace(solution.process, noise=noise)
        features = dataclasses.replace(solution.features, process=process)
        return dataclasses.replace(solution, features=features)
    noisy = dataclasses.replace(solution.processes[0], noise=noise)
    return dataclasses.replace(solution, processes=(noisy,))


def test_rows_do_not_merge_with_sums():
    x, y, _ = table(60)
    models = [fit(ArraySource(x, y), recipe) for recipe in RECIPES.values()]
    for one, other in (models, models[::-1]):
        with pytest.raises(ValueError, match="different parameters"):
            one.merge(other)


def test_bad_rows_leave_the_model_as_it_was(model):
    x, y, _ = table(20)
    before = model.predict(x).mean
    narrow = ArraySource(x[:, [0, 2]], y)
    refused = "2 columns; the model was fitted to 3"
    for step in (model.add, model.forget):
        with pytest.raises(ValueError, match=refused):
            step(narrow)
        with pytest.raises(ValueError, match="not finite"):
            step(Poisoned(x, y))
    functions = model.sample_functions(2)
    for step in (model.predict, model.covariance, functions):
        with pytest.raises(ValueError, match=refused):
            step(x[:, [0, 2]])
    with pytest.raises(ValueError, match="column 1 has 1 values"):
        model.predict(Poisoned(x, y).rows().x)
    assert np.array_equal(model.predict(x).mean, before)


class Poisoned(ArraySource):
    """Rows that go bad while they are read."""

    def rows(self):
        chunk = self.sample(20)
        spoilt = chunk.x.copy()
        spoilt[3, 1] = np.nan
        return dataclasses.replace(chunk, x=spoilt)

    def chunks(self, size=4096):
        yield self.rows()


def test_a_model_without_rows_is_the_prior(model):
    places = table(20, seed=3)[0]
    empty = model.emptied().predict(places)
    width, basis = model.scaling.target_width, model.process.basis
    prior = float(basis.variance) * basis.total_energy
    assert np.allclose(empty.mean, model.scaling.target_centre)
    assert np.allclose(empty.variance_f, width**2 * prior, rtol=1e-4)
    x, y, _ = table()
    forgotten = model.forget(ArraySource(x, y)).predict(places)
    assert np.allclose(forgotten.variance_f, empty.variance_f, rtol=1e-3)


def test_units_of_the_precision_do_not_matter(recipe):
    x, y, _ = table(150)
    precision = np.random.default_rng(4).choice([1.0, 4.0], 150)
    plain = dataclasses.replace(recipe, calibrated=False)
    one, other = (
        fit(ArraySource(x, y, precision=factor * precision), plain)
        for factor in (1.0, 2.0**-40)
    )
    places = x[:9]
    assert np.allclose(one.predict(places).mean, other.predict(places).mean)
    assert other.noise == pytest.approx(one.noise * 2.0**-20)
    sure, unsure = one.predict(places, np.full(9, 4.0)), one.predict(places)
    ratio = (sure.variance_y - sure.variance_f) / (
        unsure.variance_y - unsure.variance_f
    )
    assert np.allclose(ratio, 0.25)


def test_streams_read_side_by_side_leave_blas_as_it_was(model):
    def threads():
        return [pool["num_threads"] for pool in threadpool_info()]

    with threadpool_limits(3):
        before = threads()
        source = ArraySource(*table()[:2])
        streams = model.predict_chunks(source), model.predict_chunks(source)
        for _ in zip(*streams, strict=True):
            pass
        gc.collect()
        assert threads() == before
        assert set(before) == {3}


def test_leave_one_out_is_the_prediction_without_the_row(model):
    x, y, _ = table()
    left_out = Prediction.joined(list(model.leave_one_out(ArraySource(x, y))))
    for row in (0, 17):
        one = ArraySource(x[row : row + 1], y[row : row + 1])
        truth = model.forget(one).predict(x[row : row + 1])
        width = model.scaling.target_width
        assert abs(left_out.mean[row] - truth.mean[0]) < 1e-3 * width
        assert left_out.variance_y[row] == pytest.approx(truth.variance_y[0], rel=1e-3)


def test_samples_have_the_posterior_moments(model):
    places = table(5, seed=4)[0]
    model = in_float64(model)
    draws = model.sample_functions(4000, seed=1)(places)
    prediction, width = model.predict(places), model.scaling.target_width
    assert np.abs(draws.mean(axis=1) - prediction.mean).max() < 0.05 * width
    assert np.allclose(draws.var(axis=1), prediction.variance_f, rtol=0.15)
    joint = np.diag(model.covariance(places))
    if model.stores_rows:
        # The places share all of their neighbours, so each knows a little more.
        assert np.all(joint < 1.001 * prediction.variance_f)
        assert np.all(joint > 0.7 * prediction.variance_f)
    else:
        assert np.allclose(joint, prediction.variance_f, rtol=0.02)


def test_rounding_chunks_and_order_hardly_matter(model, recipe, monkeypatch):
    x, y, _ = table()
    places = table(300, seed=5)[0]
    width = model.scaling.target_width
    truth = in_float64(model).predict(places)
    assert np.abs(model.predict(places).mean - truth.mean).max() < 1e-3 * width
    order = np.random.default_rng(0).permutation(len(x))
    monkeypatch.setattr("zonal.engine.passes.CHUNK_ROWS", 37)
    # Sums in float32.
    monkeypatch.setattr("zonal.inference.solving._EXACT_WORK", 0.0)
    again = model.emptied().add(ArraySource(x[order], y[order]))
    assert np.abs(again.predict(places).mean - truth.mean).max() < 1e-3 * width


def test_more_features_to_solve_with():
    x, y, _ = table()
    few = dataclasses.replace(SMALL, n_features=20, solve_features=20)
    small = fit(ArraySource(x, y), few)
    large = fit(ArraySource(x, y), dataclasses.replace(few, solve_features=200))
    # As many as can be told apart: the function is smooth and of one column.
    assert small.n_features < large.n_features <= 200
    assert large.bound > small.bound


def test_a_linear_mean_and_quantiles(recipe):
    x, y, smooth = table()
    recipe = dataclasses.replace(recipe, linear_mean=True, tails="quantile")
    prediction = fit(ArraySource(x, y), recipe).predict(x)
    assert np.sqrt(np.mean((prediction.mean - smooth) ** 2)) < 2000


def test_a_strong_trend_does_not_drown_the_rest(recipe):
    x, y, smooth = table()
    trend = 1e5 * x[:, 2]
    recipe = dataclasses.replace(recipe, linear_mean=True)
    prediction = fit(ArraySource(x, y + trend), recipe).predict(x)
    assert np.sqrt(np.mean((prediction.mean - smooth - trend) ** 2)) < 2000


def test_native_sphere(recipe):
    generator = np.random.default_rng(0)
    s = generator.normal(size=(300, 3))
    s /= np.linalg.norm(s, axis=1, keepdims=True)
    y = s[:, 0] * s[:, 1] + 0.05 * generator.normal(size=300)
    recipe = dataclasses.replace(recipe, sphere=UnitVectors(3))
    model = fit(ArraySource(s, y), recipe)
    assert np.corrcoef(model.predict(s).mean, s[:, 0] * s[:, 1])[0, 1] > 0.98


def fit_quietly(x, y, recipe):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantWarning)
        return fit(ArraySource(x, y), recipe)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_very_few_rows(rows, recipe):
    x, y, _ = table(rows)
    model = fit_quietly(x, y, recipe)
    prediction = model.predict(x)
    assert np.all(np.isfinite(prediction.mean))
    assert np.all(np.isfinite(prediction.variance_y))
    # Far away, a few rows say little.
    far = model.predict(x + 100 * np.array([1e-6, 1e6, 3.0]))
    assert np.all(np.sqrt(far.variance_y) > 0.1 * np.abs(y).max() * (rows == 1))


def test_duplicate_rows_and_constant_columns(recipe):
    x, y, _ = table(50)
    x = np.repeat(x, 3, axis=0)
    x[:, 2] = 4.0
    with pytest.warns(ConstantWarning, match="ignored: 2"):
        model = fit(ArraySource(x, np.repeat(y, 3)), recipe)
    prediction = model.predict(x)
    x[:, 2] = 9.0
    assert np.array_equal(model.predict(x).mean, prediction.mean)
    assert model.relevance[2] == 0
    assert model.relevance.sum() == pytest.approx(1)
    assert np.corrcoef(prediction.mean, np.repeat(y, 3))[0, 1] > 0.9


def test_a_constant_target(recipe):
    x, _, _ = table(100)
    with pytest.warns(ConstantWarning, match="target is constant"):
        model = fit(ArraySource(x, np.full(100, 5.0)), recipe)
    prediction = model.predict(x)
    assert np.allclose(prediction.mean, 5.0, atol=1e-4)
    assert np.all(np.sqrt(prediction.variance_y) < 1e-4)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_extreme_scales(scale, recipe):
    x, y, smooth = table()
    model = fit(ArraySource(x * scale, y * 1e12), recipe)
    prediction = model.predict(x * scale)
    assert np.corrcoef(prediction.mean, smooth)[0, 1] > 0.95


def test_weights_repeat_rows(recipe):
    x, y, _ = table(60)
    weight = np.tile([1.0, 2.0, 3.0], 20)
    weighted = fit(ArraySource(x, y, weight), recipe)
    repeat = weight.astype(int)
    rows = ArraySource(np.repeat(x, repeat, 0), np.repeat(y, repeat))
    repeated = weighted.emptied().add(rows)
    ours, theirs = weighted.predict(x), repeated.predict(x)
    assert np.allclose(ours.mean, theirs.mean, rtol=1e-6)
    assert np.allclose(ours.variance_y, theirs.variance_y, rtol=1e-6)
    if not weighted.stores_rows:
        assert weighted.bound == pytest.approx(repeated.bound, rel=1e-6)


def test_weights_that_are_refused():
    x, y, _ = table(60)
    with pytest.raises(ValueError, match="every weight is zero"):
        ArraySource(x, y, np.zeros(60))
    with pytest.raises(ValueError, match="row 2 has -1"):
        ArraySource(x, y, np.array([1.0, 1.0, -1.0] * 20))


def test_sums_too_coarse_for_the_noise_are_taken_again():
    x = np.random.default_rng(0).normal(size=(3000, 2))
    y = np.sin(x[:, 0]) + 0.1 * x[:, 1]
    source = ArraySource(x, y)
    recipe = dataclasses.replace(
        SMALL, n_features=100, solve_features=100, most_steps=10
    )
    fine = fit(source, recipe)
    single = dataclasses.replace(recipe, dtype="float32")
    coarse = fit(source, single)
    assert coarse.statistics.uncaptured.parts.dtype == np.float64
    np.testing.assert_allclose(coarse.bound, fine.bound, rtol=1e-6)
    noisy = ArraySource(x, y + np.random.default_rng(1).normal(size=3000))
    assert fit(noisy, single).statistics.uncaptured.parts.dtype == np.float32
