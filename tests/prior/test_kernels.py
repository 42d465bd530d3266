"""Shapes and level weights against closed forms and mpmath quadrature."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal import NTK, ArcCosine, ContinuousDepth, FreeSpectrum, equivalent_depth
from zonal.prior.parameters import free, free_gradient, with_free
from zonal.prior.polynomials import gegenbauer, harmonic_count


def exact_arc(order, t):
    angle, sine = mpmath.acos(t), mpmath.sqrt(1 - t * t)
    left = mpmath.pi - angle
    return [left, t * left + sine, (1 + 2 * t * t) * left / 3 + t * sine][
        order
    ] / mpmath.pi


@functools.cache
def exact_shape(kernel, t):
    if isinstance(kernel, ArcCosine):
        for _ in range(kernel.depth):
            t = exact_arc(kernel.order, t)
        return t
    covariance = tangent = t
    for _ in range(kernel.depth):
        new = exact_arc(1, covariance)
        tangent = tangent * exact_arc(0, covariance) + new
        covariance = new
    return tangent / (kernel.depth + 1)


@functools.cache
def exact_weight(kernel, level, dimension):
    """Funk-Hecke by quadrature in 40 digits; all dimensions share its nodes."""
    with mpmath.workdps(40):
        d = dimension

        def polynomial(t):
            before, now = mpmath.mpf(1), t
            if level == 0:
                return before
            for k in range(1, level):
                before, now = (
                    now,
                    ((2 * k + d - 2) * t * now - k * before) / (k + d - 2),
                )
            return now

        def integrand(angle):
            t = mpmath.cos(angle)
            return exact_shape(kernel, t) * polynomial(t) * mpmath.sin(angle) ** (d - 2)

        pieces = mpmath.linspace(0, mpmath.pi, 4)
        constant = mpmath.gamma(mpmath.mpf(d) / 2) / (
            mpmath.sqrt(mpmath.pi) * mpmath.gamma(mpmath.mpf(d - 1) / 2)
        )
        return float(
            harmonic_count(level, d)
            * constant
            * mpmath.quad(integrand, pieces, method="gauss-legendre", maxdegree=6)
        )


def relu_weight(level, dimension):
    """Closed form of ArcCosine(order=1, depth=1)."""
    with mpmath.workdps(50):
        d, gamma, root = mpmath.mpf(dimension), mpmath.gamma, mpmath.sqrt(mpmath.pi)
        if level == 0:
            s = gamma(d / 2) / (2 * root * gamma((d + 1) / 2))
        elif level == 1:
            s = 1 / (2 * d)
        elif level % 2:
            return 0.0
        else:
            s = gamma(d / 2) * gamma(level - 1)
            s /= root * 2**level * gamma(mpmath.mpf(level) / 2)
            s /= gamma((level + d + 1) / 2)
        return float(harmonic_count(level, dimension) * 2 * d * s**2)


@pytest.mark.parametrize("dimension", [3, 9, 12, 91])
def test_relu_weights_match_the_closed_form(dimension):
    weights = ArcCosine(1).level_weights(dimension, 60)
    truth = np.array([relu_weight(level, dimension) for level in range(61)])
    assert np.allclose(weights, truth, rtol=2e-4, atol=1e-15)
    assert np.allclose(weights[:31], truth[:31], rtol=1e-7, atol=1e-15)
    assert np.all(weights[3::2] == 0)


@pytest.mark.parametrize("dimension", [3, 9, 91, 300])
@pytest.mark.parametrize(
    "kernel",
    [ArcCosine(0), ArcCosine(2), ArcCosine(1, 3), ArcCosine(2, 4)]
    + [NTK(1), NTK(5), NTK(50)],
)
def test_weights_match_mpmath(kernel, dimension):
    weights = kernel.level_weights(dimension, 20)
    for level in (0, 2, 3, 20):
        truth = exact_weight(kernel, level, dimension)
        assert weights[level] == pytest.approx(truth, rel=1e-6, abs=1e-14)


@given(
    recipe=st.one_of(
        st.tuples(st.just(ArcCosine), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just(NTK), st.integers(1, 12)),
        st.tuples(
            st.just(ContinuousDepth),
            st.floats(0.01, 8),
            st.integers(1, 40),
            st.sampled_from(["energy", "eigenvalue"]),
        ),
    ),
    dimension=st.integers(2, 300),
    max_level=st.integers(0, 60),
)
def test_weights_are_shares_of_one(recipe, dimension, max_level):
    kernel = recipe[0](*recipe[1:])
    weights = kernel.level_weights(dimension, max_level)
    assert weights.shape == (max_level + 1,)
    assert np.all(weights >= 0)
    assert weights.sum() <= 1 + 1e-12
    # Asking for more levels changes none of those below, and only takes from the tail.
    more = kernel.level_weights(dimension, max_level + 7)
    assert np.allclose(more[: max_level + 1], weights, rtol=1e-3, atol=1e-9)
    tail = kernel.tail_mass(dimension, max_level)
    assert tail >= more[max_level + 1 :].sum() - 1e-9


def test_decay_slopes_on_the_ordinary_sphere():
    levels = np.arange(40, 200, 2)

    def slope(kernel):
        weights = kernel.level_weights(3, 200)[levels] / (2 * levels + 1)
        return np.polyfit(np.log(levels), np.log(weights), 1)[0]

    assert slope(NTK(1)) == pytest.approx(-3, abs=0.05)
    assert slope(NTK(3)) == pytest.approx(-3, abs=0.05)
    assert slope(ArcCosine(1)) == pytest.approx(-5, abs=0.05)


KERNELS = [ArcCosine(0), ArcCosine(1), ArcCosine(2), ArcCosine(0, 2), ArcCosine(1, 5)]
KERNELS += [NTK(1), NTK(5)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_shape_matches_mpmath(x64, kernel):
    grid = np.linspace(-1, 1, 21)
    with mpmath.workdps(40):
        truth = [float(exact_shape(kernel, mpmath.mpf(float(t)))) for t in grid]
    assert np.abs(np.asarray(kernel.shape_function(grid, 3)) - truth).max() < 1e-12


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_slope_matches_mpmath_and_is_finite_at_the_poles(x64, kernel):
    grid = np.linspace(-0.98, 0.98, 15)
    slope = jax.vmap(jax.grad(lambda t: kernel.shape_function(t, 3)))
    with mpmath.workdps(40):
        truth = [
            float(mpmath.diff(lambda u: exact_shape(kernel, u), mpmath.mpf(float(t))))
            for t in grid
        ]
    assert np.allclose(slope(jnp.asarray(grid)), truth, rtol=1e-8)
    assert np.all(np.isfinite(slope(jnp.array([-1.0, 1.0]))))


def test_slopes_at_the_pole_are_the_known_ones(x64):
    for kernel, expected in [(ArcCosine(1), 1.0), (ArcCosine(2), 4 / 3)]:
        assert float(
            jax.grad(lambda t, k=kernel: k.shape_function(t, 3))(1.0)
        ) == pytest.approx(expected)


@pytest.mark.parametrize("decay", ["energy", "eigenvalue"])
def test_continuous_depth(x64, decay):
    kernel, dimension = ContinuousDepth(1.7, 12, decay), 7
    level = np.arange(13)
    expected = (1.0 + level) ** -1.7
    if decay == "eigenvalue":
        expected *= [harmonic_count(int(k), dimension) for k in level]
    expected /= expected.sum()
    assert np.allclose(kernel.level_weights(dimension), expected)
    t = np.linspace(-1, 1, 9)
    truth = gegenbauer(t, 12, dimension) @ expected
    assert np.allclose(kernel.shape_function(t, dimension), truth)


def test_eigenvalue_decay_survives_astronomic_counts():
    weights = ContinuousDepth(1.0, 200, "eigenvalue").level_weights(1000)
    assert np.all(np.isfinite(weights))
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "kernel",
    [
        ContinuousDepth(0.8, 9),
        ContinuousDepth(2.0, 9, "eigenvalue", cut=4.0),
        FreeSpectrum.like(NTK(2), 5, 9),
    ],
)
def test_gradient_of_the_weights(kernel):
    direction = np.random.default_rng(0).normal(size=10)
    vector = free(kernel)
    pulled = free_gradient(kernel, kernel.pull_weights(5, direction))
    for index in range(len(vector)):
        step = np.zeros_like(vector)
        step[index] = 1e-6
        high = with_free(kernel, vector + step).level_weights(5)
        low = with_free(kernel, vector - step).level_weights(5)
        assert pulled[index] == pytest.approx(
            direction @ (high - low) / 2e-6, rel=1e-6, abs=1e-9
        )


def test_free_spectrum_starts_from_another_kernel():
    start = ArcCosine(1)
    spectrum = FreeSpectrum.like(start, dimension=6, max_level=5)
    weights = start.level_weights(6, 5)
    assert np.all(spectrum.weights > 0)
    assert np.allclose(spectrum.weights, weights / weights.sum(), atol=2e-6)


@pytest.mark.parametrize("depth", [1, 2, 7, 40, 200])
def test_equivalent_depth_of_a_network_is_its_depth(depth):
    assert equivalent_depth(NTK(depth), 9) == depth


def test_smaller_beta_is_deeper():
    depths = [equivalent_depth(ContinuousDepth(b, 20), 9) for b in (4, 2, 1, 0.5, 0.1)]
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]


def test_bad_input():
    with pytest.raises(ValueError, match="order must be 0, 1 or 2, got 3"):
        ArcCosine(3)
    with pytest.raises(ValueError, match="depth counts hidden layers"):
        NTK(0)
    with pytest.raises(ValueError, match="beta must be positive"):
        ContinuousDepth(-1.0)
    with pytest.raises(ValueError, match=r"levels count from 0, got \[-2\]"):
        ContinuousDepth(1.0, -2)
    with pytest.raises(ValueError, match="infinitely many levels; pass max_level"):
        NTK(2).level_weights(3)
    with pytest.raises(ValueError, match="dimension 2 or more"):
        NTK(2).level_weights(1, 4)
    with pytest.raises(ValueError, match="weights must be positive and sum to one"):
        FreeSpectrum(np.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="no weight above level 0"):
        equivalent_depth(ContinuousDepth(1e4, 8), 3)
    with pytest.raises(ValueError, match="the kernel ends at 1"):
        equivalent_depth(ContinuousDepth(1.0, 1), 3)
