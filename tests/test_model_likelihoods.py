"""Models of likelihoods other than normal noise, in the table's own units."""

import dataclasses
import warnings

import numpy as np
import pytest
from limits import FEW_ROUNDS
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from zonal import (
    ArraySource,
    Bernoulli,
    Heteroscedastic,
    Labels,
    NegativeBinomial,
    Poisson,
    Recipe,
    Softmax,
    StudentT,
    UnitVectors,
    fit,
)
from zonal.learning.by_bound import Learner, LearningStoppedWarning

SMALL = Recipe(n_features=30, most_steps=15, schedule=FEW_ROUNDS)


def table(rows=600, seed=0):
    """Columns in odd units, and the function that targets follow."""
    generator = np.random.default_rng(seed)
    inner = generator.normal(size=(rows, 2))
    f = 1.5 * np.sin(2 * inner[:, 0]) + inner[:, 1]
    return inner * [1e-5, 1e5] + [0, 3e5], f, generator


@pytest.fixture(scope="module")
def two_classes():
    x, f, generator = table()
    y = (generator.random(len(x)) < expit(2 * f)).astype(float)
    return fit(ArraySource(x, y), SMALL, Bernoulli()), x, y, f


def test_two_classes_are_told_apart_and_probabilities_are_right(two_classes):
    model, _, _, _ = two_classes
    x, f, generator = table(4000, seed=1)
    y = (generator.random(len(x)) < expit(2 * f)).astype(float)
    prediction = model.predict(x)
    chance = prediction.probabilities()
    truth = expit(2 * f)
    assert np.mean(np.abs(chance[:, 1] - truth)) < 0.07
    ideal = np.mean(y * np.log(truth) + (1 - y) * np.log1p(-truth))
    assert ideal - np.mean(prediction.log_density(y)) < 0.05
    np.testing.assert_allclose(chance.sum(axis=1), 1, atol=1e-12)


def test_complete_levels_stay_complete():
    x, f, _ = table(200)
    recipe = dataclasses.replace(
        SMALL, solve_features=30, layout="harmonics", most_steps=2
    )
    model = fit(ArraySource(x, f > 0), recipe, Bernoulli())
    basis = model.process.basis
    # Five levels of the globe are 25 harmonics, and six would be 36.
    assert basis.n_features == 25
    assert basis.follows("harmonics")


def test_predictions_do_not_depend_on_the_batch(two_classes):
    model, x, _, _ = two_classes
    together = model.predict(x).probabilities()
    alone = np.concatenate(
        [model.predict(x[i : i + 1]).probabilities() for i in range(5)]
    )
    np.testing.assert_allclose(together[:5], alone, atol=1e-6)
    chunks = list(model.predict_chunks(ArraySource(x, np.zeros(len(x)))))
    np.testing.assert_array_equal(
        np.concatenate([one.probabilities() for one in chunks]), together
    )


def test_the_same_seed_gives_the_same_model(two_classes):
    model, x, y, _ = two_classes
    again = fit(ArraySource(x, y), SMALL, Bernoulli())
    assert again.bound == model.bound


def test_history_tells_of_every_pass(two_classes):
    model, _, _, _ = two_classes
    stages = [step.stage for step in model.history]
    assert stages.index("infer") > stages.index("learn 1")
    passes = [step for step in model.history if step.stage == "infer"]
    assert [step.number for step in passes] == list(range(1, len(passes) + 1))
    assert passes[-1].bound * 600 == pytest.approx(model.bound, rel=1e-6)
    assert model.depth >= 1


def test_several_classes_and_names():
    x, f, generator = table()
    names = np.array(["low", "middle", "high"])
    codes = np.digitize(f + 0.5 * generator.logistic(size=len(x)), [-0.7, 0.7])
    labels = Labels.of(names[codes])
    model = fit(ArraySource(x, labels.codes(names[codes])), SMALL, labels.likelihood())
    chance = model.predict(x).probabilities()
    guess = labels.names[chance.argmax(axis=1)]
    assert np.mean(guess == names[codes]) > 0.7
    np.testing.assert_allclose(chance.sum(axis=1), 1, atol=1e-12)


def test_two_classes_by_softmax_agree_with_one_function(two_classes):
    model, x, y, _ = two_classes
    soft = fit(ArraySource(x, y), SMALL, Softmax(2))
    apart = soft.predict(x).probabilities() - model.predict(x).probabilities()
    assert np.mean(np.abs(apart)) < 0.05


