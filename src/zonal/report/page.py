"""The page: all sections in order, with style and script in the same file."""

import datetime
from importlib.resources import files
from typing import Any

import numpy as np

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.summary import captured_of, measure_of
from zonal.report import model_figures, score_figures, sections
from zonal.report.formatting import escape, format_number
from zonal.report.globe import compute_globe
from zonal.report.interval_figures import (
    draw_conditional_coverage,
    draw_interval_width,
)
from zonal.report.largest_errors import render_largest_errors
from zonal.report.partial_dependence import compute_partial_dependence
from zonal.report.settings import count_training_rows, list_settings
from zonal.report.spectrum import compute_spectrum
from zonal.scores.classification import ClassificationScores, score_classification
from zonal.scores.conditional import (
    MOST_INTERVALS,
    THIRDS,
    ConditionalCoverage,
    RowIntervals,
    choose_bin_count,
    compute_conditional_coverage,
    compute_row_intervals,
)
from zonal.scores.held_out import HeldOut
from zonal.scores.regression import (
    RegressionScores,
    compute_residuals,
    score_regression,
)
from zonal.scores.relevance import get_relevance, rank_columns

__all__ = ["build_page"]

# Browsers load nothing from elsewhere, wherever the page is opened.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)

# Dots in a figure of interval widths.
_MOST_POINTS = 1000

# Identifier, heading and HTML.
Section = tuple[str, str, str]


def build_page(model: Any, rows: HeldOut, title: str | None) -> str:
    """The report as HTML."""
    if isinstance(model, SphericalGPClassifier):
        names = tuple(str(name) for name in model.classes_)
        scores = score_classification(model.predict_proba(rows.table), names, rows)
        content = _build_classification(scores, rows)
    else:
        predicted = model.predict_dist(rows.table, exposure=rows.exposure)
        distribution = predicted[0] if isinstance(predicted, list) else predicted
        scores = score_regression(distribution, rows)
        intervals = compute_row_intervals(
            model, distribution, rows, rows.sample(MOST_INTERVALS)
        )
        content = _build_regression(model, scores, intervals, rows)
    content += _build_data(model, rows, scores)
    content += _build_model(model, rows)
    title = f"Predicted {rows.target}" if title is None else title
    return _assemble(title, _describe_fit(model, rows), content)


def _build_section(name: str, heading: str, introduction: str, html: str) -> Section:
    return name, heading, sections.render_section(name, heading, introduction, html)


def _build_regression(
    model: Any, scores: RegressionScores, intervals: RowIntervals, rows: HeldOut
) -> list[Section]:
    residuals = compute_residuals(model, rows)
    bins = choose_bin_count(rows.effective_rows)
    return [
        _build_section(
            "summary",
            "Summary",
            "",
            sections.render_scores(sections.describe_regression(scores, rows.target))
            + sections.render_coverage_table(scores, rows.effective_rows),
        ),
        _build_section(
            "calibration",
            "Calibration",
            "Predicted uncertainty compared with observed errors.",
            sections.render_figures(
                score_figures.draw_coverage(scores, rows.effective_rows),
                score_figures.draw_pit_histogram(scores, rows.effective_rows),
                *map(draw_conditional_coverage, _compute_coverages(intervals, bins)),
            )
            + sections.render_conditional_coverage(
                _compute_coverages(intervals, THIRDS)
            ),
        ),
        _build_interval_width(intervals),
        _build_section(
            "errors",
            "Errors",
            "",
            sections.render_figures(
                score_figures.draw_residuals(residuals, rows.target)
            ),
        ),
    ]


def _compute_coverages(intervals: RowIntervals, bins: int) -> list[ConditionalCoverage]:
    """Coverage by each covariate that has values."""
    coverages = [
        compute_conditional_coverage(covariate, intervals.intervals, bins)
        for covariate in intervals.covariates
    ]
    return [coverage for coverage in coverages if len(coverage)]


def _build_interval_width(intervals: RowIntervals) -> Section:
    shown = intervals.sample(_MOST_POINTS)
    # Against the predicted standard deviation the width is nearly a line.
    figures = [
        draw_interval_width(covariate, shown) for covariate in shown.covariates[1:]
    ]
    return _build_section(
        "interval-width",
        "Interval width",
        "Rows that the model is sure of have narrow intervals.",
        sections.render_figures(*(figure for figure in figures if figure is not None)),
    )


