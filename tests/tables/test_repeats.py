"""Distinct rows, against loops and the likelihood that they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from zonal.tables import repeats
from zonal.tables.repeats import RowIndex, merged_rows


def table(rows=200, columns=3, values=4, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.integers(-1, values - 1, size=(rows, columns)).astype(float)
    return x, generator.normal(size=rows), generator.integers(0, 3, rows).astype(float)


def by_loop(x, y, weight):
    groups = {}
    for row, (inputs, one) in enumerate(zip(x, weight, strict=True)):
        if one > 0:
            groups.setdefault(tuple(inputs.tolist()), []).append(row)
    return list(groups), list(groups.values())


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("collide", [False, True])
def test_distinct_rows_are_those_of_a_loop(columns, collide, monkeypatch):
    if collide:
        monkeypatch.setattr(repeats, "_sorted_by_hash", lambda x: (None, None))
    x, y, weight = table(columns=columns)
    rows = merged_rows(x, y, weight)
    inputs, groups = by_loop(x, y, weight)
    np.testing.assert_array_equal(rows.x, inputs)
    for distinct, group in enumerate(groups):
        mean = np.average(y[group], weights=weight[group])
        assert rows.y[distinct] == pytest.approx(mean)
        assert rows.weight[distinct] == weight[group].sum()
        spread = weight[group] @ (y[group] - mean) ** 2
        assert rows.spread[distinct] == pytest.approx(spread, abs=1e-12)
        assert (rows.group[group] == distinct).all()
    assert (rows.group[weight == 0] == -1).all()


def test_a_hash_collision_is_seen(monkeypatch):
    monkeypatch.setattr(repeats, "_MIX_ONE", np.uint64(0))
    x, y, _ = table()
    np.testing.assert_array_equal(merged_rows(x, y).x, by_loop(x, y, np.ones(200))[0])


def test_the_likelihood_is_kept():
    y, weight = np.array([0.3, 1.1, -0.4]), np.array([1.0, 2.0, 1.0])
    rows = merged_rows(np.zeros((3, 2)), y, weight)
    function, noise = 0.7, 0.4
    direct = weight @ norm.logpdf(y, function, np.sqrt(noise))
    total, spread = rows.weight[0], rows.spread[0]
    mean = norm.logpdf(rows.y[0], function, np.sqrt(noise / total))
    rest = (1 - total) / 2 * np.log(2 * np.pi * noise) - np.log(total) / 2
    assert mean + rest - spread / (2 * noise) == pytest.approx(direct)


def test_several_outputs_are_merged_one_by_one():
    x, y, weight = table()
    both = merged_rows(x, np.column_stack([y, -2 * y]), weight)
    one = merged_rows(x, y, weight)
    np.testing.assert_allclose(both.y, np.column_stack([one.y, -2 * one.y]))
    np.testing.assert_allclose(
        both.spread, np.column_stack([one.spread, 4 * one.spread])
    )


def test_zeros_of_both_signs_are_equal():
    assert len(merged_rows(np.array([[0.0], [-0.0]]), np.zeros(2))) == 1


def test_equal_targets_far_from_zero_have_no_spread():
    rows = merged_rows(np.zeros((3, 1)), np.full(3, 1e15 + 1))
    assert rows.spread[0] == 0
    assert rows.y[0] == 1e15 + 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_row_and_its_type(dtype):
    rows = merged_rows(np.ones((1, 2), dtype), np.ones(1))
    assert rows.x.dtype == dtype
    assert len(rows) == 1


def test_rows_are_found_despite_equal_codes(monkeypatch):
    monkeypatch.setattr(
        "zonal.tables.repeats._hash_rows", lambda x: np.zeros(len(x), np.uint64)
    )
    x = np.arange(12.0).reshape(6, 2)
    index = RowIndex.of(x)
    asked = np.vstack([x[::-1], [[0.0, 99.0]], x[:1]])
    np.testing.assert_array_equal(index.find(asked), [5, 4, 3, 2, 1, 0, -1, 0])


@given(seed=st.integers(0, 99), rows=st.integers(0, 40))
def test_an_index_finds_what_brute_force_finds(seed, rows):
    generator = np.random.default_rng(seed)
    x = np.unique(generator.integers(0, 4, size=(rows, 2)).astype(float), axis=0)
    x = generator.permutation(x)
    asked = generator.integers(0, 5, size=(20, 2)).astype(float)
    expected = [
        next((i for i, row in enumerate(x) if np.all(row == one)), -1) for one in asked
    ]
    np.testing.assert_array_equal(RowIndex.of(x).find(asked), expected)
