"""The estimators: scikit-learn's contract, and what people expect beyond it."""

import dataclasses
import functools
import inspect
import pickle

import joblib
import numpy as np
import pandas
import pytest
import sklearn
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from zonal import (
    Recipe,
    SphericalGPClassifier,
    SphericalGPRegressor,
    SphericalHarmonicFeatures,
    load,
)
from zonal.learning.schedule import (
    NeighbourSchedule,
    SizeSchedule,
    default_schedule,
)
from zonal.learning.state import LearningStoppedWarning
from zonal.saving import FileError
from zonal.tables.scaling import ConstantWarning

# One place to start from is enough for everything here.
pytestmark = pytest.mark.usefixtures("few_rounds")

LIKELIHOODS = ["gaussian", "student-t", "heteroscedastic", "poisson"]


@parametrize_with_checks(
    [
        SphericalGPRegressor(),
        SphericalGPRegressor(n_features=20, n_neighbors=0),
        SphericalGPClassifier(n_features=20),
        SphericalHarmonicFeatures(n_features=20),
    ]
)
def test_scikit_learn(estimator, check, monkeypatch):
    # The contract does not depend on how long is learned.
    schedule = dataclasses.replace(
        default_schedule(),
        by_neighbours=NeighbourSchedule(
            betas=(2.0,),
            noises=(0.02,),
            scales=(0.3,),
            racers=1,
            race_rounds=1,
            race_steps=4,
            sample_rows=(100,),
            steps=4,
        ),
        sizes=SizeSchedule(candidates=((0, 32), (16, 32))),
    )
    few = functools.partial(Recipe, most_steps=5, schedule=schedule)
    monkeypatch.setattr("zonal.estimators.settings.Recipe", few)
    check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [SphericalGPRegressor, SphericalGPClassifier, SphericalHarmonicFeatures],
)
def test_every_method_has_an_example(estimator):
    ours = [one for one in estimator.__mro__ if one.__module__.startswith("zonal.")]
    methods = {
        name: value
        for one in reversed(ours)
        for name, value in vars(one).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }
    assert {"fit"} < set(methods)
    without = [
        name for name, one in methods.items() if ">>>" not in (one.__doc__ or "")
    ]
    assert without == []


