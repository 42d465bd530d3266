"""Scale and tails of residuals, against SciPy."""

import numpy as np
import pytest
from scipy import optimize, stats

from zonal.engine.local import log_student
from zonal.learning.residuals import Residuals


def residuals(errors, noise=0.5, weight=None, repeats=None):
    rows = len(errors)
    variance = np.linspace(0.0, 1.0, rows)
    weight = np.ones(rows) if weight is None else weight
    repeats = np.zeros(errors.shape) if repeats is None else repeats
    return Residuals(errors, variance, noise, weight, repeats)


@pytest.mark.parametrize("tails", [1 / 30, 0.25, 0.5, 1.0])
def test_the_density_is_that_of_students_t(tails):
    z = np.linspace(-30, 30, 41)
    expected = stats.t.logpdf(z, 1 / tails)
    np.testing.assert_allclose(log_student(z**2, tails), expected, rtol=1e-12)
    given = residuals(z[:, None])
    scale = 2.5 * (given.variance + given.noise)
    expected = stats.t.logpdf(z, 1 / tails, scale=np.sqrt(scale)).mean()
    assert given.density(tails, 2.5) == pytest.approx(expected, rel=1e-12)


def test_without_tails_it_is_normal():
    z = np.linspace(-3, 3, 7)
    np.testing.assert_allclose(log_student(z**2, 0.0), stats.norm.logpdf(z), rtol=1e-12)


def test_repeats_count_one_by_one():
    """Normal residuals: the density of all targets of each row together."""
    generator = np.random.default_rng(0)
    targets = generator.normal(size=(6, 3))
    noise, variance = 0.5, np.linspace(0.0, 1.0, 6)
    mean = targets.mean(axis=1, keepdims=True)
    given = Residuals(
        mean,
        variance,
        noise,
        np.full(6, 3.0),
        np.sum((targets - mean) ** 2, 1)[:, None],
    )
    expected = sum(
        stats.multivariate_normal(np.zeros(3), v + noise * np.eye(3)).logpdf(row)
        for row, v in zip(targets, variance, strict=True)
    )
    assert given.density(0.0) == pytest.approx(expected / 18, rel=1e-10)
    step = 1e-5
    ends = [
        Residuals(mean, variance, noise * np.exp(h), np.full(6, 3.0), given.repeats)
        for h in (step, -step)
    ]
    # The part of the repeats alone: without the density of the means.
    means = [
        np.sum(stats.norm.logpdf(mean[:, 0], scale=np.sqrt(variance + e.noise / 3)))
        for e in ends
    ]
    values = [e.density(0.0) * 18 - m for e, m in zip(ends, means, strict=True)]
    slope = (values[0] - values[1]) / (2 * step)
    assert given.repeats_slope == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("degrees", [2, 4, np.inf])
def test_scale_and_tails_maximise_the_density(degrees):
    generator = np.random.default_rng(1)
    draw = generator.normal if degrees == np.inf else None
    errors = draw(size=2000) if draw else generator.standard_t(degrees, size=2000)
    given = residuals(3 * errors[:, None])
    fit = given.fit()
    assert fit.density == pytest.approx(given.density(fit.tails, fit.scale))
    best = optimize.minimize_scalar(
        lambda log_scale: -given.density(fit.tails, np.exp(log_scale)),
        bounds=(-5, 5),
        method="bounded",
    )
    assert fit.density == pytest.approx(-best.fun, abs=1e-5)
    truth = 0.0 if degrees == np.inf else 1 / degrees
    assert given.density(truth, fit.scale) <= fit.density + 1e-12
    if degrees < np.inf:
        assert fit.tails >= 1 / 6
    limited = given.fit(most_tails=1 / 30)
    assert limited.tails <= 1 / 30
    assert limited.density <= fit.density


def test_residuals_of_zero_have_a_scale():
    errors = np.zeros((100, 1))
    assert np.isfinite(residuals(errors).fit().density)
    errors[:10] = 5.0
    fit = residuals(errors).fit()
    assert fit.scale > 0
    assert np.isfinite(fit.density)
