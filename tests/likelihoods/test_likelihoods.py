"""Expectations, predictions and labels, against mpmath, quadrature and enumeration."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zonal.likelihoods.classes import Bernoulli, Labels, Softmax
from zonal.likelihoods.counts import NegativeBinomial, Poisson
from zonal.likelihoods.noise import Gaussian
from zonal.likelihoods.reals import Heteroscedastic, StudentT
from zonal.tables.chunks import Chunk


def rows_of(y, weight=None, exposure=None):
    """Rows with nothing but targets, and what else a likelihood sees of them."""
    return Chunk(np.empty((len(y), 0)), np.asarray(y), weight, None, exposure)


def rows_like(mean):
    """New rows: there are no targets yet."""
    return Chunk(np.empty((len(mean), 0)))


def normal_mean(function, mean, variance, factor=lambda z: 1):
    """E[factor(z) function(f)] for f = mean + deviation z ~ N, by mpmath."""
    deviation = mpmath.sqrt(variance)

    def integrand(z):
        return factor(z) * function(mean + deviation * z) * mpmath.npdf(z)

    return float(mpmath.quad(integrand, [-10, -3, 0, 3, 10]))


def log_logistic(f):
    return -mpmath.log1p(mpmath.exp(-f))


def log_probit(f):
    return mpmath.log(mpmath.ncdf(f))


def log_poisson(y, exposure=1):
    def at(f):
        rate = exposure * mpmath.exp(f)
        return y * mpmath.log(rate) - rate - mpmath.loggamma(y + 1)

    return at


def log_negative_binomial(y, dispersion):
    size = 1 / mpmath.mpf(dispersion)

    def at(f):
        rate = mpmath.exp(f)
        return (
            mpmath.loggamma(y + size)
            - mpmath.loggamma(size)
            - mpmath.loggamma(y + 1)
            + y * mpmath.log(rate / (rate + size))
            + size * mpmath.log(size / (rate + size))
        )

    return at


ONE_FUNCTION = [
    ("logit, right", Bernoulli(), 1.0, log_logistic),
    ("logit, wrong", Bernoulli(), 0.0, lambda f: log_logistic(-f)),
    ("probit, right", Bernoulli("probit"), 1.0, log_probit),
    ("probit, wrong", Bernoulli("probit"), 0.0, lambda f: log_probit(-f)),
    ("Poisson", Poisson(), 3.0, log_poisson(3)),
    ("negative binomial", NegativeBinomial(0.4), 5.0, log_negative_binomial(5, 0.4)),
    (
        "Gaussian",
        Gaussian(0.3),
        0.7,
        lambda f: mpmath.log(mpmath.npdf(0.7, f, mpmath.sqrt(0.3))),
    ),
]


# What 32 nodes are good for: posterior variances are rarely above one.
@pytest.mark.parametrize(
    ("variance", "accuracy"), [(0.01, 1e-11), (1.0, 1e-8), (9.0, 1e-4)]
)
@pytest.mark.parametrize("mean", [-2.0, 0.3])
@pytest.mark.parametrize("case", ONE_FUNCTION, ids=lambda case: case[0])
def test_expectations_agree_with_mpmath(case, mean, variance, accuracy):
    _, likelihood, y, log_density = case
    marginal = np.array([[mean]]), np.array([[variance]])
    found = likelihood.expected(rows_of([y]), *marginal)
    exact = normal_mean(log_density, mean, variance)
    assert found.value[0] == pytest.approx(exact, rel=accuracy, abs=accuracy)
    # Stein's identities: derivatives of a normal mean are means again.
    slope = normal_mean(log_density, mean, variance, lambda z: z) / variance**0.5
    bend = normal_mean(log_density, mean, variance, lambda z: z**2 - 1) / variance
    close = {"rel": max(accuracy, 1e-6), "abs": max(10 * accuracy, 1e-6)}
    assert found.mean_bar[0, 0] == pytest.approx(slope, **close)
    assert found.variance_bar[0, 0] == pytest.approx(bend / 2, **close)


@pytest.mark.parametrize(
    "likelihood",
    [Poisson(), Heteroscedastic(0.2), StudentT(0.5, 3.0), Gaussian(0.1)],
    ids=lambda one: type(one).__name__,
)
def test_derivatives_of_closed_forms_are_those_of_the_value(likelihood):
    generator = np.random.default_rng(0)
    shape = (20, likelihood.n_latents)
    rows = rows_of(generator.poisson(3, size=20).astype(float))
    mean, variance = generator.normal(size=shape), generator.uniform(0.1, 2, size=shape)
    found = likelihood.expected(rows, mean, variance)
    step = 1e-6
    for latent in range(likelihood.n_latents):
        move = np.zeros(shape)
        move[:, latent] = step

        def value(mean_by, variance_by):
            moved = mean + mean_by, variance + variance_by
            return likelihood.expected(rows, *moved).value

        in_mean = (value(move, 0) - value(-move, 0)) / (2 * step)
        in_variance = (value(0, move) - value(0, -move)) / (2 * step)
        np.testing.assert_allclose(found.mean_bar[:, latent], in_mean, rtol=1e-5)
        np.testing.assert_allclose(
            found.variance_bar[:, latent], in_variance, rtol=1e-5
        )


def test_heteroscedastic_expectation_is_the_integral_over_both_functions():
    likelihood = Heteroscedastic(0.2)
    mean, variance = np.array([[0.4, -0.3]]), np.array([[0.5, 0.8]])
    f, w = np.polynomial.hermite_e.hermegauss(80)
    w = w / w.sum()
    first = 0.4 + np.sqrt(0.5) * f
    second = -0.3 + np.sqrt(0.8) * f
    table = stats.norm.logpdf(
        1.1, first[:, None], np.sqrt(0.2 * np.exp(second))[None, :]
    )
    found = likelihood.expected(rows_of([1.1]), mean, variance)
    assert found.value[0] == pytest.approx(w @ table @ w, rel=1e-9)


def test_student_t_bounds_the_expectation_and_is_exact_without_variance():
    likelihood = StudentT(0.5, 3.0)
    rows, mean = rows_of([1.7]), np.array([[0.2]])

    def log_density(f):
        return mpmath.mpf(float(stats.t.logpdf(1.7, 3.0, float(f), 0.5)))

    for variance in (0.01, 0.3, 2.0):
        found = likelihood.expected(rows, mean, np.array([[variance]])).value[0]
        exact = normal_mean(log_density, 0.2, variance)
        assert found <= exact
        assert found >= exact - variance
    sure = likelihood.expected(rows, mean, np.zeros((1, 1))).value[0]
    assert sure == pytest.approx(stats.t.logpdf(1.7, 3.0, 0.2, 0.5))


def tensor_rule(mean, variance, nodes=40):
    """Values of three functions on a tensor grid, and its weights."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    grids = np.meshgrid(
        *(m + np.sqrt(v) * z for m, v in zip(mean, variance, strict=True))
    )
    weights = np.einsum("i,j,k->jik", w, w, w)
    return np.stack(grids, axis=-1), weights


