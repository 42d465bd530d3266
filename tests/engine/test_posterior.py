"""The posterior against dense Gaussian process regression."""

import dataclasses

import numpy as np
import pytest

from zonal import ARD, Basis, ContinuousDepth, Recipe, fit, whiten
from zonal.engine.linalg import first_factor
from zonal.engine.posterior import Posterior
from zonal.engine.statistics import collect
from zonal.prior.process import Process
from zonal.tables.sources import ArraySource

SPHERE = ARD(np.array([0.5, 1.0, 2.0]), 1.0)


def solved(kernel, n_features, dtype, rows=200, precision=None):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, 3))
    y = np.sin(x[:, 0]) + 0.1 * generator.normal(size=rows)
    basis = Basis.build(SPHERE, kernel, n_features, rows=x)
    process = Process(basis, 0.05)
    source = ArraySource(x, y, precision=precision)
    posterior = Posterior(process, collect(whiten(basis, dtype), source), dtype)
    new = generator.normal(size=(25, 3))
    noise = process.noise / (np.ones(rows) if precision is None else precision)
    covariance = basis.covariance(x) + np.diag(noise)
    cross = basis.covariance(x, new)
    mean = cross.T @ np.linalg.solve(covariance, y)
    joint = basis.covariance(new) - cross.T @ np.linalg.solve(covariance, cross)
    return posterior, source, new, mean, joint, covariance


COMPLETE = ContinuousDepth(1.0, 6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-4)]
)
@pytest.mark.parametrize("known_noise", [False, True])
def test_complete_levels_give_the_exact_posterior(dtype, tolerance, known_noise):
    precision = np.random.default_rng(3).uniform(0.5, 2, 200) if known_noise else None
    posterior, _, new, mean, joint, _ = solved(
        COMPLETE, 2000, dtype, precision=precision
    )
    prediction = posterior.predict(new)
    assert np.abs(prediction.mean - mean).max() < tolerance
    assert np.abs(prediction.variance - np.diag(joint)).max() < tolerance
    assert np.abs(posterior.covariance(new) - joint).max() < tolerance


def test_variances_are_computed_as_finely_as_they_need():
    """In float32 where the table is large, unless asked otherwise; in float64 else."""
    posterior, _, new, _, joint, _ = solved(COMPLETE, 300, np.float64)
    small = dataclasses.replace(posterior, dtype=None)
    many = dataclasses.replace(posterior.statistics, rows=1e9)
    large = dataclasses.replace(small, statistics=many)
    assert small.precision == np.float64
    assert large.precision == np.float32
    assert dataclasses.replace(large, dtype=np.float64).precision == np.float64
    assert dataclasses.replace(small, dtype=np.float32).precision == np.float32

    def error(one):
        return np.abs(one.predict(new).variance - np.diag(joint)).max()

    # No more of the sums than their number of rows is different.
    assert error(small) < 1e-9 < error(large) < 1e-4


@pytest.mark.parametrize("variance", [1.0, 1e4, 1e8])
def test_float32_resolves_variances_however_wide_the_prior_is(variance):
    """Nothing cancels where much of the prior variance is explained."""
    posterior, _, new, *_ = solved(COMPLETE, 300, np.float64)
    wide = dataclasses.replace(posterior.process.basis, variance=variance)
    process = dataclasses.replace(posterior.process, basis=wide)
    fine = dataclasses.replace(posterior, process=process)
    coarse = dataclasses.replace(fine, dtype=np.float32)
    ratio = coarse.predict(new).variance / fine.predict(new).variance
    assert np.abs(ratio - 1).max() < 1e-3


def test_many_phases_come_close():
    posterior, _, new, mean, joint, _ = solved(
        ContinuousDepth(2.0, 15), 230, np.float32
    )
    prediction = posterior.predict(new)
    assert np.abs(prediction.mean - mean).max() < 1e-3
    assert np.abs(prediction.variance - np.diag(joint)).max() < 1e-3


def test_the_answer_does_not_depend_on_the_batch():
    posterior, _, new, *_ = solved(COMPLETE, 2000, np.float32)
    together = posterior.predict(new)
    for rows in (slice(0, 1), slice(3, 10)):
        alone = posterior.predict(new[rows])
        assert np.allclose(alone.mean, together.mean[rows], atol=1e-6)
        assert np.allclose(alone.variance, together.variance[rows], atol=1e-6)


def test_leave_one_out_is_the_dense_one():
    posterior, source, _, _, _, covariance = solved(COMPLETE, 2000, np.float64)
    y = source.sample(10**6).y
    inverse = np.linalg.inv(covariance)
    mean = y - inverse @ y / np.diag(inverse)
    parts = list(posterior.leave_one_out(source))
    assert np.allclose(np.concatenate([part.mean for part in parts]), mean, atol=1e-8)
    variance = np.concatenate([part.variance for part in parts])
    noise = float(posterior.process.noise)
    assert np.allclose(variance + noise, 1 / np.diag(inverse), atol=1e-8)


def test_effective_parameters():
    posterior, _, _, _, _, covariance = solved(COMPLETE, 2000, np.float64)
    prior = covariance - 0.05 * np.eye(200)
    truth = np.trace(np.linalg.solve(covariance, prior))
    assert posterior.effective_parameters == pytest.approx(truth, rel=1e-8)


@pytest.mark.parametrize(
    ("kernel", "features"), [(COMPLETE, 2000), (ContinuousDepth(1.0, 12), 40)]
)
def test_sampled_functions(kernel, features):
    posterior, _, new, *_ = solved(kernel, features, np.float64)
    functions = posterior.sample_functions(4000, seed=1)
    values = functions(new)
    prediction = posterior.predict(new)
    error = np.sqrt(prediction.variance / 4000)
    assert np.all(np.abs(values.mean(axis=1) - prediction.mean) < 5 * error)
    ratio = values.var(axis=1) / prediction.variance
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt(2 / 4000))
    assert np.allclose(functions(new[4:9]), values[4:9])
    assert not np.allclose(posterior.sample_functions(4000, seed=2)(new), values)


@pytest.mark.parametrize("neighbors", [None, 0])
def test_weights_of_all_sizes_can_be_predicted_from(neighbors):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(60, 2))
    weight = 10.0 ** np.random.default_rng(0).uniform(-5, 5, 60)
    source = ArraySource(x, np.sin(x[:, 0]), weight)
    recipe = Recipe(n_features=100, n_neighbors=neighbors, most_steps=20)
    prediction = fit(source, recipe).predict(x)
    assert np.isfinite(prediction.mean).all()
    assert (prediction.variance_y > 0).all()


def test_the_first_jitter_that_works_is_taken():
    matrix = np.diag([0.5, 0.2, -0.05])
    factor, jitter = first_factor(matrix, [0.0, 0.01, 0.1, 1.0])
    assert jitter == 0.1
    assert np.allclose(factor @ factor.T, matrix + 0.1 * np.eye(3))
    # A factor may be asked for more than to exist.
    _, jitter = first_factor(
        matrix, [0.0, 0.1, 1.0], lambda factor: np.diag(factor).min() > 0.5
    )
    assert jitter == 1.0
    assert first_factor(matrix, [0.0, 0.01]) is None
