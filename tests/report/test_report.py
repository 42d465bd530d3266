"""The report: numbers against independent truth, and a page that is sound."""

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
from sklearn import metrics
from sklearn.exceptions import NotFittedError

from zonal import SphericalGPClassifier, SphericalGPRegressor
from zonal.estimators.summary import captured_of
from zonal.report.cells import cells_of, text
from zonal.report.drawing import Axis
from zonal.report.effects import effects_of
from zonal.report.globe import globe_of
from zonal.report.learned import spectrum_of
from zonal.report.words import escape, number
from zonal.report.writing import write_report
from zonal.scores.classes import class_scores
from zonal.scores.held_out import HeldOut, held_out
from zonal.scores.numbers import by_chance, regression_scores, residuals_of
from zonal.scores.relevance import relevances
from zonal.tables.scaling import ConstantWarning

pytestmark = pytest.mark.usefixtures("few_starts")

NASTY = "<script>alert('x')</script>&\"`"
SECTIONS = {"numbers", "calibration", "worst", "learned", "settings"}


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
def regressor(few_starts):
    return SphericalGPRegressor(**SMALL).fit(*table(150, 0))


@pytest.fixture(scope="module")
def binary(few_starts):
    X, y = table(150, 0)
    return SphericalGPClassifier(**SMALL).fit(X, np.where(y > 0, "up>", "down"))


@pytest.fixture(scope="module")
def several(few_starts):
    X, y = table(90, 0)
    return SphericalGPClassifier(20, missing="indicator").fit(X, thirds(y))


@pytest.fixture(scope="module")
def sphere(few_starts):
    return SphericalGPRegressor(40, geometry="sphere").fit(*earth(150, 0))


@pytest.fixture(scope="module")
def counting(few_starts):
    X, y = table(120, 3)
    counts = np.random.default_rng(4).poisson(np.exp(1 + 0.1 * y))
    return SphericalGPRegressor(likelihood="poisson", **SMALL).fit(X, counts)


def written(model, X, y, folder, **more):
    path = folder / "report.html"
    write_report(model, X, y, path, **more)
    return path.read_text(encoding="utf-8")


class Page(HTMLParser):
    """Tags that are opened and closed in order, with what they hold."""

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
        assert self.open, f"{tag} closes nothing"
        assert self.open.pop() == tag


def check_page(page, sections):
    found = Page(page)
    assert not found.open
    assert len(found.ids) == len(set(found.ids))
    assert sections <= set(found.ids)
    drawn = re.findall(r"<svg role.*?</svg>(?=<ul|<figcaption)", page, re.DOTALL)
    assert len(drawn) == page.count('<svg role="img"') > 2
    for one in drawn:
        svg = ElementTree.fromstring(one)
        assert svg.get("aria-label")
        numbers = re.findall(r'(?:[xyr]\d?|width|height|points)="([^"]*)"', one)
        assert "nan" not in " ".join(numbers)
        assert "inf" not in " ".join(numbers)
    for tag, attributes in found.tags:
        assert "src" not in attributes
        assert tag not in ("link", "img", "iframe")
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href", "#").startswith("#")
        if tag == "canvas":
            assert attributes["tabindex"] == "0"
            assert attributes["aria-label"]
    for outside in ("http:", "https:", "//cdn", "@import", "url("):
        assert outside not in page
    # Two scripts at most: the page's own, and the numbers of a globe.
    assert sum(tag == "script" for tag, _ in found.tags) == 1 + ('id="globe' in page)
    assert page.count("<figure") == page.count("<h3>")
    return found


def test_a_regressor_is_told_of(regressor, tmp_path):
    X, y = table(80, 1)
    page = written(regressor, X, y, tmp_path, title=NASTY)
    check_page(page, SECTIONS | {"residuals", "relevance", "effects"})
    assert "<script>alert" not in page
    assert "<b>Bonn" not in page
    assert "<i>yield" not in page
    assert f"<title>{escape(NASTY)}</title>" in page
    assert escape("<i>yield</i>") in page
    rmse = np.sqrt(np.mean((y - regressor.predict(X)) ** 2))
    assert f"<strong>{number(rmse)}</strong>" in page


