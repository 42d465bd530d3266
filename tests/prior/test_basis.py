"""Features, captured variance and gradients against dense algebra."""

import dataclasses
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal import (
    ARD,
    NTK,
    ArcCosine,
    Band,
    Basis,
    CompleteLevel,
    ContinuousDepth,
    FreeSpectrum,
    LatitudeLongitude,
    Projection,
    UnitVectors,
    whiten,
)
from zonal.prior.backends import numpy_kernel
from zonal.prior.bands import band_kernel
from zonal.prior.parameters import free, free_gradient, named, with_free, with_values
from zonal.prior.phases import random_phases
from zonal.prior.polynomials import gegenbauer

LAYOUTS = ["harmonics", "sparse", "banded"]


def table(rows, columns, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, columns))


def dense(kernel, points):
    """κ(s·s') by the recurrence, or by the closed form in NumPy."""
    t = np.clip(points @ points.T, -1, 1)
    dimension = points.shape[1]
    if kernel.last_level is None:
        return kernel._value(t)
    weights = kernel.level_weights(dimension)
    return gegenbauer(t, kernel.last_level, dimension) @ weights


@pytest.mark.parametrize("dimension", [2, 3, 5, 9, 22, 31, 40])
def test_complete_levels_are_the_kernel(dimension):
    kernel = ContinuousDepth(0.7, 2 if dimension > 9 else 3)
    basis = Basis.build(ARD.isotropic(dimension - 1), kernel, 1500, "harmonics")
    x = table(30, dimension - 1)
    features = whiten(basis, np.float64).features(x)
    truth = dense(kernel, basis.sphere.points(x)[0])
    assert np.abs(features @ features.T - truth).max() < 1e-9
    single = whiten(basis).features(x)
    assert single.dtype == np.float32
    assert np.abs(single @ single.T - truth).max() < 1e-4


@given(
    recipe=st.one_of(
        st.tuples(st.just(ArcCosine), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just(NTK), st.integers(1, 5)),
        st.tuples(
            st.just(ContinuousDepth),
            st.floats(0.1, 4),
            st.integers(1, 20),
            st.sampled_from(["energy", "eigenvalue"]),
        ),
    ),
    dimension=st.integers(2, 91),
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 99),
)
def test_no_layout_captures_more_than_there_is(recipe, dimension, layout, seed):
    kernel = recipe[0](*recipe[1:])
    x = table(25, dimension - 1, seed)
    sphere = ARD.isotropic(dimension - 1)
    budget = 100 if layout == "harmonics" else 40
    basis = Basis.build(sphere, kernel, budget, layout, seed=seed)
    frame = whiten(basis, np.float64)
    features = frame.features(x)
    rest = dense(kernel, sphere.points(x)[0]) - features @ features.T
    assert np.all(np.isfinite(features))
    # The floor is rounding: of the kernel itself, and of a tail's closed form, which
    # is known to 1e-15 of the whole before it is scaled up.
    assert np.linalg.eigvalsh(rest).min() > -1e-9
    captured = frame.captured(x)
    assert captured.shape == (25, len(basis.bands))
    assert np.all(captured >= 0)
    assert captured @ basis.energies == pytest.approx(
        np.sum(features**2, axis=1), abs=1e-9
    )
    assert (captured @ basis.energies).max() <= 1 + 1e-9


ARD_3 = ARD(np.array([0.5, 1.5, 0.8]), 1.0)
DEPTH = ContinuousDepth(1.2, 8, cut=5.0)


@pytest.mark.parametrize(
    ("layout", "kernel", "sphere"),
    [(layout, DEPTH, ARD_3) for layout in LAYOUTS]
    + [("sparse", FreeSpectrum.like(NTK(2), 4, 5), ARD_3)]
    + [("banded", kernel, ARD_3) for kernel in (ArcCosine(1, 2), NTK(3))]
    + [("banded", ContinuousDepth(2.5, 8, "eigenvalue"), UnitVectors(3))]
    + [("banded", DEPTH, Projection.random(3, 2, radial_order=0.5))],
    ids=str,
)
def test_gradients_match_finite_differences(layout, kernel, sphere):
    x = table(20, 3)
    if isinstance(sphere, UnitVectors):
        x /= np.linalg.norm(x, axis=1, keepdims=True)
    basis = Basis.build(sphere, kernel, 24, layout)
    cotangent = table(20, basis.n_features, seed=1)
    gradients = whiten(basis, np.float64).gradient(x, cotangent)
    assert set(gradients) == set(named(basis))
    vector = free(basis)
    pulled = free_gradient(basis, gradients)

    def total(numbers):
        frame = whiten(with_free(basis, numbers), np.float64)
        return np.sum(cotangent * frame.features(x))

    directions = table(4, len(vector), seed=2)
    for direction in directions:
        step = 1e-6 * direction
        expected = (total(vector + step) - total(vector - step)) / 2e-6
        scale = np.linalg.norm(pulled) * np.linalg.norm(direction)
        assert abs(pulled @ direction - expected) < 1e-6 * scale