@pytest.mark.parametrize("kind", [Poisson, NegativeBinomial])
def test_counts_with_exposure(kind):
    x, f, generator = table()
    exposure = generator.uniform(0.5, 20, size=len(x))
    spread = generator.gamma(2, 0.5, size=len(x)) if kind is NegativeBinomial else 1.0
    y = generator.poisson(exposure * spread * np.exp(f - 1)).astype(float)
    model = fit(ArraySource(x, y, exposure=exposure), SMALL, kind())
    once = model.predict(x, exposure=np.ones(len(x)))
    error = np.log(once.mean) - (f - 1)
    assert np.sqrt(np.mean(error**2)) < 0.35
    doubled = model.predict(x, exposure=np.full(len(x), 2.0))
    np.testing.assert_allclose(doubled.mean, 2 * once.mean, rtol=1e-9)
    seen = model.predict(x, exposure=exposure)
    low, high = seen.quantiles(np.array([0.05, 0.95])).T
    assert 0.87 < np.mean((low <= y) & (y <= high)) <= 1.0
    if kind is NegativeBinomial:
        assert 0.25 < float(model.likelihood.dispersion) < 0.9


def test_gross_outliers_lose_their_say():
    x, f, generator = table(1000)
    y = 1e3 * (f + 0.2 * generator.normal(size=len(x))) + 5e3
    wild = generator.random(len(x)) < 0.05
    y[wild] += 1e4 * generator.choice([-3.0, 3.0], size=wild.sum())
    model = fit(ArraySource(x, y), SMALL, StudentT())
    error = model.predict(x).mean - (1e3 * f + 5e3)
    assert np.sqrt(np.mean(error**2)) < 200
    width = np.diff(model.predict(x).quantiles(np.array([0.25, 0.75])))[:, 0]
    assert np.median(width) == pytest.approx(2 * 0.674 * 200, rel=0.4)


def test_noise_that_changes_is_found():
    x, f, generator = table(1500)
    inner = x[:, 0] * 1e5
    deviation = 0.3 * np.exp(0.7 * inner)
    y = 10 * (f + deviation * generator.normal(size=len(x)))
    model = fit(ArraySource(x, y), SMALL, Heteroscedastic())
    prediction = model.predict(x)
    ours = 0.5 * np.log(prediction.variance_y)
    assert np.corrcoef(ours, np.log(deviation))[0, 1] > 0.9
    inside = np.abs(y - prediction.mean) < 1.645 * np.sqrt(prediction.variance_y)
    for part in (inner < -0.7, inner > 0.7):
        assert abs(np.mean(inside[part]) - 0.9) < 0.06


def test_a_class_of_one_in_ten_thousand():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(20_000, 2))
    y = np.zeros(20_000)
    y[np.argsort(x[:, 0])[-2:]] = 1
    model = fit(ArraySource(x, y), SMALL, Bernoulli())
    chance = model.predict(x).probabilities()[:, 1]
    assert np.all(np.isfinite(chance))
    assert chance.sum() == pytest.approx(2, abs=2)
    assert chance[y == 1].min() > np.quantile(chance, 0.99)


def test_classes_that_never_overlap():
    x, f, _ = table(300)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fit(ArraySource(x, f > 0), SMALL, Bernoulli())
    chance = model.predict(x).probabilities()[:, 1]
    assert np.all((chance >= 0) & (chance <= 1))
    assert np.mean((chance > 0.5) == (f > 0)) > 0.97


def test_rows_on_a_sphere():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = generator.poisson(np.exp(1 + x[:, 2])).astype(float)
    recipe = dataclasses.replace(SMALL, most_steps=10, sphere=UnitVectors(3))
    model = fit(ArraySource(x, y), recipe, Poisson())
    assert np.corrcoef(np.log(model.predict(x).mean), x[:, 2])[0, 1] > 0.9


def test_what_a_likelihood_does_not_have_is_said(two_classes):
    model, x, _, _ = two_classes
    prediction = model.predict(x[:3])
    with pytest.raises(TypeError, match="Bernoulli has no quantiles"):
        prediction.quantiles(np.array([0.5]))
    with pytest.raises(TypeError, match="Bernoulli has no mean and variance"):
        _ = prediction.mean
    with pytest.raises(ValueError, match="row 1 has class code 2"):
        prediction.log_density(np.array([0.0, 2.0, 1.0]))


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        (np.ones(50), Bernoulli(), "every row has the same class"),
        (np.full(50, 0.5), Poisson(), "row 0 has 0.5"),
        (np.arange(50.0), Softmax(3), "row 3 has class code 3"),
    ],
)
def test_bad_targets_are_refused(y, likelihood, message):
    with pytest.raises(ValueError, match=message):
        fit(ArraySource(np.zeros((50, 1)), y), SMALL, likelihood)


