"""Sections of a report: figures, tables and numbers, each with a sentence."""

import json
from typing import Any

import numpy as np

from zonal.report.cells import cells_of
from zonal.report.effects import Effect
from zonal.report.figures import Figure
from zonal.report.globe import Globe
from zonal.report.learned import Spectrum
from zonal.report.model_figures import effect_figure
from zonal.report.words import cut, escape, number, percent
from zonal.scores.classes import ClassScores
from zonal.scores.held_out import HeldOut
from zonal.scores.numbers import RegressionScores, by_chance
from zonal.scores.relevance import column_names

__all__ = [
    "confusion",
    "coverage_table",
    "effects",
    "figure",
    "globe",
    "grid",
    "headline",
    "numbers_of_classes",
    "numbers_of_regression",
    "section",
    "settings",
    "spectrum_words",
    "worst_rows",
]

Number = tuple[str, str, str]

_WORST = 10
_WORST_COLUMNS = 8
_LONGEST_NAME = 24
# With more classes the table of confusions takes the width of the page.
_NARROW = 5
_ROUNDING = 1e-9


def section(name: str, heading: str, introduction: str, inside: str) -> str:
    """A part of the page with a heading that can be linked to."""
    words = (
        f'<p class="introduction">{escape(introduction)}</p>' if introduction else ""
    )
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading">'
        f'<h2 id="{name}-heading">{escape(heading)}</h2>{words}{inside}</section>'
    )


def figure(found: Figure) -> str:
    """A figure with its heading, legend and how to read it."""
    legend = "".join(
        f'<li><svg class="key" viewBox="0 0 20 10" aria-hidden="true">'
        f'<line class="line {kind}" x1="1" x2="19" y1="5" y2="5"/></svg>'
        f"{escape(text)}</li>"
        for kind, text in found.legend
    )
    listed = f'<ul class="legend">{legend}</ul>' if legend else ""
    return (
        f"<figure><h3>{escape(found.heading)}</h3>{found.svg}{listed}"
        f"<figcaption>{escape(found.reading)}</figcaption></figure>"
    )


def grid(*found: Figure) -> str:
    """Figures side by side where there is room."""
    return f'<div class="figures">{"".join(map(figure, found))}</div>'


def table(caption: str, head: list[str], body: list[list[str]], kind: str = "") -> str:
    """A table that scrolls by itself where it is too wide; the first cell is a name."""
    top = "".join(f'<th scope="col">{escape(one)}</th>' for one in head)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(one)}</td>" for one in rest)
        + "</tr>"
        for first, *rest in body
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def headline(found: list[Number]) -> str:
    """Large numbers, each with what it means."""
    return (
        '<dl class="numbers">'
        + "".join(
            f"<div><dt>{escape(name)}</dt><dd><strong>{escape(value)}</strong>"
            f"<span>{escape(meaning)}</span></dd></div>"
            for name, value, meaning in found
        )
        + "</dl>"
    )


def numbers_of_regression(scores: RegressionScores, target: str) -> list[Number]:
    """Headline numbers of a regressor."""
    relative = ""
    if scores.deviation > 0:
        relative = (
            f" That is {percent(scores.rmse / scores.deviation, 0)} of the deviation "
            f"of {target}, {number(scores.deviation)}, which predicting the mean "
            "alone would give."
        )
    plain = ""
    if np.isfinite(scores.plain_density):
        plain = (
            " A normal distribution that is the same for every row would reach "
            f"{number(scores.plain_density)}."
        )
    found = [
        (
            "RMSE",
            number(scores.rmse),
            f"How far predictions are off, as a root mean square.{relative}",
        ),
        (
            "Mean log density",
            number(scores.log_density),
            "What the model gave to the targets that came, a row; higher is better "
            f"(its negative is the NLL).{plain}",
        ),
    ]
    if scores.crps is not None:
        meaning = (
            "How far predicted distributions are off, in the units of the target; "
            "lower is better. Without any spread it is the mean absolute error."
        )
        found.append(("CRPS", number(scores.crps), meaning))
    return found


def coverage_table(scores: RegressionScores, effective: float) -> str:
    """Intervals at the usual levels."""
    body = []
    for stated, share in scores.headline:
        low, high = by_chance(stated, effective)
        word = "right, within chance"
        if share < low - _ROUNDING or share > high + _ROUNDING:
            word = "too narrow" if share < low else "too wide"
        chance = f"{100 * low:.1f} to {percent(float(high))}"
        body.append([percent(stated, 0), percent(share), chance, word])
    head = ["interval", "rows inside", "by chance", "so intervals are"]
    caption = "How many targets lie in intervals that say they hold so many"
    return table(caption, head, body, "narrow")


def numbers_of_classes(scores: ClassScores) -> list[Number]:
    """Headline numbers of a classifier."""
    found = [
        (
            "Accuracy",
            percent(scores.accuracy),
            "Rows whose most probable class is the right one. Always saying the most "
            f"frequent class would give {percent(scores.frequent)}.",
        )
    ]
    if len(scores.names) == 2:
        area = scores.area
        meaning = (
            f"How often a row of {scores.names[1]} is given a higher probability of it "
            f"than one of {scores.names[0]}: one half is guessing, one is perfect."
        )
        if area is None:
            meaning = "Needs held-out rows of both classes."
        found.append(("AUC", "–" if area is None else f"{area:.4f}", meaning))
    return [
        *found,
        (
            "Log loss",
            number(scores.log_loss),
            "Minus the mean log probability of the right class; lower is better. "
            "Always stating the classes' shares would give "
            f"{number(scores.plain_loss)}.",
        ),
        (
            "Calibration error",
            percent(scores.ece),
            "How far stated probabilities of the predicted class are from how often it "
            "is right, on average over rows (ECE, 15 bins).",
        ),
    ]


