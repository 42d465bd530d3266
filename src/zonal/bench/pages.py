"""From stored results to the tables and figures of the documentation.

A page has places ``<!-- bench:NAME -->`` ... ``<!-- end -->``; what stands between is
replaced by the table of that name. Figures are written beside, as SVG.
"""

import collections
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zonal.bench.methods import BUDGETS
from zonal.bench.runs import METHODS, Record, stored
from zonal.bench.tables import UCI

__all__ = ["TABLES", "write_pages"]

_PLACE = re.compile(r"(<!-- bench:(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Tables whose mean ranks are told: those of thousands of rows.
_RANKED = UCI[:8]
_SPEED_FIGURE = (
    "![negative log density of test rows against seconds of training]"
    "(figures/time_to_quality.svg)"
)

Tables = Mapping[str, list[Record]]


def write_pages(results: Path, pages: Iterable[Path], figures: Path) -> list[Path]:
    """Fill the places of pages with tables, and draw the figures; what was written."""
    found: dict[str, Tables] = dict(stored(results))
    if "speed" in found:
        found["speed"] = _with_everyone(found["speed"], found.get("uci", {}))
    written = []
    for page in pages:
        text = page.read_text()
        filled = _PLACE.sub(lambda place: _filled(place, found), text)
        if filled != text:
            page.write_text(filled)
            written.append(page)
    if "speed" in found:
        figures.mkdir(parents=True, exist_ok=True)
        path = figures / "time_to_quality.svg"
        _draw_speed(found["speed"], path)
        written.append(path)
    return written


def _filled(place: re.Match, found: Mapping[str, Tables]) -> str:
    name = place[2]
    if name not in TABLES:
        known = ", ".join(TABLES)
        raise ValueError(f"a page asks for the table {name!r}; there are {known}")
    experiment = name.split("-")[0]
    if experiment not in found:
        return f"{place[1]}(not measured yet)\n{place[3]}"
    records = [one for table in found[experiment].values() for one in table]
    body = TABLES[name](found[experiment])
    return f"{place[1]}{body}\n\n{_origin(experiment, records)}\n{place[3]}"


def _origin(experiment: str, records: list[Record]) -> str:
    """Which script printed it, on what machine, when, with what."""
    cores = sorted({record["machine"]["cores"] for record in records})
    memory = records[0]["machine"]["memory_gb"]
    dates = sorted({record["date"] for record in records})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions: dict[str, str] = {}
    for record in records:
        versions |= record["versions"]
    told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    # Peers tell how many steps they took; ours, how many they were allowed.
    steps = sorted(
        {
            record["steps"]
            for record in records
            if "steps" in record and METHODS[record["method"]].package == "zonal"
        }
    )
    shorter = "".join(f" --steps {count}" for count in steps)
    return (
        f"(`zonal bench {experiment}{shorter}`, {' or '.join(map(str, cores))} "
        f"core{'' if cores == [1] else 's'}, {memory} GB, {span}; {told})"
    )


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _by_method(records: list[Record]) -> dict[str, list[Record]]:
    found = collections.defaultdict(list)
    for record in records:
        found[record["method"]].append(record)
    return {name: found[name] for name in METHODS if name in found}


def _values(records: Iterable[Record], score: str) -> list[float]:
    return [one["scores"][score] for one in records if "scores" in one]


def _told(values: list[float], digits: int = 3) -> str:
    """A mean, and its standard error where there are several values."""
    if not values:
        return "–"
    mean = np.mean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _seconds(records: Iterable[Record]) -> str:
    every = [one["seconds"] for one in records if "seconds" in one]
    return f"{np.mean(every):.0f}" if every else "–"


def _failure(records: Iterable[Record]) -> str:
    reasons = {one["failed"] for one in records if "failed" in one}
    return "; ".join(sorted(reasons))


def _methods_table(scores: Mapping[str, str], tables: Tables) -> str:
    """A row for each method: scores, time, memory."""
    parts = []
    for table, records in tables.items():
        rows = []
        for name, some in _by_method(records).items():
            if not _values(some, next(iter(scores))):
                why = f"failed: {_failure(some)}"
                rows.append([METHODS[name].title, why, *[""] * (len(scores) + 2)])
                continue
            done = [one for one in some if "scores" in one]
            rows.append(
                [
                    METHODS[name].title,
                    *(_told(_values(some, score), 4) for score in scores),
                    _seconds(done),
                    f"{np.mean([one['rows_a_second'] for one in done]):,.0f}",
                    f"{max(one['peak_mb'] for one in done):,.0f}",
                ]
            )
        head = [table, *scores.values(), "seconds", "rows/s predicted", "peak MB"]
        count = records[0].get("rows")
        caption = f"\n{count:,} rows to learn from." if count else ""
        parts.append(_table(head, rows) + "\n" + caption)
    return "\n\n".join(part.rstrip() for part in parts)


def _numbers_table(tables: Tables) -> str:
    return _methods_table({"rmse": "RMSE", "nll": "NLL", "crps": "CRPS"}, tables)


def _two_classes_table(tables: Tables) -> str:
    return _methods_table({"auc": "AUC", "log_loss": "log loss", "ece": "ECE"}, tables)


def _classes_table(tables: Tables) -> str:
    return _methods_table(
        {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE"}, tables
    )


def _airline_table(tables: Tables) -> str:
    parts = []
    if "flights" in tables:
        parts.append(_numbers_table({"flights": tables["flights"]}))
    if "late" in tables:
        parts.append(_two_classes_table({"late": tables["late"]}))
    return "\n\n".join(parts)


def _methods(tables: Tables) -> list[str]:
    """The default and all peers that have met any of the tables, in their own order."""
    met = {record["method"] for records in tables.values() for record in records}
    return [
        name
        for name, method in METHODS.items()
        if name in met and (name == "zonal" or method.package != "zonal")
    ]


def _means(records: list[Record], score: str, methods: list[str]) -> dict[str, float]:
    """A mean over splits for each of the methods that did not fail."""
    met = _by_method(records)
    found = {name: _values(met.get(name, []), score) for name in methods}
    return {name: float(np.mean(values)) for name, values in found.items() if values}


def _ranks(score: str, tables: Tables) -> dict[str, list[int]]:
    """The place on each of the tables that count, of each method that met them all."""
    ranks = collections.defaultdict(list)
    counted = [tables[table] for table in _RANKED if table in tables]
    methods = [
        name
        for name in _methods(tables)
        if all(name in _by_method(records) for records in counted)
    ]
    for records in counted:
        means = _means(records, score, methods)
        order = sorted(means, key=lambda name: means[name])
        for name in methods:
            # One that failed comes last.
            place = order.index(name) + 1 if name in order else len(methods)
            ranks[name].append(place)
    return ranks


def _grid(score: str, tables: Tables) -> str:
    """A row for each table, a column for each method; the best is bold."""
    methods, rows = _methods(tables), []
    for table, records in _ordered(tables):
        means, found = _means(records, score, methods), _by_method(records)
        if not means:
            continue
        best = min(means, key=lambda name: means[name])
        told = {name: _told(_values(found.get(name, []), score)) for name in methods}
        if len(means) > 1:
            told[best] = f"**{told[best]}**"
        rows.append([table, *told.values()])
    ranks = _ranks(score, tables)
    if ranks:
        count = max(map(len, ranks.values()))
        cells = [
            f"{np.mean(ranks[name]):.1f}" if name in ranks else "–" for name in methods
        ]
        rows.append([f"mean rank of {count}", *cells])
    return _table(["", *(METHODS[name].title for name in methods)], rows)


def _uci_summary(tables: Tables) -> str:
    """Mean ranks of every method, and how long it takes."""
    by_nll, by_rmse = _ranks("nll", tables), _ranks("rmse", tables)
    rows = []
    for name in sorted(by_nll, key=lambda name: np.mean(by_nll[name])):
        done = [
            record
            for table in _RANKED
            for record in tables.get(table, [])
            if record["method"] == name and "scores" in record
        ]
        rows.append(
            [
                METHODS[name].title,
                f"{np.mean(by_nll[name]):.1f}",
                f"{np.mean(by_rmse[name]):.1f}",
                _seconds(done),
            ]
        )
    head = ["", "place by NLL", "place by RMSE", "seconds of training, mean"]
    return _table(head, rows)


def _ordered(tables: Tables) -> list[tuple[str, list[Record]]]:
    """Tables in the order of their experiment."""
    known = {name: number for number, name in enumerate(UCI)}
    return sorted(tables.items(), key=lambda pair: known.get(pair[0], len(known)))


def _uci_seconds(tables: Tables) -> str:
    methods, rows = _methods(tables), []
    for table, records in _ordered(tables):
        found = _by_method(records)
        cells = [
            _seconds(one for one in found.get(name, []) if "scores" in one)
            for name in methods
        ]
        rows.append([table, *cells])
    return _table(["", *(METHODS[name].title for name in methods)], rows)


def _uci_zonal(tables: Tables) -> str:
    """What the default gives: scores, coverage, depth."""
    levels = ("50%", "80%", "90%", "95%")
    rows = []
    for table, records in _ordered(tables):
        some = [one for one in records if one["method"] == "zonal" and "scores" in one]
        if not some:
            continue
        inside = [
            f"{np.mean([one['scores']['coverage'][level] for one in some]):.3f}"
            for level in levels
        ]
        depths = sorted({one["depth"] for one in some})
        rows.append(
            [
                table,
                f"{some[0]['rows']:,}",
                *(_told(_values(some, score)) for score in ("rmse", "nll", "crps")),
                *inside,
                ", ".join(map(str, depths)),
                _seconds(some),
            ]
        )
    inside_head = [f"in {level}" for level in levels]
    head = ["", "rows", "RMSE", "NLL", "CRPS", *inside_head, "depth", "seconds"]
    return _table(head, rows)


def _uci_failures(tables: Tables) -> str:
    """Which peers failed where, and why."""
    lines = collections.defaultdict(list)
    for table, records in _ordered(tables):
        for record in records:
            if "failed" in record:
                reason = re.sub(r"[\d,]{4,}", "N", record["failed"])
                lines[METHODS[record["method"]].title, reason].append(table)
    if not lines:
        return "None failed."
    return "\n".join(
        f"- {method} on {', '.join(dict.fromkeys(some))}: {reason}"
        for (method, reason), some in lines.items()
    )


def _uci_solved(tables: Tables) -> str:
    """The default beside fewer and more features for the solution, where any were."""
    ours = {"zonal-512", "zonal", "zonal-4096"}
    some = {
        table: [one for one in records if one["method"] in ours]
        for table, records in tables.items()
    }
    return _changes_table(
        {
            table: records
            for table, records in some.items()
            if len(_by_method(records)) > 1
        }
    )


def _changes_table(tables: Tables) -> str:
    """A row for each method, a column for each table."""
    rows = []
    names = [name for name, _ in _ordered(tables)]
    if not names:
        return "(not measured yet)"
    found = {table: _by_method(tables[table]) for table in names}
    for method in METHODS:
        cells = [
            " / ".join(
                _told(_values(found[table].get(method, []), score))
                for score in ("rmse", "nll")
            )
            for table in names
        ]
        if any(cell != "– / –" for cell in cells):
            rows.append([METHODS[method].title, *cells])
    return _table(["RMSE / NLL", *names], rows)


def _depth_table(tables: Tables) -> str:
    rows = []
    for table in sorted(tables, key=lambda name: int(name.split("-")[0])):
        learned = sorted(one["depth"] for one in tables[table] if "depth" in one)
        low, middle, high = np.quantile(learned, [0.25, 0.5, 0.75])
        rows.append(
            [
                table.split("-")[0],
                " ".join(map(str, learned)),
                f"{middle:g}",
                f"{low:g} to {high:g}",
            ]
        )
    return _table(["layers drawn with", "learned", "median", "quartiles"], rows)


def _with_everyone(timed: Tables, whole: Tables) -> Tables:
    """Fits of limited time, and beside them the whole ones of the same split."""
    return {
        table: records + [one for one in whole.get(table, []) if one["split"] == 0]
        for table, records in timed.items()
    }


def curve_of_zonal(records: list[Record], score: str) -> list[tuple[float, float]]:
    """Seconds and a score of fits with ever more time, each from start to end."""
    names = [*(f"zonal-{seconds}s" for seconds in BUDGETS), "zonal"]
    found = [one for one in records if one["method"] in names and "scores" in one]
    return sorted((one["seconds"], one["scores"][score]) for one in found)


def _speed_table(tables: Tables) -> str:
    """When zonal is as good as each peer is in the end."""
    rows = []
    for table, records in _ordered(tables):
        ours = curve_of_zonal(records, "nll")
        for name, some in _by_method(records).items():
            if name.startswith("zonal") or "scores" not in some[0]:
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
    return f"{_SPEED_FIGURE}\n\n{_table(head, rows)}"


def _draw_speed(tables: Tables, path: Path) -> None:
    """NLL against seconds, a panel for each table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "zonal"}):
        figure = Figure(figsize=(4.0 * len(tables) + 1.6, 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for axis, (table, records) in zip(axes, _ordered(tables), strict=True):
            curves = {"zonal": curve_of_zonal(records, "nll")}
            for name, some in _by_method(records).items():
                # A line of no features would be far off to the left, and on top.
                if name.startswith(("zonal", "linear")) or "scores" not in some[0]:
                    continue
                end = {"seconds": some[0]["seconds"], **some[0]["scores"]}
                curves[METHODS[name].title] = [
                    (one["seconds"], one["nll"]) for one in [*some[0]["curve"], end]
                ]
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


TABLES: dict[str, Callable[[Any], str]] = {
    "uci-summary": _uci_summary,
    "uci-zonal": _uci_zonal,
    "uci-rmse": lambda tables: _grid("rmse", tables),
    "uci-nll": lambda tables: _grid("nll", tables),
    "uci-crps": lambda tables: _grid("crps", tables),
    "uci-seconds": _uci_seconds,
    "uci-failures": _uci_failures,
    "uci-solved": _uci_solved,
    "layouts": _changes_table,
    "susy": _two_classes_table,
    "covtype": _classes_table,
    "song": _numbers_table,
    "buzz": _numbers_table,
    "houseelectric": _numbers_table,
    "airline": _airline_table,
    "speed": _speed_table,
    "depth": _depth_table,
}
