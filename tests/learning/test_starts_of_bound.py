"""The start of learning by the bound: scales and spectrum from nearest rows."""

import dataclasses

import numpy as np
import pytest
from limits import FEW_ROUNDS

from zonal import ARD, ArraySource, Bernoulli, Poisson, Recipe, StudentT, fit
from zonal.inference.problem import Problem
from zonal.learning.by_bound import Learner
from zonal.learning.by_sites import SiteLearner
from zonal.learning.schedule import NeighbourSchedule, Schedule

# All starts race, as by default; then two rounds are enough.
RECIPE = Recipe(
    n_features=60,
    solve_features=60,
    most_steps=8,
    schedule=Schedule(by_neighbours=NeighbourSchedule(sample_rows=(800, 800))),
)
BRIEF = dataclasses.replace(RECIPE, schedule=FEW_ROUNDS)


def product(rows=800, columns=20, seed=0):
    """A target that no column explains by itself: the product of 4 and 15."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, columns))
    f = np.tanh(2 * x[:, 4] * x[:, 15])
    return x, f, f + 0.2 * generator.normal(size=rows)


def start_of(x, y, likelihood=None, recipe=RECIPE, **columns):
    """The first process of a run."""
    source = ArraySource(x, y, **columns)
    if likelihood is None:
        learner = Learner([source], recipe, None, None, None)
    else:
        offsets = np.zeros(likelihood.n_latents)
        learner = SiteLearner(Problem(source, likelihood, offsets), recipe)
    return learner._initial_progress().process, learner


@pytest.mark.parametrize("likelihood", [None, StudentT(), Bernoulli(), Poisson()])
def test_columns_that_matter_only_together_are_found(likelihood):
    x, f, y = product()
    generator = np.random.default_rng(1)
    if isinstance(likelihood, StudentT):
        # Outliers do not hide them.
        y = y + 1e4 * (generator.random(len(y)) < 0.02)
    if isinstance(likelihood, Bernoulli):
        y = (y > 0).astype(float)
    if isinstance(likelihood, Poisson):
        y = generator.poisson(np.exp(1 + f)).astype(float)
    start, learner = start_of(x, y, likelihood)
    scales = start.basis.sphere.scales
    assert set(np.argsort(scales)[-2:]) == {4, 15}
    # A column that is not needed here may still be for the features.
    assert scales.min() >= 0.049 * scales.max()
    assert {step.stage for step in learner.history} == {"start"}
    assert [step.number for step in learner.history] == list(
        range(1, len(learner.history) + 1)
    )


def test_a_product_of_two_columns_is_learned():
    x, f, y = product(1600)
    train, test = slice(0, 800), slice(800, None)
    recipe = dataclasses.replace(RECIPE, n_neighbors=0)
    model = fit(ArraySource(x[train], y[train]), recipe)
    error = model.predict(x[test]).mean - f[test]
    assert np.sqrt(np.mean(error**2)) < 0.5 * f.std()
    labels = (y > 0).astype(float)
    model = fit(ArraySource(x[train], labels[train]), recipe, Bernoulli())
    sure = model.predict(x[test]).probabilities()[:, 1] > 0.5
    assert np.mean(sure == (f[test] > 0)) > 0.8


def test_exposures_and_weights_count():
    """Counts are rates times exposures; rows of no weight are no rows."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(800, 3))
    f = np.sin(2 * x[:, 1])
    exposure = np.exp(2 * x[:, 0])
    counts = generator.poisson(20 * exposure * np.exp(f)).astype(float)
    start, _ = start_of(x, counts, Poisson(), BRIEF, exposure=exposure)
    assert np.argmax(start.basis.sphere.scales) == 1
    other = np.where(np.arange(800) < 600, f, generator.normal(size=800))
    weight = 1.0 * (np.arange(800) < 600)
    few, _ = start_of(x[:600], f[:600], recipe=BRIEF)
    weighted, _ = start_of(x, other, recipe=BRIEF, weight=weight)
    scales = [start.basis.sphere.scales for start in (few, weighted)]
    np.testing.assert_array_equal(*scales)


def test_the_power_of_the_radius_is_kept():
    x, _, y = product(200, 16)
    recipe = dataclasses.replace(BRIEF, radial_order=1.0)
    assert start_of(x, y, recipe=recipe)[0].basis.sphere.radial_order == 1.0


def test_a_class_of_two_rows_has_no_extreme_scales():
    x = np.random.default_rng(0).normal(size=(5000, 2))
    rare = np.zeros(5000)
    rare[np.argsort(x[:, 0])[-2:]] = 1
    start, _ = start_of(x, rare, Bernoulli(), BRIEF)
    assert 0.02 <= start.basis.sphere.scales.max() <= 3


@pytest.mark.parametrize("x", [np.ones((30, 2)), np.ones((1, 2))])
def test_without_two_distinct_rows_scales_are_equal(x):
    y = np.random.default_rng(0).normal(size=len(x))
    start, learner = start_of(x, y)
    assert np.ptp(start.basis.sphere.scales) == 0
    assert learner.history == []


def test_nothing_is_learned_without_steps_or_where_all_is_given():
    x, _, y = product(100, 16)
    _, learner = start_of(x, y, recipe=dataclasses.replace(RECIPE, most_steps=0))
    assert learner.history == []
    first, _ = start_of(x, y, recipe=BRIEF)
    basis = first.basis
    given = dataclasses.replace(RECIPE, sphere=ARD.isotropic(16), kernel=basis.kernel)
    start, learner = start_of(x, y, recipe=given)
    assert learner.history == []
    assert start.basis.sphere is given.sphere


def test_targets_that_do_not_vary():
    x, _, y = product(100, 16)
    start, _ = start_of(x, np.zeros_like(y), recipe=BRIEF)
    assert np.all(np.isfinite(start.basis.sphere.scales))
