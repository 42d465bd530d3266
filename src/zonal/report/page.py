"""The page: every section in order, with style and script in the same file."""

import datetime
from importlib.resources import files
from typing import Any

import numpy as np

from zonal.estimators.classifier import SphericalGPClassifier
from zonal.estimators.summary import captured_of
from zonal.report import figures, model_figures, sections
from zonal.report.effects import effects_of
from zonal.report.globe import globe_of
from zonal.report.learned import fitted_rows, settings_of, spectrum_of
from zonal.report.words import escape, number
from zonal.scores.classes import ClassScores, class_scores
from zonal.scores.held_out import HeldOut
from zonal.scores.numbers import RegressionScores, regression_scores, residuals_of
from zonal.scores.relevance import relevance_of, relevances

__all__ = ["page_of"]

# The page may load nothing, wherever it is opened.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:"
)


def page_of(model: Any, rows: HeldOut, title: str | None) -> str:
    """The whole HTML file as a text."""
    classes = isinstance(model, SphericalGPClassifier)
    if title is None:
        title = f"{rows.target[:1].upper()}{rows.target[1:]}, predicted"
    if classes:
        names = tuple(str(name) for name in model.classes_)
        scores = class_scores(model.predict_proba(rows.table), names, rows)
        parts = _of_classes(scores, rows)
    else:
        found = model.predict_dist(rows.table, exposure=rows.exposure)
        found = found[0] if isinstance(found, list) else found
        scores = regression_scores(found, rows)
        parts = _of_regression(model, scores, rows)
    parts += _of_data(model, rows, scores)
    parts += _of_model(model, rows)
    return _assembled(title, _subtitle(model, rows), parts)


Part = tuple[str, str, str]


def _part(name: str, heading: str, introduction: str, inside: str) -> Part:
    return name, heading, sections.section(name, heading, introduction, inside)


def _of_regression(model: Any, scores: RegressionScores, rows: HeldOut) -> list[Part]:
    numbers = sections.headline(sections.numbers_of_regression(scores, rows.target))
    drawn = figures.residual_figure(residuals_of(model, rows), rows.target)
    return [
        _part(
            "numbers",
            "In numbers",
            "",
            numbers + sections.coverage_table(scores, rows.effective),
        ),
        _part(
            "calibration",
            "Is the uncertainty right?",
            "What the model says of its own errors, against the errors that there are.",
            sections.grid(
                figures.coverage_figure(scores, rows.effective),
                figures.pit_figure(scores, rows.effective),
            ),
        ),
        _part(
            "residuals",
            "Where is it wrong?",
            "",
            sections.grid(drawn),
        ),
    ]


def _of_classes(scores: ClassScores, rows: HeldOut) -> list[Part]:
    drawn = "".join(
        sections.figure(one)
        for one in (
            (figures.roc_figure(scores), figures.precision_figure(scores))
            if scores.curves
            else ()
        )
    )
    return [
        _part(
            "numbers",
            "In numbers",
            "",
            sections.headline(sections.numbers_of_classes(scores)),
        ),
        _part(
            "calibration",
            "Are the probabilities right?",
            "What the model says of its own errors, against the errors that there are.",
            sections.grid(
                figures.reliability_figure(scores, rows.effective),
                figures.sureness_figure(scores),
            ),
        ),
        _part(
            "classes",
            "How well are classes told apart?",
            "",
            f'<div class="figures">{drawn}{sections.confusion(scores)}</div>',
        ),
    ]


def _of_data(
    model: Any, rows: HeldOut, scores: RegressionScores | ClassScores
) -> list[Part]:
    classes = isinstance(scores, ClassScores)
    relevance = relevance_of(model)
    if relevance is None:
        order = np.arange(model.n_features_in_)
    else:
        order = np.argsort(-relevance, kind="stable")
    words = "Rows whose error is largest in units of their predicted deviation."
    if classes:
        words = "Rows whose class was given the least probability."
    parts = [
        _part(
            "worst",
            "Rows predicted worst",
            f"{words} Mistakes in the data are often found here. Rows are counted "
            "from 0.",
            sections.worst_rows(model, rows, scores, order),
        )
    ]
    if (globe := globe_of(model, rows)) is not None:
        parts.append(_part("globe", "Around the globe", "", sections.globe(globe)))
    listed = relevances(model)
    if listed:
        drawn = sections.grid(model_figures.relevance_figure(listed))
        parts.append(_part("relevance", "Which columns count", "", drawn))
    frequent = []
    if classes:
        counts = scores.confusion.sum(axis=1)
        order = np.argsort(-counts, kind="stable").tolist()
        frequent = [1] if len(scores.names) == 2 else order
    if found := effects_of(model, rows, frequent):
        parts.append(
            _part(
                "effects",
                "What columns do",
                "The average prediction over rows while one column is changed and the "
                "others stay as they are (partial dependence).",
                sections.effects(found, rows.target, classes),
            )
        )
    return parts


def _of_model(model: Any, rows: HeldOut) -> list[Part]:
    spectrum = spectrum_of(model)
    drawn = [model_figures.spectrum_figure(spectrum)]
    if len(model.history_) and np.isfinite(model.history_["bound"]).any():
        drawn.append(model_figures.history_figure(model.history_))
    if captured := captured_of(model):
        drawn.append(model_figures.captured_figure(captured))
    return [
        _part(
            "learned",
            "What was learned",
            sections.spectrum_words(spectrum),
            sections.grid(*drawn),
        ),
        _part(
            "settings",
            "To do it again",
            "The model's parameters and what it ran with.",
            sections.settings(settings_of(model, rows)),
        ),
    ]


def _subtitle(model: Any, rows: HeldOut) -> str:
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    held = (
        "1 held-out row"
        if len(rows) == 1
        else f"{number(float(len(rows)), 9)} held-out rows"
    )
    return (
        f"{type(model).__name__} fitted to {number(fitted_rows(model), 9)} rows of "
        f"{model.n_features_in_} columns, looked at on {held}. {day}"
    )


def _assembled(title: str, subtitle: str, parts: list[Part]) -> str:
    style = files("zonal.report").joinpath("style.css").read_text(encoding="utf-8")
    script = files("zonal.report").joinpath("script.js").read_text(encoding="utf-8")
    links = "".join(
        f'<li><a href="#{name}">{escape(heading)}</a></li>'
        for name, heading, _ in parts
    )
    body = "\n".join(inside for _, _, inside in parts)
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
<footer>Written by zonal. This file is complete: it loads nothing.</footer>
<div id="tip" role="tooltip" hidden></div>
<script>
{script}</script>
</body>
</html>
"""