def test_gradients_in_float32_are_those_of_float64():
    x = table(200, 4)
    basis = Basis.build(ARD.isotropic(4, 1.0), ContinuousDepth(1.0, 12), 60, rows=x)
    cotangent = table(200, basis.n_features, seed=1)
    double = free_gradient(basis, whiten(basis, np.float64).gradient(x, cotangent))
    single = whiten(basis).gradient(x, cotangent.astype(np.float32))
    error = free_gradient(basis, single) - double
    assert np.linalg.norm(error) < 2e-3 * np.linalg.norm(double)


def test_covariance_is_the_kernel_between_rows():
    x, other = table(6, 3), table(4, 3, seed=1)
    kernel = ContinuousDepth(0.9, 7)
    sphere = ARD(np.array([0.3, 1.0, 2.0]), 1.0)
    basis = Basis.build(sphere, kernel, 30, "banded")
    energies = basis.energies * np.array([0.5, 3.0, 1.5])
    basis = dataclasses.replace(basis, free_energies=basis.energies)
    basis = with_values(basis, {"variance": 2.0, "free_energies": energies})
    scales = np.asarray(sphere.scales)

    def lift(rows):
        z = np.column_stack([rows * scales, np.ones(len(rows))])
        norm = np.linalg.norm(z, axis=1)
        return z / norm[:, None], norm / np.sqrt(1 + np.sum(scales**2))

    (s, r), (s2, r2) = lift(x), lift(other)
    weights = kernel.level_weights(4) * np.repeat([0.5, 3.0, 1.5], [1, 1, 6])
    truth = 2.0 * np.outer(r, r2) * (gegenbauer(s @ s2.T, 7, 4) @ weights)
    assert np.allclose(basis.covariance(x, other), truth)
    assert np.allclose(np.diag(basis.covariance(x)), 2.0 * r**2 * weights.sum())
    assert basis.total_energy == pytest.approx(weights.sum())


@pytest.mark.parametrize("kernel", [ArcCosine(2), ArcCosine(1), NTK(2)], ids=str)
@pytest.mark.parametrize("inputs", [1, 2, 8])
def test_float32_captures_no_more_than_there_is(kernel, inputs):
    x = table(300, inputs)
    basis = Basis.build(ARD.isotropic(inputs), kernel, 300, rows=x)
    captured = whiten(basis).captured(x)
    assert captured.max() < 1.05
    assert (captured @ basis.energies).max() < 1 + 2e-4


@pytest.mark.parametrize("start", ["drawn", "random"])
def test_phases_from_rows_capture_the_rows(start):
    x = table(300, 4)
    sphere, kernel = ARD.isotropic(4), ContinuousDepth(2.0, 8)
    basis = Basis.build(sphere, kernel, 100, rows=x, start=start)
    captured = whiten(basis).captured(x) @ basis.energies
    assert captured.mean() > 0.9


@pytest.mark.parametrize("depth", [1, 2, 3, 6])
def test_endless_bands_of_step_networks(depth):
    kernel = ArcCosine(0, depth)
    x = table(12, 8)
    sphere = ARD.isotropic(8)
    whole = kernel._value(np.clip(sphere.points(x)[0] @ sphere.points(x)[0].T, -1, 1))
    weights = kernel.level_weights(9, 1)
    t = np.clip(sphere.points(x)[0] @ sphere.points(x)[0].T, -1, 1)
    tail = (whole - gegenbauer(t, 1, 9) @ weights) / (1 - weights.sum())
    shape = numpy_kernel(band_kernel(Band(2, None, np.eye(1, 9)), kernel, 9))
    assert np.allclose(shape(t), tail, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "number"),
    [("kernel.beta", 7.0), ("kernel.cut", -7.0), ("sphere.scales", 45.0)],
)
def test_extreme_steps_are_survived(name, number):
    basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), 40)
    vector = free(basis, [name])
    vector[0] = number
    moved = with_free(basis, vector, [name])
    frame = whiten(moved)
    x = table(10, 3)
    assert np.all(np.isfinite(frame.features(x)))
    gradients = frame.gradient(x, np.ones((10, 40), np.float32))
    assert all(np.all(np.isfinite(value)) for value in gradients.values())


def test_no_rows_give_no_features():
    basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), 40)
    assert whiten(basis).features(np.zeros((0, 3))).shape == (0, 40)
    with pytest.raises(ValueError, match="no rows were given to start from"):
        Basis.build(ARD.isotropic(3), ContinuousDepth(), 40, rows=np.zeros((0, 3)))