# What 128 spread nodes are good for.
@pytest.mark.parametrize(("size", "accuracy"), [(0.1, 3e-4), (1.0, 4e-3)])
def test_softmax_agrees_with_a_tensor_rule(size, accuracy):
    mean = np.array([0.5, -1.0, 0.2])
    variance = size * np.array([1.0, 0.5, 0.8])
    f, weights = tensor_rule(mean, variance)
    likely = np.exp(f - np.logaddexp.reduce(f, axis=-1, keepdims=True))
    found = Softmax(3).expected(rows_of([2.0]), mean[None, :], variance[None, :])
    value = np.sum(weights * np.log(likely[..., 2]))
    shares = np.einsum("ijk,ijkc->c", weights, likely)
    bends = np.einsum("ijk,ijkc->c", weights, likely * (1 - likely))
    assert found.value[0] == pytest.approx(value, abs=accuracy)
    np.testing.assert_allclose(found.mean_bar[0], [0, 0, 1] - shares, atol=accuracy)
    np.testing.assert_allclose(found.variance_bar[0], -bends / 2, atol=accuracy)
    probabilities = Softmax(3).probabilities(mean[None, :], variance[None, :])
    np.testing.assert_allclose(probabilities[0], shares, atol=accuracy)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)


@settings(deadline=None, max_examples=20)
@given(st.floats(-30, 30), st.floats(1e-8, 100), st.sampled_from(["logit", "probit"]))
def test_two_classes_are_sure_of_one_of_them(mean, variance, link):
    marginal = np.array([[mean]]), np.array([[variance]])
    found = Bernoulli(link).probabilities(*marginal)
    assert np.all((found >= 0) & (found <= 1))
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    for y in (0.0, 1.0):
        expected = Bernoulli(link).expected(rows_of([y]), *marginal)
        assert np.isfinite(expected.value[0])
        density = Bernoulli(link).log_density(rows_of([y]), *marginal)[0]
        assert expected.value[0] <= density + 1e-12
        assert expected.variance_bar[0, 0] <= 0


