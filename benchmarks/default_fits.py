"""The default beside LightGBM on one core: scores, seconds and their ratio per table.

    python benchmarks/default_fits.py [kin40k protein] [--method zonal-neighbors]
    python benchmarks/default_fits.py --fresh [--empty-cache]

Split 0 of each table, in one run on one core. Printed are the root mean squared error
and the negative log density of standardised targets (NLL), the coverage of 90 %
intervals, the seconds of the fit and the predicted rows per second. "plain" is the NLL
of normals without calibration. LightGBM's seconds are those of its three settings
together; it has a constant noise, estimated on validation rows. Then follow the ratio
of the seconds of each table, the geometric mean and the largest ratio, and the seconds
of each stage of zonal's fits; "rest" is what the stages do not report: reading and
scaling before them, and the calibration and stored rows after them. Processor seconds
(CPU) well below the seconds mean that other programs took their share of the core; then
only ratios of processor seconds are of use.

zonal is fitted to 2,000 rows of each table first, so that compilation hardly counts.
With ``--fresh`` it is not, and each method and table has a process of its own, so that
compilation counts; ``--empty-cache`` compiles numba's loops too, as right after
installation, instead of loading them. Rows per second are those of a second call, after
a first one that prepares; with ``--fresh`` too.
"""

from zonal_bench.processes import call_in_new_process, use_empty_cache, use_one_core

use_one_core()

import argparse  # noqa: E402 (threads are counted by imports)
import datetime  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import lightgbm  # noqa: E402, F401  # pyright: ignore (its import is no part of a fit)
import numpy as np  # noqa: E402
from zonal_bench.methods import Answer, Settings  # noqa: E402
from zonal_bench.runs import METHODS  # noqa: E402
from zonal_bench.scores import drop_calibration, score_numbers  # noqa: E402
from zonal_bench.tables import (  # noqa: E402
    UCI,
    Split,
    find_data_folder,
    load_uci_split,
    take_rows,
)

TABLES = UCI[:8]
WARM_ROWS = 2_000
UNITS = ("seconds", "cpu_seconds")
Run = Mapping[str, Any]


def train(name: str, split: Split, settings: Settings) -> tuple[Answer, float, float]:
    """The final answer of a method, and seconds and processor seconds of its fit."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    *_, answer = METHODS[name].train(split, settings)
    return answer, time.perf_counter() - begin, time.process_time() - begin_cpu


def measure(
    name: str, table: str, folder: Path, settings: Settings, warm: bool
) -> dict[str, Any]:
    """Scores, seconds and facts of a method on split 0 of a table."""
    warnings.simplefilter("ignore")
    split = load_uci_split(folder, table)
    if warm:
        train(name, take_rows(split, WARM_ROWS), settings)
    answer, seconds, cpu_seconds = train(name, split, settings)
    answer.predict(split.x_test)
    begin = time.perf_counter()
    prediction: Any = answer.predict(split.x_test)
    _ = prediction.mean, prediction.variance_y
    rate = len(split.y_test) / (time.perf_counter() - begin)
    scores = score_numbers(prediction, split.y_test)
    plain = score_numbers(drop_calibration(prediction), split.y_test)
    return {
        **answer.facts,
        "rows": len(split.y),
        "rmse": scores["rmse"],
        "nll": scores["nll"],
        "plain": plain["nll"],
        "coverage": scores["coverage"]["90%"],
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "rate": rate,
    }


def format_run(table: str, name: str, run: Run) -> str:
    return (
        f"{table:16s} {name:18s} {run['rows']:7,d} {run['rmse']:8.4f} "
        f"{run['nll']:8.3f} {run['plain']:8.3f} {run['coverage']:8.3f} "
        f"{run['seconds']:8.1f} {run['cpu_seconds']:8.1f} {run['rate']:10,.0f}"
    )


def format_trials(run: Run) -> str:
    """Leaves, validation loss, rounds and seconds of each setting of LightGBM."""
    return "; ".join(
        f"{trial['num_leaves']} leaves: loss {trial['loss']:.4g}, "
        f"{trial['rounds']} rounds, {trial['seconds']:.1f} s"
        for trial in run["trials"]
    )


def format_stages(run: Run) -> str:
    stages = run["stages"]
    rest = run["seconds"] - sum(stages.values())
    seconds = ", ".join(
        f"{stage} {value:.1f}" for stage, value in (stages | {"rest": rest}).items()
    )
    return f"{seconds}; {run['features']} features, {run['neighbors']} neighbours"


def print_ratios(ours: Mapping[str, Run], theirs: Mapping[str, Run]) -> None:
    print("\nseconds of the fit, and CPU seconds, divided by those of LightGBM:")
    ratios = np.array(
        [[ours[table][unit] / theirs[table][unit] for unit in UNITS] for table in ours]
    )
    rows = dict(zip(ours, ratios, strict=True))
    rows["geometric mean"] = np.exp(np.log(ratios).mean(axis=0))
    rows["largest"] = ratios.max(axis=0)
    for name, (wall, cpu) in rows.items():
        print(f"{name:16s} {wall:7.2f} {cpu:7.2f}")


def print_phases(ours: Mapping[str, Run], theirs: Mapping[str, Run]) -> None:
    print("\nseconds of each stage of zonal's fit:")
    for table, run in ours.items():
        print(f"{table:16s} {format_stages(run)}")
    print("\nsettings of LightGBM:")
    for table, run in theirs.items():
        print(f"{table:16s} {format_trials(run)}")


def run_all(
    tables: Sequence[str], methods: tuple[str, str], settings: Settings, options: Any
) -> tuple[dict[str, Run], dict[str, Run]]:
    """Runs of both methods by table, printed as they end."""
    folder = find_data_folder(options.data)
    runs: tuple[dict[str, Run], dict[str, Run]] = ({}, {})
    for table in tables:
        for name, found in zip(methods, runs, strict=True):
            if options.fresh:
                arguments = (name, table, folder, settings, False)
                found[table] = call_in_new_process(measure, *arguments)
            else:
                warm = METHODS[name].package == "zonal"
                found[table] = measure(name, table, folder, settings, warm)
            print(format_run(table, name, found[table]), flush=True)
    return runs


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--data")
    parser.add_argument("--method", default="zonal", help="a method of zonal")
    parser.add_argument("--peer", default="lightgbm-wide", help="a method of LightGBM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, help="at most this many learning steps")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--empty-cache", action="store_true")
    options = parser.parse_args()
    if options.empty_cache and not options.fresh:
        parser.error("--empty-cache needs --fresh, whose processes compile")
    return options


def main() -> None:
    options = parse_options()
    cache = use_empty_cache() if options.empty_cache else None
    cores = len(os.sched_getaffinity(0))
    print(f"{cores} core, {datetime.date.today()}, fresh processes: {options.fresh}")
    print(
        f"{'table':16s} {'method':18s} {'rows':>7s} {'RMSE':>8s} {'NLL':>8s} "
        f"{'plain':>8s} {'in 90 %':>8s} {'fit s':>8s} {'CPU s':>8s} "
        f"{'rows/s':>10s}"
    )
    settings = Settings(seed=options.seed, steps=options.steps)
    methods = options.method, options.peer
    ours, theirs = run_all(options.tables, methods, settings, options)
    print_ratios(ours, theirs)
    print_phases(ours, theirs)
    if cache is not None:
        cache.cleanup()


if __name__ == "__main__":
    main()
