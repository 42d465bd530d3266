"""Moments and scores from quantiles agree with adaptive integration."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import lognorm

from zonal.likelihoods.noise import Calibration
from zonal.likelihoods.quadrature import LEVELS, NORMAL, crps_of, moments_of
from zonal.tables.target_maps import Log, Logit, YeoJohnson

TAIL = 1e-4
DRAWS = np.random.default_rng(0)
SHAPES = {
    "normal": Calibration(),
    "laplace": Calibration.of(DRAWS.laplace(size=4000)),
    "student": Calibration.of(DRAWS.standard_t(2, size=4000)),
}
MAPS = (Log(), Logit(), YeoJohnson(0.4))


def integral(function, ends):
    """Adaptive integral over the intervals between ends."""
    parts = itertools.pairwise(ends)
    return sum(quad(function, a, b, epsabs=1e-14, epsrel=1e-9)[0] for a, b in parts)


def value(function, number):
    return float(function(np.array([number]))[0])


class Mapped:
    """A mapped mixture of normals, by adaptive integration."""

    def __init__(self, shape, target_map, mean=0.5, width=0.6):
        self.shape, self.map, self.mean, self.width = shape, target_map, mean, width
        inner = shape.quantiles(LEVELS)
        self.values = target_map.backward(mean + width * inner)[None]
        self.low, self.high = inner[0], inner[-1]
        kinks = {w * k for w in shape.widths for k in (-6, -3, -1, 0, 1, 3, 6)}
        inside = sorted(z for z in kinks if self.low < z < self.high)
        self.ends = [self.low, *inside, self.high]

    def at(self, z):
        return value(self.map.backward, self.mean + self.width * z)

    def mean_of(self, function):
        """Mean of a function of the target, whose tails are at its ends."""

        def integrand(z):
            density = np.exp(self.shape.log_density(np.array([z])))[0]
            return function(self.at(z)) * density

        ends = function(self.values[0, 0]) + function(self.values[0, -1])
        return integral(integrand, self.ends) + TAIL * ends

    def place(self, y):
        return (value(self.map.forward, y) - self.mean) / self.width

    def crps(self, y):
        """∫ (F − 1{t ≥ y})² dt, in the variable before the map."""
        place = self.place(y)

        def integrand(z):
            below = self.shape.distribution(np.array([z]))[0]
            step = self.width / np.exp(value(self.map.log_slope, self.at(z)))
            return (below if z < place else 1 - below) ** 2 * step

        cut = [place] if self.low < place < self.high else []
        outside = (self.values[0, 0] - y, y - self.values[0, -1])
        return integral(integrand, sorted([*self.ends, *cut])) + max(0.0, *outside)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("target_map", MAPS, ids=repr)
def test_they_are_those_of_adaptive_integration(name, target_map):
    law = Mapped(SHAPES[name], target_map)
    mean, variance = moments_of(law.values)
    truth = law.mean_of(lambda y: y)
    assert mean[0] == pytest.approx(truth, rel=1e-7)
    assert variance[0] == pytest.approx(
        law.mean_of(lambda y: (y - truth) ** 2), rel=1e-6
    )
    low, high = law.values[0, [0, -1]]
    for y in (law.values[0, 20], truth, law.values[0, 150], 0.99 * low, 1.001 * high):
        if not target_map.lower < y < target_map.upper:
            continue
        below = law.shape.distribution(np.array([law.place(y)]))
        score = crps_of(law.values, np.array([y]), below)[0]
        assert score == pytest.approx(law.crps(y), rel=1e-6)


def test_moments_of_a_log_normal_target_are_nearly_scipys():
    truth = lognorm(0.5)
    mean, variance = moments_of(np.exp(0.5 * NORMAL)[None])
    assert mean[0] == pytest.approx(truth.mean(), rel=2e-4)
    assert np.sqrt(variance[0]) == pytest.approx(truth.std(), rel=1e-2)


def test_moments_of_exploding_targets_are_finite():
    wide = Calibration((1.0, 16.0), (0.9, 0.1))
    z = np.array([[0.0], [600.0], [-600.0]]) + 100 * wide.quantiles(LEVELS)
    values = Log().backward(z)
    with np.errstate(over="raise", invalid="raise"):
        mean, variance = moments_of(values)
        scores = crps_of(values, np.array([1.0, 1e10, 1e-10]), np.full(3, 0.5))
    for number in (mean, variance, scores):
        assert np.all(np.isfinite(number))


def test_a_constant_has_no_spread():
    mean, variance = moments_of(np.full((2, len(LEVELS)), 3.0))
    assert np.allclose(mean, 3.0)
    assert np.allclose(variance, 0, atol=1e-25)
