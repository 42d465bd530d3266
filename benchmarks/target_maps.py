"""The scale of the target: which is chosen, and what it does to positive targets.

    python benchmarks/target_maps.py [--rows 6000]
    python benchmarks/target_maps.py --tables kin40k bike    # as they are, in full

Split 0 of each table, on one core. First come the UCI tables and the household's
minutes as they are: the scale that is chosen, and the processor seconds of the choice
(the first also compiles). Where a scale is chosen, fits without and with it follow.
Then come positive targets, the exponentials of standardised ones in units of their
standard deviation, with ``target_transform`` None and "auto". Printed of each fit are
the share of 90 % intervals with a negative lower end, the CRPS, the negative log
density (NLL), the root mean squared error, the share of test rows in these intervals,
and the seconds of the fit.
"""

from zonal_bench.processes import use_one_core

use_one_core()

import argparse  # noqa: E402 (threads are counted by imports)
import dataclasses  # noqa: E402
import datetime  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from zonal_bench.tables import (  # noqa: E402
    UCI,
    Split,
    find_data_folder,
    load_household_split,
    load_uci_split,
    read_columns,
    take_rows,
)

from zonal import ArraySource, Gaussian, Recipe, SphericalGPRegressor  # noqa: E402
from zonal.learning.target_maps import choose_target_map  # noqa: E402

AS_THEY_ARE = (*UCI[:8], "houseelectric")
POSITIVE = ("bike", "pol", "elevators", "kin40k")
MOST_TEST_ROWS = 5_000


def load(folder: Path, name: str, rows: int | None) -> Split:
    """A split with at most this many training rows."""
    if name == "houseelectric":
        split = load_household_split(folder)
    else:
        split = load_uci_split(folder, name)
    split = split if rows is None else take_rows(split, rows)
    few = slice(MOST_TEST_ROWS)
    return dataclasses.replace(
        split, x_test=split.x_test[few], y_test=split.y_test[few]
    )


def make_positive(folder: Path, name: str, rows: int | None) -> Split:
    """A split whose targets are positive: as they are, or their exponentials."""
    split = load(folder, name, rows)
    raw = read_columns(folder, name)["y"]
    if raw.min() > 0:
        test = read_columns(folder, name)["test_0"].astype(bool)
        y, y_test = raw[~test], raw[test]
        # Standardised targets of the split, in their own units again.
        y, y_test = split.y * y.std() + y.mean(), split.y_test * y.std() + y.mean()
    else:
        y, y_test = np.exp(split.y), np.exp(split.y_test)
    return dataclasses.replace(split, y=y / y.std(), y_test=y_test / y.std())


def score(split: Split, transform: str | None) -> tuple[str, dict[str, float]]:
    """The scale of a fit, and its scores on the test rows."""
    begin = time.perf_counter()
    choice: Any = transform
    model = SphericalGPRegressor(target_transform=choice).fit(split.x, split.y)
    seconds = time.perf_counter() - begin
    prediction: Any = model.predict_dist(split.x_test)
    low, high = prediction.interval(0.9).T
    y = split.y_test
    return model.models_[0].target_map.described, {
        "negative": float(np.mean(low < 0)),
        "crps": float(np.mean(prediction.prediction.crps(y))),
        "nll": -float(np.mean(prediction.logpdf(y))),
        "rmse": float(np.sqrt(np.mean((prediction.mean() - y) ** 2))),
        "coverage": float(np.mean((low < y) & (y < high))),
        "seconds": seconds,
    }


def format_scores(scores: dict[str, float]) -> str:
    return (
        f"{scores['negative']:9.3f} {scores['crps']:8.5f} {scores['nll']:8.3f} "
        f"{scores['rmse']:8.4f} {scores['coverage']:8.3f} {scores['seconds']:7.1f}"
    )


def run_as_they_are(folder: Path, tables: list[str], rows: int | None) -> None:
    for name in tables:
        split = load(folder, name, rows)
        begin = time.process_time()
        chosen = choose_target_map(ArraySource(split.x, split.y), Gaussian(), Recipe())
        seconds = time.process_time() - begin
        print(f"{name:16s} {chosen.described:36s} {seconds:6.2f} CPU s", flush=True)
        if not chosen.is_identity:
            print_scores(name, split)


def print_scores(name: str, split: Split) -> None:
    for transform in (None, "auto"):
        scale, scores = score(split, transform)
        print(f"{name:16s} {scale:36s} {format_scores(scores)}", flush=True)


def positive_splits(folder: Path, rows: int | None) -> Iterator[tuple[str, Split]]:
    for name in POSITIVE:
        yield name, make_positive(folder, name, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", nargs="*", help="only these, as they are")
    parser.add_argument("--rows", type=int, help="at most this many training rows")
    parser.add_argument("--data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = find_data_folder(options.data)
    print(f"1 core, {datetime.date.today()}, rows: {options.rows or 'all'}")
    print(
        f"{'table':16s} {'scale':36s} {'negative':>9s} {'CRPS':>8s} {'NLL':>8s} "
        f"{'RMSE':>8s} {'in 90 %':>8s} {'fit s':>7s}"
    )
    run_as_they_are(folder, options.tables or list(AS_THEY_ARE), options.rows)
    if not options.tables:
        for name, split in positive_splits(folder, options.rows):
            print_scores(name, split)


if __name__ == "__main__":
    main()
