"""The data that benchmarks run on: where it is, and how to get it.

Benchmarks read Parquet files from the folder named by ``--data`` or the environment
variable ``ZONAL_DATA``. The regression sets are those of the UCI repository as they are
collected in github.com/treforevans/uci_datasets: columns x0, x1, ..., a target y, and
ten published test masks test_0, ..., test_9. ``houseelectric_hourly`` holds hourly
means of UCI's "Individual household electric power consumption". ``flights_3m`` is
flights-3m of the npm package vega-datasets (US Department of Transportation, 2001) with
the coordinates of its airports.csv joined.
"""

# pyright: reportMissingImports=false

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

UCI = [
    "kin40k",
    "protein",
    "pol",
    "elevators",
    "bike",
    "keggdirected",
    "keggundirected",
    "pumadyn32nm",
    "energy",
    "concrete",
    "yacht",
    "wine",
    "houseelectric_hourly",
]


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Rows to learn from and rows to be judged by, the target standardised."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def data_folder(option: str | None) -> Path:
    """The folder with the data, or a word on how to get it."""
    chosen = option or os.environ.get("ZONAL_DATA")
    if chosen is None or not Path(chosen).is_dir():
        sys.exit(
            "benchmarks need data: set ZONAL_DATA or --data to a folder of Parquet "
            f"files.\n\n{__doc__}"
        )
    return Path(chosen)


def uci_split(folder: Path, name: str, split: int = 0) -> Split:
    """One of the published splits; for tables without masks, every tenth row."""
    table = pq.read_table(folder / f"{name}.parquet")
    if name == "houseelectric_hourly":
        return _household(table, split)
    inputs = [column for column in table.column_names if column.startswith("x")]
    x = np.column_stack([table[column].to_numpy() for column in inputs])
    y = table["y"].to_numpy().astype(np.float64)
    test = table[f"test_{split}"].to_numpy().astype(bool)
    return _standardised(name, x.astype(np.float64), y, test)


def _household(table, split: int) -> Split:
    columns = {name: table[name].to_numpy() for name in table.column_names}
    y = columns.pop("Global_active_power").astype(np.float64)
    parts = []
    for values in columns.values():
        if np.issubdtype(values.dtype, np.datetime64):
            hours = values.astype("datetime64[h]").astype(np.int64)
            turn = 2 * np.pi * np.column_stack([hours / 24, hours / (24 * 365.25)])
            parts += [hours[:, None], np.sin(turn), np.cos(turn)]
        elif np.issubdtype(values.dtype, np.number):
            parts.append(values.astype(np.float64)[:, None])
    x = np.hstack(parts)
    keep = np.isfinite(x).all(axis=1) & np.isfinite(y)
    x, y = x[keep], y[keep]
    test = np.random.default_rng(split).random(len(y)) < 0.1
    return _standardised("houseelectric_hourly", x, y, test)


def _standardised(name: str, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> Split:
    train = ~test
    x = x[:, x[train].std(axis=0) > 0]
    y = (y - y[train].mean()) / y[train].std()
    return Split(name, x[train], y[train], x[test], y[test])
