"""Other libraries for probabilistic prediction take our estimators as they are."""

import numpy as np
import pandas as pd
import pytest

from zonal import SphericalGPClassifier, SphericalGPRegressor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # theirs, not ours
    pytest.mark.usefixtures("few_rounds"),
]


def table(rows, seed):
    generator = np.random.default_rng(seed)
    x = pd.DataFrame(generator.normal(size=(rows, 2)), columns=["a", "b"])
    return x, np.sin(2 * x.a.to_numpy()) + 0.2 * generator.normal(size=rows)


@pytest.fixture(scope="module")
def fitted(few_rounds):
    return SphericalGPRegressor().fit(*table(150, 0))


def test_skops_stores_and_restores(fitted):
    import skops.io

    data = skops.io.dumps(fitted)
    unknown = skops.io.get_untrusted_types(data=data)
    assert all(name.startswith("zonal.") for name in unknown)
    X, _ = table(50, 1)
    again = skops.io.loads(data, trusted=unknown)
    assert np.array_equal(again.predict(X), fitted.predict(X))


def test_mapie_makes_conformal_intervals(fitted):
    from mapie.regression import SplitConformalRegressor

    X, y = table(300, 2)
    conformal = SplitConformalRegressor(fitted, confidence_level=0.8, prefit=True)
    conformal.conformalize(X, y)
    X_test, y_test = table(600, 3)
    _, ends = conformal.predict_interval(X_test)
    inside = (ends[:, 0, 0] < y_test) & (y_test < ends[:, 1, 0])
    assert inside.mean() == pytest.approx(0.8, abs=0.08)


def test_mapie_makes_conformal_sets():
    from mapie.classification import SplitConformalClassifier

    X, y = table(200, 4)
    classes = np.where(y > 0.3, "high", "low")
    model = SplitConformalClassifier(SphericalGPClassifier(), prefit=False)
    model.fit(X, classes)
    X_test, y_test = table(200, 5)
    truth = np.where(y_test > 0.3, "high", "low")
    model.conformalize(X_test[:100], truth[:100])
    guess, sets = model.predict_set(X_test[100:])
    assert np.mean(guess == truth[100:]) > 0.8
    assert sets.shape[:2] == (100, 2)


def test_skpro_wraps_and_scores(fitted):
    from skpro.metrics import CRPS, LogLoss, PinballLoss
    from skpro.regression.adapters.sklearn import SklearnProbaReg

    X, y = table(150, 0)
    wrapped = SklearnProbaReg(SphericalGPRegressor()).fit(X, pd.DataFrame({"y": y}))
    X_test, y_test = table(200, 6)
    truth = pd.DataFrame({"y": y_test})
    mean, std = fitted.predict(X_test, return_std=True)
    distribution = wrapped.predict_proba(X_test)
    assert np.allclose(distribution.mean()["y"], mean)
    # The log loss of a normal with our mean and deviation, by hand.
    z = (y_test - mean) / std
    by_hand = np.mean(0.5 * z**2 + np.log(std) + 0.5 * np.log(2 * np.pi))
    assert LogLoss()(truth, distribution) == pytest.approx(by_hand, rel=1e-6)
    assert 0.05 < CRPS()(truth, distribution) < 0.2
    quantiles = wrapped.predict_quantiles(X_test, alpha=[0.1, 0.9])
    assert 0 < PinballLoss()(truth, quantiles) < 0.2
