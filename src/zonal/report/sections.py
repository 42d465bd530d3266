"""Sections of a report as HTML: figures, tables and scores with explanations."""

import json

import numpy as np

from zonal.report.formatting import escape, format_number, format_percent, truncate
from zonal.report.globe import Globe
from zonal.report.interval_figures import get_value_format
from zonal.report.score_figures import Figure
from zonal.report.spectrum import Spectrum
from zonal.scores.classification import ClassificationScores
from zonal.scores.conditional import ConditionalCoverage
from zonal.scores.regression import RegressionScores, compute_binomial_range

__all__ = [
    "describe_classification",
    "describe_regression",
    "describe_spectrum",
    "render_conditional_coverage",
    "render_confusion",
    "render_coverage_table",
    "render_figure",
    "render_figures",
    "render_globe",
    "render_scores",
    "render_section",
    "render_settings",
    "render_table",
]

# Name, value and explanation.
Score = tuple[str, str, str]

# With more classes the confusion matrix takes the width of the page.
_NARROW = 5
_ROUNDING = 1e-9
_LONGEST_NAME = 28


def render_section(name: str, heading: str, introduction: str, content: str) -> str:
    """A section of the page, with a heading that can be linked to."""
    paragraph = (
        f'<p class="introduction">{escape(introduction)}</p>' if introduction else ""
    )
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{escape(heading)}</h2>{paragraph}{content}</section>'
    )


def render_figure(figure: Figure) -> str:
    """A figure with heading, legend and caption."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 20 10" aria-hidden="true">'
        f'<line class="line {kind}" x1="1" x2="19" y1="5" y2="5"/></svg>'
        f"{escape(text)}</li>"
        for kind, text in figure.legend
    )
    legend = f'<ul class="legend">{items}</ul>' if items else ""
    return (
        f"<figure><h3>{escape(figure.heading)}</h3>{figure.svg}{legend}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )


def render_figures(*figures: Figure) -> str:
    """Figures side by side where the page is wide enough."""
    return f'<div class="figures">{"".join(map(render_figure, figures))}</div>'


def render_table(
    caption: str, head: list[str], body: list[list[str]], kind: str = ""
) -> str:
    """A table that scrolls sideways; the first cell of each row is its header."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in body
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def render_scores(scores: list[Score]) -> str:
    """Large numbers with explanations."""
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>"
        f"<span>{escape(meaning)}</span></dd></div>"
        for name, value, meaning in scores
    )
    return f'<dl class="numbers">{items}</dl>'


def describe_regression(scores: RegressionScores, target: str) -> list[Score]:
    """Headline scores of a regressor."""
    relative = ""
    if scores.target_std > 0:
        ratio = format_percent(scores.rmse / scores.target_std, 0)
        relative = (
            f" It is {ratio} of the standard deviation of {target}, "
            f"{format_number(scores.target_std)}, the error of always predicting the "
            "mean."
        )
    baseline = ""
    if np.isfinite(scores.baseline_log_density):
        baseline = (
            " One normal distribution for all rows would have "
            f"{format_number(scores.baseline_log_density)}."
        )
    descriptions = [
        ("RMSE", format_number(scores.rmse), f"Root mean squared error.{relative}"),
        (
            "Mean log density",
            format_number(scores.mean_log_density),
            "Mean log predictive density per row; higher is better. Its negative is "
            f"the NLL.{baseline}",
        ),
    ]
    if scores.crps is not None:
        meaning = (
            "Continuous ranked probability score, in the units of the target; lower is "
            "better. For predictions without uncertainty it is the mean absolute error."
        )
        descriptions.append(("CRPS", format_number(scores.crps), meaning))
    return descriptions


def render_coverage_table(scores: RegressionScores, effective_rows: float) -> str:
    """Coverage of prediction intervals at the usual levels."""
    body = []
    for level, share in scores.coverage:
        low, high = compute_binomial_range(level, effective_rows)
        body.append([format_percent(level, 0), *_describe_coverage(share, low, high)])
    head = ["nominal", "observed", "95 % range if correct", "intervals are"]
    return render_table("Coverage of prediction intervals", head, body, "narrow")


def _describe_coverage(share: float, low: float, high: float) -> list[str]:
    """Observed coverage, the range of correct intervals, and a verdict."""
    verdict = "consistent with nominal"
    if share < low - _ROUNDING or share > high + _ROUNDING:
        verdict = "too narrow" if share < low else "too wide"
    expected = f"{100 * low:.1f} to {format_percent(float(high))}"
    return [format_percent(share), expected, verdict]


def render_conditional_coverage(coverages: list[ConditionalCoverage]) -> str:
    """Coverage of 90 % intervals in thirds of the rows by each covariate."""
    body = []
    for coverage in coverages:
        format_value = get_value_format(coverage.kind)
        for index in range(len(coverage)):
            observed, expected, verdict = _describe_coverage(
                float(coverage.coverage[index]),
                float(coverage.range_low[index]),
                float(coverage.range_high[index]),
            )
            body.append(
                [
                    truncate(coverage.name, _LONGEST_NAME),
                    format_value(float(coverage.low[index])),
                    format_value(float(coverage.high[index])),
                    format_number(float(coverage.mean_width[index])),
                    observed,
                    expected,
                    verdict,
                ]
            )
    head = ["rows by", "from", "to", "mean width", "observed", "95 % range if correct"]
    caption = (
        "Coverage of 90 % intervals by thirds of the rows. By chance, one line in "
        "twenty lies outside its range."
    )
    return render_table(caption, [*head, "intervals are"], body)


