"""Scores of streams: equal to scores in memory, whatever the size of batches."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import poisson

from zonal import SphericalGPRegressor, load
from zonal.cli.metrics import describe_metrics
from zonal.scores.conditional import (
    compute_conditional_coverage,
    compute_row_intervals,
)
from zonal.scores.held_out import check_held_out
from zonal.scores.regression import score_regression
from zonal.scores.streaming import score_stream
from zonal.tables.streams import Stream

pytestmark = pytest.mark.usefixtures("few_rounds")


def table(count, seed):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": generator.uniform(-2, 2, count),
            "b": generator.normal(size=count),
            "town": generator.choice(["Ulm", "Bonn"], count),
            "weight": generator.integers(0, 3, count).astype(float),
        }
    )
    noise = (0.2 + np.abs(frame.a)) * generator.normal(size=count)
    frame["y"] = 3 * np.sin(frame.a) + 0.2 * frame.b + noise
    return frame


COLUMNS = ["a", "b", "town"]


@pytest.fixture(scope="module")
def regressor(few_rounds):
    rows = table(200, 0)
    return SphericalGPRegressor(20, n_neighbors=0).fit(rows[COLUMNS], rows.y)


@pytest.fixture(scope="module")
def counting(few_rounds):
    rows = table(150, 0)
    counts = np.random.default_rng(0).poisson(np.exp(rows.a))
    model = SphericalGPRegressor(20, n_neighbors=0, likelihood="poisson")
    return model.fit(rows[COLUMNS], counts)


def stream_of(frame, batches):
    parts = np.array_split(np.arange(len(frame)), batches)
    return Stream.of([frame.iloc[part] for part in parts])


def test_thirds_of_a_stream_equal_those_in_memory(regressor, tmp_path):
    new = table(300, 1)
    metrics = score_stream(regressor, stream_of(new, 4), "y", "weight")
    rows = check_held_out(regressor, new[COLUMNS], new.y, new.weight)
    distribution = regressor.predict_dist(rows.table)
    found = compute_row_intervals(regressor, distribution, rows, np.arange(len(rows)))
    intervals, covariates = found.intervals, found.covariates
    listed = metrics["conditional_coverage"]
    names = [conditional["by"] for conditional in listed]
    assert names == [covariate.name for covariate in covariates]
    assert names[:3] == ["predicted standard deviation", "prediction", "a"]
    for covariate, conditional in zip(covariates, listed, strict=True):
        expected = compute_conditional_coverage(covariate, intervals, 3)
        assert len(conditional["bins"]) == len(expected) == 3
        for index, group in enumerate(conditional["bins"]):
            assert group["from"] == pytest.approx(expected.low[index])
            assert group["coverage"] == pytest.approx(expected.coverage[index])
            assert group["mean_width"] == pytest.approx(expected.mean_width[index])
            low, high = group["range"]
            assert low < 0.9 < high
        shares = [group["share"] for group in conditional["bins"]]
        covered = [group["coverage"] for group in conditional["bins"]]
        assert np.dot(shares, covered) == pytest.approx(metrics["coverage"]["90%"])
    pit = score_regression(distribution, rows, 10).pit_histogram
    assert metrics["pit_histogram"] == pytest.approx(pit)
    regressor.save(tmp_path / "m.zonal", metrics)
    assert load(tmp_path / "m.zonal").metrics_ == metrics
    assert json.loads(json.dumps(metrics)) == metrics
    described = describe_metrics(metrics)
    shown = [value for name, value, _ in described if name == "coverage"]
    assert len(shown) == len(listed)
    first = " ".join(f"{group['coverage']:.0%}" for group in listed[0]["bins"])
    assert shown[0] == first


def test_the_sample_is_bounded_and_independent_of_batches(regressor, monkeypatch):
    monkeypatch.setattr("zonal.scores.streaming.MOST_INTERVALS", 90)
    new = table(400, 2)
    sizes = []

    def record(covariate, intervals, count):
        sizes.append(len(intervals.weight))
        return compute_conditional_coverage(covariate, intervals, count)

    monkeypatch.setattr("zonal.scores.streaming.compute_conditional_coverage", record)
    found = [
        score_stream(regressor, stream_of(new, batches), "y")["conditional_coverage"]
        for batches in (1, 3, 40)
    ]
    assert set(sizes) == {90}
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert ours["by"] == theirs["by"]
            for one, two in zip(ours["bins"], theirs["bins"], strict=True):
                assert one["coverage"] == pytest.approx(two["coverage"])
                assert one["mean_width"] == pytest.approx(two["mean_width"])
                assert one["from"] == pytest.approx(two["from"])


def test_times_are_readable():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"when": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(90), unit="D")}
    )
    y = np.arange(90) / 30 + 0.1 * generator.normal(size=90)
    model = SphericalGPRegressor(20, n_neighbors=0).fit(frame, y)
    metrics = score_stream(model, Stream.of(frame.assign(y=y)), "y")
    by_time = metrics["conditional_coverage"][2]
    assert by_time["by"] == "when"
    starts = [group["from"] for group in by_time["bins"]]
    assert starts == [f"2020-{day}T00:00:00" for day in ("01-01", "01-31", "03-01")]


def test_the_histogram_of_counts_is_flat_for_the_right_law(counting):
    """Counts drawn from the predictions have a flat histogram, without randomness."""
    frame = pd.concat([table(150, 3)[COLUMNS]] * 60, ignore_index=True)
    distribution = counting.predict_dist(frame)
    y = distribution.sample(1, 1)[:, 0]
    rows = check_held_out(counting, frame, y, None)
    histogram = score_regression(distribution, rows, 10).pit_histogram
    assert histogram.sum() == pytest.approx(1)
    assert histogram == pytest.approx(0.1, abs=0.01)
    shuffled = np.random.default_rng(0).permutation(len(y))
    again = score_regression(
        counting.predict_dist(frame.iloc[shuffled]),
        check_held_out(counting, frame.iloc[shuffled], y[shuffled], None),
        10,
    )
    assert again.pit_histogram == pytest.approx(histogram)


def test_the_histogram_of_one_count():
    """A count of 1 at rate 2 is spread evenly from P(0) to P(0) + P(1)."""
    from zonal.scores.regression import _compute_pit_histogram

    low, high = poisson.cdf([0, 1], 2.0)
    histogram = _compute_pit_histogram(np.array([low]), np.array([high]), np.ones(1), 4)
    expected = np.diff(np.clip((np.linspace(0, 1, 5) - low) / (high - low), 0, 1))
    assert histogram == pytest.approx(expected)
    certain = _compute_pit_histogram(np.array([0.0]), np.ones(1), np.ones(1), 4)
    assert certain == pytest.approx(0.25)
