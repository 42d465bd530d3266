"""Rows to the sphere, against the formulas written out."""

import jax.numpy as jnp
import numpy as np
import pytest

from zonal import ARD, LatitudeLongitude, Projection, UnitVectors


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 3))


def test_ard(x64, rows):
    scales = np.array([0.5, 2.0, 0.1])
    direction, radial = ARD(scales, 1.0).directions(jnp.asarray(rows))
    z = np.column_stack([rows * scales, np.ones(50)])
    norm = np.linalg.norm(z, axis=1)
    assert np.allclose(direction, z / norm[:, None])
    assert np.allclose(radial, norm / np.sqrt(1 + np.sum(scales**2)))
    assert np.allclose(np.linalg.norm(direction, axis=1), 1)


def test_projection(x64, rows):
    matrix = np.random.default_rng(1).normal(size=(2, 3))
    direction, radial = Projection(matrix, 2.0).directions(jnp.asarray(rows))
    z = np.column_stack([rows @ matrix.T, np.ones(50)])
    norm = np.linalg.norm(z, axis=1)
    assert np.allclose(direction, z / norm[:, None])
    assert np.allclose(radial, norm**2 / (1 + np.sum(matrix**2)))


def test_radial_order_zero_leaves_the_radius_out(rows):
    _, radial = ARD.isotropic(3).directions(jnp.asarray(rows, jnp.float32))
    assert np.array_equal(radial, np.ones(50, np.float32))


def test_the_radius_of_standardised_rows_is_one_on_average():
    rows = np.random.default_rng(0).normal(size=(100_000, 3))
    sphere = ARD(np.array([3.0, 0.2, 1.0]), 2.0)
    _, squared = sphere.directions(jnp.asarray(rows, jnp.float32))
    assert float(jnp.mean(squared)) == pytest.approx(1.0, abs=0.02)


def test_relevance_is_a_share():
    assert np.allclose(ARD(np.array([1.0, 3.0])).relevance, [0.1, 0.9])
    matrix = np.array([[1.0, 0.0], [0.0, 3.0]])
    assert np.allclose(Projection(matrix).relevance, [0.1, 0.9])


def test_latitude_and_longitude(x64):
    places = jnp.array([[90.0, 17.0], [0.0, 0.0], [0.0, 90.0], [-90.0, 5.0]])
    direction, _ = LatitudeLongitude().directions(places)
    expected = [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, -1]]
    assert np.allclose(direction, expected, atol=1e-12)
    # The angle between two cities is their great-circle distance (haversine).
    oslo, quito = np.array([59.91, 10.75]), np.array([-0.18, -78.47])
    pair, _ = LatitudeLongitude().directions(jnp.asarray(np.stack([oslo, quito])))
    a, b = np.deg2rad(oslo), np.deg2rad(quito)
    haversine = np.sin((a[0] - b[0]) / 2) ** 2
    haversine += np.cos(a[0]) * np.cos(b[0]) * np.sin((a[1] - b[1]) / 2) ** 2
    assert np.arccos(float(pair[0] @ pair[1])) == pytest.approx(
        2 * np.arcsin(np.sqrt(haversine))
    )


def test_bad_input(rows):
    sphere = ARD.isotropic(3)
    rows[7, 2] = np.nan
    with pytest.raises(ValueError, match="column 2 is not finite in row 7"):
        sphere.check(rows)
    with pytest.raises(ValueError, match=r"rows of 3 columns, got shape \(50, 2\)"):
        sphere.check(rows[:, :2])
    unit = np.eye(3)
    UnitVectors(3).check(unit)
    with pytest.raises(ValueError, match="row 1 has norm 2, not 1"):
        UnitVectors(3).check(unit * np.array([[1.0], [2.0], [1.0]]))
    with pytest.raises(ValueError, match=r"row 2 has norm 0.* zero norm"):
        UnitVectors(3).check(unit * np.array([[1.0], [1.0], [0.0]]))
    with pytest.raises(ValueError, match="dimension 2 or more, got 1"):
        UnitVectors(1)
    with pytest.raises(ValueError, match="latitude in row 1 is 91 degrees"):
        LatitudeLongitude().check(np.array([[0.0, 0.0], [91.0, 0.0]]))
    with pytest.raises(ValueError, match="longitude in row 0 is -800 degrees"):
        LatitudeLongitude().check(np.array([[0.0, -800.0]]))
    with pytest.raises(ValueError, match="between 1 and the 3 columns, got 5"):
        Projection.random(3, 5)
    with pytest.raises(ValueError, match="at least one column"):
        ARD.isotropic(0)


def test_longitudes_may_start_anywhere():
    grid = np.array([[10.0, 379.5], [10.0, 19.5]])  # as NOAA's ETOPO has them
    LatitudeLongitude().check(grid)
    east, same = LatitudeLongitude().directions(grid)[0]
    assert np.allclose(east, same)
    with pytest.raises(ValueError, match="longitude in row 0 is 1000 degrees"):
        LatitudeLongitude().check(np.array([[10.0, 1000.0]]))
