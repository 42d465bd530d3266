"""Local conditionals against dense algebra in float64."""

import dataclasses

import numpy as np
import pytest

from zonal import NTK, ContinuousDepth
from zonal.engine import local
from zonal.engine.local import Queries, StoredRows, conditionals, leave_one_out
from zonal.engine.passes import sharing_cores
from zonal.prior.angles import AngleTable

DIMENSION, VARIANCE, BETA = 5, 1.7, 1.6
TABLE = AngleTable.build(ContinuousDepth(beta=BETA), DIMENSION)


def unit_rows(n, seed, spread=0.7):
    rng = np.random.default_rng(seed)
    rows = np.column_stack([spread * rng.normal(size=(n, DIMENSION - 1)), np.ones(n)])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def stored(n=30, outputs=1, seed=0, features=0):
    rng = np.random.default_rng(seed + 100)
    return StoredRows(
        unit_rows(n, seed),
        rng.uniform(0.5, 1.5, n),
        rng.normal(size=(n, outputs)),
        rng.uniform(0.05, 0.2, n),
        0.05 * rng.normal(size=(n, features)),
    )


def others(n):
    """All other rows as the neighbours of each."""
    grid = np.tile(np.arange(n), (n, 1))
    return grid[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def covariance(left, left_radial, right, right_radial, table=TABLE, variance=VARIANCE):
    chord = np.sum((left[:, None] - right[None]) ** 2, axis=2)
    return variance * left_radial[:, None] * right_radial * table.kernel(chord)


def as_numbers(points):
    fields = dataclasses.fields(points)
    values = {one.name: getattr(points, one.name) for one in fields}
    values.pop("overlap", None)
    return {name: value.astype(np.float64) for name, value in values.items()}


def dense(rows, queries, lists, variance=VARIANCE, table=TABLE):
    """Means, variances and weights, one system after the other."""
    rows, queries = as_numbers(rows), as_numbers(queries)
    means, variances, weights = [], [], []
    for q, neighbours in enumerate(lists):
        n = neighbours[neighbours >= 0]
        s, r, phi = rows["directions"][n], rows["radial"][n], rows["features"][n]
        own, radial = queries["directions"][q : q + 1], queries["radial"][q : q + 1]
        own_phi = queries["features"][q]
        system = covariance(s, r, s, r, table, variance) - phi @ phi.T
        cross = covariance(s, r, own, radial, table, variance)[:, 0] - phi @ own_phi
        a = np.linalg.solve(system + np.diag(rows["noise"][n]), cross)
        means.append(a @ rows["targets"][n])
        prior = variance * radial[0] ** 2 - own_phi @ own_phi
        variances.append(prior - a @ cross)
        padded = np.zeros(len(neighbours))
        padded[neighbours >= 0] = a
        weights.append(padded)
    return np.array(means), np.array(variances), np.array(weights)


def dense_density(parts, variance, table, lists):
    """Sum of leave-one-out log densities of rows that all share one dense system."""
    s, r, y, noise = (parts[k] for k in ("directions", "radial", "targets", "noise"))
    total = 0.0
    for i, n in enumerate(lists):
        n = n[n >= 0]
        system = covariance(s[n], r[n], s[n], r[n], table, variance)
        cross = covariance(s[n], r[n], s[i : i + 1], r[i : i + 1], table, variance)
        a = np.linalg.solve(system + np.diag(noise[n]), cross[:, 0])
        spread = variance * r[i] ** 2 - a @ cross[:, 0] + noise[i]
        residual = y[i] - a @ y[n]
        total += -0.5 * np.sum(np.log(2 * np.pi * spread) + residual**2 / spread)
    return total


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-5)]
)
@pytest.mark.parametrize(("outputs", "features"), [(1, 0), (5, 0), (2, 21)])
def test_conditionals_equal_dense_algebra(dtype, tolerance, outputs, features):
    rows = stored(30, outputs, features=features)
    rng = np.random.default_rng(3)
    queries = Queries(
        unit_rows(19, 9),
        rng.uniform(0.5, 1.5, 19),
        np.full(19, 0.1),
        0.05 * rng.normal(size=(19, features)),
    )
    lists = np.array([rng.permutation(30)[:9] for _ in range(19)])
    lists[4, 2] = lists[5, :6] = lists[6] = -1
    found = conditionals(
        rows, queries, lists, TABLE, VARIANCE, dtype=dtype, weights=True
    )
    mean, variance, weights = dense(rows, queries, lists)
    np.testing.assert_allclose(found.mean, mean, atol=10 * tolerance)
    np.testing.assert_allclose(found.variance, variance, atol=10 * tolerance)
    np.testing.assert_allclose(found.weights, weights, atol=1e-5)
    assert found.repeated == found.lifted == 0