def describe_classification(scores: ClassificationScores) -> list[Score]:
    """Headline scores of a classifier."""
    accuracy = (
        "Share of rows whose most probable class is the true one. Always predicting "
        f"the most frequent class would have {format_percent(scores.majority_share)}."
    )
    log_loss = (
        "Mean negative log probability of the true class; lower is better. Always "
        "predicting the class frequencies would have "
        f"{format_number(scores.baseline_log_loss)}."
    )
    calibration = (
        "Mean difference between the probability of the predicted class and its "
        "accuracy (ECE, 15 bins)."
    )
    return [
        ("Accuracy", format_percent(scores.accuracy), accuracy),
        *([_describe_auc(scores)] if len(scores.names) == 2 else []),
        ("Log loss", format_number(scores.log_loss), log_loss),
        ("Calibration error", format_percent(scores.ece), calibration),
    ]


def _describe_auc(scores: ClassificationScores) -> Score:
    if scores.auc is None:
        return ("AUC", "–", "Needs held-out rows of both classes.")
    negative, positive = scores.names
    meaning = (
        f"Area under the ROC curve: how often a row of {positive} has a higher "
        f"probability of {positive} than a row of {negative}. Guessing has 0.5."
    )
    return ("AUC", f"{scores.auc:.4f}", meaning)


def render_confusion(scores: ClassificationScores) -> str:
    """The confusion matrix, darker where there are more rows."""
    names = scores.names
    top = "".join(f'<th scope="col">{escape(truncate(name))}</th>' for name in names)
    rows = []
    for name, counts in zip(names, scores.confusion, strict=True):
        shares = counts / max(counts.sum(), 1e-300)
        cells = "".join(
            f'<td style="--share:{share:.3f}" title="{format_percent(share)} '
            f'of {escape(name)}">{format_number(float(count))}</td>'
            for share, count in zip(shares, counts, strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(truncate(name))}</th>{cells}</tr>')
    broad = ' class="broad"' if len(names) > _NARROW else ""
    return (
        f'<figure{broad}><h3>Confusion matrix</h3><div class="wide" tabindex="0" '
        'role="region" aria-label="Confusion matrix"><table class="confusion">'
        "<caption>Rows: true class. Columns: predicted class.</caption>"
        f"<thead><tr><td></td>{top}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "</div><figcaption>Number of rows of each class by predicted class. The "
        "diagonal is correct; dark cells off the diagonal are classes that are often "
        "confused.</figcaption></figure>"
    )


def describe_spectrum(spectrum: Spectrum) -> str:
    """The equivalent depth as a sentence."""
    layers = (
        "one hidden layer"
        if spectrum.layers == 1
        else f"{spectrum.layers} hidden layers"
    )
    if spectrum.layers <= 2:
        meaning = "This is shallow: the prior expects smooth functions."
    elif spectrum.layers <= 8:
        meaning = "The prior expects smooth trends with some fine structure."
    else:
        meaning = (
            "This is deep: the prior expects fine structure, and distant rows have "
            "little influence on each other."
        )
    beta = ""
    if np.isfinite(spectrum.beta):
        beta = f" (β = {format_number(spectrum.beta, 3)})"
    return (
        "The learned prior is closest to that of an infinitely wide network with "
        f"{layers}{beta}. {meaning}"
    )


def render_globe(globe: Globe) -> str:
    """Globes that turn together, drawn by the script of the page."""
    data = json.dumps(globe.encode(), separators=(",", ":")).replace("<", "\\u003c")
    figures = []
    for index, layer in enumerate(globe.layers):
        low = format_number(float(layer.values.min()))
        high = format_number(float(layer.values.max()))
        name = escape(layer.name)
        figures.append(
            f'<figure class="globe"><h3>{name}</h3>'
            f'<canvas width="520" height="520" tabindex="0" role="img" '
            f'data-layer="{index}" aria-label="Globe: {name}, from {low} to {high}. '
            'Arrow keys turn it."></canvas><div class="ramp" aria-hidden="true"></div>'
            f'<div class="ends"><span>{low}</span><output></output>'
            f"<span>{high}</span></div></figure>"
        )
    return (
        f'<div class="figures">{"".join(figures)}</div><p class="hint">Drag the globe '
        "or use the arrow keys to turn it; Home resets the view. Dots are held-out "
        "rows.</p><noscript><p>The globe needs JavaScript, which is disabled.</p>"
        "</noscript>"
        f'<script type="application/json" id="globe-data">{data}</script>'
    )


def render_settings(settings: list[tuple[str, str]]) -> str:
    """Names and values of settings."""
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in settings
    )
    return f'<dl class="settings">{pairs}</dl>'
