"""Figures of predictions: numbers in, a drawing with words on how to read it out."""

import dataclasses

import numpy as np

from zonal.report.drawing import Axis, Plot
from zonal.report.words import number, percent
from zonal.scores.classes import ClassScores
from zonal.scores.numbers import RegressionScores, Residuals, by_chance

__all__ = [
    "Figure",
    "coverage_figure",
    "pit_figure",
    "precision_figure",
    "reliability_figure",
    "residual_figure",
    "roc_figure",
    "series",
    "shares_axis",
    "sureness_figure",
]

# Half the width of a normal's central 95 %.
_WIDE = 1.96
# Series beyond these repeat the colours with dashes.
_COLOURS = 5
# More dots than these are drawn smaller.
_MANY = 400


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing, its heading, how to read it, and what its colours are."""

    heading: str
    svg: str
    reading: str
    legend: tuple[tuple[str, str], ...] = ()


def series(place: int) -> str:
    """The colour of one of several lines."""
    return f"s{place % _COLOURS}" + (" dashed" if place >= _COLOURS else "")


def shares_axis(label: str) -> Axis:
    """An axis from nothing to all."""
    ticks = tuple((n / 5, f"{20 * n} %") for n in range(6))
    return Axis(0.0, 1.0, label, ticks=ticks)


def coverage_figure(scores: RegressionScores, effective: float) -> Figure:
    """Coverage of intervals: stated against found."""
    about = "Coverage of intervals, found against stated: " + ", ".join(
        f"{percent(a, 0)} stated, {percent(b)} found" for a, b in scores.headline
    )
    plot = Plot(shares_axis("stated coverage"), shares_axis("rows inside"), about)
    at = np.linspace(0, 1, 101)
    plot.band(at, *by_chance(at, effective), "plain")
    plot.line([0, 1], [0, 1], "rule")
    plot.line(scores.stated, scores.found, "s0")
    titles = [
        f"{percent(a, 0)} intervals hold {percent(b)} of the rows"
        for a, b in zip(scores.stated, scores.found, strict=True)
    ]
    plot.points(scores.stated, scores.found, "s0", titles, 3.0)
    return Figure(
        "Coverage of intervals",
        plot.svg(),
        "On the dashed line, intervals hold as many rows as they say. Below it they "
        "are too narrow, above it too wide. Within the grey, chance alone explains the "
        "difference in 95 of 100 such tables.",
        (("s0", "found"), ("rule", "as stated")),
    )


def pit_figure(scores: RegressionScores, effective: float) -> Figure:
    """Where targets fall in their predicted distributions."""
    bins = len(scores.pit)
    level = scores.pit * bins
    low, high = (float(one) * bins for one in by_chance(1 / bins, effective))
    top = max(float(level.max()), high) * 1.05
    about = (
        "Histogram of the predicted probability below each target, relative to even: "
        f"between {number(level.min(), 3)} and {number(level.max(), 3)}"
    )
    x = shares_axis("predicted probability below the target")
    plot = Plot(x, Axis(0.0, top, "rows, relative to even"), about)
    plot.band([0, 1], [low, low], [high, high], "plain")
    edges = np.linspace(0, 1, bins + 1)
    titles = [
        f"{percent(a, 0)} to {percent(b, 0)}: {percent(share)} of the rows"
        for a, b, share in zip(edges[:-1], edges[1:], scores.pit, strict=True)
    ]
    plot.columns(edges, level, "s0 soft", titles)
    plot.line([0, 1], [1, 1], "rule")
    return Figure(
        "Where targets fall",
        plot.svg(),
        "Flat is right. A hill in the middle means intervals are too wide, a bowl that "
        "they are too narrow, a slope that predictions are shifted. The grey is what "
        "chance does to a column in 95 of 100 such tables.",
        (("s0 soft", "rows (PIT histogram)"), ("rule", "even")),
    )


def residual_figure(found: Residuals, target: str) -> Figure:
    """Errors against predictions."""
    ends = found.ends
    about = (
        f"Target minus prediction against prediction, rows: {len(found.mean)}; "
        f"outside their 90 % interval: {int(found.outside.sum())}"
    )
    x = Axis.around(found.mean, f"predicted {target}")
    y = Axis.around(np.append(found.error, ends), "target minus prediction")
    plot = Plot(x, y, about)
    if len(found.centres) > 1:
        # Groups end at their middles; the bands go on to the outermost rows.
        centres = found.centres.copy()
        centres[0], centres[-1] = found.mean.min(), found.mean.max()
        plot.band(centres, ends[:, 0], ends[:, 3], "s0 wide")
        plot.band(centres, ends[:, 1], ends[:, 2], "s0 wide")
    plot.line([x.low, x.high], [0, 0], "rule")
    titles = [
        f"row {row}: predicted {number(mean)}, was {number(mean + error)}"
        for row, mean, error in zip(found.rows, found.mean, found.error, strict=True)
    ]
    many, radius = (" many", 1.8) if len(titles) > _MANY else ("", 2.4)
    for chosen, kind in ((~found.outside, "s0"), (found.outside, "s1")):
        told = [title for title, one in zip(titles, chosen, strict=True) if one]
        at = found.mean[chosen], found.error[chosen]
        plot.points(*at, kind + many, told, radius)
    return Figure(
        "Residuals",
        plot.svg(),
        "Each dot is a row. The bands are what the model predicts of half and of nine "
        "tenths of the targets, averaged over rows with like predictions. A trend of "
        "the dots away from zero is something that the model has missed.",
        (("s0", "inside its 90 % interval"), ("s1", "outside")),
    )


def reliability_figure(scores: ClassScores, effective: float) -> Figure:
    """How often the predicted class is right, against how sure the model is."""
    about = "How often the predicted class is right, against its stated probability: "
    about += ", ".join(
        f"{percent(a, 0)} stated, {percent(b, 0)} right"
        for a, b in zip(scores.stated, scores.found, strict=True)
    )
    x = shares_axis("stated probability of the predicted class")
    plot = Plot(x, shares_axis("rows that are right"), about)
    plot.line([0, 1], [0, 1], "rule")
    low, high = _wilson(scores.found, np.maximum(scores.share * effective, 1e-9))
    plot.whiskers(scores.stated, low, high, "s0 thin")
    plot.line(scores.stated, scores.found, "s0")
    titles = [
        f"{percent(a)} stated, {percent(b)} right ({percent(share)} of the rows)"
        for a, b, share in zip(scores.stated, scores.found, scores.share, strict=True)
    ]
    plot.points(scores.stated, scores.found, "s0", titles, 3.4)
    return Figure(
        "Reliability",
        plot.svg(),
        "On the dashed line, a class that is given 80 % is right in 80 of 100 rows. "
        "Below it the model is too sure, above it not sure enough. Upright lines are "
        "what chance allows (95 %); they are long where a bin has few rows.",
        (("s0", "found, in 15 bins"), ("rule", "as stated")),
    )


def sureness_figure(scores: ClassScores) -> Figure:
    """How many rows are predicted with which probability."""
    edges = np.linspace(0, 1, len(scores.spread) + 1)
    titles = [
        f"{percent(a, 0)} to {percent(b, 0)}: {percent(share)} of the rows"
        for a, b, share in zip(edges[:-1], edges[1:], scores.spread, strict=True)
    ]
    most = titles[int(scores.spread.argmax())]
    about = f"Stated probabilities of the predicted class; the highest column is {most}"
    x = shares_axis("stated probability of the predicted class")
    top = float(scores.spread.max()) * 1.05
    plot = Plot(x, Axis(0.0, top, "share of rows", words=_whole_percent), about)
    plot.columns(edges, scores.spread, "s0 soft", titles)
    return Figure(
        "How sure it is",
        plot.svg(),
        "How many rows have their most probable class stated with which probability. "
        "Columns on the right are rows that the model takes for clear.",
    )


def _whole_percent(share: float) -> str:
    return percent(share, 0)


def _wilson(share: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval for a share that was found in so many rows."""
    square = _WIDE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = np.sqrt(share * (1 - share) / count + square / (4 * count**2))
    half *= _WIDE / (1 + square / count)
    return middle - half, middle + half


