"""Tables of the benchmarks: files, sources and splits.

Files are in the folder given by ``--data`` or the environment variable ``ZONAL_DATA``:
the public files of `zonal_bench.public` under their own names, or else Parquet files
with parts of them, and the following.

- The regression sets of the UCI repository as they are collected in
  github.com/treforevans/uci_datasets: columns x0, x1, ..., a target y, and ten
  published test masks test_0, ..., test_9.
- ``houseelectric_hourly``: hourly means of UCI's "Individual household electric power
  consumption"; ``houseelectric_minute_48k``: its first 47,960 minutes.
- ``susy_21k``: rows of UCI's SUSY, with a column "part"; ``song_1176``: rows of
  YearPredictionMSD.
- ``covtype``: UCI's covertype, complete.
- ``flights_3m``: flights-3m of the npm package vega-datasets (US Department of
  Transportation, 2001) with the coordinates of its airports.csv joined.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from zonal_bench.public import BUZZ, HOUSEHOLD, SONG, SUSY

__all__ = [
    "LARGE",
    "UCI",
    "Split",
    "find_data_folder",
    "hash_rows",
    "load_buzz_split",
    "load_covtype_split",
    "load_flights_split",
    "load_household_split",
    "load_late_split",
    "load_song_split",
    "load_susy_split",
    "load_uci_split",
    "read_columns",
    "take_rows",
]

UCI = (
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
)
# Tables with thousands of rows.
LARGE = tuple(
    name for name in UCI if name not in ("energy", "concrete", "yacht", "wine")
)
# Minutes of delay beyond which flights are excluded, and are late.
_MOST_DELAY, _LATE = 360, 15


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Training rows and test rows.

    Targets are standardised numbers, or codes if there are ``classes``.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int = 0


def find_data_folder(option: str | os.PathLike | None = None) -> Path:
    """The data folder; if there is none, the error says how to get one."""
    chosen = option or os.environ.get("ZONAL_DATA")
    if not chosen or not Path(chosen).is_dir():
        problem = (
            "there is no data folder" if not chosen else f"{chosen} is not a folder"
        )
        raise FileNotFoundError(
            f"{problem}: set ZONAL_DATA or --data to a folder with data "
            "(docs/benchmarks.md lists the sources)"
        )
    return Path(chosen)


def read_columns(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Columns of a Parquet file."""
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.name} is not in the data folder (docs/benchmarks.md lists the "
            "sources)"
        )
    table = pq.read_table(path)
    return {name: table[name].to_numpy() for name in table.column_names}


def load_uci_split(folder: Path, name: str, split: int = 0) -> Split:
    """A published split; for tables without masks, a random tenth for testing."""
    parts = read_columns(folder, name)
    if name == "houseelectric_hourly":
        x, y = _make_household_inputs(parts)
        return _make_standardised(name, x, y, _draw_mask(len(y), 0.1, split))
    inputs = [name for name in parts if name.startswith("x")]
    test = parts[f"test_{split}"].astype(bool)
    return _make_standardised(name, _stack_columns(parts, inputs), parts["y"], test)


def load_susy_split(folder: Path, name: str = "susy", split: int = 0) -> Split:
    """The last tenth of the public file for testing, or the part of 21,000 rows."""
    path = SUSY.find(folder)
    if path is not None:
        parts = SUSY.read(path)
        test = np.arange(len(parts["signal"])) >= 0.9 * len(parts["signal"])
        train = ~test
    else:
        parts = read_columns(folder, "susy_21k")
        part = parts.pop("part")
        train, test = part == "train", part == "test"
    y = parts.pop("signal").astype(np.float64)
    x = _stack_columns(parts, list(parts))
    return Split(name, x[train], y[train], x[test], y[test], classes=2)


def load_song_split(folder: Path, name: str = "song", split: int = 0) -> Split:
    """The year of a song from its timbre; a random fifth for testing."""
    path = SONG.find(folder)
    parts = read_columns(folder, "song_1176") if path is None else SONG.read(path)
    y = parts.pop("year")
    x = _stack_columns(parts, list(parts))
    return _make_standardised(name, x, y, _draw_mask(len(y), 0.2, split))


def load_buzz_split(folder: Path, name: str = "buzz", split: int = 0) -> Split:
    """Discussions of a topic from earlier counts; a random fifth for testing."""
    path = BUZZ.find(folder)
    if path is None:
        raise FileNotFoundError(
            f"Twitter.data is missing; download it from {BUZZ.source}"
        )
    parts = BUZZ.read(path)
    y = parts.pop("discussions")
    x = _stack_columns(parts, list(parts))
    return _make_standardised(name, x, y, _draw_mask(len(y), 0.2, split))


