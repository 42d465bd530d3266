"""The shape of residuals: symmetric and skewed mixtures against SciPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import gamma, kstest, laplace, norm, skewnorm
from scipy.stats import t as student

from zonal import Calibration

GENERATOR = np.random.default_rng(0)

SHAPES = {
    "student": student(4, scale=0.7),
    "wide": norm(scale=3.0),
    "narrow": norm(scale=0.05),
    "laplace": laplace(scale=0.5),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_recovered(name):
    truth = SHAPES[name]
    found = Calibration.of(truth.rvs(20_000, random_state=0))
    levels = np.array([0.6, 0.75, 0.9, 0.975, 0.995])
    assert np.allclose(found.quantiles(levels), truth.ppf(levels), rtol=0.08)
    assert np.allclose(found.quantiles(1 - levels), -found.quantiles(levels))
    z = truth.rvs(5000, random_state=1)
    assert found.log_density(z).mean() > truth.logpdf(z).mean() - 0.01


def test_a_plain_calibration_is_the_normal():
    z = np.linspace(-4, 4, 9)
    assert np.allclose(Calibration().log_density(z), norm.logpdf(z))
    assert np.allclose(Calibration().distribution(z), norm.cdf(z))
    assert np.allclose(Calibration().quantiles(np.array([0.1])), norm.ppf(0.1))
    assert Calibration().spread == 1


def test_no_residuals_change_nothing_and_weight_is_repetition():
    none = Calibration.of(np.zeros(0))
    assert np.sqrt(none.spread) == pytest.approx(1, abs=0.1)
    z = GENERATOR.standard_t(5, 200)
    twice = Calibration.of(np.concatenate([z, z]))
    weighted = Calibration.of(z, np.full(200, 2.0))
    assert twice.widths == weighted.widths
    assert np.allclose(twice.shares, weighted.shares)


def test_residuals_beyond_all_measure_leave_something_finite():
    for far in (700.0, 1e9, 1e300, np.inf):
        found = Calibration.of(np.array([far] * 50 + [-far] * 50))
        assert max(found.widths) == 16
        assert 100 < found.spread <= 256
        assert np.isfinite(found.quantiles(np.array([1e-9, 1 - 1e-9]))).all()
    assert Calibration.of(np.array([np.nan])).spread == pytest.approx(1, abs=0.2)


CASES = [
    Calibration(),
    Calibration((0.1, 1.0, 3.0), (0.3, 0.5, 0.2)),
    Calibration((0.1, 1.0, 3.0), (0.3, 0.5, 0.2), 1.5),
    Calibration((1 / 64, 2.0), (0.9, 0.1), 0.7),
]


def integrate(function, shape, upper=np.inf):
    """The integral of a function times the density, in pieces around the mode."""
    mode = shape._mode
    ends = np.concatenate([mode + np.array([-90, -9, -1, -0.1]), [mode, mode + 0.1]])
    ends = np.concatenate([ends, mode + np.array([1.0, 9.0, 90.0])])
    ends = np.concatenate([ends[ends < upper], [min(upper, ends[-1])]])
    pieces = itertools.pairwise(ends)
    return sum(
        quad(
            lambda z: function(z) * np.exp(shape.log_density(np.array([z]))[0]),
            *piece,
            limit=200,
        )[0]
        for piece in pieces
    )


@pytest.mark.parametrize("shape", CASES)
def test_moments_probabilities_and_scores_are_those_of_the_density(shape):
    assert integrate(lambda z: 1.0, shape) == pytest.approx(1, abs=1e-6)
    assert integrate(lambda z: z, shape) == pytest.approx(0, abs=1e-6)
    assert integrate(lambda z: z**2, shape) == pytest.approx(shape.spread, rel=1e-6)
    for z in (-3.0, -0.05, 0.3, 2.0):
        below = integrate(lambda z: 1.0, shape, upper=z)
        assert shape.distribution(np.array([z]))[0] == pytest.approx(below, abs=1e-6)

        def squared(x, z=z):
            return (float(shape.distribution(np.array([x]))[0]) - (x > z)) ** 2

        ends = np.sort([-90, -3, -0.1, shape._mode, 0.1, 3.0, 90, z])
        parts = itertools.pairwise(ends)
        crps = sum(quad(squared, *part, limit=400)[0] for part in parts)
        assert shape.crps(np.array([z]))[0] == pytest.approx(crps, abs=1e-5)
    levels = np.array([1e-6, 0.02, 0.3, 0.5, 0.8, 0.99])
    back = shape.distribution(shape.quantiles(levels))
    np.testing.assert_allclose(back, levels, rtol=1e-6)


@pytest.mark.parametrize("shape", CASES)
def test_normals_are_mapped_to_the_shape(shape):
    normal = np.array([-9.5, -7.5, -2.0, -0.3, 0.0, 1.1, 4.0, 7.9, 8.5])
    found = shape.of_normal(normal)
    assert np.all(np.diff(found) > 0)
    inside = np.abs(normal) < 5
    np.testing.assert_allclose(
        shape.distribution(found[inside]), norm.cdf(normal[inside]), atol=1e-5
    )
    draws = shape.of_normal(np.random.default_rng(1).normal(size=4000))
    assert kstest(draws, shape.distribution).pvalue > 0.01


@pytest.mark.parametrize("truth", [gamma(4), skewnorm(5)])
def test_skewed_residuals_have_a_skewed_shape(truth):
    def residuals(count, seed):
        return truth.rvs(count, random_state=seed) - truth.mean()

    shape = Calibration.of(residuals(4000, 0))
    mirrored = Calibration.of(-residuals(4000, 0))
    assert shape.skew > 1.2
    assert mirrored.skew == pytest.approx(1 / shape.skew)
    new = residuals(20_000, 1)
    for level in (0.05, 0.5, 0.95):
        below = np.mean(new < shape.quantiles(np.array([level]))[0])
        assert below == pytest.approx(level, abs=0.035)
    symmetric = Calibration._mixture(residuals(4000, 0), np.ones(4000))
    assert shape.log_density(new).mean() > symmetric.log_density(new).mean() + 0.02


def test_symmetric_residuals_have_no_skew():
    skews = [
        Calibration.of(np.random.default_rng(seed).standard_t(4, 1000)).skew
        for seed in range(10)
    ]
    assert sum(skew != 1.0 for skew in skews) <= 1


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(0, 9))
def test_every_sample_gives_a_distribution(residuals, seed):
    shape = Calibration.of(np.array(residuals))
    assert sum(shape.shares) == pytest.approx(1)
    assert np.isfinite(shape.spread)
    quantiles = shape.quantiles(np.array([1e-9, 0.1, 0.5, 0.9, 1 - 1e-9]))
    assert np.all(np.diff(quantiles) > 0)


def test_few_rows_take_outliers_from_the_shape_of_all():
    generator = np.random.default_rng(0)
    common = Calibration.of(generator.standard_t(2, 5000))
    few = 0.1 * generator.normal(size=100)
    alone, together = Calibration.of(few), Calibration.of(few, prior=common)
    assert together.log_density(np.array([8.0])) > alone.log_density(np.array([8.0]))
    many = 0.1 * generator.normal(size=50_000)
    levels = np.array([0.1, 0.9])
    np.testing.assert_allclose(
        Calibration.of(many, prior=common).quantiles(levels),
        Calibration.of(many).quantiles(levels),
        rtol=0.02,
    )
