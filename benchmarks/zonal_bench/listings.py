"""From records to tables in Markdown: a row for each method, or for each table."""

import collections
import functools
import re
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from zonal_bench.runs import METHODS, Record
from zonal_bench.tables import UCI

__all__ = [
    "LISTINGS",
    "SHAPED",
    "SIZES",
    "Tables",
    "by_method",
    "in_order",
    "markdown_table",
]

# Tables whose mean ranks are told: those of thousands of rows.
_RANKED = UCI[:8]

Tables = Mapping[str, list[Record]]


def markdown_table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table as Markdown writes it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def by_method(records: list[Record]) -> dict[str, list[Record]]:
    """Records of each method, methods in their own order."""
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
        for name, some in by_method(records).items():
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
        parts.append(markdown_table(head, rows) + "\n" + caption)
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
        name for name, method in METHODS.items() if name in met and not method.variant
    ]


def _means(records: list[Record], score: str, methods: list[str]) -> dict[str, float]:
    """A mean over splits for each of the methods that failed on none of them."""
    met = by_method(records)
    return {
        name: float(np.mean(_values(met[name], score)))
        for name in methods
        if name in met and all("scores" in one for one in met[name])
    }


def _ranks(score: str, tables: Tables) -> dict[str, list[int]]:
    """The place on each of the tables that count, of each method that met them all."""
    ranks = collections.defaultdict(list)
    methods = _ranked_methods(tables)
    for table in _RANKED:
        if table not in tables:
            continue
        records = tables[table]
        means = _means(records, score, methods)
        order = sorted(means, key=lambda name: means[name])
        for name in methods:
            # One that failed comes last.
            place = order.index(name) + 1 if name in order else len(methods)
            ranks[name].append(place)
    return ranks


def _ranked_methods(tables: Tables) -> list[str]:
    """Methods that met all tables that count, and did not fail on every one."""
    counted = [by_method(tables[table]) for table in _RANKED if table in tables]
    return [
        name
        for name in _methods(tables)
        if all(name in found for found in counted)
        and any("scores" in one for found in counted for one in found[name])
    ]


def _grid(score: str, tables: Tables) -> str:
    """A row for each table, a column for each method; the best is bold."""
    methods, rows = _methods(tables), []
    for table, records in in_order(tables):
        means, found = _means(records, score, methods), by_method(records)
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
    return markdown_table(["", *(METHODS[name].title for name in methods)], rows)


def _uci_summary(tables: Tables) -> str:
    """Mean ranks of every method, whether its intervals hold, and how long it takes."""
    by_nll, by_rmse = _ranks("nll", tables), _ranks("rmse", tables)
    rows = []
    for name in sorted(by_nll, key=lambda name: np.mean(by_nll[name])):
        done = _ranked_records(tables, name)
        inside = [
            float(np.mean(shares))
            for table in _RANKED
            if (shares := _shares_inside(one for one in done if one["table"] == table))
        ]
        rows.append(
            [
                METHODS[name].title,
                f"{np.mean(by_nll[name]):.1f}",
                f"{np.mean(by_rmse[name]):.1f}",
                f"{min(inside):.0%} to {max(inside):.0%}" if inside else "–",
                _seconds(done),
            ]
        )
    head = ["", "place by NLL", "place by RMSE", "in 90 % intervals", "seconds, mean"]
    return markdown_table(head, rows)


def _uci_costs(tables: Tables) -> str:
    """What training, prediction and memory cost on the tables that are ranked."""
    rows = []
    for name in _ranked_methods(tables):
        done = _ranked_records(tables, name)
        rows.append(
            [
                METHODS[name].title,
                _seconds(done),
                f"{np.median([one['rows_a_second'] for one in done]):,.0f}",
                f"{max(one['peak_mb'] for one in done):,.0f}",
            ]
        )
    head = ["", "seconds, mean", "rows/s predicted, median", "peak MB, at most"]
    return markdown_table(head, rows)


def _ranked_records(tables: Tables, method: str) -> list[Record]:
    """What a method did on the tables that are ranked, where it did not fail."""
    return [
        record
        for table in _RANKED
        for record in tables.get(table, [])
        if record["method"] == method and "scores" in record
    ]


def in_order(tables: Tables) -> list[tuple[str, list[Record]]]:
    """Tables in the order of their experiment."""
    known = {name: number for number, name in enumerate(UCI)}
    return sorted(tables.items(), key=lambda pair: known.get(pair[0], len(known)))


def _cells(cell: Callable[[list[Record]], str], tables: Tables) -> str:
    """A row for each table, a column for each method; what is told of its runs."""
    methods, rows = _methods(tables), []
    for table, records in in_order(tables):
        found = by_method(records)
        done = (
            [one for one in found.get(name, []) if "scores" in one] for name in methods
        )
        rows.append([table, *map(cell, done)])
    return markdown_table(["", *(METHODS[name].title for name in methods)], rows)


def _coverage(records: list[Record]) -> str:
    return _told(_shares_inside(records))


def _shares_inside(records: Iterable[Record]) -> list[float]:
    """Shares of test targets in central 90 % intervals, where they were counted."""
    found = [one["scores"].get("coverage", {}).get("90%") for one in records]
    return [share for share in found if share is not None]


def _uci_zonal(tables: Tables) -> str:
    """What the default gives: scores, coverage, depth."""
    levels = ("50%", "80%", "90%", "95%")
    rows = []
    for table, records in in_order(tables):
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
    return markdown_table(head, rows)


def _uci_failures(tables: Tables) -> str:
    """Which peers failed where, and why."""
    lines = collections.defaultdict(list)
    for table, records in in_order(tables):
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


def _some_methods(names: tuple[str, ...], tables: Tables) -> str:
    """Some methods beside their variants, on the tables that any of those met."""
    some = {
        table: [one for one in records if one["method"] in names]
        for table, records in tables.items()
    }
    return _changes_table(
        {
            table: records
            for table, records in some.items()
            if any(METHODS[one["method"]].variant for one in records)
        }
    )


def _changes_table(tables: Tables) -> str:
    """A row for each method, a column for each table."""
    rows = []
    names = [name for name, _ in in_order(tables)]
    if not names:
        return "(not measured yet)"
    found = {table: by_method(tables[table]) for table in names}
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
    return markdown_table(["RMSE / NLL", *names], rows)


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
    return markdown_table(["layers drawn with", "learned", "median", "quartiles"], rows)


# Methods beside variants of theirs.
SIZES = ("zonal-512", "zonal", "zonal-4096")
SHAPED = (
    "zonal",
    "lightgbm",
    "lightgbm-shaped",
    "network",
    "network-shaped",
)

LISTINGS: dict[str, Callable[[Tables], str]] = {
    "uci-summary": _uci_summary,
    "uci-zonal": _uci_zonal,
    "uci-rmse": functools.partial(_grid, "rmse"),
    "uci-nll": functools.partial(_grid, "nll"),
    "uci-crps": functools.partial(_grid, "crps"),
    "uci-coverage": functools.partial(_cells, _coverage),
    "uci-seconds": functools.partial(_cells, _seconds),
    "uci-costs": _uci_costs,
    "uci-failures": _uci_failures,
    "uci-shaped": functools.partial(_some_methods, SHAPED),
    "sizes": functools.partial(_some_methods, SIZES),
    "layouts": _changes_table,
    "susy": _two_classes_table,
    "covtype": _classes_table,
    "song": _numbers_table,
    "buzz": _numbers_table,
    "houseelectric": _numbers_table,
    "airline": _airline_table,
    "depth": _depth_table,
}