def table(rows=150, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2, 2, size=(rows, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * generator.normal(size=rows)


SMALL = {"n_features": 40, "solve_features": 40}


def regressor(**choices):
    """A regressor by features alone."""
    return SphericalGPRegressor(**{**SMALL, "n_neighbors": 0, **choices})


# Regressors with normal noise: by nearest rows and features, and by features alone.
KINDS = {"neighbors": SphericalGPRegressor, "features": regressor}


@pytest.fixture(params=KINDS, scope="module")
def kind(request):
    return KINDS[request.param]


def classifier(**choices):
    return SphericalGPClassifier(**{**SMALL, **choices})


@pytest.fixture(scope="module")
def fitted(kind, few_rounds):
    return kind().fit(*table())


@pytest.fixture(scope="module")
def classes(few_rounds):
    X, y = table()
    return classifier().fit(X, np.where(y > 0, "up", "down"))


def test_predictions_are_of_new_targets(fitted):
    X, y = table(400, seed=1)
    mean, std = fitted.predict(X, return_std=True)
    assert np.mean((mean - np.sin(2 * X[:, 0])) ** 2) < 0.02**2 * 4
    assert fitted.noise_ == pytest.approx(0.1, rel=0.2)
    low, high = fitted.predict_interval(X, 0.8).T
    shape = fitted.models_[0].likelihood.calibration
    unit = std / np.sqrt(shape.spread)
    wide = 2 * float(shape.quantiles(np.array([0.9]))[0])
    np.testing.assert_allclose(high - low, wide * unit)
    assert wide * unit[0] / std[0] == pytest.approx(2 * norm.ppf(0.9), rel=0.1)
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.8, abs=0.06)
    np.testing.assert_allclose(fitted.predict_quantiles(X, 0.5)[:, 0], mean)
    parts = zip(shape.shares, shape.widths, strict=True)
    density = np.log(sum(p * norm.pdf(y, mean, width * unit) for p, width in parts))
    np.testing.assert_allclose(fitted.predict_dist(X).logpdf(y), density)
    assert fitted.log_score(X, y) == pytest.approx(density.mean())
    assert fitted.score(X, y) > 0.95


def test_attributes_say_what_was_learned(fitted):
    assert fitted.relevance_.shape == (2,)
    assert fitted.relevance_.sum() == pytest.approx(1)
    assert fitted.relevance_[0] > 0.9
    assert fitted.depth_.layers >= 1
    assert fitted.depth_.beta > 0
    assert np.all(fitted.level_weights_ >= 0)
    assert fitted.n_iter_ > 0
    stores_rows = fitted.models_[0].stores_rows
    assert fitted.history_["stage"][-1] == ("sizes" if stores_rows else "solve")
    last = fitted.history_["bound"][-1]
    target = table()[1].std()
    assert fitted.bound_ / 150 == pytest.approx(last - np.log(target), rel=1e-6)


def test_batches_do_not_matter(fitted, classes):
    # Enough rows for threads and for compiled features.
    X, _ = table(3000, seed=2)
    whole = fitted.predict(X, return_std=True)
    for part in (X[:1], X[100:117]):
        rows = slice(0, 1) if len(part) == 1 else slice(100, 117)
        mean, std = fitted.predict(part, return_std=True)
        np.testing.assert_allclose(mean, whole[0][rows], rtol=0, atol=1e-9)
        np.testing.assert_allclose(std, whole[1][rows], rtol=1e-6)
    chance = classes.predict_proba(X)
    single = np.vstack([classes.predict_proba(row[None]) for row in X[:5]])
    np.testing.assert_allclose(single, chance[:5], atol=1e-9)


def test_large_tables_are_predicted_in_blocks(fitted, monkeypatch):
    X, _ = table(3000, seed=2)
    expected = fitted.predict(X)
    monkeypatch.setattr("zonal.estimators.base._BLOCK", 640)
    np.testing.assert_allclose(fitted.predict(X), expected, rtol=0, atol=1e-9)
    frame = pandas.DataFrame(X)
    np.testing.assert_allclose(fitted.predict(frame), expected, rtol=0, atol=1e-9)


def test_a_weight_is_a_repetition_for_neighbours():
    check_repetitions(SphericalGPRegressor(), *table(60))


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_a_weight_is_a_repetition(likelihood):
    X, y = table(60)
    y = np.random.default_rng(1).poisson(np.exp(y)) if likelihood == "poisson" else y
    model = regressor(likelihood=likelihood, n_features=20, solve_features=20)
    check_repetitions(model, X, y)


def check_repetitions(model, X, y):
    weight = np.random.default_rng(2).integers(0, 4, size=60)
    weighted = clone(model).fit(X, y, sample_weight=weight).predict(X)
    repeated = clone(model).fit(np.repeat(X, weight, 0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted, repeated.predict(X), rtol=1e-6)


def test_a_weight_is_a_repetition_for_classes():
    X, y = table(60)
    names = np.where(y > 0.3, "a", np.where(y < -0.3, "b", "c"))
    weight = np.random.default_rng(2).integers(0, 4, size=60)
    weighted = classifier().fit(X, names, sample_weight=weight).predict_proba(X)
    repeated = classifier().fit(np.repeat(X, weight, 0), np.repeat(names, weight))
    np.testing.assert_allclose(weighted, repeated.predict_proba(X), atol=1e-6)


def test_rows_come_and_go_in_any_order(fitted):
    X, y = table(90, seed=3)
    parts = [slice(0, 30), slice(30, 60), slice(60, 90)]
    whole = pickle.loads(pickle.dumps(fitted)).partial_fit(X, y)
    shuffled = pickle.loads(pickle.dumps(fitted))
    for part in (parts[2], parts[0], parts[1]):
        shuffled.partial_fit(X[part], y[part])
    np.testing.assert_allclose(shuffled.predict(X), whole.predict(X), atol=1e-8)
    for part in (parts[1], parts[2], parts[0]):
        shuffled.forget(X[part], y[part])
    assert whole.n_samples_seen_ == fitted.n_samples_seen_ + 90
    assert shuffled.n_samples_seen_ == fitted.n_samples_seen_ == 150
    np.testing.assert_allclose(shuffled.predict(X), fitted.predict(X), atol=1e-8)
    shards = [fitted.emptied().partial_fit(X[part], y[part]) for part in parts]
    merged = pickle.loads(pickle.dumps(fitted))
    for shard in shards:
        merged.merge(shard)
    np.testing.assert_allclose(merged.predict(X), whole.predict(X), atol=1e-8)
    assert np.max(np.abs(merged.predict(X) - fitted.predict(X))) > 1e-4


def test_classes_come_and_go_nearly(classes):
    X, y = table(60, seed=4)
    names = np.where(y > 0, "up", "down")
    grown = pickle.loads(pickle.dumps(classes)).partial_fit(X, names)
    before, after = classes.predict_proba(X), grown.predict_proba(X)
    assert grown.log_score(X, names) > classes.log_score(X, names)
    assert grown.n_samples_seen_ == classes.n_samples_seen_ + 60
    back = grown.forget(X, names).predict_proba(X)
    assert np.abs(back - before).max() < 0.3 * np.abs(after - before).max()
    shard = classes.emptied().partial_fit(X, names)
    merged = pickle.loads(pickle.dumps(classes)).merge(shard)
    assert np.abs(merged.predict_proba(X) - after).max() < 0.1


def test_the_first_partial_fit_fits(fitted, kind):
    X, y = table()
    first = kind().partial_fit(X, y)
    np.testing.assert_array_equal(first.predict(X), fitted.predict(X))


def test_models_of_different_fits_are_not_merged(fitted, classes, kind):
    other = kind(random_state=1).fit(*table(seed=5))
    with pytest.raises(ValueError, match="same fit"):
        pickle.loads(pickle.dumps(fitted)).merge(other)
    with pytest.raises(ValueError, match="same kind"):
        pickle.loads(pickle.dumps(fitted)).merge(classes)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_saved_model_predicts_the_same_to_the_last_bit(outputs, kind, tmp_path):
    X, y = table()
    y = y if outputs == 1 else np.column_stack([y, 2 * y, y**2])
    model = kind().fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    model.save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    for ours, theirs in zip(
        model.predict(frame, return_std=True),
        again.predict(frame, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert again.get_params() == model.get_params()
    assert again.bound_ == model.bound_
    np.testing.assert_array_equal(again.feature_names_in_, ["a", "b"])
    np.testing.assert_array_equal(
        again.partial_fit(frame, y).predict(frame),
        model.partial_fit(frame, y).predict(frame),
    )


@pytest.mark.parametrize("named", ["string", "number", "boolean"])
def test_a_saved_classifier_knows_its_classes(named, tmp_path):
    X, y = table()
    names = {
        "string": np.where(y > 0, "up", "down"),
        "number": np.where(y > 0.5, 7, np.where(y < -0.5, 2, 5)),
        "boolean": y > 0,
    }[named]
    model = classifier().fit(X, names)
    model.save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_file_that_is_no_model(tmp_path):
    (tmp_path / "model.zonal").write_bytes(b"something else")
    with pytest.raises(FileError, match="not a file of zonal"):
        load(tmp_path / "model.zonal")


def test_pickle_and_joblib(fitted, tmp_path):
    X, _ = table()
    joblib.dump(fitted, tmp_path / "model")
    for again in (
        joblib.load(tmp_path / "model"),
        pickle.loads(pickle.dumps(fitted)),
    ):
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_model_that_has_predicted_is_still_pickled(fitted, classes):
    X, _ = table()
    for model in (fitted, classes):
        before = model.predict(X)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(X), before)


def test_a_generator_and_intervals_are_saved(kind, tmp_path):
    X, y = table(60)
    frame = pandas.DataFrame({"x": pandas.cut(X[:, 0], [-2, -1, 0, 1, 2])})
    model = kind(random_state=np.random.RandomState(0), callbacks=[print])
    model.set_params(callbacks=None).fit(frame, y).save(tmp_path / "model.zonal")
    again = load(tmp_path / "model.zonal")
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    assert again.random_state is None


def test_decisions_agree_with_probabilities(classes):
    X, y = table(300, seed=8)
    order = np.argsort(classes.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(np.argsort(classes.decision_function(X)), order)
    three = np.digitize(y, [-0.5, 0.5])
    model = classifier().fit(X, three)
    decided = model.decision_function(X).argmax(axis=1)
    np.testing.assert_array_equal(model.classes_[decided], model.predict(X))


def test_classes_can_be_told_of_at_first(classes):
    X, y = table(90)
    three = np.digitize(y, [-0.5, 0.5])
    two = three < 2
    model = classifier().partial_fit(X[two], three[two], classes=[0, 1, 2])
    model.partial_fit(X[~two], three[~two])
    assert model.predict_proba(X).shape == (90, 3)
    assert np.isnan(model.bound_)
    with pytest.raises(ValueError, match="not among"):
        classifier().partial_fit(X, three, classes=[0, 1])


def test_bounds_are_in_the_units_of_the_target():
    X, y = table(100)
    bounds = [
        regressor(likelihood="student-t").fit(X, scale * y).bound_ for scale in (1, 100)
    ]
    assert bounds[0] - bounds[1] == pytest.approx(100 * np.log(100), rel=1e-3)


def test_rows_of_no_weight_are_no_rows(kind):
    X, y = table(30)
    more = np.vstack([X, np.full((70_000, 2), 50.0)])
    weight = np.concatenate([np.ones(30), np.zeros(70_000)])
    found = kind().fit(more, np.resize(y, len(more)), sample_weight=weight)
    np.testing.assert_array_equal(found.predict(X), kind().fit(X, y).predict(X))


def test_a_warm_start_with_another_likelihood():
    X, y = table()
    model = regressor(warm_start=True).fit(X, y)
    model.set_params(likelihood="student-t").fit(X, y)
    assert model.process_.noise == 1.0
    cold = regressor(likelihood="student-t").fit(X, y)
    assert model.bound_ == pytest.approx(cold.bound_, abs=5)
    model.set_params(likelihood="gaussian", geometry="sphere").fit(X, y)
    assert not hasattr(model, "relevance_")


@pytest.mark.parametrize("estimator", [SphericalGPRegressor, SphericalGPClassifier])
def test_scores_of_unequal_lengths(estimator):
    X, y = table(20)
    model = estimator(n_features=10).fit(X, y > 0)
    with pytest.raises(ValueError, match="inconsistent"):
        model.log_score(X, (y > 0)[:10])


def test_a_model_that_cannot_be_described_is_not_taken(fitted, monkeypatch):
    X, y = table()
    model = pickle.loads(pickle.dumps(fitted))
    before = model.predict(X)
    with monkeypatch.context() as patch:
        patch.setattr(SphericalGPRegressor, "_describe", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.models_[0].statistics.rows == 150


def test_several_outputs_share_a_kernel_and_have_their_own_noise(kind):
    X, y = table(300)
    other = 5 * np.cos(2 * X[:, 0]) + np.random.default_rng(9).normal(size=300)
    with pytest.warns(ConstantWarning, match="the target is constant"):
        model = kind().fit(X, np.column_stack([y, other, np.full(300, 3.0)]))
    assert model.predict(X).shape == (300, 3)
    assert model.noise_[0] == pytest.approx(0.1, rel=0.2)
    assert model.noise_[1] == pytest.approx(1.0, rel=0.2)
    np.testing.assert_allclose(model.predict(X)[:, 2], 3.0, atol=1e-3)
    assert model.predict_interval(X).shape == (300, 2, 3)
    assert model.sample_y(X[:4], 6).shape == (4, 3, 6)
    assert len(model.predict_dist(X[:4])) == 3
    truth = np.column_stack([np.sin(2 * X[:, 0]), 5 * np.cos(2 * X[:, 0])])
    error = np.sqrt(np.mean((model.predict(X)[:, :2] - truth) ** 2, axis=0))
    assert np.all(error < [0.06, 0.6])
    with pytest.raises(ValueError, match="the model was fitted to targets of shape"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="several targets need"):
        regressor(likelihood="student-t").fit(X, truth)


def test_strings_and_missing_values():
    generator = np.random.default_rng(0)
    job = generator.choice(["miller", "smith", "baker"], size=300)
    age = generator.uniform(20, 60, size=300)
    rich = (job == "smith") ^ (generator.random(300) < 0.05)
    age[generator.random(300) < 0.2] = np.nan
    frame = pandas.DataFrame({"job": job, "age": age})
    with pytest.raises(ValueError, match=r"column 'age' has .* missing"):
        classifier().fit(frame, rich)
    model = classifier(missing="indicator").fit(frame, np.where(rich, "yes", "no"))
    assert model.score(frame, np.where(rich, "yes", "no")) > 0.9
    assert model.relevance_[0] > 0.5
    turned = frame[["age", "job"]]
    np.testing.assert_array_equal(model.predict(turned), model.predict(frame))


@pytest.mark.parametrize("neighbors", [None, 0])
def test_data_on_a_sphere(neighbors):
    generator = np.random.default_rng(0)
    place = np.column_stack(
        [
            np.rad2deg(np.arcsin(generator.uniform(-1, 1, 400))),
            generator.uniform(-180, 180, 400),
        ]
    )
    height = np.sin(2 * np.deg2rad(place[:, 0])) + np.cos(np.deg2rad(place[:, 1]))
    height = height + 0.05 * generator.normal(size=400)
    chosen = {"n_features": 64, "n_neighbors": neighbors}
    model = SphericalGPRegressor(geometry="sphere", **chosen).fit(place, height)
    # The same place by another name, across the date line.
    one, two = model.predict([[10.0, 180.0], [10.0, -180.0]])
    assert one == pytest.approx(two, abs=1e-9)
    assert model.score(place, height) > 0.9
    assert not hasattr(model, "relevance_")
    beside = pandas.DataFrame(
        {"lat": place[:, 0], "year": generator.normal(size=400), "lon": place[:, 1]}
    )
    warmer = height + 2 * beside["year"]
    model = SphericalGPRegressor(geometry=("lat", "lon"), **chosen)
    model.fit(beside, warmer)
    assert model.score(beside, warmer) > 0.95
    assert len(model.relevance_) == 3


def test_searches_pipelines_and_cross_validation(kind):
    X, y = table(80)
    search = GridSearchCV(kind(), {"n_features": [10, 30]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.7
    pipeline = make_pipeline(StandardScaler(), kind())
    assert cross_val_score(pipeline, X, y, cv=2).mean() > 0.7
    found = permutation_importance(search.best_estimator_, X, y, n_repeats=2)
    assert found.importances_mean.argmax() == 0


def test_weights_are_routed():
    X, y = table(60)
    weight = np.repeat([1.0, 0.0], 30)
    with sklearn.config_context(enable_metadata_routing=True):
        model = SphericalGPRegressor().set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model)
        pipeline.fit(X, y, sample_weight=weight)
    scaled = StandardScaler().fit_transform(X)
    expected = SphericalGPRegressor().fit(scaled, y, sample_weight=weight)
    np.testing.assert_allclose(pipeline.predict(X), expected.predict(scaled))


def test_features_for_other_models():
    X, y = table(300)
    features = SphericalHarmonicFeatures(60).set_output(transform="pandas")
    found = features.fit_transform(X)
    assert list(found.columns[:2]) == [
        "sphericalharmonicfeatures0",
        "sphericalharmonicfeatures1",
    ]
    model = make_pipeline(SphericalHarmonicFeatures(60), Ridge(1e-3)).fit(X, y)
    assert model.score(X, y) > 0.9
    # Products of features are the kernel, as far as they capture it.
    x = features.scaling_.inputs(X[:20])
    kernel = features.basis_.covariance(x)
    products = found.to_numpy()[:20] @ found.to_numpy()[:20].T
    assert np.all(np.diag(products) <= np.diag(kernel) + 1e-6)
    assert np.mean(np.abs(products - kernel)) < 0.03


def test_a_failed_fit_leaves_the_model_as_it_was(fitted):
    X, y = table()
    model = pickle.loads(pickle.dumps(fitted))
    before = model.predict(X)
    bad = y.copy()
    bad[7] = np.nan
    for change in (model.fit, model.partial_fit, model.forget, model.refresh):
        with pytest.raises(ValueError, match="NaN"):
            change(X, bad)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1], y)
    model.set_params(layout="best")
    with pytest.raises(ValueError, match="layout must be"):
        model.fit(np.random.default_rng(0).normal(size=(9, 5)), y[:9])
    assert model.n_features_in_ == 2
    np.testing.assert_array_equal(model.predict(X), before)


def test_callbacks_see_steps_and_can_stop():
    X, y = table()
    seen = []

    def stop(step):
        seen.append(step.stage)
        return step.stage == "learn 1"

    with pytest.warns(LearningStoppedWarning, match="a callback"):
        regressor(callbacks=[stop]).fit(X, y)
    assert seen.count("learn 1") == 1
    assert seen[-1] == "solve"


@pytest.mark.skipif(
    not hasattr(SphericalGPRegressor, "set_callbacks"), reason="before scikit-learn 1.9"
)
def test_callbacks_of_scikit_learn(kind):
    class Counter:
        def __init__(self):
            self.seen = []

        def setup(self, estimator, context):
            self.seen.append("setup")

        def teardown(self, estimator, context):
            self.seen.append("teardown")

        def on_fit_task_begin(self, estimator, context):
            self.seen.append(f"begin {context.task_name}")

        def on_fit_task_end(self, estimator, context):
            self.seen.append(f"end {context.task_name}")

    counter = Counter()
    model = kind().set_callbacks(counter).fit(*table())
    assert counter.seen[:2] == ["setup", "begin fit"]
    assert counter.seen[-2:] == ["end fit", "teardown"]
    stage = "round" if model.models_[0].stores_rows else "learn 1"
    assert counter.seen.count(f"end {stage}") == model.n_iter_


def test_verbose_prints_steps(kind, capsys):
    model = kind(verbose=1).fit(*table(40))
    printed = capsys.readouterr().out
    stage, measure = ("learn 1", "bound")
    if model.models_[0].stores_rows:
        stage, measure = ("round", "log density")
    assert stage in printed
    assert f"{measure} per row" in printed


def test_a_warm_start_takes_fewer_steps():
    X, y = table()
    model = regressor(warm_start=True).fit(X, y)
    again = model.n_iter_
    assert model.fit(X, y).n_iter_ < again


def test_a_warm_start_of_neighbours_is_at_least_as_good():
    X, y = table()
    model = SphericalGPRegressor(warm_start=True).fit(X, y)
    before = model.bound_
    assert model.fit(X, y).bound_ >= before - 1


def test_refresh_and_other_numbers_of_features(fitted):
    X, y = table()
    refreshed = pickle.loads(pickle.dumps(fitted)).refresh(X, y)
    assert refreshed.bound_ >= fitted.bound_ - 1
    larger = fitted.copy_with(X, y, n_features=100)
    # As many as can be told apart, of a function of one column.
    assert fitted.n_features_ < larger.n_features_ <= 100
    name = "n_features" if fitted.models_[0].stores_rows else "solve_features"
    assert larger.get_params()[name] == 100
    assert larger.n_neighbors_ == fitted.n_neighbors_
    np.testing.assert_allclose(larger.predict(X), fitted.predict(X), atol=0.05)


def test_other_layouts_keep_their_features():
    X, y = table(60)
    complete = regressor(layout="harmonics").fit(X, y)
    with pytest.raises(ValueError, match="only the banded layout"):
        complete.copy_with(X, y, n_features=100)


def test_time_limits(kind):
    X, y = table()
    with pytest.warns(LearningStoppedWarning, match="limit"):
        model = kind(max_time=1e-9).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


def test_early_stopping_keeps_rows_aside_but_solves_with_all():
    X, y = table()
    model = regressor(early_stopping=True, validation_fraction=0.2).fit(X, y)
    learned = np.char.startswith(model.history_["stage"], "learn")
    assert set(model.history_["rows"][learned]) == {120}
    assert model.models_[0].statistics.rows == 150
    assert model.score(X, y) > 0.9


def test_samples_scatter_as_predicted(fitted, classes):
    X, _ = table(5, seed=6)
    mean, std = fitted.predict(X, return_std=True)
    draws = fitted.sample_y(X, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * std.max() / 60)
    np.testing.assert_allclose(draws.std(axis=1), std, rtol=0.1)
    many = fitted.predict_dist(X).sample(4000)
    np.testing.assert_allclose(many.std(axis=1), std, rtol=0.1)


def test_counts_are_drawn_as_counts():
    X, y = table(200)
    counts = np.random.default_rng(0).poisson(np.exp(1 + y))
    model = regressor(likelihood="negative-binomial").fit(X, counts)
    draws = model.sample_y(X[:10], 2000)
    assert np.all(draws == np.floor(draws))
    np.testing.assert_allclose(draws.mean(axis=1), model.predict(X[:10]), rtol=0.2)
    low, high = model.predict_interval(X, 0.9).T
    assert np.mean((low <= counts) & (counts <= high)) > 0.85


def exposed_counts(rows=150):
    """Counts of a rate that is known, over hours that differ."""
    X, _ = table(rows)
    generator = np.random.default_rng(3)
    hours = generator.uniform(0.5, 8, size=rows)
    rate = np.exp(0.5 + np.sin(2 * X[:, 0]))
    return X, generator.poisson(hours * rate), hours, rate


@pytest.fixture(scope="module")
def exposed():
    X, y, hours, _ = exposed_counts()
    return regressor(likelihood="poisson", n_features=20, solve_features=20).fit(
        X, y, exposure=hours
    )


def test_an_exposure_multiplies_the_rate(exposed):
    X, y, hours, rate = exposed_counts()
    mean, std = exposed.predict(X, return_std=True)
    assert np.mean(np.abs(mean / rate - 1)) < 0.1
    many, scatter = exposed.predict(X, return_std=True, exposure=hours)
    np.testing.assert_allclose(many, hours * mean)
    # The variance of a count is its mean and that of its rate.
    around = hours * mean + hours**2 * (std**2 - mean)
    np.testing.assert_allclose(scatter**2, around)
    np.testing.assert_allclose(exposed.predict(X, exposure=2), 2 * mean)
    low, high = exposed.predict_interval(X, 0.9, exposure=hours).T
    assert np.mean((low <= y) & (y <= high)) > 0.85
    distribution = exposed.predict_dist(X, exposure=hours)
    assert np.all(distribution.cdf(high) >= 0.95)
    score = exposed.log_score(X, y, exposure=hours)
    assert score == pytest.approx(distribution.logpdf(y).mean())
    assert score > exposed.log_score(X, y) + 1
    assert exposed.score(X, y, exposure=hours) > 0.8 > exposed.score(X, y)
    draws = exposed.sample_y(X[:9], 4000, exposure=hours[:9])
    np.testing.assert_allclose(draws.mean(axis=1), many[:9], rtol=0.1)
    np.testing.assert_allclose(draws.std(axis=1), scatter[:9], rtol=0.1)


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
def test_the_unit_of_exposure_does_not_matter(likelihood):
    X, y, hours, _ = exposed_counts(60)
    model = regressor(likelihood=likelihood, n_features=20, solve_features=20)
    expected = clone(model).fit(X, y, exposure=hours).predict(X)
    minutes = clone(model).fit(X, y, exposure=60 * hours)
    np.testing.assert_allclose(minutes.predict(X, exposure=60), expected, rtol=1e-2)
    # Equal exposures are none.
    expected = clone(model).fit(X, y).predict(X)
    equal = clone(model).fit(X, y, exposure=np.full(60, 4.0))
    np.testing.assert_allclose(equal.predict(X, exposure=4.0), expected, rtol=1e-2)


def test_hours_can_be_counted_in_parts(exposed):
    # Two counts at one place say the same of its rate as their sum does.
    X, y, hours, _ = exposed_counts()
    share = np.random.default_rng(4).uniform(0.1, 0.9, size=len(y))
    first = np.random.default_rng(5).binomial(y, share)
    parts = regressor(likelihood="poisson", n_features=20, solve_features=20).fit(
        np.vstack([X, X]),
        np.concatenate([first, y - first]),
        exposure=np.concatenate([share * hours, (1 - share) * hours]),
    )
    np.testing.assert_allclose(parts.predict(X), exposed.predict(X), rtol=0.02)


def test_exposed_rows_come_and_go(exposed):
    X, y, hours, _ = exposed_counts()
    new, there = slice(100, None), slice(100)
    model = regressor(likelihood="poisson", n_features=20, solve_features=20)
    model.partial_fit(X[there], y[there], exposure=hours[there])
    before = model.predict(X)
    model.partial_fit(X[new], y[new], exposure=hours[new])
    after = model.predict(X)
    np.testing.assert_allclose(after, exposed.predict(X), rtol=0.2)
    model.forget(X[new], y[new], exposure=hours[new])
    assert np.abs(model.predict(X) - before).max() < 0.3 * np.abs(after - before).max()
    larger = exposed.copy_with(X, y, n_features=40, exposure=hours)
    np.testing.assert_allclose(larger.predict(X), exposed.predict(X), rtol=0.1)
    again = pickle.loads(pickle.dumps(exposed)).refresh(X, y, exposure=hours)
    np.testing.assert_allclose(again.predict(X), exposed.predict(X), rtol=0.1)


def test_exposures_that_are_refused(exposed, fitted, classes):
    X, y, hours, _ = exposed_counts()
    for wrong, shown in ((0.0, "0"), (-1.0, "-1"), (np.nan, "nan"), (np.inf, "inf")):
        bad = hours.copy()
        bad[7] = wrong
        message = f"exposure must be finite and positive; row 7 has {shown}"
        with pytest.raises(ValueError, match=message):
            clone(exposed).fit(X, y, exposure=bad)
        with pytest.raises(ValueError, match=message):
            exposed.predict(X, exposure=bad)
    with pytest.raises(ValueError, match="one for each row"):
        clone(exposed).fit(X, y, exposure=hours[:9])
    for some in (hours[:9], np.tile(hours, 2)):
        with pytest.raises(ValueError, match="X has 150 rows and exposure has"):
            exposed.predict(X, exposure=some)
    with pytest.raises(ValueError, match="names a column, which goes with target="):
        clone(exposed).fit(X, y, exposure="hours")
    for attempt in (
        lambda: regressor().fit(X, y, exposure=hours),
        lambda: fitted.predict(X, exposure=hours),
        lambda: fitted.forget(X, y, exposure=hours),
        lambda: classes.forget(X, np.where(y > 0, "up", "down"), exposure=hours),
    ):
        with pytest.raises(ValueError, match="an exposure is for counts"):
            attempt()


def test_large_tables_have_exposures_in_blocks(exposed, monkeypatch):
    X, _, hours, _ = exposed_counts()
    expected = exposed.predict(X, exposure=hours)
    monkeypatch.setattr("zonal.estimators.base._BLOCK", 64)
    np.testing.assert_allclose(exposed.predict(X, exposure=hours), expected)
    hours[100] = 0
    with pytest.raises(ValueError, match="row 100 has 0"):
        exposed.predict(X, exposure=hours)


@pytest.mark.parametrize("method", ["predict", "predict_interval", "predict_dist"])
def test_prediction_before_fitting(method):
    with pytest.raises(NotFittedError):
        getattr(regressor(), method)(np.zeros((1, 1)))
    with pytest.raises(NotFittedError):
        regressor().forget(np.zeros((1, 1)), [1.0])


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"kernel": "rbf"}, "kernel must be one of"),
        ({"likelihood": "cauchy"}, "likelihood must be one of"),
        ({"geometry": "torus"}, "geometry must be"),
        ({"dtype": "float16"}, "dtype must be"),
        ({"n_features": 0, "n_neighbors": 0}, "set n_features to 1 or more"),
        ({"n_features": -1}, "n_features must be 0 or more"),
        ({"n_neighbors": 5, "keep_rows": False}, "has to keep its rows"),
        ({"missing": "drop"}, "missing must be"),
    ],
)
def test_unknown_choices_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        SphericalGPRegressor(**choices).fit(*table(20))


