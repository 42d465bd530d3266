"""Maps of the target agree with SciPy and mpmath, and stay finite everywhere."""

import dataclasses

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import yeojohnson

from zonal.saving import read, write
from zonal.tables.scaling import ScaledSource, Scaling
from zonal.tables.sources import ArraySource
from zonal.tables.target_maps import (
    Identity,
    Log,
    Logit,
    YeoJohnson,
    logit_below,
)

MAPS = (
    Identity(),
    Log(),
    Logit(),
    Logit(-5.0, 100.0),
    YeoJohnson(),
    YeoJohnson(0.0, 3.0, 2.0),
    YeoJohnson(0.3),
    YeoJohnson(2.0, -1.0, 0.5),
)
FAR = np.array([-1e300, -1e30, -750.0, -40.0, 0.0, 40.0, 750.0, 1e30, 1e300])


@pytest.fixture(params=MAPS, ids=repr)
def target_map(request):
    return request.param


def inside(target_map, share):
    """Targets within the bounds of a map, at shares between 0 and 1."""
    low = max(target_map.lower, -50.0)
    high = min(target_map.upper, 50.0)
    return low + (high - low) * np.asarray(share)


@given(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=8))
def test_maps_increase_and_have_inverses(shares):
    for target_map in MAPS:
        y = np.sort(inside(target_map, shares))
        z = target_map.forward(y)
        assert np.all(np.diff(z) >= 0)
        assert np.allclose(target_map.backward(z), y, rtol=1e-12, atol=1e-12)
        target_map.check(y)


def test_slopes_are_those_of_small_differences(target_map):
    y = inside(target_map, np.linspace(0.01, 0.99, 23)) + 0.001
    step = 1e-5
    difference = target_map.forward(y + step) - target_map.forward(y - step)
    slope = np.exp(target_map.log_slope(y))
    assert np.allclose(slope, difference / (2 * step), rtol=1e-5)


def test_values_far_out_are_finite_and_ordered(target_map):
    with np.errstate(all="raise", under="ignore"):
        z, y = target_map.forward(FAR), target_map.backward(FAR)
        slopes = target_map.log_slope(FAR)
    for values in (z, y, slopes):
        assert np.all(np.isfinite(values))
    assert np.all(np.diff(z) >= 0)
    assert np.all(np.diff(y) >= 0)
    assert np.all((y >= target_map.lower) & (y <= target_map.upper))


def test_positive_targets_stay_positive():
    assert np.all(Log().backward(FAR) > 0)


@pytest.mark.parametrize("exponent", [0.0, 1e-9, 0.4, 1.0, 1.7, 2.0])
def test_powers_are_those_of_scipy(exponent):
    y = np.linspace(-20, 30, 101)
    truth = yeojohnson(y, exponent)
    assert np.allclose(YeoJohnson(exponent).forward(y), truth, rtol=1e-12)
    moved = YeoJohnson(exponent, 5.0, 4.0).forward(5 + 4 * y)
    assert np.allclose(moved, truth, rtol=1e-12)


def test_logits_are_those_of_scipy():
    share = np.array([1e-12, 0.1, 0.5, 0.9, 1 - 1e-9])
    assert np.allclose(Logit().forward(share), logit(share), rtol=1e-12)
    assert np.allclose(Logit().backward(logit(share)), share, rtol=1e-12)
    z = np.linspace(-30, 30, 13)
    assert np.allclose(Logit(0.0, 100.0).backward(z), 100 * expit(z), rtol=1e-12)


@pytest.mark.parametrize("y", [1e-300, 1e-9, 0.3, 4e7, 1e300])
def test_digits_are_those_of_mpmath(y):
    with mpmath.workdps(40):
        log = float(mpmath.log(mpmath.mpf(y)))
        power = mpmath.mpf("0.25")
        root = float(((mpmath.mpf(y) + 1) ** power - 1) / power)
    value = np.array([y])
    assert Log().forward(value)[0] == pytest.approx(log, rel=1e-14)
    assert YeoJohnson(0.25).forward(value)[0] == pytest.approx(root, rel=1e-12)


def test_exponents_that_miss_numbers_are_errors():
    with pytest.raises(ValueError, match="between 0 and 2"):
        YeoJohnson(2.5)


@pytest.mark.parametrize(
    ("target_map", "value"), [(Log(), 0.0), (Logit(), 1.0), (Logit(0.0, 100.0), -3.0)]
)
def test_targets_out_of_bounds_are_named(target_map, value):
    y = np.full(20, 0.5)
    y[[7, 9]] = value
    message = rf"row 107 has {value:g} \(2 such rows\).*target_transform=None"
    with pytest.raises(ValueError, match=message):
        target_map.check(y, first_row=100)
    assert list(np.flatnonzero(~target_map.contains(y))) == [7, 9]


def test_percentages_are_recognised():
    assert logit_below(0.7) == Logit()
    assert logit_below(1.0) == Logit()
    assert logit_below(99.0) == Logit(0.0, 100.0)


def test_they_are_saved(target_map, tmp_path):
    write(tmp_path / "map", {"map": target_map}, "example")
    assert read(tmp_path / "map", "example")["map"] == target_map


def test_a_scaling_maps_its_target_first():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(9000, 2)), generator.lognormal(3, 2, size=9000)
    source = ArraySource(x, y)
    scaling = Scaling.learn(source, target_map=Log())
    assert scaling.target_centre == pytest.approx(np.log(y).mean())
    assert scaling.target_width == pytest.approx(np.log(y).std())
    inner = ScaledSource(source, scaling).sample(9000).targets
    assert np.allclose(inner * np.log(y).std() + np.log(y).mean(), np.log(y))
    assert scaling.agrees_with(Scaling.learn(source, target_map=Log()))
    other = dataclasses.replace(scaling, target_map=YeoJohnson(0.1))
    assert not scaling.agrees_with(other)


def test_a_scaling_names_rows_of_later_chunks():
    x, y = np.random.default_rng(0).normal(size=(9000, 1)), np.ones(9000)
    scaling = Scaling.learn(ArraySource(x, np.exp(x[:, 0])), target_map=Log())
    y[8000] = -2
    with pytest.raises(ValueError, match="row 8000 has -2"):
        Scaling.learn(ArraySource(x, y), target_map=Log())
    with pytest.raises(ValueError, match="row 8000 has -2"):
        list(ScaledSource(ArraySource(x, y), scaling).chunks())
