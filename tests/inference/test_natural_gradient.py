"""Inference with sites, against brute force, quadrature and the one-pass solution."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from zonal import ARD, ArraySource, Basis, ContinuousDepth, Process, whiten
from zonal.engine.bound import evaluate
from zonal.engine.posterior import Posterior, marginals
from zonal.engine.statistics import Statistics, collect
from zonal.inference.natural_gradient import Effort, infer
from zonal.inference.problem import Problem
from zonal.inference.sites import mix_apart
from zonal.likelihoods.classes import Bernoulli, Softmax
from zonal.likelihoods.counts import NegativeBinomial, Poisson
from zonal.likelihoods.noise import Gaussian
from zonal.likelihoods.reals import Heteroscedastic, StudentT
from zonal.prior.basis import feature_scales
from zonal.tables.chunks import Chunk


def prior(columns=2, n_features=40, seed=0, levels=10):
    rows = np.random.default_rng(seed).normal(size=(300, columns))
    basis = Basis.build(
        ARD(np.full(columns, 0.7)), ContinuousDepth(1.0, levels), n_features, rows=rows
    )
    return Process(basis, 1.0)


def inputs(count, columns=2, seed=0):
    return np.random.default_rng(seed).normal(size=(count, columns))


def targets(likelihood, x, seed=1):
    """Targets that the likelihood can have, following the first column."""
    generator = np.random.default_rng(seed)
    f = 1.5 * np.sin(2 * x[:, 0])
    if isinstance(likelihood, Bernoulli):
        return (generator.random(len(x)) < expit(f)).astype(float)
    if isinstance(likelihood, Softmax):
        return np.digitize(f + generator.logistic(size=len(x)), [-0.7, 0.7]) * 1.0
    if isinstance(likelihood, (Poisson, NegativeBinomial)):
        return generator.poisson(np.exp(f)).astype(float)
    return f + 0.3 * generator.standard_t(4, size=len(x))


EVERY = [
    Gaussian(0.2),
    Bernoulli(),
    Bernoulli("probit"),
    Softmax(3),
    Poisson(),
    NegativeBinomial(0.3),
    StudentT(),
    Heteroscedastic(),
]


def found(likelihood, x, y, process=None, start=None, refit=None, **options):
    """The solution; ``options`` are those of `Problem` and of `Effort`."""
    process = process or prior(x.shape[1])
    source = ArraySource(x, y, options.pop("weight", None))
    given = {
        name: options.pop(name)
        for name in ("tightened", "keep_sites")
        if name in options
    }
    problem = Problem(source, likelihood, np.zeros(likelihood.n_latents), **given)
    effort = Effort(**{"dtype": np.float64, **options})
    return infer(problem, [process] * likelihood.n_latents, start, effort, refit)


def at_rows(state, x):
    frame = whiten(state.processes[0].basis, np.float64)
    found = marginals(state.posteriors, state.offsets, frame, np.float64)(Chunk(x))
    return found.mean, found.variance


def test_gaussian_sites_are_the_one_pass_solution():
    x = inputs(300)
    y = targets(Gaussian(), x)
    process = prior()
    state = found(Gaussian(0.2), x, y, process, tightened=False)
    noisy = dataclasses.replace(process, noise=0.2)
    statistics = collect(whiten(process.basis, np.float64), ArraySource(x, y))
    exact = Posterior(noisy, statistics, np.float64).predict(x[:20])
    mean, variance = at_rows(state, x[:20])
    np.testing.assert_allclose(mean[:, 0], exact.mean, atol=1e-8)
    np.testing.assert_allclose(variance[:, 0], exact.variance, rtol=1e-6)
    bound = evaluate(statistics, noisy, tightened=False).value
    assert state.bound == pytest.approx(bound, rel=1e-9)
    assert len(state.bounds) == 3  # the prior, the answer, and that it stays


@pytest.mark.parametrize(
    "likelihood",
    [Bernoulli(), Poisson(), NegativeBinomial(0.3), StudentT()],
    ids=lambda one: type(one).__name__,
)
def test_the_fixed_point_is_the_best_of_all_normal_posteriors(likelihood):
    x = inputs(40, 1)
    y = targets(likelihood, x)
    rows = Chunk(x, y)
    process = prior(1, n_features=5)
    size = process.basis.n_features
    exactly = {"tolerance": 1e-13, "most_passes": 200, "tightened": False}
    state = found(likelihood, x, y, process, **exactly)
    features = whiten(process.basis, np.float64).features(x)
    total = float(process.basis.variance) * process.basis.total_energy
    rest = total - np.sum(features**2, axis=1)
    lower = np.tril_indices(size)

    def split(vector):
        root = np.zeros((size, size))
        root[lower] = vector[size:]
        return vector[:size], root

    def negative_bound(vector):
        mean, root = split(vector)
        kept = features @ root
        variance = rest + np.sum(kept**2, axis=1)
        expected = likelihood.expected(
            rows, (features @ mean)[:, None], variance[:, None]
        )
        _, log_determinant = np.linalg.slogdet(root @ root.T)
        divergence = 0.5 * (np.sum(root**2) + mean @ mean - size - log_determinant)
        mean_bar = features.T @ expected.mean_bar[:, 0] - mean
        root_bar = 2 * features.T @ (expected.variance_bar * kept) - root
        root_bar += np.linalg.inv(root).T
        slope = np.concatenate([mean_bar, root_bar[lower]])
        return divergence - expected.value.sum(), -slope

    start = np.concatenate([np.zeros(size), np.eye(size)[lower]])
    best = minimize(
        negative_bound, start, jac=True, options={"gtol": 1e-9, "maxiter": 5000}
    )
    mean, root = split(best.x)
    posterior = state.posteriors[0]
    assert state.bound == pytest.approx(-best.fun, abs=1e-5)
    np.testing.assert_allclose(posterior.weights, mean, atol=1e-5)
    covariance = np.linalg.inv(posterior.factor @ posterior.factor.T)
    np.testing.assert_allclose(covariance, root @ root.T, atol=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "error"),
    [(Bernoulli(), 0.03), (Poisson(), 0.03), (NegativeBinomial(0.3), 0.03)],
    ids=lambda one: type(one).__name__ if not isinstance(one, float) else "",
)
def test_marginals_are_close_to_dense_integration(likelihood, error):
    """The exact posterior of three weights, summed on a fine grid.

    Errors are in units of the posterior deviation.
    """
    x = inputs(20, 1, seed=3)
    y = targets(likelihood, x)
    basis = Basis.build(ARD.isotropic(1), ContinuousDepth(1.0, 1), 3, "harmonics")
    process = Process(basis, 1.0)
    features = whiten(basis, np.float64).features(x)
    state = found(likelihood, x, y, process, tolerance=1e-10)
    axes = [np.linspace(-5, 5, 31)] * 3
    weights = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    f = weights @ features.T
    assert basis.total_energy - np.sum(features**2, axis=1).min() < 1e-6
    nothing = np.zeros((len(f), 1))
    log_joint = -0.5 * np.sum(weights**2, axis=1)
    for row, target in enumerate(y):
        rows = Chunk(f[:, :0], np.full(len(f), target))
        log_joint += likelihood.log_density(rows, f[:, row : row + 1], nothing)
    chance = np.exp(log_joint - log_joint.max())
    chance /= chance.sum()
    mean = chance @ f
    deviation = np.sqrt(chance @ (f - mean) ** 2)
    ours, variance = at_rows(state, x)
    assert np.max(np.abs(ours[:, 0] - mean) / deviation) < 3 * error
    assert np.max(np.abs(np.sqrt(variance[:, 0]) / deviation - 1)) < 2 * error


@pytest.mark.parametrize("likelihood", EVERY, ids=lambda one: type(one).__name__)
def test_the_bound_is_reached_in_few_passes_and_never_falls(likelihood):
    x = inputs(500)
    y = targets(likelihood, x)
    state = found(likelihood, x, y)
    assert state.converged
    assert len(state.bounds) <= 20
    # A pass at the end may round the last digit the other way.
    assert state.bound == pytest.approx(max(state.bounds), rel=1e-12)
    again = found(likelihood, x, y, start=state.statistics)
    assert again.bound == pytest.approx(state.bound, rel=1e-5)
    assert len(again.bounds) <= 3


@pytest.mark.parametrize("likelihood", EVERY, ids=lambda one: type(one).__name__)
def test_a_weight_of_two_is_the_row_twice(likelihood):
    x = inputs(60)
    y = targets(likelihood, x)
    weight = np.where(np.arange(60) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(60), weight.astype(int))
    tight = {"tolerance": 1e-11, "most_passes": 300}
    weighted = found(likelihood, x, y, weight=weight, **tight)
    repeated = found(likelihood, x[twice], y[twice], **tight)
    assert weighted.bound == pytest.approx(repeated.bound, rel=1e-9)
    ours, theirs = at_rows(weighted, x[:10]), at_rows(repeated, x[:10])
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)


def test_float32_and_chunks_change_little():
    x = inputs(5000)
    y = targets(Bernoulli(), x)
    process = prior()
    fine = found(Bernoulli(), x, y, process)
    single = x.astype(np.float32)
    coarse = found(Bernoulli(), single, y, process, dtype=np.float32)
    assert coarse.bound == pytest.approx(fine.bound, rel=1e-5)
    np.testing.assert_allclose(
        at_rows(coarse, x[:50])[0], at_rows(fine, x[:50])[0], atol=1e-3
    )


def test_softmax_starts_closer_than_the_prior():
    x = inputs(500)
    y = targets(Softmax(3), x)
    process = prior()
    nothing = [Statistics.zero(process.basis)] * 3
    cold = found(Softmax(3), x, y, process, start=nothing)
    warm = found(Softmax(3), x, y, process)
    assert warm.bounds[0] > cold.bounds[0]
    assert warm.bound == pytest.approx(cold.bound, rel=1e-5)
    assert len(warm.bounds) <= len(cold.bounds)


def test_means_and_precisions_go_their_own_parts_of_the_way():
    x = inputs(200)
    y = targets(Softmax(3), x)
    state = found(Softmax(3), x, y, most_passes=2)
    process = state.processes[0]
    scales = feature_scales(process.basis)
    half = mix_apart(state, state.processes, 0.25, 0.5)
    whole = mix_apart(state, state.processes, 1.0, 1.0)
    for number, (old, new) in enumerate(
        zip(state.statistics, state.proposed, strict=True)
    ):
        start = state.posteriors[number].weights
        between = (old.gram + new.gram) / 2
        np.testing.assert_allclose(half[number].gram, between, rtol=1e-12)
        # A Newton step from where the mean is, with the precisions in between.
        slope = scales * (new.moment - new.gram @ (scales * start)) - start
        precision = np.eye(len(start)) + scales[:, None] * between * scales
        expected = start + 0.25 * np.linalg.solve(precision, slope)
        now = Posterior(process, half[number]).weights
        np.testing.assert_allclose(now, expected, atol=1e-10)
        np.testing.assert_allclose(whole[number].gram, new.gram, rtol=1e-12)
        np.testing.assert_allclose(whole[number].moment, new.moment, atol=1e-10)
    # Means that are moved further are moved by just that.
    change = np.random.default_rng(0).normal(size=(3, len(scales)))
    further = mix_apart(state, state.processes, 0.25, 0.5, change)
    for one, other, moved in zip(half, further, change, strict=True):
        apart = Posterior(process, other).weights - Posterior(process, one).weights
        np.testing.assert_allclose(apart, scales * moved, atol=1e-10)


def test_several_classes_do_not_overshoot():
    """From what some of the rows say, every pass is a gain."""
    x = 2 * inputs(2000)
    y = targets(Softmax(3), x)
    process = prior(n_features=60)
    some = found(Softmax(3), x[:200], y[:200], process)
    state = found(Softmax(3), x, y, process, start=some.statistics)
    assert state.converged
    assert np.all(np.diff(state.bounds) > -1e-7 * abs(state.bound))


def test_large_counts_far_from_the_prior_are_no_trouble():
    x = inputs(300)
    y = np.random.default_rng(0).poisson(np.exp(5 + np.sin(2 * x[:, 0]))).astype(float)
    state = found(Poisson(), x, y)
    assert state.converged
    mean, _ = at_rows(state, x)
    assert np.corrcoef(mean[:, 0], np.sin(2 * x[:, 0]))[0, 1] > 0.97


def test_a_step_too_long_is_taken_back():
    """A start so sure of wrong rates that the first step overshoots."""
    x = inputs(300)
    y = targets(Poisson(), x)
    process = prior()
    frame = whiten(process.basis, np.float64)
    wrong = [collect(frame, ArraySource(x, np.full(300, -6.0)))]
    state = found(Poisson(), x, y, process, start=wrong, most_passes=60)
    assert state.converged
    falls = np.diff(state.bounds) < -1
    assert falls.any()
    assert state.bound == pytest.approx(found(Poisson(), x, y, process).bound, rel=1e-5)


def test_sites_are_kept_on_request():
    x = inputs(50)
    y = targets(Poisson(), x)
    state = found(Poisson(), x, y, keep_sites=True)
    assert state.known_sites.precision.shape == (50, 1)
    frame = whiten(state.processes[0].basis, np.float64)
    sums = collect(frame, state.known_sites.sources(Chunk(x, y))[0])
    for name in ("gram", "moment", "squares", "rows", "log_precision"):
        ours, theirs = getattr(sums, name), getattr(state.proposed[0], name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    missing = sums.uncaptured.parts, state.proposed[0].uncaptured.parts
    np.testing.assert_allclose(*missing, rtol=1e-9, atol=1e-9)
    assert found(Poisson(), x, y).sites is None


def test_a_bound_that_is_no_number_is_an_error():
    class Broken(Gaussian):
        def expected(self, rows, mean, variance):
            found = super().expected(rows, mean, variance)
            return dataclasses.replace(found, value=np.full(len(rows), np.nan))

    x = inputs(20)
    with pytest.raises(ArithmeticError, match="the bound is nan"):
        found(Broken(), x, x[:, 0])


def test_a_refit_that_spoils_the_bound_is_taken_back():
    x = inputs(300)
    y = targets(Poisson(), x)
    process = prior()
    narrow = dataclasses.replace(process.basis, variance=1e-8)
    state = found(
        Poisson(),
        x,
        y,
        process,
        refit=lambda state: ((dataclasses.replace(process, basis=narrow),), Poisson()),
    )
    plain = found(Poisson(), x, y, process, most_passes=1)
    assert state.bound >= plain.bound
    assert state.bound == max(state.bounds)


def test_sums_too_coarse_for_their_sites_are_taken_again():
    """Large counts make sites so precise that float32 sums are not definite."""
    x = inputs(3000)
    y = np.round(1e7 * np.exp(np.sin(x[:, 0])))
    process = prior(n_features=100)
    problem = Problem(ArraySource(x, y), Poisson(), np.array([np.log(1e7)]))
    coarse = infer(problem, [process])
    fine = infer(problem, [process], effort=Effort(np.float64))
    assert coarse.statistics[0].uncaptured.parts.dtype == np.float64
    assert coarse.bound == pytest.approx(fine.bound, rel=1e-9)
