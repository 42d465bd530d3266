"""Sizes of residuals and targets nearby, against loops in Python."""

import numpy as np
import pytest

from zonal.engine.nearby import SIZES, nearby_sizes

PSEUDO = 0.1


def brute_force(lists, squares, targets, weight, spread, mean, unit):
    sizes = np.empty((len(lists), 2 * len(SIZES)))
    for query, near in enumerate(lists):
        for column, size in enumerate(SIZES):
            used = near[:size][near[:size] >= 0]
            known = used[np.isfinite(squares[used])]
            residuals = PSEUDO + weight[known] @ squares[known]
            sizes[query, column] = residuals / (PSEUDO + weight[known].sum())
            distances = (targets[used] - mean[query]) ** 2
            total = PSEUDO * unit[query] ** 2 + weight[used] @ distances
            total += spread[used].sum()
            total /= (PSEUDO + weight[used].sum()) * unit[query] ** 2
            sizes[query, len(SIZES) + column] = total
    return 0.5 * np.log(sizes)


@pytest.mark.parametrize("width", [0, 1, 2, 5, 32, 128, 200])
def test_sizes_are_root_mean_squares(width):
    generator = np.random.default_rng(width)
    n, queries = 300, 40
    lists = generator.permuted(np.tile(np.arange(n), (queries, 1)), axis=1)[:, :width]
    lists = np.where(generator.random(lists.shape) < 0.1, -1, lists)
    squares = generator.exponential(size=n)
    squares[generator.random(n) < 0.3] = np.nan
    arguments = (
        lists,
        squares,
        generator.normal(size=n),
        generator.uniform(0.5, 3, n),
        generator.exponential(size=n),
        generator.normal(size=queries),
        generator.uniform(0.1, 2, queries),
    )
    np.testing.assert_allclose(
        nearby_sizes(*arguments), brute_force(*arguments), rtol=1e-10, atol=1e-12
    )


def test_residuals_of_zero_promise_no_certainty():
    zero, one = np.zeros(200), np.ones(200)
    lists = np.arange(128)[None, :]
    sizes = nearby_sizes(lists, zero, zero, one, zero, np.zeros(1), np.ones(1))
    assert np.all(np.isfinite(sizes))
    # More rows that agree promise more.
    assert np.all(np.diff(sizes[0, : len(SIZES)]) < 0)
