"""Conditional coverage: against laws whose coverage in each bin is known."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm, poisson

from zonal import Gaussian, Prediction, SphericalGPRegressor
from zonal.likelihoods.counts import Poisson
from zonal.prediction import PredictiveDistribution
from zonal.scores.conditional import (
    Covariate,
    Intervals,
    RowIntervals,
    choose_bin_count,
    compute_conditional_coverage,
    compute_intervals,
    divide_by_quantiles,
    read_numeric_columns,
)
from zonal.tables.chunks import Chunk

WHOLE = 1.6448536269514722  # half the width of the 90 % interval of a standard normal


def predict_normal(mean, std):
    """Normal predictions with a standard deviation per row."""
    noise = 1e-6
    count = len(mean)
    variance = np.broadcast_to(np.square(std) - noise, count)[:, None]
    prediction = Prediction(
        Gaussian(noise),
        np.zeros((count, 1)),
        variance,
        np.asarray(mean, np.float64),
        1.0,
        Chunk(np.empty((count, 0))),
    )
    return PredictiveDistribution(prediction)


def make_intervals(count, generator):
    """Arbitrary intervals with weights."""
    return Intervals(
        mean=generator.normal(size=count),
        std=generator.uniform(1, 2, count),
        width=generator.uniform(3, 6, count),
        inside=(generator.uniform(size=count) < 0.9).astype(float),
        probability=np.full(count, 0.9),
        weight=generator.uniform(0.1, 3, count),
    )


def list_covariates(intervals):
    return RowIntervals(np.arange(len(intervals.mean)), intervals, ()).covariates


def test_a_constant_width_covers_too_few_noisy_rows():
    """Widths are right on average, too wide in quiet rows and too narrow in noisy."""
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 1, 60_000)
    true_std = 0.5 + x
    y = true_std * generator.normal(size=len(x))
    intervals = compute_intervals(
        predict_normal(np.zeros(len(x)), 1.0), y, np.ones(len(x))
    )
    by_column = compute_conditional_coverage(Covariate("x", x), intervals, 3)

    def covered(at):
        return 2 * norm.cdf(WHOLE / (0.5 + at)) - 1

    truth = [3 * quad(covered, third / 3, (third + 1) / 3)[0] for third in range(3)]
    assert by_column.coverage == pytest.approx(truth, abs=0.01)
    assert by_column.coverage[0] > by_column.range_high[0]
    assert by_column.coverage[2] < by_column.range_low[2]
    assert by_column.mean_width == pytest.approx(2 * WHOLE)
    # The predicted standard deviation is constant: a single bin, right on average.
    by_std = compute_conditional_coverage(list_covariates(intervals)[0], intervals, 3)
    assert len(by_std) == 1
    assert by_std.coverage[0] == pytest.approx(np.mean(truth), abs=0.01)


def test_widths_in_reverse_order_cover_too_few_of_the_widest():
    generator = np.random.default_rng(1)
    x = generator.uniform(0, 1, 30_000)
    y = (0.5 + x) * generator.normal(size=len(x))
    right = compute_intervals(predict_normal(0 * x, 0.5 + x), y, np.ones(len(x)))
    wrong = compute_intervals(predict_normal(0 * x, 1.5 - x), y, np.ones(len(x)))
    for count in (3, 10):
        std, mean = list_covariates(right)
        by_std = compute_conditional_coverage(std, right, count)
        assert by_std.coverage == pytest.approx(0.9, abs=0.02)
        assert (np.diff(by_std.mean_width) > 0).all()
        assert len(compute_conditional_coverage(mean, right, count)) == 1
        std = list_covariates(wrong)[0]
        by_std = compute_conditional_coverage(std, wrong, count)
        assert by_std.coverage[0] < by_std.range_low[0]
        assert by_std.coverage[-1] > by_std.range_high[-1]


def test_ranges_contain_95_of_100_observed_shares():
    generator = np.random.default_rng(2)
    x = np.arange(300.0)
    within = []
    for _ in range(200):
        intervals = compute_intervals(
            predict_normal(0 * x, 1.0), generator.normal(size=300), np.ones(300)
        )
        found = compute_conditional_coverage(Covariate("x", x), intervals, 3)
        assert found.effective_rows == pytest.approx(100)
        low, high = found.range_low - 1e-9, found.range_high + 1e-9
        within.append((low <= found.coverage) & (found.coverage <= high))
    assert 0.93 < np.mean(within) <= 0.99


def test_intervals_of_counts_know_their_probability():
    """Intervals of counts end at integers, so that correct ones cover more."""
    rates = np.repeat([0.3, 2.0, 15.0], 20_000)
    prediction = Prediction(
        Poisson(),
        np.log(rates)[:, None],
        np.full((len(rates), 1), 1e-10),
        np.zeros(len(rates)),
        1.0,
        Chunk(np.empty((len(rates), 0))),
    )
    y = np.random.default_rng(3).poisson(rates).astype(float)
    distribution = PredictiveDistribution(prediction)
    intervals = compute_intervals(distribution, y, np.ones(len(y)))
    found = compute_conditional_coverage(Covariate("rate", rates), intervals, 3)
    low, high = poisson.interval(0.9, found.low)
    truth = poisson.cdf(high, found.low) - poisson.cdf(low - 1, found.low)
    assert (truth > 0.9).all()
    assert found.expected == pytest.approx(truth, abs=1e-6)
    assert (found.range_low <= found.coverage).all()
    assert (found.coverage <= found.range_high).all()
    assert np.array_equal(found.mean_width, high - low)


def test_a_weight_of_two_equals_two_rows():
    generator = np.random.default_rng(4)
    intervals = make_intervals(40, generator)
    weight = generator.integers(1, 4, 40)
    values = generator.integers(0, 12, 40).astype(float)
    fields = ("mean", "std", "width", "inside", "probability")
    once = {name: getattr(intervals, name) for name in fields}
    twice = {name: np.repeat(numbers, weight) for name, numbers in once.items()}
    by_weight = compute_conditional_coverage(
        Covariate("x", values), Intervals(**once, weight=weight.astype(float)), 4
    )
    by_rows = compute_conditional_coverage(
        Covariate("x", np.repeat(values, weight)),
        Intervals(**twice, weight=np.ones(weight.sum())),
        4,
    )
    for name in ("low", "high", "share", "coverage", "expected", "mean_width"):
        assert getattr(by_weight, name) == pytest.approx(getattr(by_rows, name)), name
    # Repeated rows are taken for independent ones; weighted rows are fewer.
    assert (by_weight.effective_rows < by_rows.effective_rows).all()


@st.composite
def tables(draw):
    """Values with ties and infinities, and weights."""
    value = st.one_of(
        st.integers(-3, 3).map(float),
        st.floats(allow_nan=False, width=32),
    )
    values = draw(st.lists(value, min_size=1, max_size=60))
    size = len(values)
    weights = draw(st.lists(st.floats(0.01, 100), min_size=size, max_size=size))
    return np.array(values), np.array(weights)


@given(tables(), st.integers(1, 10))
def test_bins_partition_the_rows(table, count):
    values, weight = table
    bins = divide_by_quantiles(values, weight, count)
    used = np.unique(bins)
    assert np.array_equal(used, np.arange(len(used)))
    assert len(used) <= min(count, len(np.unique(values)))
    order = np.argsort(values, kind="stable")
    assert (np.diff(bins[order]) >= 0).all()
    for value in np.unique(values):
        assert len(np.unique(bins[values == value])) == 1
    # Two distinct values are enough for two bins.
    assert len(used) >= min(count, 2, len(np.unique(values)))


@given(tables(), st.integers(1, 10), st.randoms(use_true_random=False))
def test_bins_do_not_depend_on_the_order_of_rows(table, count, random):
    values, weight = table
    shuffled = np.arange(len(values))
    random.shuffle(shuffled)
    bins = divide_by_quantiles(values, weight, count)
    again = divide_by_quantiles(values[shuffled], weight[shuffled], count)
    assert np.array_equal(again, bins[shuffled])


@given(st.integers(1, 400), st.integers(1, 10))
def test_bins_of_distinct_values_are_equal(rows, count):
    sizes = np.bincount(divide_by_quantiles(np.arange(rows) / 7, np.ones(rows), count))
    assert len(sizes) == min(count, rows)
    assert sizes.max() - sizes.min() <= 1


@given(tables(), st.integers(1, 10), st.integers(0, 2**32 - 1))
def test_bins_add_up_to_all_rows(table, count, seed):
    values, weight = table
    generator = np.random.default_rng(seed)
    missing = generator.uniform(size=len(values)) < 0.2
    intervals = make_intervals(len(values), generator)
    found = compute_conditional_coverage(
        Covariate("x", np.where(missing, np.nan, values)), intervals, count
    )
    assert len(found) == 0 if missing.all() else len(found) >= 1
    if missing.all():
        return
    assert found.share.sum() == pytest.approx(1)
    assert (found.low[1:] > found.high[:-1]).all()
    weight = intervals.weight[~missing]
    for name, total in (("coverage", "inside"), ("mean_width", "width")):
        overall = np.average(getattr(intervals, total)[~missing], weights=weight)
        assert found.share @ getattr(found, name) == pytest.approx(overall)
    for name in ("coverage", "range_low", "range_high", "effective_rows", "mean_width"):
        assert np.isfinite(getattr(found, name)).all(), name
    assert ((found.coverage >= 0) & (found.coverage <= 1)).all()


def test_more_rows_have_more_bins():
    rows = (1.0, 149.0, 200.0, 499.0, 500.0, 1e6)
    assert list(map(choose_bin_count, rows)) == [3, 3, 4, 9, 10, 10]


@pytest.mark.usefixtures("few_rounds")
def test_the_two_most_relevant_numeric_columns_are_read():
    generator = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "town": generator.choice(["Ulm", "Bonn"], 120),
            "weak": generator.normal(size=120),
            "strong": generator.uniform(-2, 2, 120),
            "when": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(generator.integers(0, 60, 120), unit="D"),
        }
    )
    table.loc[3, "strong"] = np.nan
    filled = table.strong.fillna(0)
    y = np.sin(3 * filled) + 3 * (table.town == "Ulm") + 0.02 * table.weak
    model = SphericalGPRegressor(20, n_neighbors=0, missing="indicator").fit(table, y)
    relevance = dict(zip(table, model.relevance_, strict=True))
    expected = sorted(set(table) - {"town"}, key=lambda name: -relevance[name])[:2]
    expected = [name for name in expected if relevance[name] > 0]
    columns = read_numeric_columns(model, table.iloc[:10, ::-1])
    assert [column.name for column in columns] == expected
    assert columns[0].name == "strong"
    assert np.array_equal(columns[0].values, table.strong[:10], equal_nan=True)
