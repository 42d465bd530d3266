"""Figures of scores: calibration, residuals, ROC and precision."""

import dataclasses

import numpy as np
from scipy.stats import binomtest

from zonal.report.drawing import Axis, Plot
from zonal.report.formatting import format_number, format_percent
from zonal.scores.classification import ClassificationScores
from zonal.scores.regression import RegressionScores, Residuals, compute_binomial_range

__all__ = [
    "Figure",
    "choose_colour",
    "draw_confidence",
    "draw_coverage",
    "draw_pit_histogram",
    "draw_precision",
    "draw_reliability",
    "draw_residuals",
    "draw_roc",
    "make_share_axis",
]

# Further series repeat the colours with dashes.
_COLOURS = 5
# More dots than these are drawn smaller.
_MANY_DOTS = 400


@dataclasses.dataclass(frozen=True)
class Figure:
    """A drawing with its heading, caption and legend."""

    heading: str
    svg: str
    caption: str
    legend: tuple[tuple[str, str], ...] = ()


def choose_colour(index: int) -> str:
    """Style class of a series."""
    return f"s{index % _COLOURS}" + (" dashed" if index >= _COLOURS else "")


def make_share_axis(label: str) -> Axis:
    """An axis from 0 to 100 %."""
    ticks = tuple((n / 5, f"{20 * n} %") for n in range(6))
    return Axis(0.0, 1.0, label, ticks=ticks)


def draw_coverage(scores: RegressionScores, effective_rows: float) -> Figure:
    """Observed against nominal coverage of prediction intervals."""
    description = "Observed coverage of prediction intervals: " + ", ".join(
        f"{format_percent(share)} at {format_percent(level, 0)}"
        for level, share in scores.coverage
    )
    plot = Plot(
        make_share_axis("Nominal coverage"),
        make_share_axis("Observed coverage"),
        description,
    )
    grid = np.linspace(0, 1, 101)
    plot.add_band(grid, *compute_binomial_range(grid, effective_rows), "plain")
    plot.add_line([0, 1], [0, 1], "rule")
    plot.add_line(scores.levels, scores.observed_coverage, "s0")
    titles = [
        f"{format_percent(level, 0)} intervals cover {format_percent(share)} of rows"
        for level, share in zip(scores.levels, scores.observed_coverage, strict=True)
    ]
    plot.add_points(scores.levels, scores.observed_coverage, "s0", titles, 3.0)
    return Figure(
        "Coverage of prediction intervals",
        plot.render(),
        "On the dashed line, intervals cover as many rows as they should. Below it "
        "they are too narrow, above it too wide. The grey band is the 95 % range for "
        "correct intervals and this number of rows.",
        (("s0", "observed"), ("rule", "nominal")),
    )


def draw_pit_histogram(scores: RegressionScores, effective_rows: float) -> Figure:
    """Histogram of the probability integral transform."""
    bins = len(scores.pit_histogram)
    density = scores.pit_histogram * bins
    low, high = (
        float(end) * bins for end in compute_binomial_range(1 / bins, effective_rows)
    )
    top = max(float(density.max()), high) * 1.05
    description = (
        "Histogram of the predicted probability below each target, relative to a "
        f"uniform one: between {format_number(density.min(), 3)} and "
        f"{format_number(density.max(), 3)}"
    )
    plot = Plot(
        make_share_axis("Predicted probability below the target"),
        Axis(0.0, top, "Density (uniform = 1)"),
        description,
    )
    plot.add_band([0, 1], [low, low], [high, high], "plain")
    edges = np.linspace(0, 1, bins + 1)
    titles = _describe_bins(edges, scores.pit_histogram)
    plot.add_histogram(edges, density, "s0 soft", titles)
    plot.add_line([0, 1], [1, 1], "rule")
    return Figure(
        "PIT histogram",
        plot.render(),
        "Flat is correct. A peak in the middle means that intervals are too wide, "
        "peaks at both ends that they are too narrow, and a slope that predictions are "
        "biased. The grey band is the 95 % range for a bar of a correct model.",
        (("s0 soft", "share of rows"), ("rule", "uniform")),
    )


def _describe_bins(edges: np.ndarray, shares: np.ndarray) -> list[str]:
    return [
        f"{format_percent(low, 0)} to {format_percent(high, 0)}: "
        f"{format_percent(share)} of rows"
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
    ]


def draw_residuals(residuals: Residuals, target: str) -> Figure:
    """Residuals against predictions."""
    predicted, error = residuals.predicted, residuals.error
    limits, outside = residuals.band_limits, residuals.outside
    description = (
        f"Residuals against predictions: {len(predicted)} rows, "
        f"{int(outside.sum())} outside their 90 % interval"
    )
    x = Axis.around(predicted, f"Predicted {target}")
    y = Axis.around(np.append(error, limits), "Target minus prediction")
    plot = Plot(x, y, description)
    if len(residuals.group_centres) > 1:
        # The bands extend from the outer group centres to the outermost rows.
        centres = residuals.group_centres.copy()
        centres[0], centres[-1] = predicted.min(), predicted.max()
        plot.add_band(centres, limits[:, 0], limits[:, 3], "s0 wide")
        plot.add_band(centres, limits[:, 1], limits[:, 2], "s0 wide")
    plot.add_line([x.low, x.high], [0, 0], "rule")
    titles = np.array(
        [
            f"row {row}: predicted {format_number(mean)}, "
            f"observed {format_number(mean + difference)}"
            for row, mean, difference in zip(
                residuals.row_numbers, predicted, error, strict=True
            )
        ],
        object,
    )
    many, radius = (" many", 1.8) if len(titles) > _MANY_DOTS else ("", 2.4)
    for chosen, kind in ((~outside, "s0"), (outside, "s1")):
        plot.add_points(
            predicted[chosen],
            error[chosen],
            kind + many,
            titles[chosen].tolist(),
            radius,
        )
    return Figure(
        "Residuals",
        plot.render(),
        "Each dot is a row. The bands are the predicted 50 % and 90 % intervals, "
        "averaged over rows with similar predictions. A trend of the dots away from "
        "zero is structure that the model has missed.",
        (("s0", "inside its 90 % interval"), ("s1", "outside")),
    )