def test_leave_one_out_with_all_rows_is_that_of_a_dense_process():
    rows = stored(33, outputs=2)
    found = leave_one_out(
        rows, np.arange(33), others(33), TABLE, VARIANCE, dtype=np.float64
    )
    parts = as_numbers(rows)
    s, r = parts["directions"], parts["radial"]
    system = covariance(s, r, s, r) + np.diag(parts["noise"])
    # Sundararajan & Keerthi (2001): from the inverse of one system of all rows.
    inverse = np.linalg.inv(system)
    spread = 1 / np.diag(inverse)
    mean = parts["targets"] - spread[:, None] * (inverse @ parts["targets"])
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.variance + parts["noise"], spread, atol=1e-9)
    density = dense_density(parts, VARIANCE, TABLE, others(33))
    assert found.log_density.sum() == pytest.approx(density, rel=1e-9)


def difference(value, step=1e-5):
    return (value(step) - value(-step)) / (2 * step)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-4)]
)
def test_gradient_against_differences(dtype, tolerance):
    n = 12
    rows, lists = stored(n, outputs=2), others(n)
    lists[3, 4] = -1
    gradient = leave_one_out(
        rows, np.arange(n), lists, TABLE, VARIANCE, dtype=dtype
    ).gradient
    parts = as_numbers(rows)

    def density(variance=VARIANCE, table=TABLE, **changed):
        return dense_density(parts | changed, variance, table, lists)

    def along(name, index):
        def value(step):
            moved = parts[name].copy()
            moved[index] += step
            return density(**{name: moved})

        return difference(value)

    for name, found in (
        ("directions", gradient.directions),
        ("radial", gradient.radial),
    ):
        truth = [along(name, index) for index in np.ndindex(found.shape)]
        scale = np.abs(truth).max()
        np.testing.assert_allclose(found.ravel(), truth, atol=tolerance * scale)
    noise = parts["noise"]
    truth = difference(lambda h: density(noise=noise * np.exp(h)))
    assert gradient.log_noise == pytest.approx(truth, rel=tolerance)
    truth = difference(lambda h: density(variance=VARIANCE * np.exp(h)))
    assert gradient.log_variance == pytest.approx(truth, rel=tolerance)

    def deeper(step):
        return AngleTable.build(ContinuousDepth(beta=BETA + step), DIMENSION)

    truth = difference(lambda h: density(table=deeper(h)), 1e-4)
    assert gradient.beta == pytest.approx(truth, rel=10 * tolerance)


def test_the_antipode():
    """Rows on both sides of u = 2, where the table is folded."""
    n = 16
    rows = dataclasses.replace(stored(n), directions=signed(n))
    table, lists = AngleTable.build(NTK(depth=2), DIMENSION), others(n)
    found = leave_one_out(rows, np.arange(n), lists, table, VARIANCE, dtype=np.float64)
    parts = as_numbers(rows)
    assert found.log_density.sum() == pytest.approx(
        dense_density(parts, VARIANCE, table, lists), rel=1e-9
    )

    def moved(step):
        other = parts["directions"].copy()
        other[2, 1] += step
        changed = parts | {"directions": other}
        return dense_density(changed, VARIANCE, table, lists)

    assert found.gradient.directions[2, 1] == pytest.approx(difference(moved), rel=1e-5)