def roc_figure(scores: ClassScores) -> Figure:
    """Rows that are caught, against false alarms."""
    about = "ROC curves; area under the curve: " + _areas(scores, "area")
    plot = Plot(
        shares_axis("false alarms, of rows of other classes"),
        shares_axis("caught, of rows of the class"),
        about,
    )
    plot.line([0, 1], [0, 1], "rule")
    for place, one in enumerate(scores.curves):
        plot.line(one.false_rate, one.recall, series(place))
    legend = [
        (series(place), f"{one.name} (area {number(one.area, 3)})")
        for place, one in enumerate(scores.curves)
    ]
    return Figure(
        "ROC",
        plot.svg(),
        "Each point is a probability from which a row is taken for the class. The "
        "nearer to the upper left corner the better; the dashed line is guessing.",
        (*legend, ("rule", "guessing")),
    )


def precision_figure(scores: ClassScores) -> Figure:
    """Precision against recall."""
    about = "Precision against recall; average precision: "
    plot = Plot(
        shares_axis("recall: caught, of rows of the class"),
        shares_axis("precision: right, of rows taken for the class"),
        about + _areas(scores, "precision_mean"),
    )
    for place, one in enumerate(scores.curves):
        plot.line([0, 1], [one.share, one.share], f"{series(place)} thin dashed")
        plot.line(one.recall, one.precision, series(place))
    legend = [
        (series(place), f"{one.name} (average {number(one.precision_mean, 3)})")
        for place, one in enumerate(scores.curves)
    ]
    return Figure(
        "Precision and recall",
        plot.svg(),
        "How many of the rows that are taken for the class belong to it, as more of "
        "them are caught. Thin dashes are the class's share of all rows: guessing.",
        tuple(legend),
    )


def _areas(scores: ClassScores, what: str) -> str:
    said = [f"{one.name} {number(getattr(one, what), 3)}" for one in scores.curves]
    return ", ".join(said)
