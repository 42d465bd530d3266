"""Models whose target has a scale of its own, in units of the table."""

import dataclasses

import numpy as np
import pytest
from scipy.integrate import quad

from zonal import ArraySource, Gaussian, Prediction, Recipe, fit
from zonal.learning.schedule import NeighbourSchedule, Schedule, SizeSchedule
from zonal.likelihoods.noise import Calibration
from zonal.tables.chunks import Chunk
from zonal.tables.target_maps import Identity, Log, Logit, YeoJohnson

FEW_LEVELS = Schedule(
    rough_levels=10,
    smooth_levels=10,
    by_neighbours=NeighbourSchedule(racers=1, race_rounds=1, sample_rows=(400, 400)),
    sizes=SizeSchedule(candidates=((0, 64), (64, 64))),
)
NEIGHBORS = Recipe(target_transform="log", schedule=FEW_LEVELS)
FEATURES = dataclasses.replace(
    NEIGHBORS, n_features=40, n_neighbors=0, solve_features=40, most_steps=20
)
RECIPES = {"neighbors": NEIGHBORS, "features": FEATURES}
SHAPE = Calibration((0.5, 1.5), (0.6, 0.4))
MAPS = (Identity(), Log(), Logit(), YeoJohnson(0.4, 1.0, 2.0))


