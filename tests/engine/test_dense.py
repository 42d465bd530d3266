"""The exact marginal likelihood, against dense algebra and finite differences."""

import dataclasses
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone

from zonal import (
    ARD,
    NTK,
    ArraySource,
    Basis,
    ContinuousDepth,
    FreeSpectrum,
    Process,
    Projection,
    Recipe,
    SphericalGPRegressor,
    UnitVectors,
    equivalent_depth,
    fit,
    whiten,
)
from zonal.engine.bound import evaluate
from zonal.engine.dense import at_rows, exact_value_and_gradient, is_series
from zonal.engine.statistics import collect
from zonal.learning.by_bound import learn
from zonal.prior.parameters import free, free_gradient, named, with_free
from zonal.tables.scaling import ConstantWarning

pytestmark = pytest.mark.usefixtures("few_rounds")

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(30, 3))
Y = np.sin(X[:, 0]) + 0.1 * GENERATOR.normal(size=30)
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)

CASES = {
    "depth": (ARD(np.array([0.5, 1.5, 0.8]), 0.7), ContinuousDepth(0.8, 25), X),
    "cut": (ARD(np.full(3, 0.4)), ContinuousDepth(0.8, 25, cut=7.0), X),
    "free": (ARD(np.full(3, 0.4)), FreeSpectrum(np.full(9, 1 / 9)), X),
    "projection": (Projection.random(3, 2, radial_order=1.0), ContinuousDepth(), X),
    "sphere": (UnitVectors(3), ContinuousDepth(1.2, 15), UNIT),
}


def process_of(case, energies=True):
    sphere, kernel, x = CASES[case]
    basis = Basis.build(sphere, kernel, 24)
    if energies:
        shares = np.random.default_rng(1).uniform(0.1, 0.5, len(basis.bands))
        basis = dataclasses.replace(basis, free_energies=shares)
    return Process(dataclasses.replace(basis, variance=1.3), 0.07), x


@pytest.mark.parametrize("energies", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_dense_likelihood(case, energies):
    process, x = process_of(case, energies)
    precision = GENERATOR.uniform(0.5, 2, len(x))
    value, _ = exact_value_and_gradient(
        process, [ArraySource(x, Y, precision=precision)]
    )
    covariance = process.basis.covariance(x) + np.diag(process.noise / precision)
    truth = multivariate_normal(np.zeros(len(x)), covariance).logpdf(Y)
    assert value == pytest.approx(truth, rel=1e-10)


@pytest.mark.parametrize("energies", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_gradient_matches_finite_differences(case, energies):
    process, x = process_of(case, energies)
    generator = np.random.default_rng(2)
    sources = [
        ArraySource(x, target, generator.uniform(0.5, 2, len(x)))
        for target in (Y, Y**2)
    ]
    vector = free(process)
    _, gradients = exact_value_and_gradient(process, sources)
    assert set(gradients) == set(named(process))
    pulled = free_gradient(process, gradients, vector)
    for direction in generator.normal(size=(3, len(vector))):
        high, low = (
            exact_value_and_gradient(
                with_free(process, vector + step * direction), sources
            )[0]
            for step in (1e-6, -1e-6)
        )
        scale = np.linalg.norm(pulled) * np.linalg.norm(direction)
        assert abs(pulled @ direction - (high - low) / 2e-6) < 1e-6 * scale


def test_weight_is_repetition():
    process, x = process_of("depth")
    twice, _ = exact_value_and_gradient(
        process, [ArraySource(np.vstack([x, x]), np.concatenate([Y, Y]))]
    )
    weighted, _ = exact_value_and_gradient(
        process, [ArraySource(x, Y, np.full(len(x), 2.0))]
    )
    assert weighted == pytest.approx(twice, rel=1e-10)


def test_phases_at_the_rows_capture_everything():
    process, x = process_of("depth")
    placed = at_rows(process, x)
    frame = whiten(placed.basis, np.float64)
    bound = evaluate(collect(frame, ArraySource(x, Y)), placed).value
    exact, _ = exact_value_and_gradient(process, [ArraySource(x, Y)])
    assert bound <= exact + 1e-9
    assert bound == pytest.approx(exact, abs=1e-2)
    assert frame.captured(x).min() > 0.9999


def test_a_few_rows_are_learned_from_exactly():
    model = fit(ArraySource(X, Y), Recipe(n_neighbors=0, most_steps=30))
    bound = model.bound
    dense = model.process.basis.covariance(model.scaling.inputs(X))
    dense += float(model.process.noise) * np.eye(len(X))
    y = (Y - model.scaling.mean(X)) / model.scaling.target_width
    truth = multivariate_normal(np.zeros(len(X)), dense).logpdf(y)
    truth -= len(X) * np.log(model.scaling.target_width)
    assert bound == pytest.approx(truth, abs=1e-2)
    prediction = model.predict(X)
    covariance = dense - float(model.process.noise) * np.eye(len(X))
    mean = covariance @ np.linalg.solve(dense, y)
    mean = model.scaling.mean(X) + model.scaling.target_width * mean
    assert np.allclose(prediction.mean, mean, atol=1e-3 * np.std(Y))


@pytest.mark.parametrize("rows", [1, 2, 30])
def test_few_rows_keep_a_phase_at_each(rows):
    """What was learned exactly is solved as it is."""
    y = Y[:rows] if rows > 1 else np.zeros(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantWarning)
        recipe = Recipe(n_neighbors=0, most_steps=5)
        basis = fit(ArraySource(X[:rows], y), recipe).process.basis
    assert basis.n_features >= rows + 1 + X.shape[1]
    assert basis.uncovered_energy < 1e-9


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(n_features=20, solve_features=20, most_steps=5),
        Recipe(layout="sparse", n_features=60, most_steps=5),
    ],
)
def test_a_smaller_or_another_basis_is_respected(recipe):
    progress = learn(ArraySource(X, Y), recipe)
    assert progress.process.basis.n_features <= recipe.n_features


