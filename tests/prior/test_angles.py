"""The angle table against polylogarithms, closed forms and sums of 20,000 levels."""

import mpmath as mp
import numpy as np
import pytest
from scipy.special import eval_gegenbauer, zeta

from zonal import NTK, ArcCosine, ContinuousDepth, FreeSpectrum
from zonal.prior.angles import LARGEST_BETA, SMALLEST_BETA, AngleTable

BETAS = [1.05, 1.2, 1.6, 2.0, 3.0, 4.1, 8.0, 16.0]


def chord(angle):
    return 4 * np.sin(np.asarray(angle) / 2) ** 2


def endless(beta, dimension, angle):
    """κ of all levels on the circle and on the sphere in R^4, by a polylogarithm."""
    beta, angle = mp.mpf(beta), mp.mpf(angle)
    z = mp.expj(angle)
    if dimension == 2:
        total = (mp.polylog(beta, z) / z).real
    else:
        total = mp.polylog(beta + 1, z).imag / mp.sin(angle)
    return total / mp.zeta(beta)


def level_sums(beta, dimension, angle, levels=20_000):
    """Σ (1+l)^-β P_l(cos θ), level by level."""
    drop = -chord(angle) / 2
    value, step, total = np.ones_like(angle), np.zeros_like(angle), np.ones_like(angle)
    for level in range(levels):
        scale = level + dimension - 2
        kept = level / scale
        gained = (2 * level + dimension - 2) / scale
        step = kept * step + gained * drop * value
        value = value + step
        total += (2.0 + level) ** -beta * value
    return total / zeta(beta)


