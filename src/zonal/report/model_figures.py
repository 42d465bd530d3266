"""Figures of the model: spectrum, relevance, learning and partial dependence."""

import dataclasses
from collections.abc import Callable

import numpy as np

from zonal.report.drawing import Axis, Plot, draw_bars
from zonal.report.formatting import format_number, format_percent, format_time
from zonal.report.partial_dependence import PartialDependence
from zonal.report.score_figures import Figure, choose_colour, make_share_axis
from zonal.report.spectrum import Spectrum

__all__ = [
    "draw_captured_variance",
    "draw_history",
    "draw_partial_dependence",
    "draw_relevance",
    "draw_spectrum",
]

_LEVEL_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
# At most this many values of a column have a tick each.
_FEW_VALUES = 5
_SECONDS_PER_DAY = 86_400.0
_MEASURES = {
    "bound": "Lower bound on the log evidence per row at each step.",
    "log density": "Leave-one-out log density of validation rows at each step.",
}


def draw_spectrum(spectrum: Spectrum) -> Figure:
    """The learned spectrum and those of networks."""
    levels = np.arange(len(spectrum.shares))
    shares = np.concatenate([spectrum.shares, *spectrum.networks.values()])
    least = max(shares[shares > 0].min(), shares.max() * 1e-9)
    last = float(max(levels[-1], 1) + 1)
    ticks = tuple((float(n), str(n)) for n in _LEVEL_TICKS if n <= last)
    plot = Plot(
        Axis(1.0, last, "1 + level (finer structure →)", log=True, ticks=ticks),
        Axis(
            least / 2, float(shares.max()) * 2, "Share of the prior variance", log=True
        ),
        "Share of each level in the prior variance, learned and of networks; the "
        f"nearest network has {spectrum.layers} hidden layers",
    )
    legend = [("s0", "learned")]
    for index, (depth, network) in enumerate(spectrum.networks.items()):
        # Odd levels of networks are zero up to rounding.
        shown = network > least
        plot.add_line(1 + levels[shown], network[shown], f"network n{index}")
        layers = "1 hidden layer" if depth == 1 else f"{depth} hidden layers"
        legend.append((f"network n{index}", f"network, {layers}"))
    shown = spectrum.shares > least
    plot.add_line(1 + levels[shown], spectrum.shares[shown], "s0")
    titles = [
        f"level {level}: {format_percent(float(spectrum.shares[level]), 3)}"
        for level in levels[shown]
    ]
    plot.add_points(1 + levels[shown], spectrum.shares[shown], "s0", titles, 2.6)
    return Figure(
        "Spectrum",
        plot.render(),
        "Level 0 is constant, level 1 linear, and higher levels are finer structure. "
        "A slow decay expects fine structure, as deep networks do.",
        tuple(legend),
    )


def draw_captured_variance(captured: list[tuple[str, float]]) -> Figure:
    """Share of the prior variance that the features capture in each band."""
    shares = [(name, min(max(share, 0.0), 1.0)) for name, share in captured]
    return Figure(
        "Captured variance",
        _draw_share_bars("Captured variance of each band", shares, 2),
        "Share of the prior variance that the features capture, for bands of levels "
        "with fewer features than harmonics. Missing variance widens intervals; more "
        "features capture more.",
    )


def draw_relevance(relevances: list[tuple[str, float]]) -> Figure:
    """Relevance of columns."""
    return Figure(
        "Relevance of columns",
        _draw_share_bars("Relevance of columns", relevances, 1),
        "Share of each column in the learned distances between rows; all columns sum "
        "to 100 %. Relevance is not effect: correlated columns can share an effect.",
    )


def _draw_share_bars(
    description: str, shares: list[tuple[str, float]], places: int
) -> str:
    names, values = [name for name, _ in shares], [share for _, share in shares]
    texts = [format_percent(share, places) for share in values]
    pairs = ", ".join(f"{a} {b}" for a, b in zip(names, texts, strict=True))
    return draw_bars(f"{description}: {pairs}", names, values, texts)


