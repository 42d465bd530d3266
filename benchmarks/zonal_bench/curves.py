"""Scores against training time, as a table and as a figure."""

from pathlib import Path

import numpy as np

from zonal_bench.listings import Tables, format_markdown, group_by_method, sort_tables
from zonal_bench.methods import BUDGETS
from zonal_bench.runs import METHODS, Record

__all__ = ["draw_speed", "format_speed_table"]

_SPEED_FIGURE = (
    "![negative log density of test rows against seconds of training]"
    "(figures/time_to_quality.svg)"
)


def collect_zonal_curve(records: list[Record], score: str) -> list[tuple[float, float]]:
    """Training seconds and scores of fits with increasing time limits."""
    names = [*(f"zonal-{seconds}s" for seconds in BUDGETS), "zonal"]
    runs = [run for run in records if run["method"] in names and "scores" in run]
    return sorted((run["seconds"], run["scores"][score]) for run in runs)


def format_speed_table(tables: Tables) -> str:
    """Training time until zonal matches the final NLL of each peer."""
    rows = []
    for table, records in sort_tables(tables):
        zonal = collect_zonal_curve(records, "nll")
        for name, some in group_by_method(records).items():
            if name == "zonal" or METHODS[name].variant:
                continue
            peer = some[0]
            goal = peer["scores"]["nll"]
            reached = [seconds for seconds, nll in zonal if nll <= goal]
            first = min(reached, default=np.nan)
            ratio = peer["seconds"] / first
            rows.append(
                [
                    table,
                    METHODS[name].title,
                    f"{goal:.3f}",
                    f"{peer['seconds']:.0f}",
                    f"{first:.1f}" if reached else "never",
                    f"{ratio:.{1 if ratio < 10 else 0}f}" if reached else "–",
                ]
            )
    head = ["", "peer", "final NLL", "seconds", "seconds of zonal", "speed-up"]
    return f"{_SPEED_FIGURE}\n\n{format_markdown(head, rows)}"


def draw_speed(tables: Tables, path: Path) -> None:
    """NLL against training seconds, one panel per table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "zonal"}):
        figure = Figure(figsize=(4.0 * len(tables) + 1.6, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for axis, (table, records) in zip(axes, sort_tables(tables), strict=True):
            curves = {"zonal": collect_zonal_curve(records, "nll")}
            for name, some in group_by_method(records).items():
                # Linear models would stretch both axes.
                if name in ("zonal", "linear") or METHODS[name].variant:
                    continue
                end = {"seconds": some[0]["seconds"], **some[0]["scores"]}
                curves[METHODS[name].title] = [
                    (run["seconds"], run["nll"]) for run in [*some[0]["curve"], end]
                ]
            curves = {name: curve for name, curve in curves.items() if curve}
            for name, curve in curves.items():
                seconds, nll = np.array(curve).T
                is_zonal = name == "zonal"
                axis.plot(
                    seconds,
                    nll,
                    "o-" if is_zonal or len(curve) == 1 else "-",
                    label=name,
                    linewidth=2.2 if is_zonal else 1.4,
                    zorder=3 if is_zonal else 2,
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