def test_equal_counts_of_different_exposure_are_learned_from():
    x, _, _ = table(300)
    inner = x[:, 0] * 1e5
    y, exposure = np.full(300, 20.0), np.exp(-inner)
    model = fit(ArraySource(x, y, exposure=exposure), SMALL, Poisson())
    rate = model.predict(x, exposure=np.ones(300)).mean
    assert np.corrcoef(np.log(rate), inner)[0, 1] > 0.98


def test_an_interrupt_keeps_what_was_learned(monkeypatch):
    x, f, generator = table(300)
    y = generator.poisson(np.exp(f)).astype(float)

    def interrupt(step):
        if step.stage == "learn 1" and step.number == 5:
            raise KeyboardInterrupt

    with pytest.warns(LearningStoppedWarning, match="stopped by an interrupt"):
        model = fit(ArraySource(x, y), SMALL, Poisson(), interrupt)
    assert np.corrcoef(np.log(model.predict(x).mean), f)[0, 1] > 0.8


def test_bad_exposure_and_choices_are_refused():
    x = np.zeros((3, 1))
    with pytest.raises(
        ValueError, match="exposure must be finite and positive; row 1 has 0"
    ):
        ArraySource(x, np.ones(3), exposure=[1, 0, 2])
    precise = ArraySource(x, np.arange(3), precision=[1, 2, 3])
    with pytest.raises(ValueError, match="StudentT has no use for known precisions"):
        fit(precise, likelihood=StudentT())
    exposed = ArraySource(x, [0, 1, 1], exposure=[1, 2, 3])
    with pytest.raises(ValueError, match="Bernoulli has no use for an exposure"):
        fit(exposed, likelihood=Bernoulli())
    recipe = Recipe(linear_mean=True)
    with pytest.raises(ValueError, match="linear_mean is for targets that are real"):
        fit(ArraySource(x, np.arange(3)), recipe, Poisson())


def _passes(model):
    return [step for step in model.history if step.stage == "infer"]


@pytest.fixture
def no_time(monkeypatch):
    """A second passes when the start is learned; no checkpoint is written before."""

    def seconds(run):
        return float(any(step.stage != "start" for step in run.history))

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "seconds", property(seconds))
        yield


def test_a_limit_of_time_ends_passes_too(two_classes, tmp_path, no_time):
    whole, x, y, _ = two_classes
    assert len(_passes(whole)) > 3
    source, checkpoint = ArraySource(x, y), tmp_path / "run.zonal"
    hurried = dataclasses.replace(SMALL, max_seconds=1e-3)
    with (
        pytest.warns(LearningStoppedWarning, match="limit of 0.001 seconds"),
        pytest.warns(ConvergenceWarning, match="limit of 0.001 seconds after 3 passes"),
    ):
        model = fit(source, hurried, Bernoulli(), checkpoint=checkpoint)
    assert len(_passes(model)) == 3
    assert np.isfinite(model.predict(x).log_density(y)).all()
    # With time, the same call goes on where that one was, and ends where it would have.
    assert checkpoint.exists()
    patient = fit(source, SMALL, Bernoulli(), checkpoint=checkpoint)
    assert patient.bound == whole.bound
    assert not checkpoint.exists()


def _interrupting(passes):
    def interrupt(step):
        if step.stage == "infer" and step.number == passes:
            raise KeyboardInterrupt

    return interrupt


def test_an_interrupt_of_the_first_passes_is_one(two_classes):
    _, x, y, _ = two_classes
    with pytest.raises(KeyboardInterrupt):
        fit(ArraySource(x, y), SMALL, Bernoulli(), _interrupting(2))


def test_an_interrupt_of_passes_leaves_the_best_of_them(two_classes):
    _, x, y, _ = two_classes
    with pytest.warns(ConvergenceWarning, match="an interrupt after 3 passes"):
        model = fit(ArraySource(x, y), SMALL, Bernoulli(), _interrupting(4))
    assert np.mean((model.predict(x).probabilities()[:, 1] > 0.5) == y) > 0.8
