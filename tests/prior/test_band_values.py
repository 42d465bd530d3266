"""NumPy and XLA agree on kernel values, Gram matrices and all their gradients."""

import jax
import numpy as np
import pytest

from zonal import (
    ARD,
    NTK,
    Basis,
    ContinuousDepth,
    FreeSpectrum,
    LatitudeLongitude,
    Projection,
    UnitVectors,
)
from zonal.prior import band_values_numpy, band_values_xla
from zonal.prior.band_values import engine_for, numpy_shape
from zonal.prior.bands import band_kernel

GENERATOR = np.random.default_rng(0)
ROWS = GENERATOR.normal(size=(30, 3))
SPHERES = {
    "ARD": (ARD(np.array([0.5, 1.5, 0.8]), 0.7), ROWS),
    "Projection": (Projection.random(3, 2, radial_order=0.7), ROWS),
    "UnitVectors": (
        UnitVectors(3),
        ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True),
    ),
    "LatitudeLongitude": (LatitudeLongitude(), ROWS[:, :2] * [30, 100]),
}
KERNELS = {
    "depth": ContinuousDepth(0.8, 25),
    "cut": ContinuousDepth(0.8, 25, cut=7.0),
    "free": FreeSpectrum(np.full(9, 1 / 9)),
}


@pytest.mark.parametrize("layout", ["banded", "sparse"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("sphere", "x"), SPHERES.values(), ids=SPHERES)
def test_both_agree(sphere, x, kernel, layout):
    basis = Basis.build(sphere, kernel, 30, layout)
    dimension = sphere.dimension
    bands = tuple(
        (band.place(dimension), band_kernel(band, kernel, dimension))
        for band in basis.bands
    )
    here = band_values_numpy.placed(sphere, bands, np.float64)
    there = band_values_xla.placed(sphere, bands, np.dtype(np.float64))
    values, radial = band_values_numpy.values(here, x)
    expected_values, expected_radial = band_values_xla.values(there, x)
    np.testing.assert_allclose(values, expected_values, atol=1e-12)
    np.testing.assert_allclose(radial, expected_radial, rtol=1e-12)
    generator = np.random.default_rng(1)
    given = (
        basis.incomplete,
        x,
        generator.normal(size=values.shape),
        generator.normal(size=len(x)),
    )
    pulled = band_values_numpy.pull_values(here, *given)
    expected = band_values_xla.pull_values(there, *given)
    # A sphere without parameters has none in either.
    assert pulled[0].keys() == expected[0].keys()
    for ours, theirs in zip(
        jax.tree.leaves(pulled), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    for index in basis.incomplete:
        phases, shape = bands[index]
        gram = band_values_numpy.gram(phases, shape)
        np.testing.assert_allclose(
            gram, band_values_xla.gram(phases, shape), atol=1e-12
        )
        bar = generator.normal(size=gram.shape)
        pairs = zip(
            jax.tree.leaves(band_values_numpy.pull_gram(phases, shape, bar)),
            jax.tree.leaves(band_values_xla.pull_gram(phases, shape, bar)),
            strict=True,
        )
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_few_points_of_a_polynomial_are_not_compiled():
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    shape = band_kernel(basis.bands[-1], basis.kernel, 3)
    assert engine_for(1000, shape) is band_values_numpy
    assert engine_for(10**7, shape) is band_values_xla
    endless = Basis.build(ARD.isotropic(2), NTK(), 20)
    tail = band_kernel(endless.bands[-1], endless.kernel, 3)
    assert engine_for(10, tail) is band_values_xla


@pytest.mark.parametrize("points", [10, 300_000])
def test_a_kernel_as_a_function_is_the_same_for_few_and_many(points):
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    shape = band_kernel(basis.bands[-1], basis.kernel, 3)
    t = np.linspace(-1, 1, points)
    expected = np.polynomial.chebyshev.chebval(t, np.asarray(shape.coefficients))
    np.testing.assert_allclose(numpy_shape(shape)(t), expected, atol=1e-12)


def test_cosines_in_any_arrangement_share_a_program():
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    shape = band_kernel(basis.bands[-1], basis.kernel, 3)
    t = np.linspace(-1, 1, 420_000)
    expected = np.polynomial.chebyshev.chebval(t, np.asarray(shape.coefficients))
    band_values_xla._jitted_shape.clear_cache()
    for rows in (35, 40, 48, 60):
        found = band_values_xla.shape_values(
            shape, t[: rows * 7000].reshape(rows, 7000)
        )
        assert found.shape == (rows, 7000)
        np.testing.assert_allclose(found.ravel(), expected[: found.size], atol=1e-12)
    # One for whole blocks, and one for the shorter of what is left of the last.
    assert band_values_xla._jitted_shape._cache_size() == 2
    assert band_values_xla.shape_values(shape, np.empty((0, 5))).shape == (0, 5)
