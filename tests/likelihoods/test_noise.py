"""Leave-one-out residuals give predictions their scale and their tails."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest

from zonal import (
    ArraySource,
    Calibration,
    Gaussian,
    Prediction,
    Recipe,
    SphericalGPRegressor,
    fit,
)
from zonal.tables.chunks import Chunk

GENERATOR = np.random.default_rng(0)
# By nearest rows and features, and by features alone.
SHORT = {
    "neighbors": Recipe(n_features=60, n_neighbors=64),
    "features": Recipe(n_features=60, n_neighbors=0, most_steps=20),
}


def rows(count, noise, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(count, 2))
    return x, np.sin(2 * x[:, 0]) + noise(generator, count)


def heavy(generator, count):
    return 0.2 * generator.standard_t(3.5, count)


MIXED = Calibration((0.1, 1.0, 3.0), (0.3, 0.5, 0.2))


@pytest.mark.parametrize("shape", [Calibration(), MIXED])
def test_a_prediction_is_one_distribution(shape):
    # What is not of the function is noise; widths of the shape multiply both.
    mean, variance = np.full((1, 1), 2.0 / 3), np.full((1, 1), 0.25 / 9)
    noise = (4 / shape.spread - 0.25) / 9
    nowhere = Chunk(np.empty((1, 0)))
    one = Prediction(Gaussian(noise, shape), mean, variance, np.zeros(1), 3.0, nowhere)
    assert one.mean[0] == pytest.approx(2)
    assert one.variance_y[0] == pytest.approx(4)

    def density(y):
        return float(np.exp(one.log_density(np.array([y])))[0])

    whole, _ = quad(density, -60, 60, points=[2.0], limit=500)
    assert whole == pytest.approx(1, abs=1e-6)
    square, _ = quad(lambda y: (y - 2) ** 2 * density(y), -60, 60, limit=500)
    assert square == pytest.approx(4, rel=1e-5)
    below, _ = quad(density, -60, 3.5, points=[2.0], limit=500)
    assert one.distribution(np.array([3.5]))[0] == pytest.approx(below, abs=1e-6)
    levels = np.array([0.05, 0.5, 0.8])
    back = [one.distribution(one.quantiles(levels)[:, k])[0] for k in range(3)]
    assert np.allclose(back, levels)
    draws = one.draw(4000, np.random.default_rng(1))[0]
    assert kstest(draws, lambda y: one.distribution(np.asarray(y))).pvalue > 0.01


@pytest.mark.parametrize("kind", SHORT)
def test_intervals_hold_what_they_promise_where_noise_has_tails(kind):
    x, y = rows(1500, heavy, 1)
    x_test, y_test = rows(4000, heavy, 2)
    model = fit(ArraySource(x, y), SHORT[kind])
    normal = dataclasses.replace(model.likelihood, calibration=Calibration())
    solution = dataclasses.replace(model.solution, likelihood=normal)
    plain = dataclasses.replace(model, solution=solution)

    def coverage(one, level):
        ends = one.predict(x_test).quantiles(
            np.array([0.5 - level / 2, 0.5 + level / 2])
        )
        return np.mean((ends[:, 0] < y_test) & (y_test < ends[:, 1]))

    for level in (0.5, 0.8, 0.95):
        assert coverage(model, level) == pytest.approx(level, abs=0.03)
    assert abs(coverage(plain, 0.5) - 0.5) > 0.05
    gain = model.predict(x_test).log_density(y_test) - plain.predict(
        x_test
    ).log_density(y_test)
    assert gain.mean() > 0.02
    assert np.array_equal(model.predict(x_test).mean, plain.predict(x_test).mean)


def test_drawn_targets_have_the_calibrated_shape():
    x, y = rows(1500, heavy, 4)
    model = SphericalGPRegressor(n_features=40).fit(x, y)
    place = x[:1]
    draws = model.sample_y(place, 4000, random_state=0)[0]
    distribution = model.predict_dist(place)
    assert (
        kstest(
            draws, lambda v: np.array([distribution.cdf(one)[0] for one in v])
        ).pvalue
        > 0.01
    )


def test_drawn_functions_stay_functions():
    x, y = rows(400, heavy, 5)
    model = SphericalGPRegressor(n_features=40).fit(x, y)
    near = np.array([[0.5, 0.0], [0.5001, 0.0]])
    noise = model.noise_ * np.sqrt(model.models_[0].likelihood.calibration.spread)
    draws = model.sample_y(near, 500, random_state=1)
    # Two rows almost alike differ by their noise alone.
    assert np.std(draws[0] - draws[1]) == pytest.approx(np.sqrt(2) * noise, rel=0.3)


def test_a_constant_target_is_left_alone():
    with pytest.warns(UserWarning, match="constant"):
        model = fit(ArraySource(GENERATOR.normal(size=(20, 2)), np.ones(20)))
    assert model.likelihood.calibration == Calibration()