def test_rows_within_rounding_of_norm_one_capture_no_more():
    places = np.eye(3) * 1.00009
    band = Band(0, 60, np.eye(3))
    basis = Basis(UnitVectors(3), FreeSpectrum(np.full(61, 1 / 61)), (band,))
    assert whiten(basis, np.float64).captured(places).max() <= 1 + 1e-9


def test_many_levels_share_one_sweep():
    kernel = ContinuousDepth(0.5, 40)
    basis = Basis.build(ARD.isotropic(1), kernel, 81, "harmonics")
    x = np.linspace(-3, 3, 15)[:, None]
    features = whiten(basis, np.float64).features(x)
    truth = dense(kernel, basis.sphere.points(x)[0])
    assert np.abs(features @ features.T - truth).max() < 1e-9


def test_layouts_are_told_apart():
    layouts = ("banded", "sparse", "harmonics")
    for layout in layouts:
        basis = Basis.build(ARD.isotropic(5), ContinuousDepth(), 60, layout)
        assert [one for one in layouts if basis.follows(one)] == (
            # Complete levels are a part of every layout.
            list(layouts) if layout == "harmonics" else [layout]
        )


def test_never_more_phases_than_rows():
    basis = Basis.build(ARD.isotropic(4), NTK(2), 100, rows=table(7, 4))
    assert basis.bands[-1].size(5) == 7


def test_native_sphere():
    places = np.column_stack([np.linspace(-80, 80, 20), np.linspace(-170, 170, 20)])
    kernel = ContinuousDepth(1.5, 8)
    basis = Basis.build(LatitudeLongitude(), kernel, 81)
    features = whiten(basis, np.float64).features(places)
    truth = dense(kernel, LatitudeLongitude().points(places)[0])
    assert np.abs(features @ features.T - truth).max() < 1e-9


def test_a_level_without_weight_has_silent_features():
    basis = Basis(ARD.isotropic(2), ArcCosine(1), (CompleteLevel(1), CompleteLevel(3)))
    x = table(5, 2)
    frame = whiten(basis, np.float64)
    features = frame.features(x)
    assert np.all(features[:, 3:] == 0)
    gradients = frame.gradient(x, np.ones_like(features))
    assert all(np.all(np.isfinite(value)) for value in gradients.values())


@pytest.mark.parametrize(
    ("twin", "last"), [(1.0, 12), (-1.0, 3)], ids=["duplicate", "antipodal"]
)
def test_coinciding_phases_are_survived_and_said(twin, last):
    phases = random_phases(6, 4)
    phases[4] = twin * phases[1]
    band = Band(3, last, phases)
    basis = Basis(ARD.isotropic(3), ContinuousDepth(1.0, 12), (band,))
    with pytest.warns(RuntimeWarning, match=f"phases 1 and 4 of band {band.name}"):
        frame = whiten(basis)
    x = table(50, 3)
    assert np.all(np.isfinite(frame.features(x)))
    assert frame.captured(x).max() <= 1 + 1e-4
    gradients = frame.gradient(x, np.ones((50, 6), np.float32))
    assert all(np.all(np.isfinite(value)) for value in gradients.values())


def test_opposite_phases_of_a_mixed_band_are_no_coincidence():
    phases = random_phases(6, 4)
    phases[4] = -phases[1]
    basis = Basis(ARD.isotropic(3), ContinuousDepth(1.0, 12), (Band(2, 12, phases),))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whiten(basis)
    assert not caught


def test_bad_input():
    with pytest.raises(ValueError, match="level 2 is in two bands"):
        Basis(ARD.isotropic(2), NTK(1), (Band(0, None, np.eye(3)), CompleteLevel(2)))
    short = ContinuousDepth(1.0, 5)
    for last in (None, 8):
        with pytest.raises(
            ValueError, match="above level 5, where ContinuousDepth ends"
        ):
            Basis(ARD.isotropic(2), short, (Band(2, last, np.eye(3)),))
    with pytest.raises(ValueError, match=r"have 4 coordinates; .* lives in R\^3"):
        Basis(ARD.isotropic(2), short, (Band(2, 5, np.eye(4)),))
    with pytest.raises(ValueError, match="variance must be positive"):
        Basis(ARD.isotropic(2), short, (CompleteLevel(0),), variance=-1.0)
    with pytest.raises(ValueError, match="start must be 'drawn'"):
        Basis.build(ARD.isotropic(2), NTK(1), 20, start="best")
    basis = Basis.build(ARD.isotropic(2), NTK(1), 20)
    with pytest.raises(ValueError, match="column 1 is not finite in row 2"):
        whiten(basis).features(np.array([[0, 0], [0, 0], [0, np.inf]], float))