@pytest.mark.parametrize("dimension", [2, 4])
@pytest.mark.parametrize("beta", BETAS)
def test_all_levels_at_all_angles(dimension, beta):
    table = AngleTable.build(ContinuousDepth(beta=beta), dimension)
    angles = np.array([1e-4, 1.3e-3, 0.02, 0.3, 1.1, 2.0, 3.0])
    truth = [float(endless(beta, dimension, angle)) for angle in angles]
    np.testing.assert_allclose(table.kernel(chord(angles)), truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dimension", [3, 5, 9, 33, 100, 700])
@pytest.mark.parametrize("beta", [1.6, 3.0, 8.0])
def test_all_levels_in_higher_dimensions(dimension, beta):
    table = AngleTable.build(ContinuousDepth(beta=beta), dimension)
    angles = np.array([0.1, 0.31, 0.9, 1.57, 2.2, 3.1])
    truth = level_sums(beta, dimension, angles)
    np.testing.assert_allclose(table.kernel(chord(angles)), truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize("beta", [1.05, 1.6, 2.5])
def test_what_is_lost_at_small_angles(beta):
    table = AngleTable.build(ContinuousDepth(beta=beta), 4)
    angles = [1e-6, 1e-5, 1e-4, 1e-2]
    lost = [float(1 - endless(beta, 4, angle)) for angle in angles]
    np.testing.assert_allclose(1 - table.kernel(chord(angles)), lost, rtol=5e-3)
    assert table.kernel(np.zeros(1))[0] == 1


@pytest.mark.parametrize("beta", [1.2, 2.0, 4.1])
def test_slopes(beta):
    table = AngleTable.build(ContinuousDepth(beta=beta), 4)
    angles = [1e-3, 0.05, 0.7, 1.9, 2.8]
    by_angle = [
        mp.diff(lambda a: endless(beta, 4, a), angle, h=mp.mpf(angle) / 1e5)
        for angle in angles
    ]
    by_beta = [
        float(mp.diff(lambda b, a=angle: endless(b, 4, a), beta, h=1e-5))
        for angle in angles
    ]
    by_chord = np.array(by_angle, float) / (2 * np.sin(angles))
    np.testing.assert_allclose(table.slope(chord(angles)), by_chord, rtol=1e-5)
    np.testing.assert_allclose(table.beta_slope(chord(angles)), by_beta, atol=1e-7)


def test_arc_cosine_and_tangent_kernels():
    angle = np.array([1e-4, 0.01, 0.5, 1.5, 2.5, 3.14])
    left = np.pi - angle
    ramp = (np.cos(angle) * left + np.sin(angle)) / np.pi
    tangent = (np.cos(angle) * left / np.pi + ramp) / 2
    for kernel, truth in (
        (ArcCosine(order=0), left / np.pi),
        (ArcCosine(order=1), ramp),
        (NTK(depth=1), tangent),
    ):
        table = AngleTable.build(kernel, 5)
        np.testing.assert_allclose(table.kernel(chord(angle)), truth, atol=5e-8)
        assert np.all(table.beta_slope(chord(angle)) == 0)


def test_a_free_spectrum_and_a_finite_depth():
    dimension, alpha = 7, 2.5
    angle = np.linspace(0.01, 3.1, 9)
    levels = np.arange(12)
    polynomials = eval_gegenbauer(levels, alpha, np.cos(angle)[:, None])
    polynomials /= eval_gegenbauer(levels, alpha, 1.0)
    weights = np.random.default_rng(0).dirichlet(np.ones(12))
    table = AngleTable.build(FreeSpectrum(weights), dimension)
    np.testing.assert_allclose(
        table.kernel(chord(angle)), polynomials @ weights, atol=5e-8
    )

    def depth(beta):
        return ContinuousDepth(beta, max_level=11, cut=5.0)

    finite = AngleTable.build(depth(1.5), dimension)
    truth = polynomials @ depth(1.5).level_weights(dimension)
    np.testing.assert_allclose(finite.kernel(chord(angle)), truth, atol=5e-8)
    ends = [polynomials @ depth(b).level_weights(dimension) for b in (1.501, 1.499)]
    slope = (ends[0] - ends[1]) / 0.002
    np.testing.assert_allclose(finite.beta_slope(chord(angle)), slope, atol=1e-6)


def test_float32_coefficients_are_as_good_as_float32():
    table = AngleTable.build(ContinuousDepth(beta=1.6), 9)
    values, beta_slopes = table.single
    assert np.abs(values - table.values.ravel()).max() < 1e-7
    assert beta_slopes.dtype == np.float32


@pytest.mark.parametrize("beta", [0.9 * SMALLEST_BETA, 1.1 * LARGEST_BETA])
def test_a_beta_out_of_range_is_named(beta):
    with pytest.raises(ValueError, match="beta between"):
        AngleTable.build(ContinuousDepth(beta=beta), 3)


@pytest.mark.parametrize(
    "kernel", [ContinuousDepth(beta=1.6), ContinuousDepth(beta=4.2), NTK(2)]
)
@pytest.mark.parametrize(("dimension", "first"), [(3, 1), (4, 3), (9, 4)])
def test_low_levels_and_tail_are_the_kernel(kernel, dimension, first):
    whole = AngleTable.build(kernel, dimension)
    tail = AngleTable.build(kernel, dimension, first)
    angles = np.array([0.0, 1e-3, 0.05, 0.7, 1.6, 2.9, np.pi])
    alpha = (dimension - 2) / 2
    low = sum(
        weight
        * eval_gegenbauer(level, alpha, np.cos(angles))
        / eval_gegenbauer(level, alpha, 1.0)
        for level, weight in enumerate(tail.low)
    )
    assert len(tail.low) == first
    assert tail.share == pytest.approx(1 - sum(tail.low), abs=1e-8)
    np.testing.assert_allclose(
        low + tail.share * tail.kernel(chord(angles)),
        whole.kernel(chord(angles)),
        atol=1e-8,
    )


@pytest.mark.parametrize(("beta", "first"), [(8.0, 8), (12.0, 4), (16.0, 2)])
def test_a_tail_with_little_variance_is_positive_definite(beta, first):
    tail = AngleTable.build(ContinuousDepth(beta=beta), 3, first)
    points = np.random.default_rng(0).normal(size=(60, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    squares = ((points[:, None] - points) ** 2).sum(axis=-1)
    assert 1e-9 < tail.share < 1e-7
    assert np.linalg.eigvalsh(tail.kernel(squares))[0] > -1e-5


def test_a_kernel_without_higher_levels_has_no_tail():
    kernel = FreeSpectrum(np.array([0.5, 0.3, 0.2]))
    tail = AngleTable.build(kernel, 4, 5)
    assert tail.share == 0
    np.testing.assert_allclose(tail.low, [0.5, 0.3, 0.2, 0.0, 0.0])
    assert np.all(tail.kernel(chord(np.array([0.1, 1.0]))) == 0)
