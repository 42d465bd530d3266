"""Reports and scores: compared with independent computations, and valid as pages."""

import base64
import datetime
import html
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn import metrics
from sklearn.exceptions import NotFittedError

from zonal import SphericalGPClassifier, SphericalGPRegressor
from zonal.estimators.summary import captured_of
from zonal.report.drawing import Axis
from zonal.report.formatting import escape, format_number, format_value
from zonal.report.globe import compute_globe
from zonal.report.largest_errors import format_rows
from zonal.report.partial_dependence import compute_partial_dependence
from zonal.report.spectrum import compute_spectrum
from zonal.report.writing import write_report
from zonal.scores.classification import score_classification
from zonal.scores.conditional import (
    compute_conditional_coverage,
    compute_row_intervals,
    read_numeric_columns,
)
from zonal.scores.held_out import HeldOut, check_held_out
from zonal.scores.regression import (
    compute_binomial_range,
    compute_residuals,
    score_regression,
)
from zonal.scores.relevance import rank_columns
from zonal.tables.scaling import ConstantWarning

pytestmark = pytest.mark.usefixtures("few_rounds")

NASTY = "<script>alert('x')</script>&\"`"
SECTIONS = {"summary", "calibration", "errors", "largest-errors", "model", "reproduce"}
COVERAGE = ["predicted standard deviation", "prediction"]


def table(count, seed):
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            NASTY: generator.uniform(-2, 2, count),
            "town": generator.choice(["Ulm", "<b>Bonn</b>", "Köln"], count),
            "half": np.where(generator.uniform(size=count) < 0.2, np.nan, 1.0)
            * generator.normal(size=count),
        }
    )
    y = (
        10 * np.sin(frame[NASTY])
        + 3 * (frame.town == "Ulm")
        + generator.normal(size=count)
    )
    return frame, y.rename("<i>yield</i>")


def earth(count, seed):
    generator = np.random.default_rng(seed)
    latitude = np.rad2deg(np.arcsin(generator.uniform(-1, 1, count)))
    places = np.column_stack([latitude, generator.uniform(-180, 180, count)])
    warmth = 30 * np.cos(np.deg2rad(latitude)) + generator.normal(size=count)
    return places, warmth


def thirds(y):
    names = np.array(["a<b", "b&c", "c"])
    return pd.Series(names[np.digitize(y, [-3.0, 4.0])], name="third")


SMALL = {"n_features": 40, "missing": "indicator"}


@pytest.fixture(scope="module")
def regressor(few_rounds):
    return SphericalGPRegressor(missing="indicator").fit(*table(150, 0))


@pytest.fixture(scope="module")
def by_features(few_rounds):
    return SphericalGPRegressor(n_neighbors=0, **SMALL).fit(*table(150, 0))


@pytest.fixture(scope="module")
def binary(few_rounds):
    X, y = table(150, 0)
    return SphericalGPClassifier(**SMALL).fit(X, np.where(y > 0, "up>", "down"))


@pytest.fixture(scope="module")
def several(few_rounds):
    X, y = table(90, 0)
    return SphericalGPClassifier(20, missing="indicator").fit(X, thirds(y))


@pytest.fixture(scope="module")
def sphere(few_rounds):
    return SphericalGPRegressor(40, geometry="sphere").fit(*earth(150, 0))


@pytest.fixture(scope="module")
def counting(few_rounds):
    X, y = table(120, 3)
    counts = np.random.default_rng(4).poisson(np.exp(1 + 0.1 * y))
    return SphericalGPRegressor(likelihood="poisson", **SMALL).fit(X, counts)