def draw_reliability(scores: ClassificationScores, effective_rows: float) -> Figure:
    """Accuracy against the probability of the predicted class."""
    confidence, accuracy = scores.bin_confidence, scores.bin_accuracy
    description = "Accuracy against the probability of the predicted class: "
    description += ", ".join(
        f"{format_percent(share, 0)} at {format_percent(level, 0)}"
        for level, share in zip(confidence, accuracy, strict=True)
    )
    plot = Plot(
        make_share_axis("Probability of the predicted class"),
        make_share_axis("Accuracy"),
        description,
    )
    plot.add_line([0, 1], [0, 1], "rule")
    ranges = [
        _wilson_interval(share, count)
        for share, count in zip(
            accuracy, scores.bin_share * effective_rows, strict=True
        )
    ]
    low, high = np.transpose(ranges)
    plot.add_error_bars(confidence, low, high, "s0 thin")
    plot.add_line(confidence, accuracy, "s0")
    titles = [
        f"probability {format_percent(level)}, accuracy {format_percent(share)} "
        f"({format_percent(size)} of rows)"
        for level, share, size in zip(
            confidence, accuracy, scores.bin_share, strict=True
        )
    ]
    plot.add_points(confidence, accuracy, "s0", titles, 3.4)
    return Figure(
        "Reliability",
        plot.render(),
        "On the dashed line, classes predicted with 80 % are correct in 80 of 100 "
        "rows. Below it the model is overconfident, above it underconfident. Error "
        "bars are 95 % intervals (Wilson).",
        (("s0", "observed, in 15 bins"), ("rule", "perfect calibration")),
    )


def _wilson_interval(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval; weighted counts are rounded to whole rows."""
    rows = max(round(count), 1)
    interval = binomtest(round(share * rows), rows).proportion_ci(0.95, "wilson")
    return interval.low, interval.high


def draw_confidence(scores: ClassificationScores) -> Figure:
    """Histogram of the probability of the predicted class."""
    shares = scores.confidence_histogram
    edges = np.linspace(0, 1, len(shares) + 1)
    titles = _describe_bins(edges, shares)
    description = (
        "Histogram of the probability of the predicted class; the highest bar is "
        f"{titles[int(shares.argmax())]}"
    )
    y = Axis(
        0.0,
        float(shares.max()) * 1.05,
        "Share of rows",
        format_tick=lambda share: format_percent(share, 0),
    )
    plot = Plot(make_share_axis("Probability of the predicted class"), y, description)
    plot.add_histogram(edges, shares, "s0 soft", titles)
    return Figure(
        "Confidence",
        plot.render(),
        "Distribution of the probability of the predicted class over rows. Bars on the "
        "right are rows that the model is sure of.",
    )


def draw_roc(scores: ClassificationScores) -> Figure:
    """ROC curves."""
    areas = [f"{curve.name} {format_number(curve.auc, 3)}" for curve in scores.curves]
    plot = Plot(
        make_share_axis("False positive rate"),
        make_share_axis("True positive rate"),
        f"ROC curves; area under the curve: {', '.join(areas)}",
    )
    plot.add_line([0, 1], [0, 1], "rule")
    legend = []
    for index, curve in enumerate(scores.curves):
        colour = choose_colour(index)
        plot.add_line(curve.false_positive_rate, curve.true_positive_rate, colour)
        legend.append((colour, f"{curve.name} (AUC {format_number(curve.auc, 3)})"))
    return Figure(
        "ROC curve",
        plot.render(),
        "Each point is a threshold of the probability above which a row is assigned to "
        "the class. The closer to the upper left corner the better; the dashed line is "
        "guessing.",
        (*legend, ("rule", "guessing")),
    )


def draw_precision(scores: ClassificationScores) -> Figure:
    """Precision-recall curves."""
    averages = [
        f"{curve.name} {format_number(curve.average_precision, 3)}"
        for curve in scores.curves
    ]
    plot = Plot(
        make_share_axis("Recall"),
        make_share_axis("Precision"),
        f"Precision-recall curves; average precision: {', '.join(averages)}",
    )
    legend = []
    for index, curve in enumerate(scores.curves):
        colour = choose_colour(index)
        guessing = [curve.prevalence, curve.prevalence]
        plot.add_line([0, 1], guessing, f"{colour} thin dashed")
        plot.add_line(curve.recall, curve.precision, colour)
        average = format_number(curve.average_precision, 3)
        legend.append((colour, f"{curve.name} (average precision {average})"))
    return Figure(
        "Precision-recall curve",
        plot.render(),
        "Precision is the share of correct rows among those assigned to the class, "
        "recall the share of the class that is found. Thin dashed lines are guessing: "
        "the share of the class among all rows.",
        tuple(legend),
    )