def _build_classification(scores: ClassificationScores, rows: HeldOut) -> list[Section]:
    curves = []
    if scores.curves:
        curves = [score_figures.draw_roc(scores), score_figures.draw_precision(scores)]
    figures = "".join(map(sections.render_figure, curves))
    return [
        _build_section(
            "summary",
            "Summary",
            "",
            sections.render_scores(sections.describe_classification(scores)),
        ),
        _build_section(
            "calibration",
            "Calibration",
            "Predicted probabilities compared with observed accuracy.",
            sections.render_figures(
                score_figures.draw_reliability(scores, rows.effective_rows),
                score_figures.draw_confidence(scores),
            ),
        ),
        _build_section(
            "errors",
            "Errors",
            "",
            f'<div class="figures">{figures}{sections.render_confusion(scores)}</div>',
        ),
    ]


def _build_data(
    model: Any, rows: HeldOut, scores: RegressionScores | ClassificationScores
) -> list[Section]:
    classes = isinstance(scores, ClassificationScores)
    parts = [_build_largest_errors(model, rows, scores)]
    if (globe := compute_globe(model, rows)) is not None:
        parts.append(_build_section("globe", "Globe", "", sections.render_globe(globe)))
    if relevances := rank_columns(model):
        html = sections.render_figures(model_figures.draw_relevance(relevances))
        parts.append(_build_section("relevance", "Feature relevance", "", html))
    codes = _choose_class_codes(scores) if classes else []
    if dependences := compute_partial_dependence(model, rows, codes):
        figures = [
            model_figures.draw_partial_dependence(dependence, rows.target, classes)
            for dependence in dependences
        ]
        parts.append(
            _build_section(
                "partial-dependence",
                "Partial dependence",
                "The average prediction over rows as one column changes while the "
                "others keep their values.",
                sections.render_figures(*figures),
            )
        )
    return parts


def _build_largest_errors(
    model: Any, rows: HeldOut, scores: RegressionScores | ClassificationScores
) -> Section:
    relevance = get_relevance(model)
    order = np.arange(model.n_features_in_)
    if relevance is not None:
        order = np.argsort(-relevance, kind="stable")
    criterion = "the largest error relative to their predicted standard deviation"
    if isinstance(scores, ClassificationScores):
        criterion = "the lowest probability of their true class"
    return _build_section(
        "largest-errors",
        "Largest errors",
        f"Rows with {criterion}. They often reveal mistakes in the data. Row numbers "
        "start at 0.",
        render_largest_errors(model, rows, scores, order),
    )


def _choose_class_codes(scores: ClassificationScores) -> list[int]:
    """The second of two classes, or all classes with the most frequent first."""
    if len(scores.names) == 2:
        return [1]
    return np.argsort(-scores.confusion.sum(axis=1), kind="stable").tolist()


def _build_model(model: Any, rows: HeldOut) -> list[Section]:
    spectrum = compute_spectrum(model)
    figures = [model_figures.draw_spectrum(spectrum)]
    if len(model.history_) and np.isfinite(model.history_["bound"]).any():
        measure = measure_of(model)
        figures.append(model_figures.draw_history(model.history_, measure))
    if captured := captured_of(model):
        figures.append(model_figures.draw_captured_variance(captured))
    return [
        _build_section(
            "model",
            "Model",
            sections.describe_spectrum(spectrum),
            sections.render_figures(*figures),
        ),
        _build_section(
            "reproduce",
            "Reproduce",
            "Data, versions and parameters.",
            sections.render_settings(list_settings(model, rows)),
        ),
    ]


def _describe_fit(model: Any, rows: HeldOut) -> str:
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    held_out = format_number(float(len(rows)), 9)
    return (
        f"{type(model).__name__} fitted to "
        f"{format_number(count_training_rows(model), 9)} rows with "
        f"{model.n_features_in_} column{'' if model.n_features_in_ == 1 else 's'}, "
        f"tested on {held_out} held-out row{'' if len(rows) == 1 else 's'}. {date}"
    )


def _assemble(title: str, subtitle: str, content: list[Section]) -> str:
    style = files("zonal.report").joinpath("style.css").read_text(encoding="utf-8")
    script = files("zonal.report").joinpath("script.js").read_text(encoding="utf-8")
    links = "".join(
        f'<li><a href="#{name}">{escape(heading)}</a></li>'
        for name, heading, _ in content
    )
    body = "\n".join(html for _, _, html in content)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
<button type="button" id="theme" hidden>Dark</button>
<h1>{escape(title)}</h1>
<p>{escape(subtitle)}</p>
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>
{body}
</main>
<footer>Written by zonal. This file is self-contained and needs no network.</footer>
<div id="tip" role="tooltip" hidden></div>
<script>
{script}</script>
</body>
</html>
"""
