"""Polynomials against mpmath, SciPy and automatic differentiation."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Chebyshev
from scipy.special import eval_chebyt, eval_legendre

from zonal.prior.polynomials import (
    chebyshev_columns,
    chebyshev_rows,
    chebyshev_sum,
    gegenbauer,
    gegenbauer_level,
    harmonic_count,
    level_sum,
)

DIMENSIONS = [2, 3, 4, 9, 12, 20, 91, 300]
NEAR_POLE = np.logspace(-7, -2, 6)
GRID = np.concatenate([np.linspace(-1, 1, 33), 1 - NEAR_POLE, NEAR_POLE - 1])


@functools.cache
def exact(t: float, dimension: int, max_level: int = 60) -> np.ndarray:
    """P_l from the recurrence in 60 digits."""
    with mpmath.workdps(60):
        x, d = mpmath.mpf(t), dimension
        values = [mpmath.mpf(1), x]
        for level in range(1, max_level):
            step = (2 * level + d - 2) * x * values[-1] - level * values[-2]
            values.append(step / (level + d - 2))
        return np.array([float(value) for value in values])


@functools.cache
def exact_slope(t: float, dimension: int, max_level: int = 60) -> np.ndarray:
    """P_l' by differentiating the recurrence term by term, in 60 digits."""
    with mpmath.workdps(60):
        x, d = mpmath.mpf(t), dimension
        values, slopes = [mpmath.mpf(1), x], [mpmath.mpf(0), mpmath.mpf(1)]
        for level in range(1, max_level):
            scale = level + d - 2
            up = 2 * level + d - 2
            slopes.append(
                (up * (values[-1] + x * slopes[-1]) - level * slopes[-2]) / scale
            )
            values.append((up * x * values[-1] - level * values[-2]) / scale)
        return np.array([float(slope) for slope in slopes])


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)]
)
def test_levels_match_mpmath(dimension, dtype, tolerance):
    grid = GRID.astype(dtype)
    truth = np.array([exact(float(t), dimension) for t in grid])
    values = gegenbauer(grid, 60, dimension)
    assert values.dtype == dtype
    assert np.abs(values - truth).max() <= tolerance
    traced = jax.jit(lambda t: gegenbauer(t, 60, dimension))
    if dtype == np.float32:
        assert np.abs(np.asarray(traced(grid)) - truth).max() <= tolerance


@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("level", [0, 1, 2, 17, 60])
def test_slopes_match_mpmath(x64, dimension, level):
    weights = np.eye(61)[level]
    slopes = jax.vmap(jax.grad(lambda t: level_sum(t, weights, dimension)))(GRID)
    truth = np.array([exact_slope(float(t), dimension)[level] for t in GRID])
    # Relative to the largest slope of the level, which is at the pole.
    largest = max(exact_slope(1.0, dimension)[level], 1.0)
    assert np.abs(np.asarray(slopes) - truth).max() <= 1e-12 * largest


def test_single_level_is_the_column_of_all():
    t = np.linspace(-1, 1, 17)
    table = gegenbauer(t, 12, 5)
    for level in (0, 1, 7, 12):
        assert np.array_equal(gegenbauer_level(t, level, 5), table[:, level])


def test_known_families():
    t = np.linspace(-1, 1, 101)
    for level in (0, 1, 2, 17):
        assert np.allclose(gegenbauer_level(t, level, 3), eval_legendre(level, t))
        assert np.allclose(gegenbauer_level(t, level, 2), eval_chebyt(level, t))


def test_harmonic_counts_are_exact():
    # Harmonic polynomials of degree l: all of degree l less those of degree l - 2.
    for dimension in (2, 3, 4, 9, 31, 91, 300):
        for level in (0, 1, 2, 3, 10, 60):
            homogeneous = math.comb(level + dimension - 1, level)
            lower = math.comb(level + dimension - 3, level - 2) if level > 1 else 0
            assert harmonic_count(level, dimension) == homogeneous - lower


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_a_level_is_a_convex_combination_of_chebyshev(dimension):
    rows = chebyshev_rows(60, dimension)
    assert np.all(rows >= 0)
    assert np.abs(rows.sum(axis=1) - 1).max() < 1e-14
    angle = np.linspace(0, np.pi, 50)
    series = np.cos(angle[:, None] * np.arange(61)) @ rows.T
    truth = np.array([exact(float(t), dimension) for t in np.cos(angle)])
    assert np.abs(series - truth).max() < 1e-12


