"""Five tables from the shell: a model, its test and an HTML report of each.

    python benchmarks/shell.py [kin40k adult covtype etopo60 flights_3m] [--out reports]
    python benchmarks/shell.py flights_3m --check

Runs ``zonal fit TABLE --target ... --report ...`` as a person would, and prints the
test's numbers, the time, the most memory the process had, and the longest time that it
was silent. With ``--check`` the same rows are fitted from memory by the estimator in
Python, and both tests' numbers are printed side by side.

`zonal_bench.tables` says where the data come from.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from zonal_bench.tables import data_folder

from zonal import SphericalGPClassifier, SphericalGPRegressor
from zonal.cli.data import Part, look_at
from zonal.scores.batches import measured
from zonal.tables.streams import Stream

# Columns to be predicted, and what is said beside.
TABLES: dict[str, tuple[str, list[str]]] = {
    "kin40k": ("y", [f"--drop=test_{number}" for number in range(10)]),
    "adult": ("income", []),
    "covtype": ("Cover_Type", ["--max-time=5m"]),
    "etopo60": ("elevation", ["--place", "latitude", "longitude", "--features=1024"]),
    "flights_3m": ("delay", ["--test-share=0.1"]),
}


def fitted(name: str, folder: Path, out: Path) -> dict[str, Any]:
    """One run of the command line, watched."""
    target, more = TABLES[name]
    begin = time.monotonic()
    process = subprocess.Popen(
        [
            *[sys.executable, "-u", "-c", "from zonal.cli.main import main; main()"],
            *["fit", str(folder / f"{name}.parquet"), "--target", target, *more],
            *["--out", str(out / f"{name}.zonal"), "--json"],
            *["--report", str(out / f"{name}.html")],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    silence, last, said = 0.0, time.monotonic(), []

    def watch() -> None:
        nonlocal silence, last
        assert process.stderr is not None
        for line in process.stderr:
            now = time.monotonic()
            silence, last = max(silence, now - last), now
            said.append(line)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stdout is not None
    printed = process.stdout.read()
    watcher.join()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit("".join(said))
    found = json.loads(printed)
    megabytes = usage.ru_maxrss / 1024
    print(f"{name}: {found['rows']:,} rows, {time.monotonic() - begin:.0f} s in all, ")
    print(f"  peak {megabytes:.0f} MB, never silent for more than {silence:.0f} s")
    print(f"  {numbers(found['test'])}")
    print(f"  depth {found['depth']['layers']}, report {out / f'{name}.html'}")
    return found


def numbers(test: dict[str, Any]) -> str:
    flat = {**test, **test.get("coverage", {})}
    return ", ".join(
        f"{key} {value:.6g}" for key, value in flat.items() if isinstance(value, float)
    )


def check(name: str, folder: Path, found: dict[str, Any]) -> None:
    """The same rows from memory, through Python."""
    target, more = TABLES[name]
    drop = [one.split("=")[1] for one in more if one.startswith("--drop=")]
    share = next((0.1 for one in more if one == "--test-share=0.1"), 0.2)
    stream = Stream.files(folder / f"{name}.parquet")
    look = look_at(stream, target, share, 0)
    names = [one for one in stream.names if one not in drop]
    train, test = (
        pa.concat_tables(
            [one.frame for one in Part(stream, look, names, share, 0, part).batches()]
        )
        for part in (False, True)
    )
    kind = (
        SphericalGPClassifier
        if found["task"] == "classification"
        else SphericalGPRegressor
    )
    model = kind(missing="indicator").fit(
        train.drop_columns([target]), np.asarray(train[target])
    )
    here = measured(model, Stream.of(test), target)
    print(f"  from memory: {numbers(here)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--out", type=Path, default=Path("reports"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--data")
    options = parser.parse_args()
    folder = data_folder(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"shell: {os.cpu_count()} cores, {datetime.date.today()}")
    for name in options.tables:
        found = fitted(name, folder, options.out)
        if options.check:
            check(name, folder, found)


if __name__ == "__main__":
    main()
