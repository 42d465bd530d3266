"""Five tables through the command line: model, test scores and report of each.

    python benchmarks/shell.py [kin40k adult covtype etopo60 flights_3m] [--out reports]
    python benchmarks/shell.py flights_3m --check

Runs ``zonal fit TABLE --target ... --report ...`` and prints test scores, time, peak
memory of the process, and the longest time without output. With ``--check``, the same
rows are fitted from memory in Python, and those test scores are printed too.

`zonal_bench.tables` lists the sources of the data.
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
from zonal_bench.tables import find_data_folder

from zonal import SphericalGPClassifier, SphericalGPRegressor
from zonal.cli.data import RowSubset, profile_target
from zonal.scores.streaming import score_stream
from zonal.tables.streams import Stream

# Target and further options of each table.
TABLES: dict[str, tuple[str, list[str]]] = {
    "kin40k": ("y", [f"--drop=test_{number}" for number in range(10)]),
    "adult": ("income", []),
    "covtype": ("Cover_Type", ["--max-time=5m"]),
    "etopo60": ("elevation", ["--place", "latitude", "longitude", "--features=1024"]),
    "flights_3m": ("delay", ["--test-share=0.1"]),
}


def run_fit(name: str, folder: Path, out: Path) -> dict[str, Any]:
    """Run the command line, and print scores, time, memory and silence."""
    target, options = TABLES[name]
    begin = time.monotonic()
    process = subprocess.Popen(
        [
            *[sys.executable, "-u", "-c", "from zonal.cli.main import main; main()"],
            *["fit", str(folder / f"{name}.parquet"), "--target", target, *options],
            *["--out", str(out / f"{name}.zonal"), "--json"],
            *["--report", str(out / f"{name}.html")],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    silence, last, lines = 0.0, time.monotonic(), []

    def watch() -> None:
        nonlocal silence, last
        assert process.stderr is not None
        for line in process.stderr:
            now = time.monotonic()
            silence, last = max(silence, now - last), now
            lines.append(line)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.stdout is not None
    output = process.stdout.read()
    watcher.join()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit("".join(lines))
    results = json.loads(output)
    megabytes = usage.ru_maxrss / 1024
    print(
        f"{name}: {results['rows']:,} rows, {time.monotonic() - begin:.0f} s in total, "
    )
    print(f"  peak {megabytes:.0f} MB, at most {silence:.0f} s without output")
    print(f"  {format_scores(results['test'])}")
    print(f"  depth {results['depth']['layers']}, report {out / f'{name}.html'}")
    return results


def format_scores(test: dict[str, Any]) -> str:
    flat = {**test, **test.get("coverage", {})}
    return ", ".join(
        f"{key} {value:.6g}" for key, value in flat.items() if isinstance(value, float)
    )


def check(name: str, folder: Path, results: dict[str, Any]) -> None:
    """Fit the same rows from memory in Python, and print test scores."""
    target, options = TABLES[name]
    drop = [option.split("=")[1] for option in options if option.startswith("--drop=")]
    share = 0.1 if "--test-share=0.1" in options else 0.2
    stream = Stream.files(folder / f"{name}.parquet")
    profile = profile_target(stream, target, share, 0)
    names = [column for column in stream.names if column not in drop]
    train, test = (
        pa.concat_tables(
            [
                one.frame
                for one in RowSubset(stream, profile, names, share, 0, part).batches()
            ]
        )
        for part in (False, True)
    )
    kind = (
        SphericalGPClassifier
        if results["task"] == "classification"
        else SphericalGPRegressor
    )
    model = kind(missing="indicator").fit(
        train.drop_columns([target]), np.asarray(train[target])
    )
    scores = score_stream(model, Stream.of(test), target)
    print(f"  from memory: {format_scores(scores)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--out", type=Path, default=Path("reports"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--data")
    options = parser.parse_args()
    folder = find_data_folder(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"shell: {os.cpu_count()} cores, {datetime.date.today()}")
    for name in options.tables:
        results = run_fit(name, folder, options.out)
        if options.check:
            check(name, folder, results)


if __name__ == "__main__":
    main()
