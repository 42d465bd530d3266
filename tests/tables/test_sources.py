"""Sources: order, chunks, samples and bad tables."""

import numpy as np
import pytest

from zonal.tables.chunks import Chunk, joined
from zonal.tables.sampling import thin
from zonal.tables.sources import ArraySource, Source


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    return generator.normal(size=(103, 3)), generator.normal(size=103)


def test_chunks_hold_every_row_once_in_order(table):
    x, y = table
    source = ArraySource(x, y, weight=np.arange(1.0, 104.0))
    for size in (1, 10, 103, 500):
        whole = joined(list(source.chunks(size)))
        assert np.array_equal(whole.x, x)
        assert np.array_equal(whole.y, y)
        assert np.array_equal(whole.weight, np.arange(1.0, 104.0))
        assert whole.precision is None
    assert source.n_rows == 103
    assert source.n_inputs == 3


class Streamed(Source):
    """A source that does not know its length, as files do not."""

    def __init__(self, x, y, weight=None):
        self.inner = ArraySource(x, y, weight)

    @property
    def n_inputs(self):
        return self.inner.n_inputs

    @property
    def n_rows(self):
        return None

    def chunks(self, size=7):
        return self.inner.chunks(min(size, 7))


@pytest.mark.parametrize("kind", [ArraySource, Streamed])
def test_samples_are_even_and_repeatable(table, kind):
    x, y = table
    y = np.arange(103.0)
    source = kind(x, y)
    sample = source.sample(20, seed=3)
    assert len(sample) == 20
    assert np.all(np.diff(sample.y) > 0)
    assert np.array_equal(sample.x, x[sample.y.astype(int)])
    assert np.array_equal(source.sample(20, seed=3).y, sample.y)
    assert len(source.sample(1000)) == 103
    # Every row has the same chance: over many seeds each is drawn about as often.
    drawn = np.zeros(103)
    for seed in range(100):
        drawn[source.sample(20, seed).y.astype(int)] += 1
    expected = 100 * 20 / 103
    assert np.abs(drawn - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("kind", [ArraySource, Streamed])
def test_rows_without_weight_are_not_drawn(table, kind):
    x, _ = table
    weight = np.where(np.arange(103) % 3 == 0, 0.0, 2.0)
    source = kind(x, np.arange(103.0), weight)
    for count in (20, 1000):
        sample = source.sample(count, seed=1)
        assert len(sample) == min(count, np.count_nonzero(weight))
        assert np.all(sample.y % 3 != 0)


def test_missing_weights_are_ones():
    one = Chunk(np.zeros((2, 1)), np.zeros(2))
    two = Chunk(np.zeros((1, 1)), np.zeros(1), weight=np.array([3.0]))
    assert np.array_equal(joined([one, two]).weight, [1.0, 1.0, 3.0])


def test_bad_input(table):
    x, y = table
    with pytest.raises(ValueError, match=r"got \(103, 3\) and \(3,\)"):
        ArraySource(x, y[:3])
    with pytest.raises(ValueError, match="has no rows"):
        ArraySource(x[:0], y[:0])
    with pytest.raises(ValueError, match="x must hold numbers"):
        ArraySource(x.astype(str), y)
    with pytest.raises(ValueError, match="y must hold real numbers"):
        ArraySource(x, y * 1j)
    x[[4, 17, 30, 99], 1] = np.nan
    with pytest.raises(
        ValueError, match=r"column 1 has 4 values .* \(rows 4, 17, 30, \.\.\.\)"
    ):
        ArraySource(x, y)
    x[:, 1] = 0
    y[5] = np.inf
    with pytest.raises(ValueError, match=r"the target has 1 values .* \(rows 5\)"):
        ArraySource(x, y)
    y[5] = 0
    with pytest.raises(ValueError, match="every weight is zero"):
        ArraySource(x, y, weight=np.zeros(103))
    with pytest.raises(ValueError, match="row 0 has -1"):
        ArraySource(x, y, weight=-np.ones(103))
    with pytest.raises(ValueError, match=r"weight must have shape \(103,\)"):
        ArraySource(x, y, weight=np.ones(4))
    with pytest.raises(
        ValueError, match="precision must be finite and positive; row 2 has 0"
    ):
        ArraySource(x, y, precision=np.where(np.arange(103) == 2, 0.0, 1.0))


def test_samples_do_not_follow_tables_drawn_with_the_same_seed():
    x = np.random.default_rng(0).random(5000)
    rows = ArraySource(x[:, None], x)
    for sample in (rows.sample(1000, seed=0), thin(rows.sample(5000), 1000, seed=0)):
        assert 0.45 < sample.x.mean() < 0.55