@given(
    dimension=st.integers(2, 91),
    levels=st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True),
    seed=st.integers(0, 2**16),
)
def test_sums_over_any_levels(dimension, levels, seed):
    generator = np.random.default_rng(seed)
    weights = np.zeros(41)
    weights[levels] = generator.dirichlet(np.ones(len(levels)))
    t = np.append(generator.uniform(-1, 1, 5), [-1.0, 1.0])
    truth = np.array([exact(float(x), dimension)[:41] @ weights for x in t])
    with jax.enable_x64(True):
        double = level_sum(t, weights, dimension)
    assert np.abs(np.asarray(double) - truth).max() < 1e-12
    # Near a pole rounding of t alone moves the sum by slope times 6e-8.
    single = level_sum(t.astype(np.float32), weights.astype(np.float32), dimension)
    steepest = exact_slope(1.0, dimension)[:41] @ weights
    assert np.abs(np.asarray(single) - truth).max() < 1e-6 + 6e-8 * steepest


@pytest.mark.parametrize("terms", [1, 2, 3, 20, 61])
@pytest.mark.parametrize("shape", [(), (4,), (3, 5)])
def test_gradients_of_the_sum(x64, terms, shape):
    generator = np.random.default_rng(terms)
    t = jnp.asarray(generator.uniform(-1, 1, shape))
    coefficients = jnp.asarray(generator.normal(size=terms))
    cotangent = jnp.asarray(generator.normal(size=shape))

    def naive(t, coefficients):
        before, now, total = jnp.ones_like(t), t, coefficients[0] * jnp.ones_like(t)
        for k in range(1, terms):
            total = total + coefficients[k] * now
            before, now = now, 2 * t * now - before
        return total

    value, pull = jax.vjp(chebyshev_sum, t, coefficients)
    naive_value, naive_pull = jax.vjp(naive, t, coefficients)
    assert np.allclose(value, naive_value, atol=1e-12)
    for got, expected in zip(pull(cotangent), naive_pull(cotangent), strict=True):
        assert np.allclose(got, expected, rtol=1e-10, atol=1e-10)


def test_gradients_of_weights_and_points(x64):
    t = jnp.linspace(-0.9, 0.9, 7)
    weights = jnp.zeros(9).at[jnp.array([0, 3, 8])].set(jnp.array([0.2, 0.5, 0.3]))

    def total(t, weights):
        return jnp.sum(level_sum(t, weights, 9) ** 2)

    gradient_t, gradient_weights = jax.grad(total, argnums=(0, 1))(t, weights)
    values = np.array([exact(float(x), 9)[:9] for x in t])
    slopes = np.array([exact_slope(float(x), 9)[:9] for x in t])
    outer = 2 * values @ np.asarray(weights)
    assert np.allclose(gradient_t, outer * (slopes @ np.asarray(weights)))
    assert np.allclose(gradient_weights, outer @ values)


def test_integers_are_welcome():
    value = level_sum(np.array([0, 1]), np.array([0.5, 0.5]), 3)
    assert np.allclose(value, [0.5, 1.0])


def test_columns_have_their_own_series(x64):
    generator = np.random.default_rng(0)
    t = jnp.asarray(generator.uniform(-1, 1, (6, 3)))
    coefficients = jnp.asarray(generator.normal(size=(7, 3)))
    value, slope = jax.jvp(
        lambda t: chebyshev_columns(t, coefficients), (t,), (jnp.ones_like(t),)
    )
    for column in range(3):
        series = Chebyshev(np.asarray(coefficients[:, column]))
        points = np.asarray(t[:, column])
        assert np.allclose(value[:, column], series(points))
        assert np.allclose(slope[:, column], series.deriv()(points))


def test_bad_input():
    with pytest.raises(ValueError, match="dimension 2 or more, got 1"):
        gegenbauer(np.zeros(1), 2, 1)
    with pytest.raises(ValueError, match=r"finite: 2 entries .* index \(1,\)"):
        gegenbauer(np.array([0.0, np.nan, np.inf]), 2, 3)
    with pytest.raises(ValueError, match=r"count from 0, got \[-1\]"):
        level_sum(np.zeros(1), np.zeros(0), 3)
    with pytest.raises(ValueError, match="level must be 0 or more"):
        harmonic_count(-1, 3)
