"""Pairs of columns, against sums made cell by cell."""

import numpy as np
import pytest

from zonal import ArraySource, Bernoulli, Recipe, fit
from zonal.learning.screening import _binned, _explained, paired_scales
from zonal.tables.chunks import Chunk


def table(rows=2000, columns=12, seed=0):
    generator = np.random.default_rng(seed)
    return generator.normal(size=(rows, columns)), generator


def adjusted(y, cells):
    """Adjusted share of y's variance that the means of cells explain."""
    parts = [y[cells == one] for one in np.unique(cells)]
    left = sum(np.sum((part - part.mean()) ** 2) for part in parts)
    return 1 - left / (len(y) - len(parts)) / y.var(ddof=1)


def test_what_pairs_explain_is_what_the_means_of_their_cells_do():
    x, generator = table(500, 4)
    x[:, 3] = np.round(x[:, 3])
    y = x[:, 0] * x[:, 1] + x[:, 3] + generator.normal(size=500)
    alone, paired = _explained(Chunk(x, y), y[:, None])
    bins = [_binned(column) for column in x.T]
    for i in range(4):
        assert alone[i] == pytest.approx(adjusted(y, bins[i]), abs=1e-5)
        for j in range(i):
            expected = adjusted(y, 100 * bins[i] + bins[j])
            assert paired[i, j] == pytest.approx(expected, abs=1e-5)
            assert paired[j, i] == pytest.approx(expected, abs=1e-5)


def test_rows_of_no_weight_are_not_there():
    x, generator = table(400, 3)
    y, weight = x[:, 0] * x[:, 1], 1.0 * (np.arange(400) < 200)
    other = np.where(weight > 0, y, generator.normal(size=400))
    one = _explained(Chunk(x, y, weight), y[:, None])
    two = _explained(Chunk(x, other, weight), other[:, None])
    np.testing.assert_allclose(one[1], two[1], atol=1e-5)


def test_pairs_are_looked_for_only_where_columns_tell_nothing_by_themselves():
    x, generator = table()
    noise = generator.normal(size=len(x))

    def scales(y):
        return paired_scales(Chunk(x, y), y[:, None])

    found = scales(np.sign(x[:, 2] * x[:, 9]) + 0.5 * noise)
    assert set(np.flatnonzero(found > 0.3)) == {2, 9}
    assert found.max() == 1
    assert scales(noise) is None
    assert scales(x[:, 2] + x[:, 2] * x[:, 9]) is None
    assert scales(np.full(len(x), 3.0)) is None
    assert paired_scales(Chunk(x[:, :1], noise), noise[:, None]) is None
    wide = np.zeros((len(x), 300))
    assert paired_scales(Chunk(wide, noise), noise[:, None]) is None


def test_a_column_of_one_value_tells_nothing():
    x, _ = table()
    x[:, 5] = 7.0
    y = x[:, 2] * x[:, 9]
    found = paired_scales(Chunk(x, y), y[:, None])
    assert set(np.flatnonzero(found > 0.3)) == {2, 9}


def test_a_product_of_two_columns_of_many_is_learned():
    x, generator = table(1600, 60)
    f = np.tanh(2 * x[:, 4] * x[:, 15])
    y = f + 0.2 * generator.normal(size=len(x))
    recipe = Recipe(n_features=60, solve_features=60, most_steps=8)
    train, test = slice(0, 800), slice(800, None)
    model = fit(ArraySource(x[train], y[train]), recipe)
    error = model.predict(x[test]).mean - f[test]
    assert np.sqrt(np.mean(error**2)) < 0.5 * f.std()
    labels = (y > 0).astype(float)
    model = fit(ArraySource(x[train], labels[train]), recipe, Bernoulli())
    sure = model.predict(x[test]).probabilities()[:, 1] > 0.5
    assert np.mean(sure == (f[test] > 0)) > 0.8