def test_two_classes_are_told_of(binary, tmp_path):
    X, y = table(80, 1)
    truth = np.where(y > 0, "up>", "down")
    page = written(binary, X, truth, tmp_path)
    check_page(page, SECTIONS | {"classes", "relevance", "effects"})
    area = metrics.roc_auc_score(truth == "up>", binary.predict_proba(X)[:, 1])
    assert f"<strong>{area:.4f}</strong>" in page
    assert "up&gt;" in page


def test_several_classes_are_told_of(several, tmp_path, monkeypatch):
    X, y = table(80, 1)
    page = written(several, X, thirds(y), tmp_path)
    assert 'class="broad"' not in page
    monkeypatch.setattr("zonal.report.sections._NARROW", 2)
    assert 'class="broad"' in written(several, X, thirds(y), tmp_path)
    check_page(page, SECTIONS | {"classes", "relevance", "effects"})
    assert "a&lt;b (area" in page
    assert "a<b" not in page


def test_the_earth_is_told_of(sphere, tmp_path):
    page = written(sphere, *earth(60, 1), tmp_path)
    check_page(page, SECTIONS | {"residuals", "globe", "effects"})
    assert 'id="relevance"' not in page
    assert page.count("<canvas") == 2


def test_counts_are_told_of(counting, tmp_path):
    X, y = table(60, 5)
    counts = np.random.default_rng(6).poisson(np.exp(1 + 0.1 * y))
    page = written(counting, X, counts, tmp_path)
    check_page(page, SECTIONS | {"residuals", "effects"})
    rows = held_out(counting, X, counts, None)
    scores = regression_scores(counting.predict_dist(X), rows)
    for share, found in scores.headline:
        low, high = counting.predict_interval(X, share).T
        assert found == pytest.approx(np.mean((low <= counts) & (counts <= high)))
    assert scores.crps is None
    with pytest.raises(ValueError, match="counts are 0, 1, 2"):
        write_report(counting, X, counts - 100, tmp_path / "x.html")


def test_counts_are_judged_at_their_exposure(counting, regressor, tmp_path):
    X, y = table(60, 5)
    generator = np.random.default_rng(6)
    hours = generator.uniform(20, 50, size=60)
    counts = generator.poisson(hours * np.exp(1 + 0.1 * y))
    rows = held_out(counting, X, counts, None, hours)
    residuals = residuals_of(counting, rows)
    expected = counting.predict(X, exposure=hours)
    np.testing.assert_allclose(residuals.mean, expected)
    path = tmp_path / "counts.html"
    write_report(counting, X, counts, path, exposure=hours)
    check_page(path.read_text(encoding="utf-8"), SECTIONS | {"residuals", "effects"})
    error = np.sqrt(np.mean((counts - expected) ** 2))
    scores = regression_scores(counting.predict_dist(X, exposure=hours), rows)
    assert scores.rmse == pytest.approx(error)
    # One number is every row's.
    assert np.array_equal(held_out(counting, X, counts, None, 2).exposure, [2.0] * 60)
    with pytest.raises(ValueError, match=r"exposure has shape \(3,\)"):
        held_out(counting, X, counts, None, hours[:3])
    with pytest.raises(ValueError, match="for models of counts"):
        held_out(regressor, X, y, None, hours)


@pytest.mark.parametrize("name", ["regressor", "binary", "several", "sphere"])
def test_one_row_is_enough(name, request, tmp_path):
    model = request.getfixturevalue(name)
    X, y = earth(1, 1) if name == "sphere" else table(1, 1)
    if name == "binary":
        y = np.where(y > 0, "up>", "down")
    if name == "several":
        y = thirds(y)
    check_page(written(model, X, y, tmp_path), SECTIONS)


