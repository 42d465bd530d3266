"""Tables that models predicting from neighbours have to survive, or to complain about.

Each has a right answer, which is finite, calibrated and no worse than the mean, or one
error that says what is wrong and what to do.
"""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from zonal import SphericalGPRegressor, load

pytestmark = [
    pytest.mark.usefixtures("few_rounds"),
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:constant columns carry no information"),
    pytest.mark.filterwarnings("ignore:the target is constant"),
]

ROWS = 80
SIZES = [{}, {"n_features": 0, "n_neighbors": 5}, {"n_features": 16}]


def table(seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(ROWS, 2))
    return X, X[:, 0] + 0.1 * generator.normal(size=ROWS)


def survivable_tables():
    """Name, inputs, targets and weights."""
    generator = np.random.default_rng(1)
    X, y = table()
    one = np.ones(ROWS)
    copies = np.vstack([X[: ROWS // 2]] * 2)
    signs = np.repeat([1.0, -1.0], ROWS // 2)
    yield "contradicting copies", copies, signs, None
    yield "nearly contradicting copies", copies + 1e-5 * signs[:, None], signs, None
    yield "one column", X[:, :1], y, None
    yield "more columns than rows", generator.normal(size=(ROWS, 100)), y, None
    yield "binary columns", (X > 0).astype(float), y, None
    yield "sparse columns", (generator.random((ROWS, 30)) < 0.05).astype(float), y, None
    yield "columns with heavy tails", generator.standard_cauchy((ROWS, 2)), y, None
    yield "a target with heavy tails", X, generator.standard_cauchy(ROWS), None
    yield "a skewed target", X, np.where(y < 1, 0.0, np.exp(3 * y)), None
    yield "a binary target", X, (y > 0).astype(float), None
    yield "nothing but noise", X, generator.normal(size=ROWS), None
    yield "a column around 1e12", X + [1e12, 0], y, None
    yield "a column around 1e17", X + [1e17, 0], y, None
    yield "a target around 1e12", X, y + 1e12, None
    yield "huge columns", X * 1e100, y, None
    yield "tiny columns", X * 1e-100, y, None
    yield "a huge target", X, y * 1e100, None
    yield "a tiny target", X, y * 1e-100, None
    yield "few rows with a weight", X, y, np.where(np.arange(ROWS) < 5, 1.0, 0.0)
    spread = generator.uniform(size=ROWS)
    yield "weights from 1e-6 to 1e6", X, y, 10 ** (12 * spread - 6)
    least = np.minimum(10 ** (40 - 360 * spread), 1.0)
    yield "weights from 1e-320 to 1", X, y, least
    yield "weights from 1 to 1e20", X, y, 10 ** (20 * spread)
    yield "weights of 0.05", X, y, 0.05 * one
    yield "weights of 1e3", X, y, 1e3 * one
    yield "weights of 1e20", X, y, 1e20 * one


SURVIVABLE = {name: case for name, *case in survivable_tables()}


@pytest.mark.parametrize("case", SURVIVABLE)
def test_predictions_are_finite_calibrated_and_no_worse_than_the_mean(case):
    X, y, weight = SURVIVABLE[case]
    chosen = SIZES[list(SURVIVABLE).index(case) % len(SIZES)]
    model = SphericalGPRegressor(**chosen).fit(X, y, sample_weight=weight)
    mean, std = model.predict(X, return_std=True)
    low, high = model.predict_interval(X).T
    assert np.all(np.isfinite([mean, std, low, high]))
    assert np.all(std >= 0)
    size, centre = np.abs(y).max(), np.average(y, weights=weight)
    errors = np.average(((mean - y) / size) ** 2, weights=weight)
    assert errors <= 1.01 * np.average(((y - centre) / size) ** 2, weights=weight)
    assert np.average((low <= y) & (y <= high), weights=weight) > 0.8
    single = [model.predict(X[[row]])[0] for row in (0, 7)]
    np.testing.assert_allclose(single, mean[[0, 7]], rtol=1e-6, atol=1e-6 * size)
    assert np.all(np.isfinite(model.sample_y(X[[0, 0, 1]], 2)))
    assert np.all(np.isfinite(model.models_[0].covariance(X[[0, 0, 1]])))
    assert np.isfinite(model.bound_)
    # Forgetting what was added, then all.
    model.partial_fit(X, y, sample_weight=weight).forget(X, y, sample_weight=weight)
    again, _ = model.predict(X, return_std=True)
    assert np.all(np.abs(again - mean) <= 0.01 * std)
    model.forget(X, y, sample_weight=weight)
    assert model.n_samples_seen_ == 0
    np.testing.assert_allclose(np.ptp(model.predict(X)), 0, atol=1e-6 * size)


@pytest.mark.parametrize("weight", [10.0, 1e6])
def test_the_scale_of_weights_does_not_change_calibration(weight):
    """Equal repeats say that there is no noise, and nothing of the function."""
    generator = np.random.default_rng(2)
    X = generator.normal(size=(300, 2))
    y = X[:, 0] + 0.1 * generator.normal(size=300)
    model = SphericalGPRegressor(n_features=0, n_neighbors=20)
    model.fit(X[:150], y[:150], sample_weight=np.full(150, weight))
    low, high = model.predict_interval(X[150:]).T
    assert np.mean((low < y[150:]) & (y[150:] < high)) > 0.8
    assert model.score(X[150:], y[150:]) > 0.9


def unanswerable_tables():
    """Name, inputs, targets, weights and the error."""
    X, y = table()
    third, one = np.arange(ROWS) == 3, np.ones(ROWS)
    yield "huge columns", X * [1, 1e200], y, None, r"column 1 has the value .*divide"
    yield "a huge value", np.where(third[:, None], 1e300, X), y, None, "column 0"
    yield "a huge target", X, y * 1e300, None, "the target has the value .*divide"
    yield "tiny columns", X * [1, 1e-200], y, None, "column 1 .*multiply the column"
    yield "a tiny target", X, y * 1e-200, None, "the target has values .*multiply"
    yield "tiny weights", X, y, 1e-300 * one, "the weights sum to .*their mean"
    yield "small weights", X, y, 1e-4 * one, "the weights sum to 0.008,"
    yield "huge weights", X, y, 1e300 * one, "the weights sum to .*their mean"
    yield "no weights", X, y, 0 * one, "every weight is zero"
    yield "a negative weight", X, y, np.where(third, -1, one), "row 3 has -1"
    yield "a weight that is missing", X, y, np.where(third, np.nan, one), "row 3"
    yield "an infinite value", np.where(third[:, None], np.inf, X), y, None, "rows? 3"


UNANSWERABLE = {name: case for name, *case in unanswerable_tables()}


@pytest.mark.parametrize("keep_rows", [True, False])
@pytest.mark.parametrize("case", UNANSWERABLE)
def test_errors_name_the_column_and_the_remedy(case, keep_rows):
    X, y, weight, message = UNANSWERABLE[case]
    model = SphericalGPRegressor(keep_rows=keep_rows)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, sample_weight=weight)
    assert not hasattr(model, "models_")


@pytest.fixture(scope="module", params=[{}, {"n_features": 16, "n_neighbors": 10}])
def fitted(request, few_rounds):
    return SphericalGPRegressor(**request.param).fit(*table())


def test_failed_changes_leave_the_model_as_it_was(fitted):
    X, y = table()
    before = fitted.predict(X, return_std=True)
    strange = X.copy()
    strange[[5, 9]] += 1
    huge = np.where(np.arange(ROWS) == 4, 1e300, y)
    twice = np.r_[np.arange(9), 5]
    with pytest.raises(ValueError, match=r"row 5 of the rows to forget .*\(2 such"):
        fitted.forget(strange, y)
    with pytest.raises(ValueError, match=r"row 5 of the rows to forget .*\(1 such"):
        fitted.forget(X[twice], y[twice])
    with pytest.raises(ValueError, match=r"the target in row 4 .* fit again"):
        fitted.partial_fit(X, huge)
    with pytest.raises(ValueError, match="every weight is zero"):
        fitted.partial_fit(X, y, sample_weight=np.zeros(ROWS))
    with pytest.raises(ValueError, match="NaN"):
        fitted.partial_fit(X, np.where(np.arange(ROWS) == 4, np.nan, y))
    np.testing.assert_array_equal(fitted.predict(X, return_std=True), before)
    assert fitted.n_samples_seen_ == ROWS


def test_far_rows_can_be_added_and_forgotten(fitted):
    X, _ = table()
    model = copy.deepcopy(fitted)
    far = np.array([[1e6, 1e6], [1e300, -1e300]])
    model.partial_fit(far, [5.0, 6.0])
    np.testing.assert_allclose(model.predict(far), [5, 6], atol=0.5)
    assert abs(model.predict(X[:1])[0] - fitted.predict(X[:1])[0]) < 0.05
    model.forget(far, [5.0, 6.0])
    np.testing.assert_allclose(model.predict(X), fitted.predict(X), atol=1e-5)


def test_a_model_without_rows_is_saved_and_filled_again(fitted, tmp_path):
    X, y = table()
    empty = copy.deepcopy(fitted).forget(X, y)
    empty.save(tmp_path / "empty.zonal")
    again = load(tmp_path / "empty.zonal")
    assert np.all(np.isfinite(again.sample_y(X[:3], 2)))
    again.partial_fit(X, y)
    np.testing.assert_allclose(again.predict(X), fitted.predict(X), atol=1e-5)


def test_copies_and_threads_give_the_same_numbers(fitted):
    X, _ = table()
    expected = fitted.predict(X)
    fresh = pickle.loads(pickle.dumps(fitted))
    with ThreadPoolExecutor(4) as pool:
        for mean in pool.map(lambda _: fresh.predict(X), range(8)):
            np.testing.assert_array_equal(mean, expected)


@pytest.mark.parametrize("keep_rows", [True, False])
def test_rows_beyond_the_range_of_numbers_after_scaling(keep_rows):
    X, y = table()
    model = SphericalGPRegressor(keep_rows=keep_rows).fit(1e-20 * X, y)
    far = np.array([[1e300, 1e300], [1.7e308, -1e308]])
    assert np.all(np.isfinite(model.predict(far, return_std=True)))


@pytest.mark.parametrize("kind", ["f2", "u1", object])
def test_any_type_of_numbers(kind):
    X, y = table()
    X = np.abs(np.round(3 * X)).astype(kind)
    model = SphericalGPRegressor(n_features=0, n_neighbors=8)
    expected = model.fit(X.astype(float), y).predict(X.astype(float))
    np.testing.assert_allclose(model.fit(X, y).predict(X), expected, rtol=1e-6)


def test_a_constant_output_beside_another():
    X, y = table()
    model = SphericalGPRegressor(n_features=0, n_neighbors=8)
    mean, std = model.fit(X, np.column_stack([y, 0 * y + 3])).predict(X, True)
    np.testing.assert_allclose(mean[:, 1], 3)
    np.testing.assert_allclose(mean[:, 0], model.fit(X, y).predict(X), atol=1e-4)
    assert np.all(np.isfinite(std))


def test_a_pole_of_the_sphere_is_one_place():
    generator = np.random.default_rng(0)
    places = generator.uniform([-90, -180], [90, 180], size=(ROWS, 2))
    model = SphericalGPRegressor(geometry="sphere", n_neighbors=5)
    model.fit(places, np.sin(np.radians(places[:, 0])))
    mean = model.predict([[90, 0], [90, 100], [10, 180], [10, -180], [10, 540]])
    np.testing.assert_allclose(mean, mean[[0, 0, 2, 2, 2]], atol=1e-5)
    places[3, 0] = 91
    with pytest.raises(ValueError, match=r"latitude in row .* is 91 degrees"):
        model.fit(places, places[:, 0])


@pytest.mark.parametrize("name", ["n_features", "n_neighbors"])
def test_sizes_are_integers(name):
    with pytest.raises(ValueError, match=f"{name} must be an integer, got 2.5"):
        SphericalGPRegressor(**{name: 2.5}).fit(*table())