def write_page(model, X, y, folder, **more):
    path = folder / "report.html"
    write_report(model, X, y, path, **more)
    return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags in order of appearance; an unbalanced closing tag fails."""

    VOID = frozenset({"meta", "br", "hr", "input", "link", "img"})

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"no open tag for closing {tag}"
        assert self.open.pop() == tag


def check_page(page, sections):
    parsed = Page(page)
    assert not parsed.open
    assert len(parsed.ids) == len(set(parsed.ids))
    assert sections <= set(parsed.ids)
    drawn = re.findall(r"<svg role.*?</svg>(?=<ul|<figcaption)", page, re.DOTALL)
    assert len(drawn) == page.count('<svg role="img"') > 2
    for figure in drawn:
        svg = ElementTree.fromstring(figure)
        assert svg.get("aria-label")
        numbers = re.findall(r'(?:[xyr]\d?|width|height|points)="([^"]*)"', figure)
        assert "nan" not in " ".join(numbers)
        assert "inf" not in " ".join(numbers)
    for tag, attributes in parsed.tags:
        assert "src" not in attributes
        assert tag not in ("link", "img", "iframe")
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
        if tag == "canvas":
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    for outside in ("http:", "https:", "//cdn", "@import", "url("):
        assert outside not in page
    # Two scripts at most: that of the page, and the data of a globe.
    assert sum(tag == "script" for tag, _ in parsed.tags) == 1 + ('id="globe' in page)
    assert page.count("<figure") == page.count("<h3>")
    return parsed


def test_report_of_a_regressor(regressor, tmp_path):
    X, y = table(80, 1)
    page = write_page(regressor, X, y, tmp_path, title=NASTY)
    check_page(page, SECTIONS | {"relevance", "partial-dependence"})
    assert "<script>alert" not in page
    assert "<b>Bonn" not in page
    assert "<i>yield" not in page
    assert f"<title>{escape(NASTY)}</title>" in page
    assert escape("<i>yield</i>") in page
    rmse = np.sqrt(np.mean((y - regressor.predict(X)) ** 2))
    assert f"<strong>{format_number(rmse)}</strong>" in page
    assert "Leave-one-out log density" in page
    assert "Bound per row" not in page
    assert "Captured variance" not in page


def read_section(page, name):
    start = page.index(f'<section id="{name}"')
    return page[start : page.index("</section>", start)]


def test_report_shows_for_which_rows_intervals_are_right(regressor, tmp_path):
    X, y = table(200, 1)
    page = write_page(regressor, X, y, tmp_path)
    check_page(page, SECTIONS | {"interval-width"})
    columns = [escape(column.name) for column in read_numeric_columns(regressor, X)]
    assert columns[0] == escape(NASTY)
    calibration = read_section(page, "calibration")
    headings = re.findall(r"<h3>Coverage by (.*?)</h3>", calibration)
    assert headings == COVERAGE + columns
    rows = check_held_out(regressor, X, y, None)
    distribution = regressor.predict_dist(X)
    found = compute_row_intervals(regressor, distribution, rows, np.arange(200))
    cells = [
        re.findall(r"<td>(.*?)</td>", line)
        for line in re.findall(r"<tr>(.*?)</tr>", calibration)[1:]
    ]
    low, high = regressor.predict_interval(X, 0.9).T
    inside = (low <= y) & (y <= high)
    by_std = compute_conditional_coverage(found.covariates[0], found.intervals, 3)
    for third, line in enumerate(cells[:3]):
        numbers = (by_std.low, by_std.high, by_std.mean_width)
        assert line[:3] == [format_number(float(part[third])) for part in numbers]
    shares = [float(line[3].removesuffix(" %")) for line in cells[:3]]
    assert np.mean(shares) == pytest.approx(100 * np.mean(inside), abs=1)
    widths = read_section(page, "interval-width")
    headings = re.findall(r"<h3>Width by (.*?)</h3>", widths)
    assert headings == ["prediction", *columns]
    present = X[NASTY].notna().sum() + X.half.notna().sum() * ("half" in columns)
    assert widths.count("<circle") == 200 + present
    first = widths.split("</figure>")[0]
    assert first.count('class="dot s1 many"') == np.sum(~inside)


def test_figures_of_widths_have_at_most_1000_rows(regressor, tmp_path, monkeypatch):
    monkeypatch.setattr("zonal.report.page._MOST_POINTS", 40)
    monkeypatch.setattr("zonal.report.page.MOST_INTERVALS", 60)
    page = write_page(regressor, *table(90, 1), tmp_path)
    drawn = read_section(page, "interval-width").split("</figure>")
    assert drawn[0].count("<circle") == 40


def test_a_column_without_values_has_no_bins(regressor, tmp_path):
    X, y = table(60, 1)
    page = write_page(regressor, X.assign(half=np.nan), y, tmp_path)
    check_page(page, SECTIONS | {"interval-width"})
    assert "Coverage by half" not in page
    assert "Width by half" not in page


def test_report_of_features_alone(by_features, tmp_path):
    page = write_page(by_features, *table(80, 1), tmp_path)
    check_page(page, SECTIONS | {"relevance", "partial-dependence"})
    assert "Bound per row" in page
    assert "Leave-one-out log density" not in page
    assert "Captured variance" in page


def test_report_of_two_classes(binary, tmp_path):
    X, y = table(80, 1)
    truth = np.where(y > 0, "up>", "down")
    page = write_page(binary, X, truth, tmp_path)
    check_page(page, SECTIONS | {"relevance", "partial-dependence"})
    assert "Coverage by" not in page
    assert "interval-width" not in page
    area = metrics.roc_auc_score(truth == "up>", binary.predict_proba(X)[:, 1])
    assert f"<strong>{area:.4f}</strong>" in page
    assert "up&gt;" in page


def test_report_of_several_classes(several, tmp_path, monkeypatch):
    X, y = table(80, 1)
    page = write_page(several, X, thirds(y), tmp_path)
    assert 'class="broad"' not in page
    monkeypatch.setattr("zonal.report.sections._NARROW", 2)
    assert 'class="broad"' in write_page(several, X, thirds(y), tmp_path)
    check_page(page, SECTIONS | {"relevance", "partial-dependence"})
    assert "a&lt;b (AUC" in page
    assert "a<b" not in page


def test_report_of_a_sphere(sphere, tmp_path):
    page = write_page(sphere, *earth(60, 1), tmp_path)
    assert "Coverage by latitude" in page
    assert "Width by longitude" in page
    check_page(page, SECTIONS | {"globe", "partial-dependence"})
    assert 'id="relevance"' not in page
    assert page.count("<canvas") == 2


def test_report_of_counts(counting, tmp_path):
    X, y = table(60, 5)
    counts = np.random.default_rng(6).poisson(np.exp(1 + 0.1 * y))
    page = write_page(counting, X, counts, tmp_path)
    check_page(page, SECTIONS | {"partial-dependence"})
    rows = check_held_out(counting, X, counts, None)
    scores = score_regression(counting.predict_dist(X), rows)
    for level, share in scores.coverage:
        low, high = counting.predict_interval(X, level).T
        assert share == pytest.approx(np.mean((low <= counts) & (counts <= high)))
    assert scores.crps is None
    with pytest.raises(ValueError, match="counts must be 0, 1, 2"):
        write_report(counting, X, counts - 100, tmp_path / "x.html")


def test_counts_are_scored_with_their_exposure(counting, regressor, tmp_path):
    X, y = table(60, 5)
    generator = np.random.default_rng(6)
    hours = generator.uniform(20, 50, size=60)
    counts = generator.poisson(hours * np.exp(1 + 0.1 * y))
    rows = check_held_out(counting, X, counts, None, hours)
    residuals = compute_residuals(counting, rows)
    expected = counting.predict(X, exposure=hours)
    np.testing.assert_allclose(residuals.predicted, expected)
    path = tmp_path / "counts.html"
    write_report(counting, X, counts, path, exposure=hours)
    check_page(path.read_text(encoding="utf-8"), SECTIONS | {"partial-dependence"})
    error = np.sqrt(np.mean((counts - expected) ** 2))
    scores = score_regression(counting.predict_dist(X, exposure=hours), rows)
    assert scores.rmse == pytest.approx(error)
    constant = check_held_out(counting, X, counts, None, 2).exposure
    assert np.array_equal(constant, [2.0] * 60)
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\)"):
        check_held_out(counting, X, counts, None, hours[:3])
    with pytest.raises(ValueError, match="only for models of counts"):
        check_held_out(regressor, X, y, None, hours)


@pytest.mark.parametrize("name", ["regressor", "binary", "several", "sphere"])
def test_one_row_is_enough(name, request, tmp_path):
    model = request.getfixturevalue(name)
    X, y = earth(1, 1) if name == "sphere" else table(1, 1)
    if name == "binary":
        y = np.where(y > 0, "up>", "down")
    if name == "several":
        y = thirds(y)
    check_page(write_page(model, X, y, tmp_path), SECTIONS)


def test_regression_scores(regressor):
    X, y = table(90, 7)
    rows = check_held_out(regressor, X, y, None)
    distribution = regressor.predict_dist(X)
    scores = score_regression(distribution, rows)
    mean = regressor.predict(X)
    assert scores.rmse == pytest.approx(metrics.root_mean_squared_error(y, mean))
    assert scores.target_std == pytest.approx(np.std(y))
    assert scores.mean_log_density == pytest.approx(regressor.log_score(X, y))
    for level, share in scores.coverage:
        low, high = regressor.predict_interval(X, level).T
        assert share == pytest.approx(np.mean((low <= y) & (y <= high)))
    pit = np.histogram(distribution.cdf(y), len(scores.pit_histogram), (0, 1))[0]
    assert np.allclose(scores.pit_histogram, pit / len(y))
    baseline = norm.logpdf(y, y.mean(), y.std(ddof=0)).mean()
    assert scores.baseline_log_density == pytest.approx(baseline)


def test_binomial_range_covers_simulated_tables():
    inside = np.random.default_rng(0).binomial(80, 0.9, 20_000) / 80
    low, high = compute_binomial_range(0.9, 80.0)
    assert np.allclose([low, high], np.quantile(inside, [0.025, 0.975]), atol=1 / 80)
    low, high = compute_binomial_range(0.95, 1.0)  # a single row
    assert (low, high) == (0, 1)


def test_crps_equals_its_integral(regressor):
    X, y = table(4, 8)
    scores = score_regression(
        regressor.predict_dist(X), check_held_out(regressor, X, y, None)
    )
    integrals = []
    for row in range(4):
        distribution, truth = regressor.predict_dist(X[row : row + 1]), y[row]
        low = float(distribution.mean()[0] - 60)

        def below(x, distribution=distribution):
            return float(distribution.cdf(x)[0] ** 2)

        def above(x, distribution=distribution):
            return float((1 - distribution.cdf(x)[0]) ** 2)

        integrals.append(quad(below, low, truth, limit=200)[0])
        integrals[-1] += quad(above, truth, low + 120, limit=200)[0]
    assert scores.crps == pytest.approx(np.mean(integrals), rel=1e-4)


def test_a_weight_of_two_equals_two_rows(regressor, binary):
    X, y = table(30, 9)
    weight = np.arange(30) % 3
    twice = np.repeat(np.arange(30), weight)
    weighted = check_held_out(regressor, X, y, weight)
    assert np.array_equal(weighted.row_numbers, np.flatnonzero(weight))
    repeated = check_held_out(regressor, X.iloc[twice], y.iloc[twice], None)
    by_weight = score_regression(regressor.predict_dist(weighted.table), weighted)
    by_rows = score_regression(regressor.predict_dist(repeated.table), repeated)
    for name in ("rmse", "mean_log_density", "crps", "observed_coverage", "target_std"):
        expected = getattr(by_rows, name)
        assert getattr(by_weight, name) == pytest.approx(expected), name
    truth = np.where(y > 0, "up>", "down")
    weighted = check_held_out(binary, X, truth, weight)
    repeated = check_held_out(binary, X.iloc[twice], truth[twice], None)
    names = tuple(binary.classes_)
    by_weight = score_classification(
        binary.predict_proba(weighted.table), names, weighted
    )
    by_rows = score_classification(
        binary.predict_proba(repeated.table), names, repeated
    )
    for name in ("accuracy", "log_loss", "ece", "auc"):
        expected = getattr(by_rows, name)
        assert getattr(by_weight, name) == pytest.approx(expected), name
    assert np.allclose(by_weight.confusion, by_rows.confusion)


def predicted_classes(classes, seed):
    """Random probabilities with ties, classes drawn from them, and weights."""
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.full(classes, 0.7), 400).round(1) + 0.01
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    truth = np.array([generator.choice(classes, p=row) for row in probabilities])
    weight = generator.uniform(0.5, 2, 400)
    rows = HeldOut(None, truth.astype(float), weight, np.arange(400), "class")
    scores = score_classification(probabilities, tuple("abcd"[:classes]), rows)
    return probabilities, truth, weight, scores


@pytest.mark.parametrize("classes", [2, 4])
def test_classification_scores(classes):
    probabilities, truth, weight, scores = predicted_classes(classes, classes)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    share = weight / weight.sum()
    assert scores.accuracy == pytest.approx(share @ (predicted == truth))
    true_class = probabilities[np.arange(400), truth]
    assert np.array_equal(scores.true_class_probability, true_class)
    assert scores.log_loss == pytest.approx(-share @ np.log(true_class))
    for row in range(classes):
        for column in range(classes):
            total = weight[(truth == row) & (predicted == column)].sum()
            assert scores.confusion[row, column] == pytest.approx(total)
    frequencies = [share[truth == code].sum() for code in range(classes)]
    assert scores.majority_share == pytest.approx(max(frequencies))
    assert scores.baseline_log_loss == pytest.approx(
        -sum(value * np.log(value) for value in frequencies)
    )
    ece = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & ((confidence < low + 1 / 15) | (low == 14 / 15))
        if inside.any():
            in_bin = weight[inside]
            right = np.average(predicted[inside] == truth[inside], weights=in_bin)
            stated = np.average(confidence[inside], weights=in_bin)
            ece += in_bin.sum() / weight.sum() * abs(right - stated)
    assert scores.ece == pytest.approx(ece)


@pytest.mark.parametrize("classes", [2, 4])
def test_curves_of_classes(classes):
    probabilities, truth, weight, scores = predicted_classes(classes, 10 + classes)
    codes = [1] if classes == 2 else range(classes)
    for code, curve in zip(codes, scores.curves, strict=True):
        is_class, probability = truth == code, probabilities[:, code]
        assert curve.prevalence == pytest.approx(np.average(is_class, weights=weight))
        # The AUC is the share of pairs in the right order; ties count half.
        difference = probability[is_class][:, None] - probability[~is_class]
        order = (difference > 0) + 0.5 * (difference == 0)
        pairs = weight[is_class][:, None] * weight[~is_class]
        assert curve.auc == pytest.approx(np.average(order, weights=pairs))
        average, recall = 0.0, 0.0
        for threshold in np.unique(probability)[::-1]:
            above = probability >= threshold
            found = weight[above & is_class].sum()
            precision = found / weight[above].sum()
            average += (found / weight[is_class].sum() - recall) * precision
            recall = found / weight[is_class].sum()
            assert np.min(np.abs(curve.recall - recall)) < 0.02
        assert curve.average_precision == pytest.approx(average)
        ends = curve.false_positive_rate[[0, -1]], curve.true_positive_rate[[0, -1]]
        assert np.allclose(ends, [[0, 1], [0, 1]])


def test_long_curves_are_thinned():
    generator = np.random.default_rng(0)
    positive = generator.uniform(size=5000)
    truth = (generator.uniform(size=5000) < positive).astype(float)
    rows = HeldOut(None, truth, np.ones(5000), np.arange(5000), "class")
    probabilities = np.column_stack([1 - positive, positive])
    (curve,) = score_classification(probabilities, ("no", "yes"), rows).curves
    assert len(curve.recall) == len(curve.false_positive_rate) == 150
    # The thinned curve still has the area of the whole one.
    area = np.trapezoid(curve.true_positive_rate, curve.false_positive_rate)
    assert area == pytest.approx(curve.auc, abs=2e-3)


def test_partial_dependence_averages_predictions(regressor, binary, several):
    X, y = table(60, 10)
    for model, truth, codes in (
        (regressor, y, []),
        (binary, np.where(y > 0, "up>", "down"), [1]),
        (several, thirds(y), [2, 0]),
    ):
        rows = check_held_out(model, X, truth, None)
        dependences = compute_partial_dependence(model, rows, codes)
        assert {dependence.name for dependence in dependences} == {
            NASTY,
            "town",
            "half",
        }
        for dependence in dependences:
            if dependence.name == "half":
                assert len(dependence.values) > 10
            for index in (0, len(dependence.values) - 1):
                changed = X.assign(**{dependence.name: dependence.values[index]})
                pairs = zip(codes or [None], dependence.curves, strict=True)
                for code, curve in pairs:
                    if code is None:
                        mean = model.predict(changed).mean()
                    else:
                        mean = model.predict_proba(changed)[:, code].mean()
                    assert curve.mean[index] == pytest.approx(mean, abs=1e-5)
                    assert curve.low[index] < curve.high[index]
                    width = curve.high[index] - curve.low[index]
                    assert curve.low[index] - width < mean < curve.high[index] + width


def test_partial_dependence_recovers_the_function(regressor):
    X, y = table(200, 11)
    rows = check_held_out(regressor, X, y, None)
    by_name = {
        dependence.name: dependence
        for dependence in compute_partial_dependence(regressor, rows, [])
    }
    sine, town = by_name[NASTY], by_name["town"]
    centred = sine.curves[0].mean - sine.curves[0].mean.mean()
    truth = 10 * np.sin(sine.values) - np.mean(10 * np.sin(sine.values))
    assert np.abs(centred - truth).max() < 1.5
    by_town = dict(zip(town.values, town.curves[0].mean, strict=True))
    assert by_town["Ulm"] - by_town["Köln"] == pytest.approx(3, abs=1.2)


def test_residuals_use_at_most_2000_rows(regressor):
    X, y = table(2500, 12)
    rows = check_held_out(regressor, X, y, None)
    residuals = compute_residuals(regressor, rows)
    chosen = residuals.row_numbers
    assert len(residuals.predicted) == 2000
    assert np.allclose(residuals.error, y[chosen] - regressor.predict(X)[chosen])
    low, high = regressor.predict_interval(X, 0.9)[chosen].T
    truth = y[chosen]
    assert np.array_equal(residuals.outside, (truth < low) | (truth > high))
    assert (np.diff(residuals.band_limits, axis=1) > 0).all()


def test_figures_agree_with_the_summary(regressor, by_features, several):
    for model in (regressor, by_features, several):
        summary = {name: value for name, value, _ in model.summary().rows}
        captured = captured_of(model)
        assert bool(captured) == (model is not regressor)
        for name, share in captured:
            assert summary[f"band {name}"] == f"{share:.2%}"
        for name, share in rank_columns(model):
            assert summary[f"column {name}"] == f"{share:.1%}"
        spectrum = compute_spectrum(model)
        assert summary["depth"] == str(spectrum.layers)
        assert spectrum.shares.sum() == pytest.approx(1)
        assert np.allclose(
            spectrum.shares, model.level_weights_ / model.level_weights_.sum()
        )


def test_rows_with_the_largest_errors(regressor, binary, tmp_path):
    X, y = table(60, 13)
    shuffled = np.random.default_rng(0).permutation(60)
    X, y = X.iloc[shuffled, [2, 0, 1]], y.iloc[shuffled]
    rows = check_held_out(regressor, X, y, None)
    cells = format_rows(rows, regressor.columns_, np.array([7, 3]))
    assert cells[1] == X.town.iloc[[7, 3]].tolist()
    assert cells[0] == [format_number(value) for value in X[NASTY].iloc[[7, 3]]]
    page = write_page(regressor, X, y, tmp_path)
    mean, std = regressor.predict(X, return_std=True)
    order = np.argsort(-np.abs(y.to_numpy() - mean) / std)[:10]
    listed = page[page.index('id="largest-errors"') : page.index('id="relevance"')]
    assert re.findall(r'<th scope="row">(\d+)</th>', listed) == list(map(str, order))
    truth = np.where(y > 0, "up>", "down")
    page = write_page(binary, X, truth, tmp_path)
    probabilities = binary.predict_proba(X)
    of_truth = np.where(truth == "down", *probabilities.T)
    order = np.argsort(of_truth)[:10]
    listed = page[page.index('id="largest-errors"') : page.index('id="relevance"')]
    assert re.findall(r'<th scope="row">(\d+)</th>', listed) == list(map(str, order))


def test_a_target_that_never_changes(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(ConstantWarning):
        model = SphericalGPRegressor(20).fit(X, np.full(60, 3.0))
    check_page(write_page(model, X, np.full(60, 3.0), tmp_path), SECTIONS)


def vectors(places):
    latitude, longitude = np.deg2rad(places).T
    around = np.cos(latitude)
    parts = (around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude))
    return np.column_stack(parts)


@pytest.mark.parametrize("kind", ["degrees", "pair", "vectors"])
def test_the_globe_shows_predictions(kind, sphere):
    places, warmth = earth(120, 2)
    frame = {
        "degrees": lambda x: x,
        "pair": lambda x: pd.DataFrame(x[:, ::-1], columns=["lon", "lat"]),
        "vectors": vectors,
    }[kind]
    model = sphere
    if kind != "degrees":
        geometry = ("lat", "lon") if kind == "pair" else "sphere"
        model = SphericalGPRegressor(30, geometry=geometry).fit(frame(places), warmth)
    rows = check_held_out(model, frame(places), warmth, None)
    globe = compute_globe(model, rows)
    assert np.allclose(globe.points, places)
    encoded = globe.encode()
    assert (encoded["rows"], encoded["columns"]) == (72, 144)
    for row, column in ((0, 0), (30, 100), (71, 143)):
        at = np.array([[88.75 - 2.5 * row, -178.75 + 2.5 * column]])
        expected = model.predict(frame(at))[0]
        layer = encoded["layers"][0]
        levels = np.frombuffer(base64.b64decode(layer["data"]), "<u2").reshape(72, 144)
        value = layer["low"] + levels[row, column] / 65535 * (
            layer["high"] - layer["low"]
        )
        assert value == pytest.approx(expected, abs=1e-3)
        deviation = model.predict_dist(frame(at)).prediction.variance_f[0] ** 0.5
        assert globe.layers[1].values[row, column] == pytest.approx(deviation, rel=1e-3)


def test_ordinary_rows_have_no_globe(regressor):
    assert (
        compute_globe(regressor, check_held_out(regressor, *table(5, 1), None)) is None
    )


def test_a_globe_of_classes(tmp_path):
    places, warmth = earth(70, 3)
    kinds = np.array(["cold", "mild", "hot"])[np.digitize(warmth, [18, 25])]
    model = SphericalGPClassifier(16, geometry="sphere").fit(places, kinds)
    page = write_page(model, places, kinds, tmp_path)
    check_page(page, SECTIONS | {"globe"})
    assert page.count("<canvas") == 4


def times(count, seed):
    generator = np.random.default_rng(seed)
    days = generator.integers(0, 1000, count)
    start = datetime.datetime(2020, 1, 1)
    when = [start + datetime.timedelta(days=int(day)) for day in days]
    flags = generator.uniform(size=count) < 0.5
    return {"when": when, "flag": flags}, np.sin(days / 58) + flags


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_of_every_kind(frame, tmp_path):
    X, y = times(120, 0)
    model = SphericalGPRegressor(40).fit(frame(X), y)
    X, y = times(50, 1)
    page = write_page(model, frame(X), y, tmp_path, sample_weight=np.arange(50) % 4)
    check_page(page, SECTIONS | {"partial-dependence"})
    assert re.search(r"<td>202\d-\d\d-\d\d", page)
    assert "<td>yes</td>" in page


def test_arrays_lists_and_unnamed_columns(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    y = X[:, :1] * 3
    model = SphericalGPRegressor(20).fit(X, y)  # one target, as a column
    pages = [write_page(model, rows, y, tmp_path) for rows in (X, X.tolist())]
    assert check_page(pages[0], SECTIONS).tags == check_page(pages[1], SECTIONS).tags
    assert "column 1" in pages[0]
    unnamed = pd.DataFrame(X)
    check_page(write_page(model, unnamed, y, tmp_path), SECTIONS)


def test_bad_input_raises(regressor, binary, several, tmp_path):
    X, y = table(20, 1)
    path = tmp_path / "never.html"
    with pytest.raises(NotFittedError, match="not fitted yet"):
        write_report(SphericalGPRegressor(), X, y, path)
    with pytest.raises(TypeError, match="not a dict"):
        write_report({}, X, y, path)
    with pytest.raises(
        ValueError, match="20 rows and y has 19; give one target per row"
    ):
        write_report(regressor, X, y[:-1], path)
    with pytest.raises(ValueError, match="no rows; a report needs at least one"):
        write_report(regressor, X[:0], y[:0], path)
    with pytest.raises(ValueError, match=r"row 3 is nan .*remove rows without"):
        write_report(regressor, X, y.where(y.index != 3), path)
    with pytest.raises(ValueError, match=r"'sideways'.*remove such rows"):
        write_report(binary, X, np.repeat("sideways", 20), path)
    with pytest.raises(ValueError, match=r"one value per row \(20\)"):
        write_report(regressor, X, y, path, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="finite and not negative"):
        write_report(regressor, X, y, path, sample_weight=-np.ones(20))
    with pytest.raises(ValueError, match="column 'town' is missing"):
        write_report(regressor, X.drop(columns="town"), y, path)
    both = np.column_stack([y, y])
    with pytest.raises(ValueError, match="fit one model per target"):
        write_report(regressor, X, both, path)
    assert not list(tmp_path.iterdir())


def test_a_failing_write_leaves_nothing(regressor, tmp_path, monkeypatch):
    X, y = table(10, 1)
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(FileNotFoundError):
        write_report(regressor, X, y, tmp_path / "nowhere" / "report.html")

    def fail(self, other):
        raise OSError("full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="full"):
        write_report(regressor, X, y, path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def test_colours_have_contrast_in_both_themes():
    style = files("zonal.report").joinpath("style.css").read_text(encoding="utf-8")
    themes = re.findall(r"color-scheme: (\w+);(.*?)\}", style, re.DOTALL)
    assert [name for name, _ in themes] == ["light", "dark", "dark"]
    assert themes[1][1].split() == themes[2][1].split()
    for _, block in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6});", block))
        paper = luminance(colours["paper"])
        # WCAG AA: 4.5 for text, 3 for graphics.
        needed = {"ink": 4.5, "muted": 4.5, "accent": 4.5, "second": 4.5}
        needed |= {"third": 3, "fourth": 3, "fifth": 3, "chance": 3}
        for name, least in needed.items():
            pair = sorted([paper, luminance(colours[name])])
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, name


def test_formatting():
    assert html.unescape(escape(NASTY)) == NASTY
    assert escape("a\x00b\x1f\n") == "ab\n"
    assert [format_value(value) for value in (None, np.nan, pd.NA, pd.NaT)] == [
        "missing"
    ] * 4
    assert format_value(pa.scalar(3.5)) == "3.5"
    assert format_number(np.nan) == "–"
    assert format_number(1.5e12) == "1.50e12"


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3e-7, 9e-7), (17.0, 1e9), (5.0, 5.0)])
def test_axes_have_ticks_inside(ends):
    axis = Axis.around(np.array(ends), "x")
    ticks = axis.choose_ticks(5)
    assert 2 <= len(ticks) <= 7
    assert all(axis.low <= value <= axis.high for value, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)
