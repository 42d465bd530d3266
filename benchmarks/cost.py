"""Seconds and memory of fits to flights, from ten thousand rows to all of them.

    python benchmarks/cost.py [--rows 10000 100000 1000000] [--method zonal]

Random rows of the training part of `zonal_bench.tables.load_flights_split`; without
``--rows`` these three sizes and then all rows. Each size has a process of its own on
one core, which reads only its rows. Printed are the error, the seconds and processor
seconds (CPU) of the fit, the predicted rows per second with standard deviations, after
a first call with few rows, and the peak memory of the process in MB: before the fit
(Python, libraries and the table), after it, and after predictions. Then the seconds of
each stage; "rest" is what the stages do not report. Compilation counts.
"""

from zonal_bench.processes import call_in_new_process, use_one_core

use_one_core()

import argparse  # noqa: E402 (threads are counted by imports)
import datetime  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
from zonal_bench.methods import Settings  # noqa: E402
from zonal_bench.runs import METHODS  # noqa: E402
from zonal_bench.tables import (  # noqa: E402
    Split,
    find_data_folder,
    load_flights_split,
    take_rows,
)

SIZES = (10_000, 100_000, 1_000_000)
TEST_ROWS = 100_000
_PARTS = ("x", "y", "x_test", "y_test")


def write_sizes(
    data: Path, folder: Path, sizes: Sequence[int], everything: bool, seed: int
) -> list[Path]:
    """Write random training rows of each size, and of all, as files of their own."""
    split = load_flights_split(data)
    counts = [count for count in sizes if count < len(split.y)]
    counts += [len(split.y)] if everything or len(counts) < len(sizes) else []
    paths = []
    for count in counts:
        part = take_rows(split, count, seed)
        paths.append(folder / f"{count}.npz")
        np.savez(
            paths[-1],
            x=part.x,
            y=part.y,
            x_test=split.x_test[:TEST_ROWS],
            y_test=split.y_test[:TEST_ROWS],
        )
    return paths


def read_size(path: Path) -> Split:
    with np.load(path) as parts:
        return Split("flights", *(parts[name] for name in _PARTS))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(path: Path, method: str, settings: Settings) -> dict[str, Any]:
    """Seconds, memory and prediction rate of a fit to the rows of a file."""
    warnings.simplefilter("ignore")
    split = read_size(path)
    before = peak_mb()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    *_, answer = METHODS[method].train(split, settings)
    seconds = time.perf_counter() - begin
    cpu_seconds = time.process_time() - begin_cpu
    fitted = peak_mb()
    answer.predict(split.x_test[:1000])
    begin = time.perf_counter()
    prediction: Any = answer.predict(split.x_test)
    error = split.y_test - prediction.mean
    _ = np.sqrt(prediction.variance_y)
    rate = len(split.y_test) / (time.perf_counter() - begin)
    return {
        "rows": len(split.y),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rate": rate,
        "before": before,
        "fitted": fitted,
        "peak": peak_mb(),
        "stages": answer.facts.get("stages", {}),
    }


def print_run(run: dict[str, Any]) -> None:
    print(
        f"{run['rows']:10,d} {run['rmse']:8.4f} {run['seconds']:8.1f} "
        f"{run['cpu_seconds']:8.1f} {run['rate']:10,.0f} {run['before']:10,.0f} "
        f"{run['fitted']:10,.0f} {run['peak']:10,.0f}"
    )
    rest = run["seconds"] - sum(run["stages"].values())
    for stage, seconds in (run["stages"] | {"rest": rest}).items():
        print(f"{'':10s}   {stage:20s} {seconds:8.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--method", default="zonal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="at most this many learning steps")
    options = parser.parse_args()
    settings = Settings(seed=options.seed, steps=options.steps)
    print(f"{len(os.sched_getaffinity(0))} core, {datetime.date.today()}")
    print(
        f"{'rows':>10s} {'RMSE':>8s} {'fit s':>8s} {'CPU s':>8s} "
        f"{'rows/s':>10s} {'MB before':>10s} {'MB fitted':>10s} {'MB peak':>10s}"
    )
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, so that the others do not inherit its memory.
        paths = call_in_new_process(
            write_sizes,
            find_data_folder(options.data),
            Path(folder),
            options.rows or SIZES,
            options.rows is None,
            options.seed,
        )
        for path in paths:
            print_run(call_in_new_process(measure, path, options.method, settings))


if __name__ == "__main__":
    main()
