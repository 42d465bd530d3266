"""The choice of a target's scale."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from zonal import ArraySource, Gaussian, Poisson, Prediction, Recipe
from zonal.learning.target_maps import (
    choose_target_map,
    plausible_maps,
    yeo_johnson_of,
)
from zonal.tables.chunks import Chunk
from zonal.tables.target_maps import Identity, Log, Logit, YeoJohnson

ROWS = 800


@pytest.fixture(scope="module")
def table():
    """Inputs, and a standardised target with noise."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, 2))
    return x, np.sin(2 * x[:, 0]) + 0.4 * generator.normal(size=ROWS)


def chosen(x, y, **options):
    weight = options.pop("weight", None)
    return choose_target_map(ArraySource(x, y, weight), Gaussian(), Recipe(**options))


def test_symmetric_targets_stay_as_they_are(table):
    x, y = table
    assert chosen(x, y).is_identity
    assert chosen(x, 10 + y).is_identity


def test_logarithms_of_positive_targets_are_found(table):
    x, y = table
    assert chosen(x, 300 * np.exp(y)) == Log()


def test_shares_are_found(table):
    x, y = table
    assert chosen(x, 1 / (1 + np.exp(-2 * y))) == Logit()


def test_exponents_of_skewed_targets_are_found(table):
    x, y = table
    found = chosen(x, YeoJohnson(0.0).backward(1.5 * y))
    assert isinstance(found, YeoJohnson)
    assert found.exponent < 0.5


def test_noise_that_does_not_grow_keeps_skewed_targets(table):
    """The function is skewed, and its noise is not."""
    x, _ = table
    noise = np.random.default_rng(1).normal(size=ROWS)
    assert chosen(x, np.exp(x[:, 0]) + 5 + 0.3 * noise).is_identity


def test_a_zero_anywhere_rules_out_logarithms(table):
    x, y = table
    y = np.exp(y)
    y[17] = 0.0
    settings = dataclasses.replace(Recipe().schedule.maps, pool_rows=300)
    schedule = dataclasses.replace(Recipe().schedule, maps=settings)
    assert not isinstance(chosen(x, y, schedule=schedule), Log)


def test_values_that_most_rows_have_do_not_decide(table):
    """Zeros are predicted by a spike, whose density grows with the slope there."""
    x, y = table
    generator = np.random.default_rng(2)
    for zeros in (0.25, 0.9):
        none = generator.random(ROWS) < zeros
        assert chosen(x, np.where(none, 1e-6, 10 + y)) != Log()
        assert chosen(x, np.where(none, 0.0, np.exp(y))).lower < 0


def test_awkward_targets_are_judged_without_warnings(table):
    x, y = table
    generator = np.random.default_rng(3)
    targets = (
        generator.poisson(np.exp(y)),
        np.round(np.exp(2 * y)),
        generator.standard_cauchy(ROWS) ** 3,
        np.exp(30 * y),
        np.full(ROWS, 7.0),
        np.where(generator.random(ROWS) < 0.001, 1e12, y),
    )
    for target in targets:
        found = chosen(x, np.asarray(target, np.float64))
        assert np.all(found.contains(np.asarray(target, np.float64)))


def test_repeated_rows_are_taken_once(table):
    x, y = table
    repeated = np.repeat(x, 3, axis=0)
    assert chosen(repeated, np.repeat(np.exp(y), 3)) == Log()
    few = np.repeat(x[:5], 100, axis=0)
    assert chosen(few, np.exp(y[:500])).is_identity


def test_it_is_not_tried_where_it_could_not_be_judged(table):
    x, y = table
    y = np.exp(y)
    assert chosen(x[:50], y[:50]).is_identity
    assert chosen(x, y, most_steps=0).is_identity
    # Known precisions are those of the target as it is.
    precise = ArraySource(x, y, precision=np.full(ROWS, 2.0))
    assert choose_target_map(precise, Gaussian(), Recipe()).is_identity


