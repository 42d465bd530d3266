"""How layouts spend a budget."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from zonal import NTK, ArcCosine, Band, ContinuousDepth
from zonal.prior.bands import band_energies
from zonal.prior.layouts import plan_bands
from zonal.prior.phases import random_phases
from zonal.prior.polynomials import harmonic_count

RECIPES = st.one_of(
    st.tuples(st.just(ArcCosine), st.integers(0, 2), st.integers(1, 3)),
    st.tuples(st.just(NTK), st.integers(1, 6)),
    st.tuples(st.just(ContinuousDepth), st.floats(0.1, 4), st.integers(1, 30)),
)


@example(
    recipe=(ArcCosine, 2, 1),
    dimension=2,
    n_features=300,
    layout="harmonics",
    n_levels=1,
)
@given(
    recipe=RECIPES,
    dimension=st.integers(2, 91),
    n_features=st.integers(1, 1200),
    layout=st.sampled_from(["harmonics", "sparse", "banded"]),
    n_levels=st.integers(1, 12),
)
def test_plans_keep_to_the_budget(recipe, dimension, n_features, layout, n_levels):
    kernel = recipe[0](*recipe[1:])
    assume(layout != "harmonics" or n_features > dimension)
    plans = plan_bands(layout, kernel, dimension, n_features, n_levels)
    assert 1 <= sum(plan.size for plan in plans) <= n_features
    weights = kernel.level_weights(dimension, 2 * n_features + 30)
    reached = -1
    for plan in plans:
        assert plan.first > reached
        reached = np.inf if plan.last is None else plan.last
        if plan.first == plan.last:
            # Weights near 1e-14 are resolved or not, depending on how many there are.
            assert weights[plan.first] > 0 or weights[plan.first :].max() < 1e-12
        if plan.complete:
            assert plan.size == harmonic_count(plan.first, dimension)


def test_relu_skips_its_empty_levels():
    plans = plan_bands("harmonics", ArcCosine(1), 3, 40)
    assert [plan.first for plan in plans] == [0, 1, 2, 4, 6]
    plans = plan_bands("sparse", ArcCosine(1), 9, 100, n_levels=5)
    assert [plan.first for plan in plans] == [0, 1, 2, 4, 6]


@pytest.mark.parametrize(
    ("dimension", "n_features"), [(785, 1024), (9, 8000), (2, 3000)]
)
def test_large_budgets_and_dimensions_are_planned(dimension, n_features):
    plans = plan_bands("banded", NTK(1), dimension, n_features)
    assert sum(plan.size for plan in plans) == n_features


def test_banded_is_complete_when_everything_fits():
    plans = plan_bands("banded", ContinuousDepth(1.0, 10), 3, 121)
    assert all(plan.complete for plan in plans)
    assert sum(plan.size for plan in plans) == 121


def test_sparse_shares_evenly():
    plans = plan_bands("sparse", ContinuousDepth(), 9, 454, n_levels=7)
    assert [plan.size for plan in plans] == [1, 9, 44, 100, 100, 100, 100]


def test_energies_add_up():
    phases = random_phases(3, 5)
    for kernel, last in [(NTK(3), None), (ContinuousDepth(1.0, 12), 12)]:
        energies = band_energies((Band(0, 1, phases), Band(2, last, phases)), kernel, 5)
        assert energies.sum() == pytest.approx(1)
        assert energies[0] == pytest.approx(kernel.level_weights(5, 1).sum())


def test_bad_input():
    with pytest.raises(ValueError, match="0 features cannot hold one level"):
        plan_bands("banded", NTK(1), 5, 0)
    with pytest.raises(ValueError, match=r"no complete level .* ask for 92 or more"):
        plan_bands("harmonics", NTK(1), 91, 50)
    with pytest.raises(ValueError, match="layout must be 'harmonics'"):
        plan_bands("dense", NTK(1), 5, 50)
    with pytest.raises(ValueError, match="n_levels must be 1 or more"):
        plan_bands("sparse", NTK(1), 5, 50, n_levels=0)
    with pytest.raises(ValueError, match="has no phases"):
        Band(0, 2, np.zeros((0, 3)))
    with pytest.raises(ValueError, match="from level 3 to 2 is empty"):
        Band(3, 2, np.eye(3))
    with pytest.raises(ValueError, match=r"levels count from 0, got \[-1\]"):
        Band(-1, 2, np.eye(3))
    with pytest.raises(ValueError, match="phases must be rows of norm one"):
        Band(0, 2, np.diag([1.0, 2.0]))