def draw_history(history: np.ndarray, measure: str = "bound") -> Figure:
    """The bound, or the log density, at every step of learning."""
    stages = list(dict.fromkeys(str(stage) for stage in history["stage"]))
    bound = history["bound"][np.isfinite(history["bound"])]
    # The first steps can be so low that the rest would look flat.
    visible = bound[bound >= np.quantile(bound, 0.05)]
    x = Axis.around(np.append(history["seconds"], 0), "Seconds")
    plot = Plot(
        dataclasses.replace(x, low=0.0),
        Axis.around(visible, f"{measure.capitalize()} per row"),
        f"{measure.capitalize()} per row over {len(history)} steps; the last is "
        f"{format_number(bound[-1])}",
    )
    for index, stage in enumerate(stages):
        steps = history[history["stage"] == stage]
        colour = choose_colour(index)
        # A stage can restart; each start has its own line.
        restarts = np.flatnonzero(np.diff(steps["number"]) <= 0) + 1
        for part in np.split(steps, restarts):
            plot.add_line(part["seconds"], part["bound"], f"{colour} thin")
        titles = [
            f"{stage}, step {step['number']}: {format_number(step['bound'])} after "
            f"{format_number(step['seconds'], 3)} s"
            for step in steps
        ]
        plot.add_points(steps["seconds"], steps["bound"], colour, titles)
    return Figure(
        "Learning",
        plot.render(),
        f"{_MEASURES[measure]} It should be level at the end. Compare steps within a "
        "stage only: stages use different rows.",
        tuple((choose_colour(index), stage) for index, stage in enumerate(stages)),
    )


def draw_partial_dependence(
    dependence: PartialDependence, target: str, classes: bool
) -> Figure:
    """The average prediction as a function of one column."""
    label = "Average probability" if classes else f"Average predicted {target}"
    if isinstance(dependence.values, list):
        return _draw_categories(dependence, label, classes)
    format_mean = format_percent if classes else format_number
    format_x = format_time if dependence.kind == "time" else format_number
    values, curves = np.asarray(dependence.values), dependence.curves
    limits = np.concatenate([[*curve.low, *curve.high] for curve in curves])
    plot = Plot(
        _make_value_axis(dependence, values, format_x),
        make_share_axis(label) if classes else Axis.around(limits, label),
        f"{label} as a function of {dependence.name}, with 90 % bands",
    )
    for index, curve in enumerate(curves):
        plot.add_band(values, curve.low, curve.high, choose_colour(index))
    for index, curve in enumerate(curves):
        plot.add_line(values, curve.mean, choose_colour(index))
        titles = [
            f"{format_x(value)}: {format_mean(mean)}"
            for value, mean in zip(values, curve.mean, strict=True)
        ]
        plot.add_points(values, curve.mean, choose_colour(index), titles, 2.0)
    legend = [(choose_colour(index), curve.name) for index, curve in enumerate(curves)]
    return Figure(
        dependence.name,
        plot.render(),
        f"{label}, with the band of 90 % of the functions in the posterior.",
        tuple(legend) if classes else (),
    )


def _make_value_axis(
    dependence: PartialDependence,
    values: np.ndarray,
    format_x: Callable[[float], str],
) -> Axis:
    low, high = float(values[0]), float(values[-1])
    ticks = None
    if dependence.kind == "time":
        days = np.linspace(low, high, 4)[1:3] // _SECONDS_PER_DAY * _SECONDS_PER_DAY
        ticks = tuple((float(day), format_x(day)) for day in days)
    elif len(values) <= _FEW_VALUES:
        ticks = tuple((float(value), format_x(value)) for value in values)
    return Axis(low, high, dependence.name, ticks=ticks, format_tick=format_x)


def _draw_categories(
    dependence: PartialDependence, label: str, classes: bool
) -> Figure:
    curve = dependence.curves[0]
    format_mean = format_percent if classes else format_number
    label = f"{label} of {curve.name}" if classes else label
    svg = draw_bars(
        f"{label} for each category of {dependence.name}",
        list(dependence.values),
        curve.mean.tolist(),
        [format_mean(mean) for mean in curve.mean],
        list(zip(curve.low.tolist(), curve.high.tolist(), strict=True)),
    )
    caption = f"{label} for each category, with 90 % intervals."
    return Figure(dependence.name, svg, caption)