def test_other_likelihoods_have_scales_of_their_own(table):
    x, y = table
    source = ArraySource(x, np.round(np.exp(y)))
    assert choose_target_map(source, Poisson(), Recipe()) == Identity()
    with pytest.raises(ValueError, match=r"'log' is for normal noise.*Poisson"):
        choose_target_map(source, Poisson(), Recipe(target_transform="log"))


def test_maps_are_as_asked_for(table):
    x, y = table
    assert chosen(x, np.exp(y), target_transform=None) == Identity()
    assert chosen(x, y, target_transform="log") == Log()
    assert chosen(x, np.full(ROWS, 0.5), target_transform="logit") == Logit()
    assert chosen(x, np.full(ROWS, 5.0), target_transform="logit") == Logit(0.0, 100.0)
    found = chosen(x, np.exp(y), target_transform="yeo-johnson")
    assert isinstance(found, YeoJohnson)
    assert found.exponent < 0.5
    maps = (Log(), Identity())
    recipe = Recipe(target_transform=maps)
    for index, expected in enumerate(maps):
        source = ArraySource(x, y)
        assert choose_target_map(source, Gaussian(), recipe, index) == expected


def test_unknown_names_are_errors():
    with pytest.raises(ValueError, match=r"one of 'auto', None, 'log'.*not 'sqrt'"):
        Recipe(target_transform="sqrt")


@given(st.floats(0.05, 1.95), st.floats(-8, 8), st.integers(0, 99))
def test_the_exponent_of_normal_targets_is_found(exponent, scale, seed):
    z = np.random.default_rng(seed).normal(size=4000)
    y = np.exp(scale) * YeoJohnson(exponent).backward(z)
    found = yeo_johnson_of(y)
    mapped = found.forward(y)
    third = np.mean((mapped - mapped.mean()) ** 3) / mapped.std() ** 3
    assert abs(third) < 0.35


def test_plain_targets_cost_nothing():
    generator = np.random.default_rng(0)
    for y in (
        generator.normal(size=2000),
        generator.uniform(size=2000) * 5 - 1,
        generator.integers(0, 5, size=2000).astype(float),
        generator.normal(100, 3, size=2000),
        np.where(generator.random(2000) < 0.9, 0.0, generator.lognormal(size=2000)),
    ):
        assert plausible_maps(y) == []


def test_predictions_of_targets_that_are_never_negative_end_at_zero():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(300, 2))
    y = np.maximum(x[:, 0] + 0.3 * generator.normal(size=300), 0.0)
    source = ArraySource(x, y)
    found = choose_target_map(source, Gaussian(), Recipe())
    assert found.floor == 0
    assert choose_target_map(ArraySource(x, y - 1e-9), Gaussian(), Recipe()).floor < 0
    plain = Recipe(target_transform=None)
    assert choose_target_map(source, Gaussian(), plain) == Identity()
    few = ArraySource(x[:50], y[:50])
    assert choose_target_map(few, Gaussian(), Recipe()) == Identity()


def test_one_law_with_a_floor():
    rows = Chunk(np.empty((2, 0)))
    mean, variance = np.array([[-0.5], [2.0]]), np.full((2, 1), 0.25)
    law = Prediction(
        Gaussian(0.75), mean, variance, np.zeros(2), 1.0, rows, Identity(floor=0.0)
    )
    np.testing.assert_array_equal(law.mean, [0.0, 2.0])
    quantiles = law.quantiles(np.array([0.05, 0.5, 0.95]))
    np.testing.assert_allclose(quantiles[1], norm.ppf([0.05, 0.5, 0.95], 2.0))
    np.testing.assert_array_equal(quantiles[0, :2], [0.0, 0.0])
    np.testing.assert_array_equal(law.distribution(np.array([-0.1, -0.1])), 0.0)
    assert law.distribution(np.zeros(2))[0] == pytest.approx(norm.cdf(0.5))
    assert law.draw(500, np.random.default_rng(0)).min() == 0.0
