"""Tables and figures of the documentation from stored results.

Pages have markers ``<!-- bench:NAME -->`` ... ``<!-- end -->``; the text between them
is replaced by the table of that name. Figures are written as SVG.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from zonal_bench.curves import draw_speed, format_speed_table
from zonal_bench.listings import LISTINGS, Tables
from zonal_bench.runs import METHODS, Record, load_results

__all__ = ["TABLES", "collect_tables", "write_pages"]

_MARKER = re.compile(r"(<!-- bench:(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Experiments whose runs are shown with those of the same split of ``uci``.
_WITH_UCI = ("speed", "sizes")
TABLES = LISTINGS | {"speed": format_speed_table}


def write_pages(results: Path, pages: Iterable[Path], figures: Path) -> list[Path]:
    """Fill the tables of pages and draw figures; returns the paths that changed."""
    tables = collect_tables(results)
    written = []
    for page in pages:
        text = page.read_text()
        filled = _MARKER.sub(lambda marker: _fill(marker, tables), text)
        if filled != text:
            page.write_text(filled)
            written.append(page)
    if "speed" in tables:
        figures.mkdir(parents=True, exist_ok=True)
        path = figures / "time_to_quality.svg"
        draw_speed(tables["speed"], path)
        written.append(path)
    return written


def collect_tables(results: Path) -> dict[str, Tables]:
    """Stored runs by experiment and table, with those they are compared with."""
    tables: dict[str, Tables] = dict(load_results(results))
    for name in _WITH_UCI:
        if name in tables:
            tables[name] = _add_uci_runs(tables[name], tables.get("uci", {}))
    return tables


def _add_uci_runs(own: Tables, uci: Tables) -> Tables:
    """Runs of an experiment, and those of other methods on the first UCI split.

    Successful runs of the experiment itself (with more time, say) take precedence.
    """
    combined = {}
    for table, records in own.items():
        successful = [run for run in records if "scores" in run]
        methods = {run["method"] for run in successful}
        others = [
            run
            for run in uci.get(table, [])
            if run["split"] == 0 and run["method"] not in methods and "scores" in run
        ]
        combined[table] = successful + others
    return combined


def _fill(marker: re.Match, tables: Mapping[str, Tables]) -> str:
    name = marker[2]
    if name not in TABLES:
        known = ", ".join(TABLES)
        raise ValueError(f"a page refers to the table {name!r}; tables are {known}")
    experiment = name.split("-")[0]
    if experiment not in tables:
        return f"{marker[1]}(not measured yet)\n{marker[3]}"
    records = [run for table in tables[experiment].values() for run in table]
    body = TABLES[name](tables[experiment])
    return f"{marker[1]}{body}\n\n{_describe_origin(experiment, records)}\n{marker[3]}"


def _describe_origin(experiment: str, records: list[Record]) -> str:
    """The command, machine, dates and versions behind a table."""
    cores = sorted({record["machine"]["cores"] for record in records})
    memory = records[0]["machine"]["memory_gb"]
    dates = sorted({record["date"] for record in records})
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions: dict[str, set[str]] = {}
    for record in records:
        for name, version in record["versions"].items():
            versions.setdefault(name, set()).add(version)
    packages = ", ".join(
        f"{name} {' and '.join(sorted(values))}"
        for name, values in sorted(versions.items())
    )
    # Peers record the steps they took, zonal the limit that was set.
    steps = sorted(
        {
            record["steps"]
            for record in records
            if "steps" in record and METHODS[record["method"]].package == "zonal"
        }
    )
    shorter = "".join(f" --steps {count}" for count in steps)
    return (
        f"(`{_format_command(experiment + shorter)}`, {' or '.join(map(str, cores))} "
        f"core{'' if cores == [1] else 's'}, {memory} GB, {span}; {packages})"
    )


def _format_command(experiment: str) -> str:
    """The command that repeats an experiment."""
    quote = '"' if " " in experiment else ""
    return f"make bench EXPERIMENTS={quote}{experiment}{quote}"
