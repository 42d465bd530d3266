"""Small tables made up in the formats of the real ones, to try everything on.

Files have the names and formats of the public ones, so that what reads those is tried
too. Numbers measured on them mean nothing.
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
from zonal_bench.pages import TABLES, gathered
from zonal_bench.public import BUZZ, HOUSEHOLD, SONG, SUSY
from zonal_bench.runs import perform

__all__ = ["quick_run", "write_samples"]

ROWS = 600
QUICK = Settings(limit=5.0, steps=3, features=40)
# Of each experiment the table and the methods; scikit-learn is always there.
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
    """Made-up tables of every format, in a folder."""
    generator = np.random.default_rng(0)

    def made(columns: int) -> tuple[np.ndarray, np.ndarray]:
        x = generator.normal(size=(rows, columns))
        y = np.sin(x[:, 0]) + x[:, 1] + 0.1 * generator.normal(size=rows)
        return x, y

    x, y = made(8)
    masks = {f"test_{k}": generator.random(rows) < 0.1 for k in range(10)}
    _write(folder / "kin40k.parquet", x, y, "y", **masks)
    x, y = made(9)
    _write(folder / "flights_3m.parquet", x, 30 * y, "delay")

    x, y = made(6)
    _write(
        folder / "covtype.parquet",
        x,
        np.argsort(np.argsort(y)) * 7 // rows,
        "Cover_Type",
    )

    x, y = made(18)
    with gzip.open(folder / SUSY.names[0], "wt") as file:
        np.savetxt(file, np.column_stack([y > 0, x]), "%.18e", ",")
    x, y = made(90)
    years = np.round(1990 + 5 * y)
    np.savetxt(folder / SONG.names[0], np.column_stack([years, x]), "%.5f", ",")
    x, y = made(77)
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
        told = ["?"] * 7 if number == 1 else [f"{value:.3f}" for value in values]
        day = f"{when.day}/{when.month}/{when.year}"
        lines.append(";".join([day, f"{when:%H:%M}:00", *told]))
    path.write_text("\n".join(lines) + "\n")


def quick_run(
    folder: Path, names: Sequence[str] = (), say: Callable[[str], Any] = print
) -> None:
    """A small version of experiments, from files to tables, in one process."""
    write_samples(folder)
    results, failed = folder / "results", []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names or EXPERIMENTS:
            table, methods = _CHOSEN[name]
            experiment = EXPERIMENTS[name]
            say(f"{name}:")
            records = perform(
                experiment.cases((table,), methods, splits=1),
                experiment.measure,
                folder,
                results,
                QUICK,
                say=say,
                apart=False,
            )
            failed += [record for record in records if "failed" in record]
    found = gathered(results)
    for name, table in TABLES.items():
        experiment = name.split("-")[0]
        if experiment in found:
            say(f"\n{name}:\n{table(found[experiment])}")
    if failed:
        told = "; ".join(f"{one['method']}: {one['failed']}" for one in failed)
        raise RuntimeError(f"{len(failed)} runs failed: {told}")
