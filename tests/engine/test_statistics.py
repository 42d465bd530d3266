"""Statistics are sums over rows, and behave like sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zonal import ARD, Basis, ContinuousDepth, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.statistics import Statistics, Uncaptured, collect
from zonal.tables.sources import ArraySource


@pytest.fixture(scope="module")
def setting():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 3))
    sphere = ARD(np.array([0.4, 0.8, 1.2]), 1.0)
    basis = Basis.build(sphere, ContinuousDepth(1.0, 9), 40, rows=x)
    data = {
        "x": x,
        "y": generator.normal(size=300),
        "weight": generator.uniform(0, 3, 300),
        "precision": generator.uniform(0.5, 2, 300),
    }
    return whiten(basis, np.float64), data


def part(data, rows):
    return ArraySource(**{name: value[rows] for name, value in data.items()})


def close(one, other, tolerance=1e-5):
    """Whether sums are equal up to rounding, relative to the size of each."""

    def sums(statistics):
        table = statistics.uncaptured
        return (
            statistics.gram,
            statistics.moment,
            statistics.squares,
            statistics.rows,
            statistics.log_precision,
            table.count.astype(np.float64) @ table.parts,
        )

    return all(
        np.shape(a) == np.shape(b)
        and np.max(np.abs(np.subtract(a, b)), initial=0.0)
        <= tolerance * max(1.0, np.max(np.abs(a), initial=0.0))
        for a, b in zip(sums(one), sums(other), strict=True)
    )


def test_sums_match_the_formulas(setting):
    frame, data = setting
    statistics = collect(frame, part(data, slice(None)))
    unit, radial = frame.unit_features(data["x"])
    both = data["weight"] * data["precision"]
    scaled = unit * radial[:, None]
    assert np.allclose(statistics.gram, (scaled.T * both) @ scaled)
    assert np.allclose(statistics.moment, scaled.T @ (both * data["y"]))
    assert statistics.squares == pytest.approx(np.sum(both * data["y"] ** 2))
    assert statistics.rows == pytest.approx(data["weight"].sum())
    logs = data["weight"] @ np.log(data["precision"])
    assert statistics.log_precision == pytest.approx(logs)
    captured = frame.captured(data["x"])[:, [-1]]
    expected = (data["precision"] * radial**2)[:, None] * (1 - captured)
    assert np.allclose(statistics.uncaptured.parts, expected, atol=1e-12)
    assert np.allclose(statistics.uncaptured.count, data["weight"])


@given(
    cuts=st.lists(st.integers(1, 299), max_size=4, unique=True), seed=st.integers(0, 9)
)
def test_parts_add_up_and_can_be_taken_out(setting, cuts, seed):
    frame, data = setting
    whole = collect(frame, part(data, slice(None)))
    order = np.random.default_rng(seed).permutation(300)
    pieces = [
        collect(frame, part(data, rows)) for rows in np.split(order, sorted(cuts))
    ]
    total = Statistics.zero(frame.basis)
    for piece in pieces:
        total = total + piece
    assert close(total, whole, 1e-10)
    assert close(total - pieces[0] + pieces[0], whole, 1e-10)
    gone = total
    for piece in pieces:
        gone = gone - piece
    assert close(gone, Statistics.zero(frame.basis), 1e-9)


def test_a_row_less_makes_a_difference(setting):
    frame, data = setting
    whole = collect(frame, part(data, slice(None)))
    assert not close(whole, collect(frame, part(data, slice(1, None))))


def test_float32_statistics_are_those_of_float64(setting):
    frame, data = setting
    single = collect(whiten(frame.basis), part(data, slice(None)))
    assert close(single, collect(frame, part(data, slice(None))), 1e-4)


def test_chunks_come_back_in_order():
    source = ArraySource(np.zeros((50_000, 1)), np.arange(50_000.0))
    firsts = list(chunk_results(lambda chunk: chunk.y[0], source))
    assert firsts == sorted(firsts)
    assert len(firsts) > 2


def test_an_error_in_a_chunk_is_raised():
    def fails(chunk):
        raise ValueError("column 0 is bad")

    source = ArraySource(np.zeros((10, 1)), np.zeros(10))
    with pytest.raises(ValueError, match="column 0 is bad"):
        list(chunk_results(fails, source))


def test_the_summary_keeps_smooth_sums():
    generator = np.random.default_rng(0)
    missing = generator.beta(1, 5, size=(200_000, 1))
    ones = np.ones(200_000)
    table = Uncaptured(missing, ones, ones)
    small = table.summary(4096)
    assert len(small) == 4096

    def penalty(table, ratio):
        return np.sum(table.count * np.log1p(ratio * table.parts[:, 0]))

    for ratio in (0.1, 10.0, 1000.0):
        assert penalty(small, ratio) == pytest.approx(penalty(table, ratio), rel=1e-6)
    assert small.count.sum() == pytest.approx(200_000)


def test_bases_do_not_mix(setting):
    frame, _ = setting
    other = Basis.build(ARD.isotropic(3), ContinuousDepth(), 20)
    with pytest.raises(ValueError, match="belong to different bases"):
        Statistics.zero(frame.basis) + Statistics.zero(other)


def test_many_rows_are_kept_as_a_sketch_that_says_so(setting, monkeypatch):
    frame, data = setting
    exact = collect(frame, part(data, slice(None)))
    monkeypatch.setattr("zonal.engine.statistics._MOST_ROWS", 20)
    monkeypatch.setattr("zonal.engine.statistics._SKETCH_ROWS", 15)
    sketched = collect(frame, part(data, slice(None)))
    assert exact.uncaptured.exact
    assert not sketched.uncaptured.exact
    assert len(sketched.uncaptured) <= 20
    assert close(sketched, exact)

    def penalty(table):
        return table.count @ np.log1p(3.0 * table.parts[:, 0])

    assert penalty(sketched.uncaptured) == pytest.approx(
        penalty(exact.uncaptured), rel=0.05
    )
    again = (sketched + exact) - exact
    assert close(again, exact)
