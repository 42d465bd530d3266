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
from zonal.prior import backend_numpy, backend_xla
from zonal.prior.backends import backend_for, numpy_kernel
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
def test_back_ends_agree(sphere, x, kernel, layout):
    basis = Basis.build(sphere, kernel, 30, layout)
    dimension = sphere.dimension
    bands = tuple(
        (band.place(dimension), band_kernel(band, kernel, dimension))
        for band in basis.bands
    )
    for_numpy = backend_numpy.prepare(sphere, bands, np.float64)
    for_xla = backend_xla.prepare(sphere, bands, np.dtype(np.float64))
    values, radial = backend_numpy.values(for_numpy, x)
    expected_values, expected_radial = backend_xla.values(for_xla, x)
    np.testing.assert_allclose(values, expected_values, atol=1e-12)
    np.testing.assert_allclose(radial, expected_radial, rtol=1e-12)
    generator = np.random.default_rng(1)
    arguments = (
        basis.incomplete,
        x,
        generator.normal(size=values.shape),
        generator.normal(size=len(x)),
    )
    pulled = backend_numpy.pull_values(for_numpy, *arguments)
    expected = backend_xla.pull_values(for_xla, *arguments)
    # A sphere without parameters has no gradients in either.
    assert pulled[0].keys() == expected[0].keys()
    for ours, theirs in zip(
        jax.tree.leaves(pulled), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    for index in basis.incomplete:
        phases, kernel = bands[index]
        gram = backend_numpy.gram(phases, kernel)
        np.testing.assert_allclose(gram, backend_xla.gram(phases, kernel), atol=1e-12)
        bar = generator.normal(size=gram.shape)
        pairs = zip(
            jax.tree.leaves(backend_numpy.pull_gram(phases, kernel, bar)),
            jax.tree.leaves(backend_xla.pull_gram(phases, kernel, bar)),
            strict=True,
        )
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_polynomials_at_few_points_are_not_compiled():
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    kernel = band_kernel(basis.bands[-1], basis.kernel, 3)
    assert backend_for(1000, kernel) is backend_numpy
    assert backend_for(10**7, kernel) is backend_xla
    endless = Basis.build(ARD.isotropic(2), NTK(), 20)
    tail = band_kernel(endless.bands[-1], endless.kernel, 3)
    assert backend_for(10, tail) is backend_xla


@pytest.mark.parametrize("points", [10, 300_000])
def test_numpy_kernel_has_the_values_of_the_series(points):
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    kernel = band_kernel(basis.bands[-1], basis.kernel, 3)
    t = np.linspace(-1, 1, points)
    expected = np.polynomial.chebyshev.chebval(t, np.asarray(kernel.coefficients))
    np.testing.assert_allclose(numpy_kernel(kernel)(t), expected, atol=1e-12)


def test_arrays_of_any_shape_share_compiled_programs():
    basis = Basis.build(ARD.isotropic(2), ContinuousDepth(), 20)
    kernel = band_kernel(basis.bands[-1], basis.kernel, 3)
    t = np.linspace(-1, 1, 420_000)
    expected = np.polynomial.chebyshev.chebval(t, np.asarray(kernel.coefficients))
    backend_xla._jitted_kernel.clear_cache()
    for rows in (35, 40, 48, 60):
        values = backend_xla.evaluate(kernel, t[: rows * 7000].reshape(rows, 7000))
        assert values.shape == (rows, 7000)
        np.testing.assert_allclose(values.ravel(), expected[: values.size], atol=1e-12)
    # One program for full blocks, one for the shorter last block.
    assert backend_xla._jitted_kernel._cache_size() == 2
    assert backend_xla.evaluate(kernel, np.empty((0, 5))).shape == (0, 5)
