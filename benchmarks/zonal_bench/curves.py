"""Quality against seconds of training, as a table and as a figure."""

from pathlib import Path

import numpy as np

from zonal_bench.listings import Tables, by_method, in_order, markdown_table
from zonal_bench.methods import BUDGETS
from zonal_bench.runs import METHODS, Record

__all__ = ["draw_speed", "speed_table"]

_SPEED_FIGURE = (
    "![negative log density of test rows against seconds of training]"
    "(figures/time_to_quality.svg)"
)


def curve_of_zonal(records: list[Record], score: str) -> list[tuple[float, float]]:
    """Seconds and a score of fits with ever more time, each from start to end."""
    names = [*(f"zonal-{seconds}s" for seconds in BUDGETS), "zonal"]
    found = [one for one in records if one["method"] in names and "scores" in one]
    return sorted((one["seconds"], one["scores"][score]) for one in found)


def speed_table(tables: Tables) -> str:
    """When zonal is as good as each peer is in the end."""
    rows = []
    for table, records in in_order(tables):
        ours = curve_of_zonal(records, "nll")
        for name, some in by_method(records).items():
            if name == "zonal" or METHODS[name].variant:
                continue
            theirs = some[0]
            goal = theirs["scores"]["nll"]
            reached = [seconds for seconds, nll in ours if nll <= goal]
            first = min(reached, default=np.nan)
            ratio = theirs["seconds"] / first
            rows.append(
                [
                    table,
                    METHODS[name].title,
                    f"{goal:.3f}",
                    f"{theirs['seconds']:.0f}",
                    f"{first:.1f}" if reached else "never",
                    f"{ratio:.{1 if ratio < 10 else 0}f}" if reached else "–",
                ]
            )
    head = ["", "peer", "its NLL in the end", "its seconds", "zonal's", "times sooner"]
    return f"{_SPEED_FIGURE}\n\n{markdown_table(head, rows)}"


def draw_speed(tables: Tables, path: Path) -> None:
    """NLL against seconds, a panel for each table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "zonal"}):
        figure = Figure(figsize=(4.0 * len(tables) + 1.6, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for axis, (table, records) in zip(axes, in_order(tables), strict=True):
            curves = {"zonal": curve_of_zonal(records, "nll")}
            for name, some in by_method(records).items():
                # A line of no features would be far off to the left, and on top.
                if name in ("zonal", "linear") or METHODS[name].variant:
                    continue
                end = {"seconds": some[0]["seconds"], **some[0]["scores"]}
                curves[METHODS[name].title] = [
                    (one["seconds"], one["nll"]) for one in [*some[0]["curve"], end]
                ]
            curves = {name: curve for name, curve in curves.items() if curve}
            for name, curve in curves.items():
                seconds, nll = np.array(curve).T
                ours = name == "zonal"
                axis.plot(
                    seconds,
                    nll,
                    "o-" if ours or len(curve) == 1 else "-",
                    label=name,
                    linewidth=2.2 if ours else 1.4,
                    zorder=3 if ours else 2,
                    markersize=4,
                )
            lows = [min(nll for _, nll in curve) for curve in curves.values()]
            axis.set(xscale="log", title=table, xlabel="seconds of training")
            axis.set_ylim(min(lows) - 0.1, max(lows) + 0.5)
            axis.grid(alpha=0.25)
        axes[0].set_ylabel("negative log density, test rows")
        figure.legend(
            *axes[-1].get_legend_handles_labels(),
            loc="outside right center",
            frameon=False,
            fontsize=9,
        )
        figure.savefig(path, metadata={"Date": None})
