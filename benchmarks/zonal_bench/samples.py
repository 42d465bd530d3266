"""Small synthetic tables in the formats of the real ones, for tests of everything.

Files have the names and formats of the public ones, so their readers are tested too.
Scores on these tables are meaningless.
"""

import gzip
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zonal_bench.experiments import EXPERIMENTS
from zonal_bench.methods import Settings
from zonal_bench.pages import TABLES, collect_tables
from zonal_bench.public import BUZZ, HOUSEHOLD, SONG, SUSY
from zonal_bench.runs import run_cases

__all__ = ["quick_run", "write_samples"]

ROWS = 600
QUICK = Settings(limit=5.0, steps=3, features=40)
# Table and methods of each experiment; they need no optional package.
_CHOSEN = {
    "uci": ("kin40k", ("zonal", "fourier", "linear")),
    "susy": ("susy", ("paper-7", "linear")),
    "song": ("song", ("levels-projected", "linear")),
    "buzz": ("buzz", ("linear",)),
    "houseelectric": ("houseelectric", ("zonal", "linear")),
    "airline": ("late", ("zonal", "linear")),
    "covtype": ("covtype", ("zonal", "linear")),
    "speed": ("kin40k", ("zonal-1s",)),
    "sizes": ("kin40k", ("zonal-512",)),
    "layouts": ("kin40k", ("zonal-512", "zonal-sparse")),
    "depth": ("1-layer", ("zonal",)),
}


def write_samples(folder: Path, rows: int = ROWS) -> None:
    """Write a synthetic table in every format to a folder."""
    generator = np.random.default_rng(0)

    def draw(columns: int) -> tuple[np.ndarray, np.ndarray]:
        x = generator.normal(size=(rows, columns))
        y = np.sin(x[:, 0]) + x[:, 1] + 0.1 * generator.normal(size=rows)
        return x, y

    x, y = draw(8)
    masks = {f"test_{k}": generator.random(rows) < 0.1 for k in range(10)}
    _write(folder / "kin40k.parquet", x, y, "y", **masks)
    x, y = draw(9)
    _write(folder / "flights_3m.parquet", x, 30 * y, "delay")

    x, y = draw(6)
    _write(
        folder / "covtype.parquet",
        x,
        np.argsort(np.argsort(y)) * 7 // rows,
        "Cover_Type",
    )

    x, y = draw(18)
    with gzip.open(folder / SUSY.names[0], "wt") as file:
        np.savetxt(file, np.column_stack([y > 0, x]), "%.18e", ",")
    x, y = draw(90)
    years = np.round(1990 + 5 * y)
    np.savetxt(folder / SONG.names[0], np.column_stack([years, x]), "%.5f", ",")
    x, y = draw(77)
    np.savetxt(folder / BUZZ.names[0], np.column_stack([x, y]), "%.1f", ",")
    _write_household(folder / HOUSEHOLD.names[0], generator, rows)


def _write(
    path: Path, x: np.ndarray, y: np.ndarray, target: str, **more: np.ndarray
) -> None:
    columns = {f"x{number}": values for number, values in enumerate(x.T)}
    pq.write_table(pa.table(columns | {target: y} | more), path)


def _write_household(path: Path, generator: np.random.Generator, rows: int) -> None:
    minutes = np.datetime64("2006-12-16T17:24") + 977 * np.arange(rows)
    meters = generator.gamma(2.0, size=(rows, 7)).round(3)
    lines = [";".join(HOUSEHOLD.columns)]
    for number, (minute, values) in enumerate(zip(minutes, meters, strict=True)):
        when = minute.item()
        cells = ["?"] * 7 if number == 1 else [f"{value:.3f}" for value in values]
        day = f"{when.day}/{when.month}/{when.year}"
        lines.append(";".join([day, f"{when:%H:%M}:00", *cells]))
    path.write_text("\n".join(lines) + "\n")


def quick_run(
    folder: Path, names: Sequence[str] = (), log: Callable[[str], Any] = print
) -> None:
    """Run small versions of experiments, from files to tables, in this process."""
    write_samples(folder)
    results, failed = folder / "results", []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names or EXPERIMENTS:
            table, methods = _CHOSEN[name]
            experiment = EXPERIMENTS[name]
            log(f"{name}:")
            records = run_cases(
                experiment.cases((table,), methods, splits=1),
                experiment.measure,
                folder,
                results,
                QUICK,
                log=log,
                own_process=False,
            )
            failed += [record for record in records if "failed" in record]
    tables = collect_tables(results)
    for name, format_table in TABLES.items():
        experiment = name.split("-")[0]
        if experiment in tables:
            log(f"\n{name}:\n{format_table(tables[experiment])}")
    if failed:
        reasons = "; ".join(f"{run['method']}: {run['failed']}" for run in failed)
        raise RuntimeError(f"{len(failed)} runs failed: {reasons}")