def test_closed_forms_are_learned_from_otherwise():
    from zonal import NTK

    assert is_series(process_of("depth")[0].basis)
    endless = Basis.build(ARD(np.full(3, 0.4)), NTK(2), 24)
    assert not is_series(endless)
    recipe = Recipe(kernel=NTK(2), n_neighbors=0, most_steps=5)
    model = fit(ArraySource(X, Y), recipe)
    assert np.isfinite(model.bound)


def test_warm_starts_and_outputs_are_exact_too():
    both = np.column_stack([Y, X[:, 1]])
    model = SphericalGPRegressor(n_neighbors=0, warm_start=True).fit(X, both)
    again = model.fit(X, both)
    assert np.allclose(again.predict(X), both, atol=0.5)


@pytest.mark.parametrize(
    ("likelihood", "neighbors"), [("gaussian", None), ("gaussian", 0), ("student-t", 0)]
)
def test_refreshing_is_not_bound_to_what_was_learned_before(likelihood, neighbors):
    X = np.linspace(-1, 1, 30)[:, None]
    before, now = np.sin(3 * X[:, 0]), np.cos(9 * X[:, 0])
    model = SphericalGPRegressor(likelihood=likelihood, n_neighbors=neighbors)
    fresh = clone(model).fit(X, now)
    refreshed = model.fit(X, before).refresh(X, now)
    assert refreshed.bound_ > fresh.bound_ - 0.05 * abs(fresh.bound_)


@pytest.mark.parametrize(("neighbors", "least"), [(None, 3), (0, 5)])
def test_deeper_networks_are_learned_as_deeper(neighbors, least):
    generator = np.random.default_rng(6)
    s = generator.normal(size=(400, 4))
    s /= np.linalg.norm(s, axis=1, keepdims=True)
    learned = []
    for depth in (1, 10):
        covariance = np.asarray(NTK(depth).shape_function(s @ s.T, 4), np.float64)
        root = np.linalg.cholesky(covariance + 1e-5 * np.eye(400))
        y = root @ generator.normal(size=400) + 0.05 * generator.normal(size=400)
        model = SphericalGPRegressor(geometry="sphere", n_neighbors=neighbors)
        model.fit(s, y)
        learned.append(model.depth_.layers)
        assert model.depth_.layers == model.models_[0].depth
    assert learned[0] <= 2
    assert learned[1] >= least


def test_depth_is_told_from_energies_that_were_freed():
    sphere, kernel = UnitVectors(4), ContinuousDepth(1.0, 20)
    basis = Basis.build(sphere, kernel, 60)
    assert basis.depth == equivalent_depth(kernel, 4)
    depths = []
    for layers in (1, 20):
        weights = NTK(layers).level_weights(4, 20)
        ends = [(band.first, band.last + 1) for band in basis.bands]
        freed = np.array([weights[first:stop].sum() for first, stop in ends])
        depths.append(dataclasses.replace(basis, free_energies=freed).depth)
    assert depths[0] < basis.depth < depths[1]