def signed(n):
    """Directions on the whole sphere, some of them opposite to each other."""
    rows = np.random.default_rng(5).normal(size=(n, DIMENSION))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[n // 2 :] = -rows[: n // 2] + 0.1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-5])
def test_repeated_rows_give_finite_numbers(dtype, noise):
    base = unit_rows(10, 0)
    near = base + 1e-7 * np.random.default_rng(0).normal(size=base.shape)
    directions = np.concatenate([base, base, near])
    rng = np.random.default_rng(1)
    rows = StoredRows(
        directions, np.ones(30), rng.normal(size=(30, 1)), np.full(30, noise)
    )
    found = leave_one_out(rows, np.arange(30), others(30), TABLE, 1.0, dtype=dtype)
    # Noise of 1e-8 of the variance takes part in float64, so no pivot is lifted.
    assert found.lifted == 0
    if noise == 0:
        assert np.abs(found.mean).max() < 100
    if dtype == np.float32:
        assert found.repeated >= found.lifted
    assert np.all(found.variance >= 0)
    queries = Queries(base, np.ones(10))
    lists = np.tile(np.arange(30), (10, 1))
    at_rows = conditionals(rows, queries, lists, TABLE, 1.0, dtype=dtype, weights=True)
    everything = [found.mean, found.log_density, found.gradient.directions]
    everything += [found.gradient.radial, at_rows.mean, at_rows.variance]
    assert all(np.all(np.isfinite(numbers)) for numbers in everything)
    numbers = (found.gradient.beta, found.gradient.log_noise)
    assert np.all(np.isfinite(numbers))


def test_float64_repairs_what_float32_cannot_solve():
    rows = dataclasses.replace(stored(40), noise=np.full(40, 1e-7))
    smooth = AngleTable.build(ContinuousDepth(beta=12.0), DIMENSION)
    arguments = (rows, np.arange(40), others(40), smooth, VARIANCE)
    single = leave_one_out(*arguments)
    double = leave_one_out(*arguments, dtype=np.float64)
    assert single.repeated == 40
    np.testing.assert_array_equal(single.log_density, double.log_density)
    np.testing.assert_array_equal(
        single.gradient.directions, double.gradient.directions
    )


@pytest.mark.parametrize("cores", [2, 5])
def test_threads_change_nothing(cores, monkeypatch):
    monkeypatch.setattr(local, "_CHUNK", 32)
    n = 200
    rows = stored(n)
    lists = np.array([np.random.default_rng(i).permutation(n)[:7] for i in range(n)])
    lists[lists == np.arange(n)[:, None]] = -1
    results = []
    for count in (1, cores):
        with sharing_cores(count):
            results.append(leave_one_out(rows, np.arange(n), lists, TABLE, VARIANCE))
    one, many = results
    np.testing.assert_array_equal(one.log_density, many.log_density)
    np.testing.assert_array_equal(one.gradient.directions, many.gradient.directions)
    assert one.gradient.beta == many.gradient.beta


def test_some_rows_and_their_order():
    rows, lists = stored(50), others(50)[:, :20]
    everything = leave_one_out(rows, np.arange(50), lists, TABLE, VARIANCE)
    some = np.array([41, 3, 17])
    found = leave_one_out(rows, some, lists[some], TABLE, VARIANCE, gradient=False)
    np.testing.assert_allclose(found.mean, everything.mean[some], atol=1e-6)
    assert found.gradient is None


def test_no_queries():
    found = leave_one_out(
        stored(5), np.zeros(0, int), np.zeros((0, 3), int), TABLE, VARIANCE
    )
    assert found.log_density.shape == (0, 1)
    assert np.all(found.gradient.directions == 0)


def test_mistakes_are_named():
    rows = stored(5)
    with pytest.raises(ValueError, match="row 2 is in its own list"):
        leave_one_out(rows, np.array([2]), np.array([[1, 2]]), TABLE, VARIANCE)
    with pytest.raises(ValueError, match="between -1 and the last stored row"):
        leave_one_out(rows, np.array([2]), np.array([[1, 5]]), TABLE, VARIANCE)
    with pytest.raises(ValueError, match="indices must lie between 0"):
        leave_one_out(rows, np.array([-1]), np.array([[1, 2]]), TABLE, VARIANCE)
    with pytest.raises(ValueError, match="directions is not finite in row 1"):
        Queries(np.array([[1.0, 0.0], [np.nan, 0.0]]), np.ones(2))
    with pytest.raises(ValueError, match="variance must be positive"):
        leave_one_out(rows, np.array([2]), np.array([[1, 3]]), TABLE, 0.0)
    with pytest.raises(ValueError, match="no gradient with features"):
        leave_one_out(
            stored(5, features=2), np.array([2]), np.array([[1, 3]]), TABLE, VARIANCE
        )


def test_systems_of_smooth_functions_without_noise_are_finite():
    """Float32 cannot solve these, and must not return the NaN that it runs into."""
    rng = np.random.default_rng(1)
    scaled = rng.normal(size=(620, 2)) * [0.2, 0.0002]
    points = np.column_stack([scaled, np.ones(620)])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    y = np.sin(5 * scaled[:, :1])
    table = AngleTable.build(ContinuousDepth(beta=7.2), 3)
    rows = StoredRows(points[:120], np.ones(120), y[:120], np.full(120, 7.7e-9))
    queries = Queries(points[120:], np.ones(500))
    lists = np.tile(np.arange(120), (500, 1))
    found = conditionals(rows, queries, lists, table, 86.0)
    assert np.all(np.isfinite(found.mean))
    assert np.all(np.isfinite(found.variance))
    assert np.median(np.abs(found.mean - y[120:])) < 1e-3


def test_a_very_rough_kernel_at_rows_that_rounding_separates():
    table = AngleTable.build(ContinuousDepth(beta=1.1), DIMENSION)
    base = unit_rows(8, 0)
    shifts = np.array([0.0, 2e-8, 5e-8, 1.7e-6])[:, None, None]
    directions = (base + shifts * unit_rows(8, 1)).reshape(-1, base.shape[1])
    count = len(directions)
    rows = StoredRows(
        directions,
        np.ones(count),
        np.random.default_rng(1).normal(size=(count, 1)),
        np.full(count, 1e-9),
    )
    found = leave_one_out(rows, np.arange(count), others(count), table, 1.0)
    assert np.abs(found.mean).max() < 100
    assert np.all(np.isfinite(found.log_density))
