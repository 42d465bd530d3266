"""Tables in Markdown from stored runs, with a row per method or per table."""

import collections
import functools
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from zonal_bench.runs import METHODS, Record
from zonal_bench.tables import UCI

__all__ = [
    "CALIBRATED",
    "LISTINGS",
    "MECHANISMS",
    "SIZES",
    "TREES",
    "Tables",
    "format_markdown",
    "group_by_method",
    "sort_tables",
]

# Tables that count for mean ranks: those with thousands of rows.
_RANKED = UCI[:8]

Tables = Mapping[str, list[Record]]


def format_markdown(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def group_by_method(records: list[Record]) -> dict[str, list[Record]]:
    """Runs of each method, in the order of `METHODS`."""
    groups = collections.defaultdict(list)
    for record in records:
        groups[record["method"]].append(record)
    return {name: groups[name] for name in METHODS if name in groups}


def _list_scores(records: Iterable[Record], score: str) -> list[float]:
    return [run["scores"][score] for run in records if "scores" in run]


def _format_mean(values: list[float], digits: int = 3) -> str:
    """Mean, with its standard error if there are several values."""
    if not values:
        return "–"
    mean = np.mean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def _format_seconds(records: Iterable[Record]) -> str:
    seconds = [run["seconds"] for run in records if "seconds" in run]
    return f"{np.mean(seconds):.0f}" if seconds else "–"


def _format_failures(records: Iterable[Record]) -> str:
    reasons = {run["failed"] for run in records if "failed" in run}
    return "; ".join(sorted(reasons))


def _format_methods(scores: Mapping[str, str], tables: Tables) -> str:
    """Scores, time and memory, with a row per method."""
    parts = []
    for table, records in tables.items():
        rows = []
        for name, some in group_by_method(records).items():
            if not _list_scores(some, next(iter(scores))):
                reason = f"failed: {_format_failures(some)}"
                rows.append([METHODS[name].title, reason, *[""] * (len(scores) + 2)])
                continue
            done = [run for run in some if "scores" in run]
            rows.append(
                [
                    METHODS[name].title,
                    *(_format_mean(_list_scores(some, score), 4) for score in scores),
                    _format_seconds(done),
                    f"{np.mean([run['rows_a_second'] for run in done]):,.0f}",
                    f"{max(run['peak_mb'] for run in done):,.0f}",
                ]
            )
        head = [table, *scores.values(), "seconds", "rows/s predicted", "peak MB"]
        count = records[0].get("rows")
        caption = f"\n{count:,} training rows." if count else ""
        parts.append(format_markdown(head, rows) + "\n" + caption)
    return "\n\n".join(part.rstrip() for part in parts)


def _format_regression(tables: Tables) -> str:
    return _format_methods({"rmse": "RMSE", "nll": "NLL", "crps": "CRPS"}, tables)


def _format_binary(tables: Tables) -> str:
    return _format_methods({"auc": "AUC", "log_loss": "log loss", "ece": "ECE"}, tables)


def _format_classes(tables: Tables) -> str:
    return _format_methods(
        {"accuracy": "accuracy", "log_loss": "log loss", "ece": "ECE"}, tables
    )


def _format_airline(tables: Tables) -> str:
    parts = []
    if "flights" in tables:
        parts.append(_format_regression({"flights": tables["flights"]}))
    if "late" in tables:
        parts.append(_format_binary({"late": tables["late"]}))
    return "\n\n".join(parts)


def _list_methods(tables: Tables) -> list[str]:
    """The default and all peers that ran on any of the tables, in order."""
    present = {run["method"] for records in tables.values() for run in records}
    return [
        name
        for name, method in METHODS.items()
        if name in present and not method.variant
    ]


def _compute_means(
    records: list[Record], score: str, methods: list[str]
) -> dict[str, float]:
    """Mean over splits of each method that failed on none of them."""
    runs = group_by_method(records)
    return {
        name: float(np.mean(_list_scores(runs[name], score)))
        for name in methods
        if name in runs and all("scores" in run for run in runs[name])
    }


def _compute_ranks(score: str, tables: Tables) -> dict[str, list[int]]:
    """Ranks on the ranked tables, for methods that ran on all of them."""
    ranks = collections.defaultdict(list)
    methods = _list_ranked_methods(tables)
    for table in _RANKED:
        if table not in tables:
            continue
        records = tables[table]
        means = _compute_means(records, score, methods)
        order = sorted(means, key=lambda name: means[name])
        for name in methods:
            # Failed methods rank last.
            rank = order.index(name) + 1 if name in order else len(methods)
            ranks[name].append(rank)
    return ranks


def _list_ranked_methods(tables: Tables) -> list[str]:
    """Methods that ran on all ranked tables, and succeeded on at least one."""
    ranked = [group_by_method(tables[table]) for table in _RANKED if table in tables]
    return [
        name
        for name in _list_methods(tables)
        if all(name in runs for runs in ranked)
        and any("scores" in run for runs in ranked for run in runs[name])
    ]


def _format_grid(score: str, tables: Tables) -> str:
    """Scores with a row per table and a column per method; the best is bold."""
    methods, rows = _list_methods(tables), []
    for table, records in sort_tables(tables):
        means, runs = _compute_means(records, score, methods), group_by_method(records)
        if not means:
            continue
        best = min(means, key=lambda name: means[name])
        cells = {
            name: _format_mean(_list_scores(runs.get(name, []), score))
            for name in methods
        }
        if len(means) > 1:
            cells[best] = f"**{cells[best]}**"
        rows.append([table, *cells.values()])
    ranks = _compute_ranks(score, tables)
    if ranks:
        count = max(map(len, ranks.values()))
        mean_ranks = [
            f"{np.mean(ranks[name]):.1f}" if name in ranks else "–" for name in methods
        ]
        rows.append([f"mean rank on {count}", *mean_ranks])
    return format_markdown(["", *(METHODS[name].title for name in methods)], rows)


def _format_uci_summary(tables: Tables) -> str:
    """Mean ranks, coverage and training time of each method."""
    by_nll, by_rmse = _compute_ranks("nll", tables), _compute_ranks("rmse", tables)
    rows = []
    for name in sorted(by_nll, key=lambda name: np.mean(by_nll[name])):
        done = _select_ranked_runs(tables, name)
        coverage = [
            float(np.mean(shares))
            for table in _RANKED
            if (shares := _list_coverages(run for run in done if run["table"] == table))
        ]
        rows.append(
            [
                METHODS[name].title,
                f"{np.mean(by_nll[name]):.1f}",
                f"{np.mean(by_rmse[name]):.1f}",
                f"{min(coverage):.0%} to {max(coverage):.0%}" if coverage else "–",
                _format_seconds(done),
            ]
        )
    head = ["", "rank by NLL", "rank by RMSE", "coverage of 90 %", "mean seconds"]
    return format_markdown(head, rows)


def _format_uci_costs(tables: Tables) -> str:
    """Training time, prediction rate and memory on the ranked tables."""
    rows = []
    for name in _list_ranked_methods(tables):
        done = _select_ranked_runs(tables, name)
        rows.append(
            [
                METHODS[name].title,
                _format_seconds(done),
                f"{np.median([run['rows_a_second'] for run in done]):,.0f}",
                f"{max(run['peak_mb'] for run in done):,.0f}",
            ]
        )
    head = ["", "mean seconds", "median rows/s predicted", "highest peak MB"]
    return format_markdown(head, rows)


def _select_ranked_runs(tables: Tables, method: str) -> list[Record]:
    """Successful runs of a method on the ranked tables."""
    return [
        record
        for table in _RANKED
        for record in tables.get(table, [])
        if record["method"] == method and "scores" in record
    ]


def sort_tables(tables: Tables) -> list[tuple[str, list[Record]]]:
    """Tables in the order of the UCI collection, then others."""
    known = {name: number for number, name in enumerate(UCI)}
    return sorted(tables.items(), key=lambda pair: known.get(pair[0], len(known)))


def _format_cells(cell: Callable[[list[Record]], str], tables: Tables) -> str:
    """A cell per table and method, computed from the successful runs."""
    methods, rows = _list_methods(tables), []
    for table, records in sort_tables(tables):
        runs = group_by_method(records)
        done = (
            [run for run in runs.get(name, []) if "scores" in run] for name in methods
        )
        rows.append([table, *map(cell, done)])
    return format_markdown(["", *(METHODS[name].title for name in methods)], rows)


def _format_coverage(records: list[Record]) -> str:
    return _format_mean(_list_coverages(records))


def _list_coverages(records: Iterable[Record]) -> list[float]:
    """Coverage of central 90 % intervals, for runs that recorded it."""
    shares = [run["scores"].get("coverage", {}).get("90%") for run in records]
    return [share for share in shares if share is not None]


def _format_uci_zonal(tables: Tables) -> str:
    """Scores, coverage and depth of the default."""
    levels = ("50%", "80%", "90%", "95%")
    rows = []
    for table, records in sort_tables(tables):
        some = [run for run in records if run["method"] == "zonal" and "scores" in run]
        if not some:
            continue
        coverage = [
            f"{np.mean([run['scores']['coverage'][level] for run in some]):.3f}"
            for level in levels
        ]
        depths = sorted({run["depth"] for run in some})
        rows.append(
            [
                table,
                f"{some[0]['rows']:,}",
                *(
                    _format_mean(_list_scores(some, score))
                    for score in ("rmse", "nll", "crps")
                ),
                *coverage,
                ", ".join(map(str, depths)),
                _format_seconds(some),
            ]
        )
    headings = [f"in {level}" for level in levels]
    head = ["", "rows", "RMSE", "NLL", "CRPS", *headings, "depth", "seconds"]
    return format_markdown(head, rows)


def _format_uci_failures(tables: Tables) -> str:
    """Failed runs and their reasons."""
    lines = collections.defaultdict(list)
    for table, records in sort_tables(tables):
        for record in records:
            if "failed" in record:
                reason = re.sub(r"[\d,]+ x [\d,]+", "N x N", record["failed"])
                lines[METHODS[record["method"]].title, reason].append(table)
    if not lines:
        return "None failed."
    return "\n".join(
        f"- {method} on {', '.join(dict.fromkeys(some))}: {reason}"
        for (method, reason), some in lines.items()
    )


def _format_variants(names: tuple[str, ...], tables: Tables) -> str:
    """Some methods and their variants, on tables where a variant ran."""
    some = {
        table: [run for run in records if run["method"] in names]
        for table, records in tables.items()
    }
    return _format_changes(
        {
            table: records
            for table, records in some.items()
            if any(METHODS[run["method"]].variant for run in records)
        }
    )


def _format_changes(tables: Tables) -> str:
    """RMSE and NLL with a row per method and a column per table."""
    rows = []
    names = [name for name, _ in sort_tables(tables)]
    if not names:
        return "(not measured yet)"
    runs = {table: group_by_method(tables[table]) for table in names}
    for method in METHODS:
        cells = [
            " / ".join(
                _format_mean(_list_scores(runs[table].get(method, []), score))
                for score in ("rmse", "nll")
            )
            for table in names
        ]
        if any(cell != "– / –" for cell in cells):
            rows.append([METHODS[method].title, *cells])
    return format_markdown(["RMSE / NLL", *names], rows)


def _format_depth(tables: Tables) -> str:
    rows = []
    for table in sorted(tables, key=lambda name: int(name.split("-")[0])):
        learned = sorted(run["depth"] for run in tables[table] if "depth" in run)
        low, middle, high = np.quantile(learned, [0.25, 0.5, 0.75])
        rows.append(
            [
                table.split("-")[0],
                " ".join(map(str, learned)),
                f"{middle:g}",
                f"{low:g} to {high:g}",
            ]
        )
    return format_markdown(["true layers", "learned", "median", "quartiles"], rows)


# Methods and their variants.
SIZES = ("zonal-512", "zonal-features", "zonal-4096")
MECHANISMS = ("zonal", "zonal-features", "zonal-neighbors")
TREES = ("lightgbm", "lightgbm-wide")
CALIBRATED = (
    "zonal",
    "lightgbm",
    "lightgbm-shaped",
    "network",
    "network-shaped",
)

LISTINGS: dict[str, Callable[[Tables], str]] = {
    "uci-summary": _format_uci_summary,
    "uci-zonal": _format_uci_zonal,
    "uci-rmse": functools.partial(_format_grid, "rmse"),
    "uci-nll": functools.partial(_format_grid, "nll"),
    "uci-crps": functools.partial(_format_grid, "crps"),
    "uci-coverage": functools.partial(_format_cells, _format_coverage),
    "uci-seconds": functools.partial(_format_cells, _format_seconds),
    "uci-costs": _format_uci_costs,
    "uci-failures": _format_uci_failures,
    "uci-shaped": functools.partial(_format_variants, CALIBRATED),
    "uci-mechanisms": functools.partial(_format_variants, MECHANISMS),
    "uci-trees": functools.partial(_format_variants, TREES),
    "sizes": functools.partial(_format_variants, SIZES),
    "layouts": _format_changes,
    "susy": _format_binary,
    "covtype": _format_classes,
    "song": _format_regression,
    "buzz": _format_regression,
    "houseelectric": _format_regression,
    "airline": _format_airline,
    "depth": _format_depth,
}