def test_numbers_of_regression_are_right(regressor):
    X, y = table(90, 7)
    rows = held_out(regressor, X, y, None)
    distribution = regressor.predict_dist(X)
    scores = regression_scores(distribution, rows)
    mean = regressor.predict(X)
    assert scores.rmse == pytest.approx(metrics.root_mean_squared_error(y, mean))
    assert scores.deviation == pytest.approx(np.std(y))
    assert scores.log_density == pytest.approx(regressor.log_score(X, y))
    for share, found in scores.headline:
        low, high = regressor.predict_interval(X, share).T
        assert found == pytest.approx(np.mean((low <= y) & (y <= high)))
    assert scores.pit.sum() == pytest.approx(1)
    below = np.histogram(distribution.cdf(y), len(scores.pit), (0, 1))[0] / len(y)
    assert np.allclose(scores.pit, below)
    # A normal's mean log density by its own samples' moments.
    plain = np.mean(-0.5 * ((y - y.mean()) / y.std(ddof=0)) ** 2)
    plain -= np.log(y.std(ddof=0) * np.sqrt(2 * np.pi))
    assert scores.plain_density == pytest.approx(plain)


def test_chance_is_what_tables_at_random_do():
    inside = np.random.default_rng(0).binomial(80, 0.9, 20_000) / 80
    low, high = by_chance(0.9, 80.0)
    assert np.allclose([low, high], np.quantile(inside, [0.025, 0.975]), atol=1 / 80)
    low, high = by_chance(0.95, 1.0)  # one row is inside or not
    assert (low, high) == (0, 1)


def test_crps_is_the_integral(regressor):
    X, y = table(4, 8)
    scores = regression_scores(
        regressor.predict_dist(X), held_out(regressor, X, y, None)
    )
    by_hand = []
    for row in range(4):
        one, truth = regressor.predict_dist(X[row : row + 1]), y[row]
        low = float(one.mean()[0] - 60)

        def below(x, one=one):
            return float(one.cdf(x)[0] ** 2)

        def above(x, one=one):
            return float((1 - one.cdf(x)[0]) ** 2)

        by_hand.append(quad(below, low, truth, limit=200)[0])
        by_hand[-1] += quad(above, truth, low + 120, limit=200)[0]
    assert scores.crps == pytest.approx(np.mean(by_hand), rel=1e-4)


