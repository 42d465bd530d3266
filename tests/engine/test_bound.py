"""The bound against a dense Gaussian process, its gradient against differences."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal import ARD, NTK, Basis, ContinuousDepth, Projection, whiten
from zonal.engine.bound import evaluate
from zonal.engine.gradient import value_and_gradient
from zonal.engine.linalg import factorise, mirrored
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.prior.parameters import free, free_gradient, named, with_free
from zonal.prior.process import Process
from zonal.tables.sources import ArraySource

SPHERE = ARD(np.array([0.5, 1.0, 2.0]), 1.0)


def table(rows, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3))
    return x, np.sin(2 * x[:, 0]) + 0.2 * generator.normal(size=rows)


def dense_log_likelihood(process, x, y, precision):
    covariance = process.basis.covariance(x) + np.diag(process.noise / precision)
    factor = np.linalg.cholesky(covariance)
    half = np.linalg.solve(factor, y)
    log_determinant = np.sum(np.log(np.diag(factor)))
    return -0.5 * half @ half - log_determinant - 0.5 * len(y) * np.log(2 * np.pi)


def bound(process, source, tightened, dtype=np.float64):
    statistics = collect(whiten(process.basis, dtype), source)
    return evaluate(statistics, process, tightened).value


def freed(basis, factors):
    energies = basis.energies * np.resize(factors, len(basis.bands))
    return dataclasses.replace(basis, free_energies=energies)


@pytest.mark.parametrize("tightened", [True, False])
def test_complete_levels_give_the_exact_likelihood(tightened):
    x, y = table(60)
    basis = Basis.build(SPHERE, ContinuousDepth(0.8, 4), 200)
    process = Process(dataclasses.replace(basis, variance=1.7), 0.05)
    precision = np.random.default_rng(1).uniform(0.5, 2, 60)
    source = ArraySource(x, y, precision=precision)
    truth = dense_log_likelihood(process, x, y, precision)
    assert bound(process, source, tightened) == pytest.approx(truth, abs=1e-6)


@given(
    layout=st.sampled_from(["harmonics", "sparse", "banded"]),
    network=st.booleans(),
    noise=st.floats(1e-3, 1.0),
    variance=st.floats(0.1, 10.0),
    seed=st.integers(0, 20),
)
def test_the_bound_is_a_bound(layout, network, noise, variance, seed):
    x, y = table(40, seed)
    kernel = NTK(2) if network else ContinuousDepth(1.0, 10)
    basis = Basis.build(SPHERE, kernel, 25, layout, seed=seed)
    process = Process(dataclasses.replace(basis, variance=variance), noise)
    source = ArraySource(x, y)
    truth = dense_log_likelihood(process, x, y, np.ones(40))
    tightened, common, standard = (
        bound(process, source, kind) for kind in (True, "common", False)
    )
    assert standard <= common + 1e-8 * abs(common)
    assert common <= tightened + 1e-8 * abs(tightened)
    assert tightened <= truth + 1e-6 * abs(truth)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-5])
def test_float32_resolves_noise_down_to_its_floor(noise):
    x, y = table(50)
    x, y = np.repeat(x, 3, axis=0), np.repeat(y, 3)
    basis = Basis.build(SPHERE, ContinuousDepth(1.8, 20), 60, rows=x)
    process, source = Process(basis, noise), ArraySource(x, y)
    exact = bound(process, source, True)
    assert bound(process, source, True, np.float32) == pytest.approx(exact, rel=2e-2)


def test_an_indefinite_sum_is_lifted_not_exploited():
    """Noise so small that float32 rounding outweighs the prior: the bound falls."""
    x, y = table(50)
    x, y = np.repeat(x, 3, axis=0), np.repeat(y, 3)
    basis = Basis.build(SPHERE, ContinuousDepth(1.8, 20), 60, rows=x)
    process, source = Process(basis, 1e-8), ArraySource(x, y)
    assert bound(process, source, True, np.float32) < bound(process, source, True)
    broken = -np.diag([1e-3, 5.0, 0.0])
    factor, lift = factorise(broken)
    assert np.all(np.diag(factor) >= 0.99)
    assert lift > 0
    assert factorise(np.eye(3))[1] == 0
    with pytest.raises(ValueError, match="statistics are not finite"):
        factorise(np.full((3, 3), np.nan))


def test_noise_is_not_fitted_below_what_is_resolved():
    x, _ = table(200)
    y = np.sin(x[:, 0])
    basis = Basis.build(SPHERE, ContinuousDepth(3.0, 4), 200, "harmonics")
    process = Process(basis, 0.1)
    for dtype, floor in ((np.float32, 1e-5), (np.float64, 1e-12)):
        statistics = collect(whiten(basis, dtype), ArraySource(x, y))
        noise = fit_scales(statistics, process).noise
        assert noise >= 0.999 * floor * np.mean(y**2)


def test_weight_is_repetition():
    x, y = table(30)
    weight = np.random.default_rng(0).integers(1, 4, 30)
    basis = freed(Basis.build(SPHERE, ContinuousDepth(1.0, 10), 25), [0.5, 2.0])
    process = Process(basis, 0.1)
    again = np.repeat(np.arange(30), weight)
    for tightened in (True, "common", False):
        weighted = bound(process, ArraySource(x, y, weight=weight * 1.0), tightened)
        repeated = bound(process, ArraySource(x[again], y[again]), tightened)
        assert weighted == pytest.approx(repeated, rel=1e-10)


@pytest.mark.parametrize("tightened", [True, "common", False])
@pytest.mark.parametrize(
    ("layout", "kernel", "sphere", "free_energies"),
    [
        ("banded", ContinuousDepth(1.0, 8, cut=5.0), SPHERE, False),
        ("banded", ContinuousDepth(1.0, 8), SPHERE, True),
        ("harmonics", ContinuousDepth(1.0, 8), SPHERE, False),
        ("sparse", NTK(2), Projection.random(3, 2, radial_order=0.5), False),
    ],
)
def test_gradient_matches_finite_differences(
    layout, kernel, sphere, free_energies, tightened
):
    x, y = table(40)
    generator = np.random.default_rng(1)
    source = ArraySource(
        x, y, generator.uniform(0.5, 2, 40), generator.uniform(0.5, 2, 40)
    )
    basis = Basis.build(sphere, kernel, 24, layout)
    basis = freed(basis, [0.5, 2.0]) if free_energies else basis
    process = Process(dataclasses.replace(basis, variance=1.3), 0.07)
    vector = free(process)
    _, gradients = value_and_gradient(process, source, tightened, np.float64)
    assert set(gradients) == set(named(process))
    pulled = free_gradient(process, gradients, vector)
    for direction in generator.normal(size=(3, len(vector))):
        high, low = (
            bound(with_free(process, vector + step * direction), source, tightened)
            for step in (1e-6, -1e-6)
        )
        scale = np.linalg.norm(pulled) * np.linalg.norm(direction)
        assert abs(pulled @ direction - (high - low) / 2e-6) < 1e-6 * scale


def test_chunks_do_not_change_the_gradient(monkeypatch):
    x, y = table(500)
    process = Process(Basis.build(SPHERE, ContinuousDepth(1.0, 8), 30, rows=x), 0.1)
    source = ArraySource(x, y)
    value, gradients = value_and_gradient(process, source, dtype=np.float64)
    monkeypatch.setattr("zonal.engine.passes.CHUNK_ROWS", 64)
    again, others = value_and_gradient(process, source, dtype=np.float64)
    assert again == pytest.approx(value, rel=1e-12)
    for name, gradient in gradients.items():
        assert np.allclose(gradient, others[name], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("rows", [300, 900])
def test_functions_of_the_same_rows_share_a_gradient(rows):
    x, y = table(rows)
    generator = np.random.default_rng(2)
    process = Process(Basis.build(SPHERE, ContinuousDepth(1.0, 8), 30, rows=x), 0.1)
    sources = [
        ArraySource(x, target, precision=generator.uniform(0.5, 2, rows))
        for target in (y, np.sin(y), -2 * y)
    ]
    value, gradients = value_and_gradient(process, sources, "common", np.float64)
    apart = [value_and_gradient(process, one, "common", np.float64) for one in sources]
    assert value == pytest.approx(sum(one for one, _ in apart), rel=1e-12)
    for name, gradient in gradients.items():
        total = sum(others[name] for _, others in apart)
        assert np.allclose(gradient, total, rtol=1e-9, atol=1e-9)


def test_scales_are_fitted_without_the_data():
    x, y = table(400)
    basis = Basis.build(SPHERE, ContinuousDepth(1.0, 8), 60, rows=x)
    process = Process(basis, 1.0)
    statistics = collect(whiten(basis, np.float64), ArraySource(x, y))
    fitted = fit_scales(statistics, process)
    best = evaluate(statistics, fitted).value
    assert best > evaluate(statistics, process).value + 10
    names = ["basis.free_energies", "noise"]
    vector = free(fitted, names)
    for index in range(len(vector)):
        for step in (-0.05, 0.05):
            moved = vector.copy()
            moved[index] += step
            nearby = with_free(fitted, moved, names)
            assert evaluate(statistics, nearby).value <= best + 1e-4


def test_depth_is_fitted_without_the_data():
    x, y = table(400)
    basis = Basis.build(SPHERE, ContinuousDepth(3.0, 6), 300, "harmonics")
    process = Process(basis, 0.1)
    statistics = collect(whiten(basis, np.float64), ArraySource(x, y))
    names = ["basis.kernel.beta", "basis.variance", "noise"]
    fitted = fit_scales(statistics, process, names)
    best = evaluate(statistics, fitted).value
    assert best > evaluate(statistics, process).value
    for beta in (0.9, 1.1):
        moved = free(fitted, names)
        moved[0] += np.log(beta)
        assert evaluate(statistics, with_free(fitted, moved, names)).value < best + 1e-4


@pytest.mark.parametrize("size", [1, 256, 700])
def test_a_triangle_is_mirrored(size):
    lower = np.random.default_rng(0).normal(size=(size, size))
    truth = np.tril(lower) + np.tril(lower, -1).T
    assert np.array_equal(mirrored(np.asfortranarray(lower)), truth)


def test_bad_input():
    basis = Basis.build(SPHERE, ContinuousDepth(1.0, 8), 24)
    with pytest.raises(ValueError, match="noise must be positive"):
        Process(basis, -0.1)
    with pytest.raises(ValueError, match="3 bands need as many free energies"):
        dataclasses.replace(basis, free_energies=np.ones(2))
