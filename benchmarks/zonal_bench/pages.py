"""From stored results to the tables and figures of the documentation.

A page has places ``<!-- bench:NAME -->`` ... ``<!-- end -->``; what stands between is
replaced by the table of that name. Figures are written beside, as SVG.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from zonal_bench.curves import draw_speed, speed_table
from zonal_bench.listings import LISTINGS, Tables
from zonal_bench.runs import METHODS, Record, stored

__all__ = ["TABLES", "gathered", "write_pages"]

_PLACE = re.compile(r"(<!-- bench:(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Experiments whose fits are shown beside those of the same split of ``uci``.
_BESIDE_EVERYONE = ("speed", "sizes")
TABLES = LISTINGS | {"speed": speed_table}


def write_pages(results: Path, pages: Iterable[Path], figures: Path) -> list[Path]:
    """Fill the places of pages with tables, and draw the figures; what was written."""
    found = gathered(results)
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
        draw_speed(found["speed"], path)
        written.append(path)
    return written


def gathered(results: Path) -> dict[str, Tables]:
    """What is stored, by experiment and table, with all that is compared there."""
    found: dict[str, Tables] = dict(stored(results))
    for name in _BESIDE_EVERYONE:
        if name in found:
            found[name] = _with_everyone(found[name], found.get("uci", {}))
    return found


def _with_everyone(timed: Tables, whole: Tables) -> Tables:
    """Some fits of the first split, and beside them those of all that is compared.

    What was run for its own sake (with more time, say) stands for its method, unless it
    failed.
    """
    found = {}
    for table, records in timed.items():
        good = [one for one in records if "scores" in one]
        known = {one["method"] for one in good}
        others = [
            one
            for one in whole.get(table, [])
            if one["split"] == 0 and one["method"] not in known and "scores" in one
        ]
        found[table] = good + others
    return found


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
        f"(`{_command(experiment + shorter)}`, {' or '.join(map(str, cores))} "
        f"core{'' if cores == [1] else 's'}, {memory} GB, {span}; {told})"
    )


def _command(experiment: str) -> str:
    """What makes an experiment's records again."""
    quote = '"' if " " in experiment else ""
    return f"make bench EXPERIMENTS={quote}{experiment}{quote}"
