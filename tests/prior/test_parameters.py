"""Constraints hold by construction, and names are the same everywhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from zonal import ARD, Basis, ContinuousDepth, FreeSpectrum, Projection
from zonal.prior.parameters import (
    POSITIVE,
    REAL,
    SIMPLEX,
    UNIT_ROWS,
    free,
    named,
    with_free,
    with_values,
)


def make_basis(kernel=None):
    return Basis.build(
        ARD.isotropic(3), kernel or ContinuousDepth(1.0, 6), 30, "sparse"
    )


FREE = arrays(np.float64, 4, elements=st.floats(-1e3, 1e3))


@given(FREE)
def test_any_free_numbers_make_valid_values(numbers):
    assert np.all(POSITIVE.from_free(numbers) > 0)
    shares = SIMPLEX.from_free(numbers)
    assert shares.shape == (5,)
    assert np.all(shares > 0)
    assert shares.sum() == pytest.approx(1)
    rows = UNIT_ROWS.from_free(np.append(numbers, 1.0).reshape(1, 5))
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.array_equal(REAL.from_free(numbers), numbers)


@given(arrays(np.float64, 4, elements=st.floats(-20, 20)))
def test_constraints_round_trip(numbers):
    for constraint in (POSITIVE, SIMPLEX, REAL):
        value = constraint.from_free(numbers)
        assert np.allclose(constraint.to_free(value), numbers)


@pytest.mark.parametrize("constraint", [POSITIVE, SIMPLEX, REAL, UNIT_ROWS])
def test_pull_is_the_transposed_derivative(constraint):
    generator = np.random.default_rng(3)
    start = generator.normal(size=(4, 3) if constraint is UNIT_ROWS else 5)
    value = constraint.from_free(start)
    gradient, direction = (
        generator.normal(size=value.shape),
        generator.normal(size=start.shape),
    )
    high = constraint.from_free(start + 1e-6 * direction)
    low = constraint.from_free(start - 1e-6 * direction)
    expected = np.sum(gradient * (high - low)) / 2e-6
    assert np.sum(constraint.pull(start, gradient) * direction) == pytest.approx(
        expected, rel=1e-7
    )


def test_names_are_stable():
    assert list(named(make_basis())) == [
        "sphere.scales",
        "sphere.radial_order",
        "kernel.beta",
        "kernel.cut",
        "bands.level_2.phases",
        "bands.level_3.phases",
        "bands.level_4.phases",
        "bands.level_5.phases",
        "bands.level_6.phases",
        "variance",
    ]
    projected = Basis.build(
        Projection.random(9, 2), FreeSpectrum(np.full(4, 0.25)), 12, "banded"
    )
    assert list(named(projected)) == [
        "sphere.matrix",
        "sphere.radial_order",
        "kernel.weights",
        "bands.levels_2_3.phases",
        "variance",
    ]


def test_free_round_trip_and_subsets():
    basis = make_basis()
    vector = free(basis)
    moved = with_free(basis, vector + 0.1)
    assert moved.kernel.beta == pytest.approx(np.exp(0.1))
    assert np.allclose(np.linalg.norm(moved.bands[2].phases, axis=1), 1)
    assert np.array_equal(basis.sphere.scales, make_basis().sphere.scales)
    only = ["kernel.beta", "variance"]
    assert len(free(basis, only)) == 2
    part = with_free(basis, np.log([2.0, 3.0]), only)
    assert part.kernel.beta == pytest.approx(2.0)
    assert part.variance == pytest.approx(3.0)
    assert np.array_equal(part.bands[2].phases, basis.bands[2].phases)


def test_bad_input():
    basis = make_basis()
    with pytest.raises(ValueError, match=r"no parameter is called \['beta'\]"):
        with_values(basis, {"beta": 1.0})
    with pytest.raises(ValueError, match=r"no parameter is called \['beta'\]"):
        free(basis, ["beta"])
    with pytest.raises(ValueError, match="scales must be positive and finite"):
        ARD(np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="radial_order must be finite"):
        ARD(np.array([1.0]), np.nan)
    with pytest.raises(ValueError, match="free numbers are needed, got 1"):
        with_free(basis, np.zeros(1))
    with pytest.raises(ValueError, match="row 1 has no direction"):
        UNIT_ROWS.from_free(np.array([[1.0, 0.0], [0.0, 0.0]]))
