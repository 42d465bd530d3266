"""A width and a shape per row, against known laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad
from scipy.stats import norm

from zonal import Gaussian
from zonal.likelihoods.row_law import Errors, RowLaw, _loss
from zonal.tables.chunks import Chunk

ROWS = 4000


def errors_with(width, seed=0, unit=None, nearby=None, draw=None):
    """Errors whose width is a function of the predicted mean."""
    generator = np.random.default_rng(seed)
    mean = generator.normal(size=ROWS)
    draw = generator.normal if draw is None else draw
    unit = np.ones(ROWS) if unit is None else unit
    nearby = np.zeros((ROWS, 0)) if nearby is None else nearby
    # No row repeats a known one.
    nearby = np.column_stack([nearby, np.zeros(ROWS)])
    return Errors(width(mean) * draw(size=ROWS), unit, mean, nearby, np.ones(ROWS))


def chunk_of(errors):
    return (
        Chunk(
            np.empty((len(errors), 0)),
            errors.mean + errors.error,
            errors.weight,
            nearby=errors.nearby,
        ),
        errors.mean[:, None],
        errors.unit[:, None] ** 2 - 1e-9,
    )


def calibrated(errors):
    return Gaussian(1e-9).calibrate(*chunk_of(errors))


def test_the_width_is_found():
    law = RowLaw.of(errors_with(lambda mean: np.exp(0.5 * mean - 1)))
    mean = np.linspace(-2, 2, 9)
    width = law.width(np.ones(9), mean, np.zeros((9, 1)))
    scale = np.sqrt(law.shapes[0].spread)
    np.testing.assert_allclose(scale * width, np.exp(0.5 * mean - 1), rtol=0.1)


def test_coefficients_maximise_the_density():
    generator = np.random.default_rng(0)
    columns = np.column_stack([np.ones(50), generator.normal(size=(50, 3))])
    squares, weight = generator.exponential(size=50), generator.uniform(size=50)
    arguments = (columns, squares, weight / weight.sum())
    for _ in range(3):
        vector = np.append(generator.normal(size=4), generator.uniform(0.2, 3))
        gap = check_grad(
            lambda vector: _loss(*arguments, vector)[0],
            lambda vector: _loss(*arguments, vector)[1],
            vector,
        )
        assert gap < 1e-5


def test_far_rows_are_as_wide_as_the_process_says():
    nearby = np.random.default_rng(1).normal(size=(ROWS, 2))
    errors = errors_with(lambda mean: np.exp(mean), nearby=nearby)
    law = RowLaw.of(errors)
    far = np.array([1e3, 1e6])
    known = np.array([[99.0, -99.0, 0.0]] * 2)
    width = law.width(far, np.array([50.0, -50.0]), known)
    assert np.all(width > 1e-3 * far)
    assert np.all(width < 1e3 * far)


def test_several_shapes_follow_the_width():
    # Narrow rows have heavy tails, wide rows are normal.
    generator = np.random.default_rng(2)
    mean = np.repeat([-2.0, 2.0], ROWS // 2) + 0.01 * generator.normal(size=ROWS)
    error = np.where(
        mean < 0,
        0.1 * generator.standard_t(2, ROWS),
        10 * generator.normal(size=ROWS),
    )
    one = np.ones(ROWS)
    errors = Errors(error, one, mean, np.zeros((ROWS, 1)), one)
    noise = calibrated(errors)
    assert noise.row_law is not None
    assert len(noise.row_law.shapes) > 1
    rows, marginal, variance = chunk_of(errors)
    low, high = noise.quantiles(np.array([0.05, 0.95]), rows, marginal, variance).T
    inside = (low < rows.targets) & (rows.targets < high)
    for part in (mean < 0, mean > 0):
        assert np.mean(inside[part]) == pytest.approx(0.9, abs=0.02)


def test_the_law_is_one_distribution_at_each_row():
    noise = calibrated(errors_with(lambda mean: np.exp(mean)))
    assert noise.row_law is not None
    mean = np.array([[-1.0], [0.0], [1.5]])
    zero, variance = np.zeros((3, 1)), np.ones((3, 1))
    rows = Chunk(np.empty((3, 0)), nearby=zero)
    levels = np.array([0.01, 0.3, 0.5, 0.9])
    quantiles = noise.quantiles(levels, rows, mean, variance)
    assert np.all(np.diff(quantiles) > 0)
    for column, level in enumerate(levels):
        at = Chunk(np.empty((3, 0)), quantiles[:, column], nearby=zero)
        np.testing.assert_allclose(noise.distribution(at, mean, variance), level)
        step = 1e-5 * quantiles[:, [-1]].std()
        above = Chunk(np.empty((3, 0)), quantiles[:, column] + step, nearby=zero)
        slope = noise.distribution(above, mean, variance) - level
        density = np.exp(noise.log_density(at, mean, variance))
        np.testing.assert_allclose(slope / step, density, rtol=1e-3)
    draws = noise.draw_new(rows, mean, variance, 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=1), mean[:, 0], atol=0.15)
    expected = noise.spread(rows, mean, variance)[1]
    np.testing.assert_allclose(draws.var(axis=1), expected, rtol=0.1)


def one_width(mean):
    return np.full_like(mean, 0.7)


LAWS = {
    "one width": (one_width, None),
    "heavy tails": (
        one_width,
        lambda size: np.random.default_rng(5).standard_t(3, size),
    ),
    "ninety percent zeros": (
        one_width,
        lambda size: np.where(
            np.random.default_rng(6).uniform(size=size) < 0.9,
            0.0,
            np.random.default_rng(7).normal(size=size),
        ),
    ),
    "two clusters": (lambda mean: np.where(mean < 0, 0.01, 1.0), None),
    "rounded": (one_width, lambda size: np.random.default_rng(8).integers(-2, 3, size)),
}


@pytest.mark.parametrize("name", LAWS)
def test_new_rows_are_never_judged_much_worse_than_by_one_shape(name):
    width, draw = LAWS[name]
    generator = np.random.default_rng(3)
    nearby = generator.normal(size=(ROWS, 8))
    if name == "two clusters":
        mean = errors_with(width).mean
        nearby[:, 0] = np.log(width(mean)) + 0.3 * generator.normal(size=ROWS)
    errors = errors_with(width, nearby=nearby, draw=draw)
    first, second = np.arange(ROWS // 2), np.arange(ROWS // 2, ROWS)
    noise = calibrated(errors[first])
    one = Gaussian(1e-9)._with_one_shape(errors[first])
    gain = noise._densities(errors[second]) - one._densities(errors[second])
    assert gain.mean() > -0.01
    if name == "two clusters":
        assert gain.mean() > 0.5
    if name == "one width":
        assert noise.row_law is None


@given(st.integers(0, 60), st.sampled_from([0.0, 1e-300, 1.0, 1e9]), st.booleans())
def test_few_and_equal_errors_give_a_law(count, scale, known):
    generator = np.random.default_rng(count)
    error = scale * generator.normal(size=count).round()
    nearby = np.zeros((count, 3)) if known else None
    one = np.ones(count)
    noise = calibrated(Errors(error, one, one, nearby, one))
    rows, mean, variance = chunk_of(Errors(error, one, one, nearby, one))
    assert np.all(np.isfinite(noise.log_density(rows, mean, variance)))
    assert np.all(noise.spread(rows, mean, variance)[1] > 0)


def test_normal_errors_of_the_right_width_stay_nearly_normal():
    noise = calibrated(errors_with(np.ones_like))
    levels = np.array([0.05, 0.25, 0.95])
    zero, one = np.zeros((1, 1)), np.ones((1, 1))
    rows = Chunk(np.empty((1, 0)), nearby=zero)
    found = noise.quantiles(levels, rows, zero, one)[0]
    np.testing.assert_allclose(found, norm.ppf(levels), rtol=0.06)


def test_rows_that_repeat_known_ones_have_a_law_of_their_own():
    generator = np.random.default_rng(4)
    repeats = generator.random(ROWS) < 0.4
    nearby = np.column_stack([generator.normal(size=ROWS), repeats])
    width = np.where(repeats, 0.05 * np.exp(nearby[:, 0]), np.exp(-nearby[:, 0]))
    one = np.ones(ROWS)
    error = width * generator.normal(size=ROWS)
    errors = Errors(error, one, np.zeros(ROWS), nearby, one)
    noise = calibrated(errors)
    assert noise.repeat_law is not None
    rows, mean, variance = chunk_of(errors)
    found = np.sqrt(noise.spread(rows, mean, variance)[1])
    for part in (repeats, ~repeats):
        assert np.corrcoef(np.log(found[part]), np.log(width[part]))[0, 1] > 0.98
    # Where repeats agree exactly, new rows are not promised the same.
    exact = Errors(np.where(repeats, 0.0, error), one, np.zeros(ROWS), nearby, one)
    single = calibrated(exact)
    deviation = np.sqrt(single.spread(rows, mean, variance)[1])
    np.testing.assert_allclose(deviation[~repeats], found[~repeats], rtol=0.05)
