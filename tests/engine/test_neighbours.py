"""The nearest rows, against all distances in float64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal.engine.neighbours import Neighbours
from zonal.engine.passes import sharing_cores


def on_sphere(x, scales=1.0):
    z = np.column_stack([x * scales, np.ones(len(x))])
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def brute_force(points, queries, k, own=None):
    # Differences of float32 numbers and their squares, summed in float64 column by
    # column: the definition that ties refer to.
    squares = np.zeros((len(queries), len(points)))
    for query, point in zip(queries.T, points.T, strict=True):
        squares += (query[:, None].astype(float) - point.astype(float)) ** 2
    if own is not None:
        present = own >= 0
        squares[np.flatnonzero(present), own[present]] = np.inf
    indices = np.argsort(squares, axis=1, kind="stable")[:, :k]
    squares = np.take_along_axis(squares, indices, axis=1)
    indices[np.isinf(squares)] = -1
    missing = k - indices.shape[1]
    if missing > 0:
        pad = ((0, 0), (0, missing))
        indices = np.pad(indices, pad, constant_values=-1)
        squares = np.pad(squares, pad, constant_values=np.inf)
    return indices, squares


def check(points, queries, k, own=None):
    found = Neighbours.build(points).query(queries, k, own)
    expected = brute_force(points, queries, k, own)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize(
    ("rows", "columns", "k"),
    [(3000, 1, 5), (3000, 4, 32), (2000, 20, 64), (700, 100, 7), (129, 3, 128)],
)
def test_neighbours_are_those_of_brute_force(rows, columns, k):
    generator = np.random.default_rng(columns)
    points = on_sphere(generator.normal(size=(rows, columns)), columns**-0.5)
    queries = on_sphere(generator.normal(size=(300, columns)), columns**-0.5)
    check(points, queries, k)
    own = generator.permutation(rows)[:300]
    check(points, points[own], k, own)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_scales_of_any_size(scale):
    x = np.random.default_rng(0).normal(size=(1000, 3))
    points = on_sphere(x, np.array([scale, 0.1 * scale, 0.0]))
    check(points, points[:100], 10, np.arange(100))


@given(
    st.integers(1, 400),
    st.integers(1, 4),
    st.integers(1, 50),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_ties_are_in_the_order_of_the_rows(rows, columns, k, values, seed):
    generator = np.random.default_rng(seed)
    x = generator.integers(0, values, size=(rows, columns)).astype(float)
    points = on_sphere(x)
    own = generator.integers(-1, rows, size=20)
    check(points, points[generator.integers(0, rows, 20)], k, own)


@pytest.mark.parametrize(("rows", "values"), [(9000, 3), (9000, 1000), (4097, 12)])
@pytest.mark.parametrize("k", [130, 257])
def test_many_neighbours_in_many_leaves(rows, values, k):
    generator = np.random.default_rng(values)
    points = on_sphere(generator.integers(0, values, (rows, 5)).astype(float), 0.3)
    own = generator.permutation(rows)[:40]
    check(points, points[own], k, own)


@pytest.mark.parametrize("cluster", [0, 40, 400])
def test_distances_of_very_different_sizes(cluster):
    x = np.random.default_rng(cluster).normal(size=(900, 2))
    x[:cluster] *= 1e-6
    points = on_sphere(x)
    check(points, points[:30], 450, np.arange(30))


def test_rows_that_are_all_equal():
    points = on_sphere(np.ones((500, 3)))
    indices, squares = Neighbours.build(points).query(points[:3], 4, np.arange(3))
    expected = [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4]]
    np.testing.assert_array_equal(indices, expected)
    assert (squares == 0).all()


def test_one_row():
    point = on_sphere(np.ones((1, 2)))
    neighbours = Neighbours.build(point)
    assert neighbours.query(point, 1)[0].tolist() == [[0]]
    indices, squares = neighbours.query(point, 2, np.array([0]))
    assert indices.tolist() == [[-1, -1]]
    assert np.isinf(squares).all()


def test_the_number_of_threads_changes_nothing():
    points = on_sphere(np.random.default_rng(1).normal(size=(3000, 5)))
    neighbours = Neighbours.build(points)
    with sharing_cores(1):
        alone = neighbours.query(points, 9)
    with sharing_cores(3):
        together = neighbours.query(points, 9)
    np.testing.assert_array_equal(alone[0], together[0])
    np.testing.assert_array_equal(alone[1], together[1])


def test_a_closer_search_finds_nearly_all():
    points = on_sphere(np.random.default_rng(2).normal(size=(20_000, 8)), 8**-0.5)
    neighbours = Neighbours.build(points)
    exact, _ = neighbours.query(points[:200], 32)
    close, squares = neighbours.query(points[:200], 32, closeness=0.7)
    recall = np.mean([np.isin(*pair).mean() for pair in zip(close, exact, strict=True)])
    assert 0.98 < recall < 1
    assert (np.diff(squares, axis=1) >= 0).all()


def test_no_queries():
    neighbours = Neighbours.build(on_sphere(np.ones((2, 2))))
    assert neighbours.query(np.empty((0, 3), np.float32), 2)[0].shape == (0, 2)


@pytest.mark.parametrize(
    ("points", "k", "said"),
    [(np.ones((1, 3)), 0, "k must be"), (np.ones((1, 2)), 1, "3")],
)
def test_wrong_queries_are_errors(points, k, said):
    neighbours = Neighbours.build(on_sphere(np.ones((2, 2))))
    with pytest.raises(ValueError, match=said):
        neighbours.query(points.astype(np.float32), k)


def test_an_empty_table_is_an_error():
    with pytest.raises(ValueError, match="at least one"):
        Neighbours.build(np.empty((0, 3), np.float32))