@pytest.mark.parametrize(
    "likelihood",
    [Gaussian(0.2), StudentT(0.4, 5.0), Heteroscedastic(0.3)],
    ids=lambda one: type(one).__name__,
)
def test_densities_distributions_and_quantiles_of_real_targets_agree(likelihood):
    generator = np.random.default_rng(1)
    shape = (3, likelihood.n_latents)
    mean, variance = generator.normal(size=shape), generator.uniform(0.1, 1, size=shape)
    levels = np.array([0.05, 0.5, 0.9])
    quantiles = likelihood.quantiles(levels, rows_like(mean), mean, variance)
    for column, level in enumerate(levels):
        targets = rows_of(quantiles[:, column])
        reached = likelihood.distribution(targets, mean, variance)
        np.testing.assert_allclose(reached, level, atol=1e-9)
    grid = np.linspace(-60, 60, 24_001)
    for row in range(3):
        alone = np.repeat(mean[row : row + 1], len(grid), 0)
        spread = np.repeat(variance[row : row + 1], len(grid), 0)
        density = np.exp(likelihood.log_density(rows_of(grid), alone, spread))
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=2e-3)
        below = grid <= quantiles[row, 2]
        assert np.trapezoid(density[below], grid[below]) == pytest.approx(0.9, abs=3e-3)
        one = mean[row : row + 1], variance[row : row + 1]
        centre, around = likelihood.spread(rows_like(one[0]), *one)
        assert np.trapezoid(grid * density, grid) == pytest.approx(centre[0], abs=1e-2)
        second = np.trapezoid((grid - centre[0]) ** 2 * density, grid)
        assert second == pytest.approx(around[0], rel=0.05)


def test_heavy_tails_without_variance_still_have_quantiles():
    likelihood = StudentT(1.0, 1.5)
    zero = np.zeros((1, 1))
    _, spread = likelihood.spread(rows_like(zero), zero, np.ones((1, 1)))
    assert np.isinf(spread[0])
    tiny = np.full((1, 1), 1e-12)
    found = likelihood.quantiles(np.array([0.99]), rows_like(zero), zero, tiny)
    assert found[0, 0] == pytest.approx(stats.t.ppf(0.99, 1.5), rel=1e-5)


@pytest.mark.parametrize(
    "likelihood", [Poisson(), NegativeBinomial(0.7)], ids=lambda one: type(one).__name__
)
def test_probabilities_of_counts_add_up_and_quantiles_are_the_least_reached(likelihood):
    mean, variance = np.array([[1.2]]), np.array([[0.3]])
    exposure = np.array([2.0])
    counts = np.arange(4000.0)
    every = [np.repeat(part, len(counts), 0) for part in (mean, variance)]
    rows = rows_of(counts, exposure=np.repeat(exposure, len(counts)))
    chances = np.exp(likelihood.log_density(rows, *every))
    assert chances.sum() == pytest.approx(1.0, abs=1e-6)
    new = Chunk(np.empty((1, 0)), exposure=exposure)
    centre, around = likelihood.spread(new, mean, variance)
    assert counts @ chances == pytest.approx(centre[0], rel=1e-4)
    assert (counts - centre[0]) ** 2 @ chances == pytest.approx(around[0], rel=1e-3)
    reached = np.cumsum(chances)
    levels = np.array([0.01, 0.5, 0.9, 0.999])
    found = likelihood.quantiles(levels, new, mean, variance)[0]
    np.testing.assert_array_equal(found, np.searchsorted(reached, levels))


def test_own_parameters_are_found_from_rows_that_are_known():
    generator = np.random.default_rng(2)
    count = 20_000
    f = generator.normal(size=(count, 1))
    known = np.full((count, 1), 1e-10)
    rate = np.exp(f[:, 0]) * generator.gamma(1 / 0.6, 0.6, size=count)
    counts = generator.poisson(rate).astype(float)
    found = NegativeBinomial().refit(rows_of(counts), f, known)
    assert float(found.dispersion) == pytest.approx(0.6, rel=0.1)
    y = f[:, 0] + 0.2 * generator.standard_t(3, size=count)
    tails = StudentT().refit(rows_of(y), f, known)
    assert float(tails.scale) == pytest.approx(0.2, rel=0.05)
    assert float(tails.freedom) == pytest.approx(3, rel=0.1)
    assert Poisson().refit(rows_of(counts), f, known) == Poisson()