def load_household_split(
    folder: Path, name: str = "houseelectric", split: int = 0
) -> Split:
    """Power from time, voltage and meters; a random fifth for testing."""
    path = HOUSEHOLD.find(folder)
    if path is None:
        parts = read_columns(folder, "houseelectric_minute_48k")
    else:
        parts = HOUSEHOLD.read(path)
        day = parts.pop("Date").astype("datetime64[s]")
        parts["Datetime"] = day + parts.pop("Time").astype("timedelta64[s]")
    x, y = _make_household_inputs(parts)
    return _make_standardised(name, x, y, _draw_mask(len(y), 0.2, split))


def load_flights_split(folder: Path, name: str = "flights", split: int = 0) -> Split:
    """Minutes of delay, at most 360; a tenth by row hash for testing."""
    parts = read_columns(folder, "flights_3m")
    y = parts.pop("delay")
    x = _stack_columns(parts, list(parts))
    near = np.abs(y) <= _MOST_DELAY
    x, y = x[near], y[near]
    return _make_standardised(name, x, y, hash_rows(x, split) % np.uint64(10) == 0)


def load_late_split(folder: Path, name: str = "late", split: int = 0) -> Split:
    """Whether a flight is over 15 minutes late; a tenth by row hash for testing."""
    parts = read_columns(folder, "flights_3m")
    y = (parts.pop("delay") > _LATE).astype(np.float64)
    x = _stack_columns(parts, list(parts))
    test = hash_rows(x, split) % np.uint64(10) == 0
    return Split(name, x[~test], y[~test], x[test], y[test], classes=2)


def load_covtype_split(folder: Path, name: str = "covtype", split: int = 0) -> Split:
    """Seven kinds of forest; a fifth by row hash for testing."""
    parts = read_columns(folder, "covtype")
    _, y = np.unique(parts.pop("Cover_Type"), return_inverse=True)
    x = _stack_columns(parts, list(parts))
    test = hash_rows(x, split) % np.uint64(5) == 0
    y = y.astype(np.float64)
    return Split(name, x[~test], y[~test], x[test], y[test], classes=7)


def take_rows(split: Split, count: int, seed: int = 0) -> Split:
    """Random training rows of a split, or all if there are fewer; the same test rows.

    Examples
    --------
    >>> x = np.arange(6.0)[:, None]
    >>> few = take_rows(Split("made", x, x[:, 0], x, x[:, 0]), 4)
    >>> few.x.shape, len(few.y_test)
    ((4, 1), 6)
    """
    chosen = np.random.default_rng(seed).permutation(len(split.y))[:count]
    return dataclasses.replace(split, x=split.x[chosen], y=split.y[chosen])


def hash_rows(x: np.ndarray, seed: int = 0) -> np.ndarray:
    """A hash of the values of each row.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    >>> first, second, third = hash_rows(x)
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    words = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    state = np.full(len(x), 0x9E3779B97F4A7C15 + seed, np.uint64)
    for column in words.T:
        state = (state ^ column) * np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(29)
    return state


def _stack_columns(parts: Mapping[str, np.ndarray], names: list[str]) -> np.ndarray:
    # Tables with millions of rows stay in float32, for memory.
    wide = len(parts[names[0]]) < 1_000_000
    dtype = np.float64 if wide else np.float32
    return np.column_stack([parts[name].astype(dtype) for name in names])


def _make_household_inputs(
    parts: dict[str, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Time as a number and as cycles of day and year, and the meters."""
    parts = dict(parts)
    minutes = parts.pop("Datetime").astype("datetime64[m]").astype(np.int64)
    y = parts.pop("Global_active_power").astype(np.float64)
    turn = 2 * np.pi * np.column_stack([minutes / 1440, minutes / (1440 * 365.25)])
    others = np.column_stack([values.astype(np.float64) for values in parts.values()])
    x = np.hstack([minutes[:, None], np.sin(turn), np.cos(turn), others])
    known = np.isfinite(x).all(axis=1) & np.isfinite(y)
    return x[known], y[known]


def _draw_mask(rows: int, share: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(rows) < share


def _make_standardised(
    name: str, x: np.ndarray, y: np.ndarray, test: np.ndarray
) -> Split:
    train = ~test
    y = y.astype(np.float64)
    x = x[:, x[train].std(axis=0) > 0]
    y = (y - y[train].mean()) / y[train].std()
    return Split(name, x[train], y[train], x[test], y[test])