def table(rows=400, seed=0):
    """Prices: positive, and the larger the more uncertain."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 2))
    log = np.sin(2 * x[:, 0]) + 0.3 * generator.normal(size=rows)
    return x, 1000 * np.exp(log)


@pytest.fixture(params=RECIPES, scope="module")
def recipe(request):
    return RECIPES[request.param]


@pytest.fixture(scope="module")
def model(recipe):
    return fit(ArraySource(*table()), recipe)


def prediction(target_map, variance=0.2, noise=0.3):
    """Two rows of a mapped law."""
    mean = np.array([[0.5], [-1.0]])
    return Prediction(
        Gaussian(noise, SHAPE),
        mean,
        np.full((2, 1), variance),
        np.array([0.2, 0.4]),
        0.7,
        Chunk(np.empty((2, 0))),
        target_map,
    )


@pytest.mark.parametrize("target_map", MAPS, ids=repr)
def test_densities_distributions_and_quantiles_agree(target_map):
    law = prediction(target_map)
    levels = np.array([0.01, 0.2, 0.5, 0.97])
    quantiles = law.quantiles(levels)
    for level, column in zip(levels, quantiles.T, strict=True):
        assert np.allclose(law.distribution(column), level, rtol=1e-9)
    for row in (0, 1):

        def density(y, row=row):
            return np.exp(law.log_density(np.full(2, y)))[row]

        low, high = quantiles[row, [0, -1]]
        mass = quad(density, low, high, epsabs=1e-10, limit=200)[0]
        assert mass == pytest.approx(0.96, abs=1e-7)


@pytest.mark.parametrize("target_map", MAPS, ids=repr)
def test_moments_scores_and_draws_agree(target_map):
    law = prediction(target_map)
    draws = law.draw(200_000, np.random.default_rng(0))
    error = draws.std(axis=1) / np.sqrt(200_000)
    assert np.all(np.abs(draws.mean(axis=1) - law.mean) < 5 * error)
    assert np.allclose(draws.var(axis=1), law.variance_y, rtol=0.03)
    y = np.array([0.9, 0.3])
    pairs = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(axis=1)
    score = np.abs(draws - y[:, None]).mean(axis=1) - pairs / 2
    assert np.allclose(law.crps(y), score, rtol=0.02)
    assert np.allclose(law.outcome()[:, 0], law.mean)


def test_the_variance_of_a_function_is_that_of_a_log_normal():
    law, scale = prediction(Log(), variance=0.2), 0.7**2 * 0.2
    centre = np.array([0.2, 0.4]) + 0.7 * np.array([0.5, -1.0])
    truth = np.expm1(scale) * np.exp(2 * centre + scale)
    assert np.allclose(law.variance_f, truth, rtol=5e-3)


def test_targets_beyond_the_bounds_have_no_density():
    law = prediction(Logit(0.0, 100.0))
    assert np.all(np.isneginf(law.log_density(np.array([0.0, 100.0]))))
    assert np.all(law.distribution(np.array([-5.0, 0.0])) == 0)
    assert np.all(law.distribution(np.array([100.0, 200.0])) == 1)
    assert np.all(law.crps(np.array([-5.0, 200.0])) > 4)


def test_the_identity_changes_no_bit():
    law = prediction(Identity())
    mean, width = law.centre + 0.7 * law.latent_mean[:, 0], np.sqrt(0.2 + 0.3)
    levels, y = np.array([0.1, 0.9]), np.array([0.5, 1.0])
    quantiles = law.latent_mean + width * SHAPE.quantiles(levels)
    assert np.array_equal(law.quantiles(levels), law.centre[:, None] + 0.7 * quantiles)
    assert np.array_equal(law.mean, mean)
    assert np.array_equal(law.variance_f, 0.7**2 * law.latent_variance[:, 0])
    z = ((y - law.centre) / 0.7 - law.latent_mean[:, 0]) / width
    density = SHAPE.log_density(z) - np.log(width) - np.log(0.7)
    assert np.array_equal(law.log_density(y), density)


def test_blocks_of_rows_are_predicted_alike(monkeypatch):
    law, y = prediction(Log()), np.array([1.0, 2.0])
    whole = law.mean, law.variance_y, law.variance_f, law.crps(y)
    monkeypatch.setattr("zonal.prediction._BLOCK", 1)
    law = prediction(Log())
    parts = law.mean, law.variance_y, law.variance_f, law.crps(y)
    for one, other in zip(whole, parts, strict=True):
        assert np.allclose(one, other, rtol=1e-12)


def test_intervals_of_prices_are_positive_and_hold_what_they_say(model):
    x, y = table(2000, seed=1)
    found = model.predict(x)
    low, high = found.quantiles(np.array([0.05, 0.95])).T
    assert np.all(low > 0)
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.04)
    truth = 1000 * np.exp(np.sin(2 * x[:, 0]) + 0.3**2 / 2)
    assert np.mean(np.abs(found.mean / truth - 1)) < 0.12


def test_draws_have_the_predicted_moments(model):
    x = table(20, seed=2)[0]
    found = model.predict(x)
    targets = model.sample_targets(4000, np.random.default_rng(0))(x, None)
    assert np.all(targets > 0)
    assert np.allclose(targets.mean(axis=1), found.mean, rtol=0.06)
    functions = model.sample_functions(400)(x)
    assert np.allclose(functions.mean(axis=1), found.mean, rtol=0.1)


def test_leave_one_out_is_in_units_of_the_table(model):
    x, y = table()
    left_out = Prediction.joined(list(model.leave_one_out(ArraySource(x, y))))
    low, high = left_out.quantiles(np.array([0.05, 0.95])).T
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.06)


def test_the_bound_knows_the_slope(model, recipe):
    """The bound of y is that of log y, minus the sum of log y."""
    x, y = table()
    plain = dataclasses.replace(recipe, target_transform=None)
    other = fit(ArraySource(x, np.log(y)), plain)
    assert model.bound == pytest.approx(other.bound - np.log(y).sum(), rel=1e-9)


def test_noise_is_that_of_a_typical_target(model):
    centre = model.scaling.target_centre
    unit = model.scaling.target_width * model.likelihood.noise_deviation
    truth = np.sqrt(np.expm1(unit**2)) * np.exp(centre + unit**2 / 2)
    assert model.noise == pytest.approx(truth, rel=5e-3)


def test_adding_forgetting_and_merging_are_exact(model):
    x, y = table()
    more_x, more_y = table(100, seed=2)
    places = table(50, seed=3)[0]
    more = ArraySource(more_x, more_y)
    both = ArraySource(np.vstack([x, more_x]), np.concatenate([y, more_y]))
    grown, everything = model.add(more), model.emptied().add(both)
    merged, back = model.merge(model.emptied().add(more)), model.add(more).forget(more)
    for one, truth in ((grown, everything), (merged, everything), (back, model)):
        found, expected = one.predict(places), truth.predict(places)
        assert np.allclose(found.mean, expected.mean, rtol=2e-4)
        assert one.log_slope == pytest.approx(truth.log_slope, rel=1e-9)
        if not one.stores_rows:
            assert one.bound == pytest.approx(truth.bound, rel=1e-6)
    assert model.emptied().log_slope == 0


def test_further_rows_must_be_within_the_bounds(model):
    bad = ArraySource(np.zeros((3, 2)), np.array([5.0, -1.0, 2.0]))
    with pytest.raises(ValueError, match="row 1 has -1"):
        model.add(bad)


def test_models_of_other_scales_do_not_merge(model, recipe):
    plain = dataclasses.replace(recipe, target_transform=None)
    other = fit(ArraySource(*table()), plain)
    with pytest.raises(ValueError, match="standardise their tables differently"):
        model.merge(other)