def test_offsets_are_what_the_targets_say_alone():
    rows = rows_of([0, 0, 0, 0, 0, 0, 1, 1.0])
    for link in ("logit", "probit"):
        likelihood = Bernoulli(link)
        offset = likelihood.offsets(likelihood.moments(rows))
        chance = likelihood.probabilities(offset[None, :], np.zeros((1, 1)))[0, 1]
        assert chance == pytest.approx(2.5 / 9)
    counts = rows_of([1.0, 5.0], exposure=np.array([2.0, 2.0]))
    moments = Poisson().moments(counts)
    assert np.exp(Poisson().offsets(moments)[0]) == pytest.approx(6.5 / 4)
    shares = Softmax(3).offsets(np.array([9.5, 0.0, 89.0]))
    assert np.all(np.isfinite(shares))
    assert np.exp(shares[2] - shares[0]) == pytest.approx(89.5 / 10)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (Poisson(), [1.0, -1.0], "row 11 has -1"),
        (NegativeBinomial(), [0.5, 1.0], "row 10 has 0.5"),
        (Poisson(), [1.0, 1e300], "row 11 counts 1e[+]300; beyond"),
        (Bernoulli(), [0.0, 2.0], "row 11 has class code 2"),
        (Softmax(3), [0.0, 3.0], "codes of 3 classes are 0 to 2"),
    ],
)
def test_targets_that_cannot_be_are_refused(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(rows_of(y), first_row=10)


def test_parameters_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="two classes or more"):
        Softmax(1)
    with pytest.raises(ValueError, match="'logit' or 'probit'"):
        Bernoulli("cauchit")
    with pytest.raises(ValueError, match="positive"):
        NegativeBinomial(-1.0)


@pytest.mark.parametrize(
    "names",
    [
        np.array(["b", "a", "c"]),
        np.array(["b", "a", "c"], object),
        np.array([True, False, True]),
        np.array([7, -1, 3]),
        np.array([0.5, 2.5, 1.0]),
    ],
    ids=["strings", "objects", "truth values", "integers", "numbers"],
)
def test_labels_come_back_from_their_codes(names):
    labels = Labels.of(names)
    codes = labels.codes(names)
    np.testing.assert_array_equal(labels.names[codes.astype(int)], names)
    kind = Bernoulli if len(labels) == 2 else Softmax
    assert isinstance(labels.likelihood(), kind)


def test_labels_refuse_what_they_cannot_name():
    with pytest.raises(ValueError, match=r"same class, .*yes"):
        Labels.of(["yes", "yes"])
    with pytest.raises(ValueError, match="no labels"):
        Labels.of([])
    with pytest.raises(ValueError, match="row 1 is missing"):
        Labels.of([1.0, np.nan])
    with pytest.raises(ValueError, match="one type; these are int, str"):
        Labels.of(np.array([1, "a"], object))
    with pytest.raises(ValueError, match=r"shape \(rows,\)"):
        Labels.of([["a"], ["b"]])
    with pytest.raises(ValueError, match=r"row 2 has class .*d.*known are a, b"):
        Labels.of(["a", "b"]).codes(["a", "b", "d"])


@pytest.mark.parametrize("freedom", [1.5, 4.0, 30.0])
@pytest.mark.parametrize("error", [0.1, 10.0, 45.0])
def test_outliers_are_as_likely_as_a_student_t_has_them(freedom, error):
    marginal = np.zeros((1, 1)), np.full((1, 1), 1e-8)
    found = StudentT(0.3, freedom).log_density(rows_of([error]), *marginal)[0]
    exact = stats.t.logpdf(error, freedom, 0, 0.3)
    assert found == pytest.approx(exact, abs=2e-3, rel=1e-4)


def test_a_narrow_student_t_under_a_wide_function():
    """As exact as where the noise is wide: a sum of normals, not of steps."""
    likelihood = StudentT(0.05, 3.0)
    marginal = np.zeros((1, 1)), np.ones((1, 1))
    draws = np.random.default_rng(0).normal(size=400_000)
    draws += 0.05 * np.random.default_rng(1).standard_t(3, size=400_000)
    levels = np.array([0.75, 0.95])
    found = likelihood.quantiles(levels, rows_like(marginal[0]), *marginal)[0]
    np.testing.assert_allclose(found, np.quantile(draws, levels), atol=0.01)


def test_quantiles_of_counts_beyond_whole_floats_end():
    marginal, half = (np.array([[38.0]]), np.array([[1e-6]])), np.array([0.5])
    found = Poisson().quantiles(half, rows_like(half), *marginal)[0, 0]
    assert found == pytest.approx(np.exp(38.0), rel=1e-3)


@pytest.mark.parametrize("freedom", [1.5, 30.0, 200.0, 1000.0])
def test_student_t_near_the_normal_does_not_overflow(freedom):
    likelihood = StudentT(freedom=freedom, scale=0.01)
    error = np.array([0.0, 0.005, 0.02])
    nothing = np.full((3, 1), 1e-12)
    density = likelihood.log_density(rows_of(error), np.zeros((3, 1)), nothing)
    expected = stats.t.logpdf(error, freedom, scale=0.01)
    assert np.allclose(density, expected, atol=1e-5)
