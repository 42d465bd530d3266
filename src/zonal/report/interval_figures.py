"""Figures of prediction intervals: coverage and width against what is known of rows."""

import dataclasses
from collections.abc import Callable

import numpy as np

from zonal.report.drawing import Axis, Plot
from zonal.report.formatting import (
    format_number,
    format_percent,
    format_time,
    truncate,
)
from zonal.report.score_figures import Figure
from zonal.scores.conditional import ConditionalCoverage, Covariate, RowIntervals

__all__ = ["draw_conditional_coverage", "draw_interval_width", "get_value_format"]

_LONGEST_NAME = 36


def get_value_format(kind: str) -> Callable[[float], str]:
    """How values of a covariate are written."""
    return format_time if kind == "time" else format_number


def draw_conditional_coverage(coverage: ConditionalCoverage) -> Figure:
    """Observed coverage of 90 % intervals in bins of a covariate."""
    format_value = get_value_format(coverage.kind)
    edges = np.append(0.0, np.cumsum(coverage.share))
    values = [*coverage.low, coverage.high[-1]]
    ticks = tuple(
        (float(edge), format_value(float(value)))
        for edge, value in zip(edges, values, strict=True)
    )
    least = min(float(coverage.coverage.min()), float(coverage.range_low.min()))
    name = truncate(coverage.name, _LONGEST_NAME)
    shares = ", ".join(format_percent(share, 0) for share in coverage.coverage)
    plot = Plot(
        Axis(0.0, 1.0, _get_label(coverage.name, coverage.kind), ticks=ticks),
        Axis(
            max(least - 0.03, 0.0),
            1.0,
            "Observed coverage of 90 % intervals",
            format_tick=lambda share: f"{format_number(100 * share, 3)} %",
        ),
        f"Observed coverage of 90 % intervals by increasing {coverage.name}: {shares}",
    )
    steps = np.repeat(edges, 2)[1:-1]
    plot.add_band(
        steps, np.repeat(coverage.range_low, 2), np.repeat(coverage.range_high, 2),
        "plain",
    )  # fmt: skip
    plot.add_line(steps, np.repeat(coverage.expected, 2), "rule")
    middles = (edges[1:] + edges[:-1]) / 2
    plot.add_line(middles, coverage.coverage, "s0")
    titles = [
        f"{format_value(float(coverage.low[index]))} to "
        f"{format_value(float(coverage.high[index]))}: intervals cover "
        f"{format_percent(coverage.coverage[index])} of rows, mean width "
        f"{format_number(coverage.mean_width[index])}"
        for index in range(len(coverage))
    ]
    plot.add_points(middles, coverage.coverage, "s0", titles, 3.4)
    return Figure(
        f"Coverage by {name}",
        plot.render(),
        "Equal lengths of the axis hold equal numbers of rows. The grey band is the "
        "95 % range for correct intervals: below it they are too narrow for these "
        "rows, above it too wide.",
        (("s0", "observed"), ("rule", "expected")),
    )


def draw_interval_width(covariate: Covariate, rows: RowIntervals) -> Figure | None:
    """Width of the 90 % interval of each row; None if no row has a value."""
    format_value = get_value_format(covariate.kind)
    present = np.flatnonzero(np.isfinite(covariate.values))
    if len(present) == 0:
        return None
    values, width = covariate.values[present], rows.intervals.width[present]
    inside = rows.intervals.inside[present] > 0
    name = truncate(covariate.name, _LONGEST_NAME)
    label = _get_label(covariate.name, covariate.kind)
    width_label = "Width of the 90 % interval"
    plot = Plot(
        _make_value_axis(values, label, covariate.kind),
        dataclasses.replace(Axis.around(np.append(width, 0.0), width_label), low=0.0),
        f"Width of 90 % intervals against {covariate.name}: {len(values)} rows, widths "
        f"from {format_number(width.min())} to {format_number(width.max())}",
    )
    titles = np.array(
        [
            f"row {row}: {name} {format_value(float(value))}, width "
            f"{format_number(size)}"
            for row, value, size in zip(
                rows.row_numbers[present], values, width, strict=True
            )
        ],
        object,
    )
    for chosen, kind in ((inside, "s0 many"), (~inside, "s1 many")):
        plot.add_points(
            values[chosen], width[chosen], kind, titles[chosen].tolist(), 1.8
        )
    return Figure(
        f"Width by {name}",
        plot.render(),
        "Each dot is a row; the model is unsure where dots are high. Of correct "
        "intervals, narrow or wide, one in ten does not contain its target.",
        (("s0", "inside its 90 % interval"), ("s1", "outside")),
    )


def _get_label(name: str, kind: str) -> str:
    """Label of an axis; names of columns keep their case."""
    return name.capitalize() if kind == "prediction" else name


def _make_value_axis(values: np.ndarray, label: str, kind: str) -> Axis:
    axis = Axis.around(values, label)
    if kind != "time":
        return axis
    ends = np.linspace(axis.low, axis.high, 4)[1:3]
    ticks = tuple((float(value), format_time(float(value))[:10]) for value in ends)
    return dataclasses.replace(axis, ticks=ticks)