def confusion(scores: ClassScores) -> str:
    """A table of true against predicted classes, darker where there are more rows."""
    names, counts = scores.names, scores.confusion
    top = "".join(f'<th scope="col">{escape(cut(name))}</th>' for name in names)
    rows = []
    for name, line in zip(names, counts, strict=True):
        whole = max(line.sum(), 1e-300)
        cells = "".join(
            f'<td style="--share:{count / whole:.3f}" title="{percent(count / whole)} '
            f'of {escape(name)}">{number(float(count))}</td>'
            for count in line
        )
        rows.append(f'<tr><th scope="row">{escape(cut(name))}</th>{cells}</tr>')
    broad = ' class="broad"' if len(names) > _NARROW else ""
    return (
        f'<figure{broad}><h3>Confusion</h3><div class="wide" tabindex="0" '
        'role="region" aria-label="Confusion of classes"><table class="confusion">'
        "<caption>Truth down, prediction across</caption><thead><tr><td></td>"
        f"{top}</tr></thead><tbody>{''.join(rows)}</tbody></table></div><figcaption>"
        "How many rows of each class are taken for which. The diagonal is right; a "
        "dark cell beside it is a pair that is mixed up.</figcaption></figure>"
    )


def spectrum_words(found: Spectrum) -> str:
    """The equivalent depth in words."""
    layers = (
        "one hidden layer" if found.layers == 1 else f"{found.layers} hidden layers"
    )
    if found.layers <= 2:
        means = "Shallow: it expects smooth functions with little fine structure."
    elif found.layers <= 8:
        means = "Of middling depth: it expects some fine structure on smooth trends."
    else:
        means = "Deep: it expects fine structure and lets distant rows tell little."
    beta = f" (β = {number(found.beta, 3)})" if np.isfinite(found.beta) else ""
    return (
        "The prior that was learned is nearest to that of an infinitely wide network "
        f"with {layers}{beta}. {means}"
    )


def worst_rows(
    model: Any, rows: HeldOut, scores: RegressionScores | ClassScores, order: np.ndarray
) -> str:
    """The rows that are predicted worst; ``order`` has the columns to show first."""
    columns = order[:_WORST_COLUMNS].tolist()
    names = [cut(column_names(model)[place], _LONGEST_NAME) for place in columns]
    if isinstance(scores, RegressionScores):
        worst = np.argsort(-np.abs(scores.off), kind="stable")[:_WORST]
        ends = model.predict_interval(rows.taken(worst), 0.9, **rows.exposed(worst))
        ends = ends.reshape(len(worst), 2)
        told = [
            [
                number(float(rows.y[row])),
                number(float(scores.mean[row])),
                f"{number(low)} to {number(high)}",
                number(float(scores.off[row]), 3),
            ]
            for row, (low, high) in zip(worst, ends, strict=True)
        ]
        head = [rows.target, "predicted", "90 % interval", "deviations off"]
    else:
        worst = np.argsort(scores.likely, kind="stable")[:_WORST]
        guess = scores.chance.argmax(axis=1)
        told = [
            [
                scores.names[int(rows.y[row])],
                scores.names[guess[row]],
                percent(scores.chance[row].max()),
                percent(float(scores.likely[row]), 2),
            ]
            for row in worst
        ]
        head = [rows.target, "predicted", "its probability", "probability of the truth"]
    cells = cells_of(rows, model.columns_, worst)
    body = [
        [str(rows.numbers[row]), *said, *(cells[place][line] for place in columns)]
        for line, (row, said) in enumerate(zip(worst, told, strict=True))
    ]
    return table("Rows that are predicted worst", ["row", *head, *names], body)


def effects(found: list[Effect], target: str, classes: bool) -> str:
    """Effects of columns, side by side."""
    return grid(*(effect_figure(one, target, classes) for one in found))


def globe(found: Globe) -> str:
    """Globes that turn together, drawn by the page's script."""
    data = json.dumps(found.stored(), separators=(",", ":")).replace("<", "\\u003c")
    shown = "".join(
        f'<figure class="globe"><h3>{escape(layer.name)}</h3>'
        f'<canvas width="520" height="520" tabindex="0" role="img" '
        f'data-layer="{place}" aria-label="Globe of {escape(layer.name)}, from '
        f"{number(float(layer.values.min()))} to {number(float(layer.values.max()))}. "
        'Arrow keys turn it."></canvas><div class="ramp" aria-hidden="true"></div>'
        f'<div class="ends"><span>{number(float(layer.values.min()))}</span>'
        f"<output></output><span>{number(float(layer.values.max()))}</span></div>"
        "</figure>"
        for place, layer in enumerate(found.layers)
    )
    return (
        f'<div class="figures">{shown}</div><p class="hint">Drag to turn, or use the '
        "arrow keys; Home comes back. Dots are held-out rows.</p><noscript><p>The "
        "globe is drawn by a script, which is switched off.</p></noscript>"
        f'<script type="application/json" id="globe-data">{data}</script>'
    )


def settings(found: list[tuple[str, str]]) -> str:
    """What is needed to do the same again."""
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in found
    )
    return f'<dl class="settings">{pairs}</dl>'