def test_a_weight_of_two_is_the_row_twice(regressor, binary):
    X, y = table(30, 9)
    weight = np.arange(30) % 3
    twice = np.repeat(np.arange(30), weight)
    told = held_out(regressor, X, y, weight)
    assert np.array_equal(told.numbers, np.flatnonzero(weight))
    one = regression_scores(regressor.predict_dist(told.table), told)
    more = held_out(regressor, X.iloc[twice], y.iloc[twice], None)
    other = regression_scores(regressor.predict_dist(more.table), more)
    for name in ("rmse", "log_density", "crps", "found", "deviation"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name
    truth = np.where(y > 0, "up>", "down")
    told = held_out(binary, X, truth, weight)
    more = held_out(binary, X.iloc[twice], truth[twice], None)
    names = tuple(binary.classes_)
    one = class_scores(binary.predict_proba(told.table), names, told)
    other = class_scores(binary.predict_proba(more.table), names, more)
    for name in ("accuracy", "log_loss", "ece", "area"):
        assert getattr(one, name) == pytest.approx(getattr(other, name)), name
    assert np.allclose(one.confusion, other.confusion)


@pytest.mark.parametrize("classes", [2, 4])
def test_numbers_of_classes_are_right(classes):
    generator = np.random.default_rng(classes)
    # Rounded, so that some rows have the same probability.
    chance = generator.dirichlet(np.full(classes, 0.7), 400).round(1) + 0.01
    chance /= chance.sum(axis=1, keepdims=True)
    truth = np.array([generator.choice(classes, p=one) for one in chance])
    weight = generator.uniform(0.5, 2, 400)
    rows = HeldOut(None, truth.astype(float), weight, np.arange(400), "class")
    scores = class_scores(chance, tuple("abcd"[:classes]), rows)
    guess, sure = chance.argmax(axis=1), chance.max(axis=1)
    assert scores.accuracy == pytest.approx(
        metrics.accuracy_score(truth, guess, sample_weight=weight)
    )
    assert scores.log_loss == pytest.approx(
        metrics.log_loss(truth, chance, sample_weight=weight)
    )
    assert np.allclose(
        scores.confusion,
        metrics.confusion_matrix(truth, guess, sample_weight=weight),
    )
    by_hand = 0.0
    for low in np.arange(15) / 15:
        inside = (sure >= low) & ((sure < low + 1 / 15) | (low == 14 / 15))
        if inside.any():
            part = weight[inside]
            right = np.average(guess[inside] == truth[inside], weights=part)
            stated = np.average(sure[inside], weights=part)
            by_hand += part.sum() / weight.sum() * abs(right - stated)
    assert scores.ece == pytest.approx(by_hand)
    codes = [1] if classes == 2 else range(classes)
    for code, curve in zip(codes, scores.curves, strict=True):
        is_it = truth == code
        area = metrics.roc_auc_score(is_it, chance[:, code], sample_weight=weight)
        precision = metrics.average_precision_score(
            is_it, chance[:, code], sample_weight=weight
        )
        assert curve.area == pytest.approx(area)
        assert curve.precision_mean == pytest.approx(precision)


def test_effects_are_average_predictions(regressor, binary, several):
    X, y = table(60, 10)
    for model, truth, codes in (
        (regressor, y, []),
        (binary, np.where(y > 0, "up>", "down"), [1]),
        (several, thirds(y), [2, 0]),
    ):
        found = effects_of(model, held_out(model, X, truth, None), codes)
        assert {one.name for one in found} == {NASTY, "town", "half"}
        for effect in found:
            if effect.name == "half":
                assert len(effect.at) > 10
            for place in (0, len(effect.at) - 1):
                changed = X.assign(**{effect.name: effect.at[place]})
                for code, course in zip(codes or [None], effect.courses, strict=True):
                    if code is None:
                        mean = model.predict(changed).mean()
                    else:
                        mean = model.predict_proba(changed)[:, code].mean()
                    assert course.mean[place] == pytest.approx(mean, abs=1e-5)
                    assert course.low[place] < course.high[place]
                    room = course.high[place] - course.low[place]
                    assert course.low[place] - room < mean < course.high[place] + room


def test_the_effect_of_a_column_is_found(regressor):
    X, y = table(200, 11)
    effects = effects_of(regressor, held_out(regressor, X, y, None), [])
    sine, town = (next(e for e in effects if e.name == n) for n in (NASTY, "town"))
    rise = sine.courses[0].mean - sine.courses[0].mean.mean()
    truth = 10 * np.sin(sine.at) - np.mean(10 * np.sin(sine.at))
    assert np.abs(rise - truth).max() < 1.5
    by_town = dict(zip(town.at, town.courses[0].mean, strict=True))
    assert by_town["Ulm"] - by_town["Köln"] == pytest.approx(3, abs=1.2)


def test_residuals_are_of_few_rows(regressor):
    X, y = table(2500, 12)
    rows = held_out(regressor, X, y, None)
    found = residuals_of(regressor, rows)
    assert len(found.mean) == 2000
    assert np.allclose(found.error, y[found.rows] - regressor.predict(X)[found.rows])
    low, high = regressor.predict_interval(X, 0.9)[found.rows].T
    truth = y[found.rows]
    assert np.array_equal(found.outside, (truth < low) | (truth > high))
    inside = (found.ends[:, 0] < found.ends[:, 1]) & (
        found.ends[:, 2] < found.ends[:, 3]
    )
    assert inside.all()


def test_what_was_learned_agrees_with_the_summary(regressor, several):
    for model in (regressor, several):
        said = {name: value for name, value, _ in model.summary().rows}
        captured = captured_of(model)
        assert captured
        for name, share in captured:
            assert said[f"band {name}"] == f"{share:.2%}"
        for name, share in relevances(model):
            assert said[f"column {name}"] == f"{share:.1%}"
        spectrum = spectrum_of(model)
        assert said["depth"] == str(spectrum.layers)
        assert spectrum.shares.sum() == pytest.approx(1)
        assert np.allclose(
            spectrum.shares, model.level_weights_ / model.level_weights_.sum()
        )


def test_the_worst_rows_are_found(regressor, binary, tmp_path):
    X, y = table(60, 13)
    shuffled = np.random.default_rng(0).permutation(60)
    X, y = X.iloc[shuffled, [2, 0, 1]], y.iloc[shuffled]
    rows = held_out(regressor, X, y, None)
    cells = cells_of(rows, regressor.columns_, np.array([7, 3]))
    assert cells[1] == X.town.iloc[[7, 3]].tolist()
    assert cells[0] == [number(one) for one in X[NASTY].iloc[[7, 3]]]
    page = written(regressor, X, y, tmp_path)
    mean, std = regressor.predict(X, return_std=True)
    order = np.argsort(-np.abs(y.to_numpy() - mean) / std)[:10]
    listed = page[page.index('id="worst"') : page.index('id="relevance"')]
    assert re.findall(r'<th scope="row">(\d+)</th>', listed) == list(map(str, order))
    truth = np.where(y > 0, "up>", "down")
    page = written(binary, X, truth, tmp_path)
    chance = binary.predict_proba(X)
    order = np.argsort(np.where(truth == "down", chance[:, 0], chance[:, 1]))[:10]
    listed = page[page.index('id="worst"') : page.index('id="relevance"')]
    assert re.findall(r'<th scope="row">(\d+)</th>', listed) == list(map(str, order))


def test_a_target_that_never_changes(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(ConstantWarning):
        model = SphericalGPRegressor(20).fit(X, np.full(60, 3.0))
    check_page(written(model, X, np.full(60, 3.0), tmp_path), SECTIONS)


def vectors(places):
    latitude, longitude = np.deg2rad(places).T
    around = np.cos(latitude)
    parts = (around * np.cos(longitude), around * np.sin(longitude), np.sin(latitude))
    return np.column_stack(parts)


@pytest.mark.parametrize("kind", ["degrees", "pair", "vectors"])
def test_the_globe_has_the_models_predictions(kind, sphere):
    places, warmth = earth(120, 2)
    frame = {
        "degrees": lambda one: one,
        "pair": lambda one: pd.DataFrame(one[:, ::-1], columns=["lon", "lat"]),
        "vectors": vectors,
    }[kind]
    model = sphere
    if kind != "degrees":
        geometry = ("lat", "lon") if kind == "pair" else "sphere"
        model = SphericalGPRegressor(30, geometry=geometry).fit(frame(places), warmth)
    rows = held_out(model, frame(places), warmth, None)
    globe = globe_of(model, rows)
    assert np.allclose(globe.points, places)
    stored = globe.stored()
    assert (stored["rows"], stored["columns"]) == (72, 144)
    for row, column in ((0, 0), (30, 100), (71, 143)):
        at = np.array([[88.75 - 2.5 * row, -178.75 + 2.5 * column]])
        expected = model.predict(frame(at))[0]
        layer = stored["layers"][0]
        whole = np.frombuffer(base64.b64decode(layer["data"]), "<u2").reshape(72, 144)
        value = layer["low"] + whole[row, column] / 65535 * (
            layer["high"] - layer["low"]
        )
        assert value == pytest.approx(expected, abs=1e-3)
        deviation = model.predict_dist(frame(at)).prediction.variance_f[0] ** 0.5
        assert globe.layers[1].values[row, column] == pytest.approx(deviation, rel=1e-3)


def test_there_is_no_globe_of_ordinary_rows(regressor):
    assert globe_of(regressor, held_out(regressor, *table(5, 1), None)) is None


def test_a_globe_of_classes(tmp_path):
    places, warmth = earth(70, 3)
    kinds = np.array(["cold", "mild", "hot"])[np.digitize(warmth, [18, 25])]
    model = SphericalGPClassifier(16, geometry="sphere").fit(places, kinds)
    page = written(model, places, kinds, tmp_path)
    check_page(page, SECTIONS | {"globe", "classes"})
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
    page = written(model, frame(X), y, tmp_path, sample_weight=np.arange(50) % 4)
    check_page(page, SECTIONS | {"effects"})
    assert re.search(r"<td>202\d-\d\d-\d\d", page)
    assert "<td>yes</td>" in page


def test_arrays_lists_and_unnamed_columns(tmp_path):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    y = X[:, :1] * 3
    model = SphericalGPRegressor(20).fit(X, y)  # one target, as a column
    pages = [written(model, one, y, tmp_path) for one in (X, X.tolist())]
    assert check_page(pages[0], SECTIONS).tags == check_page(pages[1], SECTIONS).tags
    assert "column 1" in pages[0]
    unnamed = pd.DataFrame(X)
    check_page(written(model, unnamed, y, tmp_path), SECTIONS)


def test_bad_input_is_refused(regressor, binary, several, tmp_path):
    X, y = table(20, 1)
    path = tmp_path / "never.html"
    with pytest.raises(NotFittedError, match="not fitted yet"):
        write_report(SphericalGPRegressor(), X, y, path)
    with pytest.raises(TypeError, match="not of a dict"):
        write_report({}, X, y, path)
    with pytest.raises(ValueError, match="20 rows and y has 19; give one"):
        write_report(regressor, X, y[:-1], path)
    with pytest.raises(ValueError, match="no rows; a report needs at least one"):
        write_report(regressor, X[:0], y[:0], path)
    with pytest.raises(ValueError, match=r"row 3 is nan .*leave rows without"):
        write_report(regressor, X, y.where(y.index != 3), path)
    with pytest.raises(ValueError, match=r"'sideways'.*leave such rows out"):
        write_report(binary, X, np.repeat("sideways", 20), path)
    with pytest.raises(ValueError, match=r"one for each of 20 rows"):
        write_report(regressor, X, y, path, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="not negative, and not all zero"):
        write_report(regressor, X, y, path, sample_weight=-np.ones(20))
    with pytest.raises(ValueError, match="column 'town' is missing"):
        write_report(regressor, X.drop(columns="town"), y, path)
    both = np.column_stack([y, y])
    with pytest.raises(ValueError, match="fit a model to each target"):
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
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts
    ]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def test_colours_can_be_read_in_both_themes():
    style = files("zonal.report").joinpath("style.css").read_text(encoding="utf-8")
    themes = re.findall(r"color-scheme: (\w+);(.*?)\}", style, re.DOTALL)
    assert [name for name, _ in themes] == ["light", "dark", "dark"]
    assert themes[1][1].split() == themes[2][1].split()
    for _, block in themes:
        colours = dict(re.findall(r"--(\w+): (#\w{6});", block))
        paper = luminance(colours["paper"])
        # WCAG AA: 4.5 for texts, 3 for what is drawn.
        needed = {"ink": 4.5, "muted": 4.5, "accent": 4.5, "second": 4.5}
        needed |= {"third": 3, "fourth": 3, "fifth": 3, "chance": 3}
        for name, least in needed.items():
            pair = sorted([paper, luminance(colours[name])])
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, name


def test_texts_and_numbers():
    assert html.unescape(escape(NASTY)) == NASTY
    assert escape("a\x00b\x1f\n") == "ab\n"
    assert [text(one) for one in (None, np.nan, pd.NA, pd.NaT)] == ["missing"] * 4
    assert text(pa.scalar(3.5)) == "3.5"
    assert number(np.nan) == "–"
    assert number(1.5e12) == "1.50e12"


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3e-7, 9e-7), (17.0, 1e9), (5.0, 5.0)])
def test_axes_have_round_marks(ends):
    axis = Axis.around(np.array(ends), "x")
    marks = axis.marks(5)
    assert 2 <= len(marks) <= 7
    assert all(axis.low <= value <= axis.high for value, _ in marks)
    assert len({said for _, said in marks}) == len(marks)
