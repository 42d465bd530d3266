"""Figures of the model: what it has learned, and what columns do in it."""

import dataclasses

import numpy as np

from zonal.report.drawing import Axis, Plot, bars
from zonal.report.effects import Effect
from zonal.report.figures import Figure, series, shares_axis
from zonal.report.learned import Spectrum
from zonal.report.words import number, percent, time

__all__ = [
    "captured_figure",
    "effect_figure",
    "history_figure",
    "relevance_figure",
    "spectrum_figure",
]

# Where levels are marked.
_LEVELS = (1, 2, 3, 5, 10, 20, 50, 100)
# So few values of a column are marked themselves.
_FEW = 5
_DAY = 86_400.0


def spectrum_figure(found: Spectrum) -> Figure:
    """The learned spectrum beside those of networks."""
    levels = np.arange(len(found.shares))
    every = np.concatenate([found.shares, *found.networks.values()])
    least = max(every[every > 0].min(), every.max() * 1e-9)
    last = float(max(levels[-1], 1) + 1)
    ticks = tuple((float(n), str(n)) for n in _LEVELS if n <= last)
    x = Axis(1.0, last, "1 + level (finer structure →)", log=True, ticks=ticks)
    y = Axis(least / 2, float(every.max()) * 2, "share of the prior variance", log=True)
    about = (
        "Shares of levels in the prior variance, learned and of networks; nearest is "
        f"a network of {found.layers} hidden layers"
    )
    plot = Plot(x, y, about)
    legend = [("s0", "learned")]
    for place, (depth, shares) in enumerate(found.networks.items()):
        # Networks have no odd levels beyond the first few; rounding is no level.
        shown = shares > least
        kind = f"network n{place}"
        plot.line(1 + levels[shown], shares[shown], kind)
        layers = "1 layer" if depth == 1 else f"{depth} layers"
        legend.append((kind, f"network of {layers}"))
    shown = found.shares > least
    plot.line(1 + levels[shown], found.shares[shown], "s0")
    titles = [
        f"level {level}: {percent(float(found.shares[level]), 3)}"
        for level in levels[shown]
    ]
    plot.points(1 + levels[shown], found.shares[shown], "s0", titles, 2.6)
    return Figure(
        "Spectrum",
        plot.svg(),
        "Level 0 is a constant, level 1 is linear, and higher levels are finer "
        "structure. A slow fall expects fine structure, as deep networks do.",
        tuple(legend),
    )


def captured_figure(found: list[tuple[str, float]]) -> Figure:
    """What features capture of each band."""
    names = [name for name, _ in found]
    shares = [min(max(share, 0.0), 1.0) for _, share in found]
    texts = [percent(share, 2) for share in shares]
    said = ", ".join(f"{a} {b}" for a, b in zip(names, texts, strict=True))
    return Figure(
        "Captured variance",
        bars(f"Captured variance of bands: {said}", names, shares, texts),
        "Bands of levels that have fewer features than harmonics, and how much of the "
        "prior variance is kept. What is lost makes intervals wider; more "
        "features capture more.",
    )


def relevance_figure(found: list[tuple[str, float]]) -> Figure:
    """Each column's share in telling rows apart."""
    names, shares = [name for name, _ in found], [share for _, share in found]
    texts = [percent(share) for share in shares]
    said = ", ".join(f"{a} {b}" for a, b in zip(names, texts, strict=True))
    return Figure(
        "Relevance of columns",
        bars(f"Relevance of columns: {said}", names, shares, texts),
        "How much each column counts in telling rows apart; all together are 100 %. A "
        "column may count for much and still have an effect that others share.",
    )


def history_figure(history: np.ndarray) -> Figure:
    """The bound at every step."""
    stages = list(dict.fromkeys(str(stage) for stage in history["stage"]))
    bound = history["bound"][np.isfinite(history["bound"])]
    # The first steps may lie far below the rest; the figure is of the rest.
    low = np.quantile(bound, 0.05)
    x = Axis.around(np.append(history["seconds"], 0), "seconds")
    x = dataclasses.replace(x, low=0.0)
    y = Axis.around(bound[bound >= low], "bound a row")
    about = f"Bound a row over {len(history)} steps, at last {number(bound[-1])}"
    plot = Plot(x, y, about)
    for place, stage in enumerate(stages):
        chosen = history[history["stage"] == stage]
        kind = series(place)
        # A stage may begin several times; each beginning has a line of its own.
        begins = np.flatnonzero(np.diff(chosen["number"]) <= 0) + 1
        for part in np.split(chosen, begins):
            plot.line(part["seconds"], part["bound"], f"{kind} thin")
        titles = [
            f"{stage}, step {one['number']}: {number(one['bound'])} after "
            f"{number(one['seconds'], 3)} s"
            for one in chosen
        ]
        plot.points(chosen["seconds"], chosen["bound"], kind, titles)
    return Figure(
        "Learning",
        plot.svg(),
        "The lower bound on the log evidence a row, step by step. It should be level "
        "by the end. Compare steps within a stage: stages differ in what they see.",
        tuple((series(place), stage) for place, stage in enumerate(stages)),
    )


def effect_figure(found: Effect, target: str, classes: bool) -> Figure:
    """The average prediction while one column is changed."""
    what = "average probability" if classes else f"average predicted {target}"
    about = f"{what} as {found.name} changes, with bands of 90 %"
    if isinstance(found.at, list):
        course = found.courses[0]
        words = percent if classes else number
        name = f" of {course.name}" if classes else ""
        svg = bars(
            f"{what}{name} for each value of {found.name}",
            found.at,
            course.mean.tolist(),
            [words(one) for one in course.mean],
            list(zip(course.low.tolist(), course.high.tolist(), strict=True)),
        )
        return Figure(found.name, svg, f"{what}{name}, for each category.".capitalize())
    at = np.asarray(found.at)
    every = np.concatenate([[*one.low, *one.high] for one in found.courses])
    words = time if found.kind == "time" else number
    x = Axis(float(at[0]), float(at[-1]), found.name, words=words)
    if found.kind == "time":
        days = np.linspace(x.low, x.high, 4)[1:3] // _DAY * _DAY
        x = dataclasses.replace(x, ticks=tuple((float(d), time(d)) for d in days))
    elif len(at) <= _FEW:
        ticks = tuple((float(one), words(one)) for one in at)
        x = dataclasses.replace(x, ticks=ticks)
    y = shares_axis(what) if classes else Axis.around(every, what)
    plot = Plot(x, y, about)
    for place, one in enumerate(found.courses):
        plot.band(at, one.low, one.high, series(place))
    for place, one in enumerate(found.courses):
        plot.line(at, one.mean, series(place))
        said = percent if classes else number
        titles = [
            f"{words(value)}: {said(mean)}"
            for value, mean in zip(at, one.mean, strict=True)
        ]
        plot.points(at, one.mean, series(place), titles, 2.0)
    legend = tuple((series(place), one.name) for place, one in enumerate(found.courses))
    first = f"{what[0].upper()}{what[1:]}"
    reading = f"{first}; in the band lie 90 % of the functions that the model allows."
    return Figure(found.name, plot.svg(), reading, legend if classes else ())
