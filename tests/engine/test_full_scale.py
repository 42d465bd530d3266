"""Features with neighbours against dense algebra in float64."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zonal import ARD, NTK, ContinuousDepth, FreeSpectrum
from zonal.engine.full_scale import FeatureSums, FullScale
from zonal.engine.inducing import GlobalFeatures
from zonal.engine.local import StoredRows
from zonal.engine.neighbours import Neighbours
from zonal.prior.process import LocalProcess

ROWS, NEW = 80, 12
SPHERE = ARD(np.array([0.5, 1.0, 1.5]), radial_order=0.5)
PROCESS = LocalProcess(SPHERE, ContinuousDepth(beta=2.3), 1.7, 0.05)


def points(count, seed):
    x = np.random.default_rng(seed).normal(size=(count, 3))
    direction, radial = SPHERE.points(x)
    return direction.astype(np.float32), radial.astype(np.float32)


def targets(count=ROWS, seed=2):
    direction, _ = points(count, 0)
    generator = np.random.default_rng(seed)
    noise = 0.2 * generator.normal(size=(count, 2))
    return np.column_stack([direction[:, 0], np.sin(5 * direction[:, 1])]) + noise


def prior(process, one, other):
    """The whole prior covariance, without features, in float64."""
    (s, r), (t, q) = one, other
    squares = np.sum((s[:, None].astype(float) - t[None].astype(float)) ** 2, axis=2)
    scale = float(process.variance) * np.outer(r, q).astype(float)
    return scale * process.table().kernel(squares)


def fitted(features, weight=None, rows=slice(None)):
    direction, radial = points(ROWS, 0)
    weight = np.ones(ROWS) if weight is None else weight
    noise = float(features.process.noise) / weight
    stored = features.stored(
        direction[rows], radial[rows], targets()[rows], noise[rows]
    )
    return FullScale.of(features, stored)


def nearest(given, direction, k, own=None):
    if k == 0:
        return np.zeros((len(direction), 0), np.int32)
    return Neighbours.build(given.rows.directions).query(direction, k, own)[0]


def truth(given, new, lists, process):
    """Section 5 of the design, line by line, in float64."""
    rows = given.rows
    old = (rows.directions, rows.radial)
    noise = rows.noise.astype(float)
    phi = rows.features.astype(float)
    phi_new = given.features.at(*new).astype(float)
    rest = np.diag(prior(process, old, old)) - np.sum(phi**2, axis=1)
    rate = 1 / (noise + rest)
    posterior = np.linalg.inv(np.eye(phi.shape[1]) + (phi * rate[:, None]).T @ phi)
    weights = posterior @ phi.T @ (rate[:, None] * rows.targets)
    left = prior(process, old, old) - phi @ phi.T
    cross = prior(process, new, old) - phi_new @ phi.T
    own = np.diag(prior(process, new, new)) - np.sum(phi_new**2, axis=1)
    mean, variance = np.zeros((len(lists), 2)), np.zeros(len(lists))
    for row, near in enumerate(lists):
        among = left[np.ix_(near, near)] + np.diag(noise[near])
        a = np.linalg.solve(among, cross[row, near])
        psi = phi_new[row] - phi[near].T @ a
        mean[row] = a @ rows.targets[near] + psi @ weights
        variance[row] = own[row] - a @ cross[row, near] + psi @ posterior @ psi
    return mean, variance


def draw(count, process=PROCESS):
    return GlobalFeatures.draw(process, points(ROWS, 0)[0], count)


@pytest.mark.parametrize("kernel", [ContinuousDepth(beta=2.3), NTK(2)])
@pytest.mark.parametrize(("count", "k"), [(0, 9), (6, 9), (40, 5), (40, 0), (20, 80)])
def test_predictions_follow_the_formula(kernel, count, k):
    process = dataclasses.replace(PROCESS, kernel=kernel)
    given = fitted(draw(count, process))
    new = points(NEW, 1)
    lists = nearest(given, new[0], k)
    mean, variance = truth(given, new, lists, process)
    found = given.predict(given.queries(*new), lists)
    np.testing.assert_allclose(found.mean, mean, atol=5e-5)
    np.testing.assert_allclose(found.variance, variance, atol=5e-5)


def test_without_neighbours_it_is_fitc():
    given = fitted(draw(30))
    new, old = points(NEW, 1), points(ROWS, 0)
    phi, phi_new = given.rows.features.astype(float), given.features.at(*new)
    phi_new = phi_new.astype(float)
    low_rank = phi @ phi.T
    rest = np.diag(prior(PROCESS, old, old) - low_rank) + float(PROCESS.noise)
    system = low_rank + np.diag(rest)
    cross = phi_new @ phi.T
    mean = cross @ np.linalg.solve(system, given.rows.targets)
    variance = np.diag(
        prior(PROCESS, new, new) - cross @ np.linalg.solve(system, cross.T)
    )
    found = given.predict(given.queries(*new), np.zeros((NEW, 0), np.int32))
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.variance, variance, atol=1e-5)


@pytest.mark.parametrize("k", [0, 7])
def test_complete_levels_are_the_whole_process(k):
    kernel = FreeSpectrum(np.array([0.5, 0.3, 0.2]))
    process = dataclasses.replace(PROCESS, kernel=kernel)
    features = GlobalFeatures(process, 3, np.zeros((0, 4)))
    assert len(features) == 1 + 4 + 9
    assert features.rest_variance == 0
    given = fitted(features)
    new, old = points(NEW, 1), points(ROWS, 0)
    system = prior(process, old, old) + float(process.noise) * np.eye(ROWS)
    cross = prior(process, new, old)
    mean = cross @ np.linalg.solve(system, given.rows.targets)
    joint = prior(process, new, new) - cross @ np.linalg.solve(system, cross.T)
    found = given.predict(given.queries(*new), nearest(given, new[0], k))
    np.testing.assert_allclose(found.mean, mean, atol=1e-5)
    np.testing.assert_allclose(found.variance, np.diag(joint), atol=1e-5)


def test_features_and_tail_are_the_whole_kernel():
    features = draw(120)
    assert features.complete == 4  # 1 + 4 + 9 + 16 of the 120 features
    old = points(ROWS, 0)
    phi = features.at(*old).astype(float)
    # With a phase near every row, features miss little, and never exceed the prior.
    rest = np.diag(prior(PROCESS, old, old)) - np.sum(phi**2, axis=1)
    assert rest.min() > -1e-5
    low = phi[:, len(features.phases) :]
    weights = (1.0 + np.arange(4)) ** -2.3
    share = weights.sum() / sum((1.0 + np.arange(200_000)) ** -2.3)
    energy = 1.7 * old[1].astype(float) ** 2 * share
    np.testing.assert_allclose(np.sum(low**2, axis=1), energy, rtol=1e-4)


@pytest.mark.parametrize(("count", "k"), [(0, 9), (30, 0), (30, 9), (30, 60)])
def test_leaving_out_is_solving_without_the_row(count, k):
    weight = np.where(np.arange(ROWS) % 3 == 0, 2.0, 1.0)
    features = draw(count)
    given = fitted(features, weight)
    own = np.array([0, 17, 44])
    direction, radial = points(ROWS, 0)
    found = given.leave_out(own, nearest(given, direction[own], k, own))
    for place, row in enumerate(own):
        others = np.arange(ROWS) != row
        rest = fitted(features, weight, others)
        new = direction[[row]], radial[[row]]
        expected = rest.predict(rest.queries(*new), nearest(rest, new[0], k))
        np.testing.assert_allclose(found.mean[place], expected.mean[0], atol=1e-4)
        np.testing.assert_allclose(
            found.variance[place], expected.variance[0], atol=1e-4
        )


@settings(max_examples=5)
@given(cut=st.integers(1, ROWS - 1))
def test_sums_add_up(cut):
    features = draw(20)
    whole = fitted(features).sums
    first, last = (
        fitted(features, rows=slice(cut)),
        fitted(features, rows=slice(cut, None)),
    )
    both = first.sums + last.sums
    np.testing.assert_allclose(both.gram, whole.gram, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(both.moment, whole.moment, rtol=1e-9, atol=1e-9)
    rest = whole - last.sums
    np.testing.assert_allclose(rest.gram, first.sums.gram, rtol=1e-7, atol=1e-7)


def test_no_phase_is_a_row():
    features = draw(60)
    direction = points(ROWS, 0)[0]
    closest = np.abs(features.phases[:, None] - direction[None]).max(axis=2).min()
    assert closest > 1e-4


def test_float32_products_are_close():
    features = draw(20)
    rows = fitted(features).rows
    assert isinstance(rows, StoredRows)
    single = FeatureSums.collect(features, rows, np.float32)
    double = FeatureSums.collect(features, rows)
    np.testing.assert_allclose(single.gram, double.gram, rtol=1e-4, atol=1e-4)
