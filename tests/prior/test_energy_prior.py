"""The prior of the spectrum: its gradient, and what becomes of gaps without it."""

import dataclasses

import numpy as np
import pytest

from zonal import ARD, Basis, ContinuousDepth, SphericalGPRegressor, UnitVectors
from zonal.prior.energy_prior import energy_prior


def freed(kernel, factors=None, sphere=None, features=40):
    basis = Basis.build(sphere or UnitVectors(3), kernel, features, "banded")
    factors = np.ones(len(basis.bands)) if factors is None else factors
    return dataclasses.replace(basis, free_energies=basis.shares * factors)


def test_the_gradient_is_that_of_finite_differences():
    generator = np.random.default_rng(0)
    sphere = ARD.isotropic(2)
    basis = freed(ContinuousDepth(1.3, 6), sphere=sphere, features=100)
    assert len(basis.bands) == 7
    energies = basis.shares * np.exp(generator.normal(size=7))
    basis = dataclasses.replace(basis, free_energies=energies)
    _, slopes = energy_prior(basis)

    def value(energies, beta):
        kernel = dataclasses.replace(basis.kernel, beta=beta)
        moved = dataclasses.replace(basis, kernel=kernel, free_energies=energies)
        return energy_prior(moved)[0]

    for number in range(7):
        step = np.zeros(7)
        step[number] = 1e-6 * energies[number]
        found = (value(energies + step, 1.3) - value(energies - step, 1.3)) / 2
        expected = slopes["basis.free_energies"][number] * step[number]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-9)
    found = (value(energies, 1.3 + 1e-6) - value(energies, 1.3 - 1e-6)) / 2e-6
    assert found == pytest.approx(float(slopes["basis.kernel.beta"]), rel=1e-4)


def test_the_first_two_levels_and_the_size_are_free():
    factors = np.full(7, 5.0)
    factors[:2] = 1e-3, 1e3
    basis = freed(ContinuousDepth(1.0, 6), factors, ARD.isotropic(2), 100)
    value, slopes = energy_prior(basis)
    assert value == pytest.approx(0.0, abs=1e-12)
    assert np.abs(slopes["basis.free_energies"]).max() < 1e-9
    whole = dataclasses.replace(basis, free_energies=None)
    assert energy_prior(whole) == (0.0, {})


@pytest.mark.parametrize("neighbors", [None, 0])
def test_where_there_are_no_rows_little_is_known(neighbors):
    generator = np.random.default_rng(3)
    x = np.concatenate([generator.uniform(-3, -0.7, 40), generator.uniform(1, 2.6, 25)])

    def function(x):
        return np.sin(3 * x) * np.exp(0.4 * x) / 2

    y = function(x) + 0.1 * generator.normal(size=len(x))
    model = SphericalGPRegressor(n_neighbors=neighbors).fit(x[:, None], y)
    between = np.linspace(-0.5, 0.8, 14)
    mean, deviation = model.predict(between[:, None], return_std=True)
    assert np.mean(np.abs(function(between) - mean) < 2 * deviation) > 0.8
    assert (
        deviation.max() > 2 * model.predict([[-2.0], [2.0]], return_std=True)[1].max()
    )
    # No level of the circle above the linear one is left without variance.
    variances = model.models_[0].process.basis.level_variances[2:]
    assert np.diff(np.log(variances)).max() < 0.5