def test_two_classes_only_for_a_sigmoid():
    X, _ = table(30)
    with pytest.raises(ValueError, match="there are 3 classes"):
        classifier(likelihood="probit").fit(X, np.arange(30) % 3)
    with pytest.raises(ValueError, match="likelihood must be"):
        classifier(likelihood="poisson").fit(X, np.arange(30) % 2)
    probit = classifier(likelihood="probit").fit(X, X[:, 0] > 0)
    softmax = classifier(likelihood="softmax").fit(X, X[:, 0] > 0)
    assert softmax.decision_function(X).shape == (30,)
    assert np.mean(probit.predict(X) == softmax.predict(X)) > 0.9


def test_a_wrong_number_of_weights():
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(3,\)"):
        regressor().fit(*table(20), sample_weight=np.ones(3))


def test_depth_can_be_given(kind):
    model = kind(depth=3).fit(*table())
    assert model.depth_.layers == 3
    assert kind(kernel="arc-cosine").fit(*table(50)).score(*table()) > 0.8


def test_a_summary_in_text_and_html(fitted, classes):
    text = str(fitted.summary())
    for word in ("rows", "depth", "noise", "relevance", "column 0"):
        assert word in text
    of_neighbors = ("neighbors", "leave-one-out log density", "global features")
    of_features = ("bound", "log evidence", "spherical harmonics", "captured")
    here, elsewhere = of_neighbors, of_features
    if not fitted.models_[0].stores_rows:
        here, elsewhere = of_features, of_neighbors
    assert all(word in text for word in here)
    assert not any(word in text for word in elsewhere)
    assert fitted.summary()._repr_html_().startswith("<table>")
    assert "Bernoulli" in str(classes.summary())


def test_a_summary_has_no_density_of_rows_that_have_changed():
    X, y = table(40)
    model = SphericalGPRegressor().fit(X, y).partial_fit(X[:5], y[:5])
    assert np.isnan(model.bound_)
    assert "nan" not in str(model.summary())


def test_plots(fitted, classes):
    from matplotlib import pyplot as plt

    from zonal import plots

    plt.switch_backend("agg")
    X, y = table()
    for draw, given in (
        (plots.plot_calibration, (fitted, X, y)),
        (plots.plot_reliability, (classes, X, np.where(y > 0, "up", "down"))),
        (plots.plot_spectrum, (fitted,)),
        (plots.plot_relevance, (fitted,)),
        (plots.plot_history, (fitted,)),
    ):
        _, ax = plt.subplots()
        assert draw(*given, ax=ax) is ax
        assert ax.get_xlabel()
    with pytest.raises(ValueError, match="one column"):
        plots.plot_prediction(fitted, X)
    plt.close("all")
