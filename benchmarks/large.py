"""Tables larger than memory or one machine: time and memory of Parquet and Dask.

    python benchmarks/large.py memory [--rows 2000000 20000000] [--features 128]
    python benchmarks/large.py overlap [--rows 2000000]
    python benchmarks/large.py predict [--rows 10000000]
    python benchmarks/large.py workers [--rows 400000]
    python benchmarks/large.py partitions --features 512
    python benchmarks/large.py cost

Rows are generated from a seed: eight columns and a target, float32.
``memory``: peak memory of fits from a Parquet file, each in its own process.
``overlap``: the same fit from a file and from memory, alternating in one process.
``predict``: peak memory of predicting the rows of a file; means have 8 bytes per row.
``workers``: a statistics pass on one and on two single-threaded Dask workers.
``partitions``: a pass over 1,000 partitions of 10,000 rows on one worker, compared with
10 partitions of the same rows, and with an array in a process pinned to one core.
``cost``: passes on one core with several numbers of features and columns, a model of
their time, the overhead of Dask, and the time that the model predicts for 10⁹ rows.
"""

# pyright: reportArgumentType=false

import argparse
import datetime
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

GROUP = 500_000


def draw_rows(group: int, count: int) -> np.ndarray:
    """A group of rows: eight columns and a target."""
    generator = np.random.default_rng(group)
    x = generator.normal(size=(count, 8)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * np.cos(x[:, 3])
    y += 0.2 * generator.normal(size=count)
    return np.column_stack([x, y]).astype(np.float32)


def table(rows: int) -> np.ndarray:
    parts = [
        draw_rows(group, min(GROUP, rows - start))
        for group, start in enumerate(range(0, rows, GROUP))
    ]
    return np.concatenate(parts)


NAMES = [*(f"x{column}" for column in range(8)), "y"]


def write_table(folder: str, rows: int) -> Path:
    """Write the table to a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / f"rows-{rows}.parquet"
    schema = pa.schema([(name, pa.float32()) for name in NAMES])
    with pq.ParquetWriter(path, schema) as writer:
        for group, start in enumerate(range(0, rows, GROUP)):
            part = draw_rows(group, min(GROUP, rows - start))
            columns = [pa.array(part[:, k]) for k in range(len(NAMES))]
            batch = pa.Table.from_arrays(columns, NAMES)
            writer.write_table(batch, row_group_size=100_000)
    return path


def run_in_process(*arguments: str) -> list[str]:
    """Words that this script prints in a new process."""
    process = subprocess.run(
        [sys.executable, __file__, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout.split()


def measure_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit_alone(path: str, features: int, **_) -> None:
    from zonal import SphericalGPRegressor

    begin = time.perf_counter()
    SphericalGPRegressor(features, solve_features=features).fit(path, target="y")
    print(time.perf_counter() - begin, measure_peak())


def predict_alone(path: str, features: int, **_) -> None:
    import pyarrow as pa

    from zonal import SphericalGPRegressor

    few = table(100_000)
    columns = {name: few[:, k] for k, name in enumerate(NAMES)}
    model = SphericalGPRegressor(features, solve_features=features, max_time=30).fit(
        pa.table(columns), target="y"
    )
    before, begin = measure_peak(), time.perf_counter()
    mean = model.predict(path)
    print(len(mean) / (time.perf_counter() - begin), before, measure_peak())


def memory(rows: list[int], features: int, **_) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in rows:
            path = write_table(folder, count)
            size = path.stat().st_size / 2**20
            output = run_in_process(
                "fit_alone", "--path", str(path), "--features", str(features)
            )
            seconds, peak = map(float, output)
            print(
                f"  {count:12,} rows ({size:.0f} MB): {seconds:.0f} s, "
                f"peak {peak:.0f} MB",
                flush=True,
            )


def overlap(rows: list[int], features: int, **_) -> None:
    from zonal import SphericalGPRegressor

    count = rows[0]
    with tempfile.TemporaryDirectory() as folder:
        path = write_table(folder, count)
        whole = table(count)
        fits = {
            "memory": lambda model: model.fit(whole[:, :8], whole[:, 8]),
            "Parquet": lambda model: model.fit(path, target="y"),
        }
        best = dict.fromkeys(fits, np.inf)
        predictions = {}
        for _ in range(2):
            for name, run_fit in fits.items():
                model = SphericalGPRegressor(features, solve_features=features)
                begin = time.perf_counter()
                run_fit(model)
                best[name] = min(best[name], time.perf_counter() - begin)
                predictions[name] = model.models_[0].predict(whole[:1000, :8]).mean
    seconds = ", ".join(f"{name} {value:.1f} s" for name, value in best.items())
    difference = np.abs(predictions["memory"] - predictions["Parquet"]).max()
    print(f"  {count:,} rows: {seconds}, ratio {best['Parquet'] / best['memory']:.3f}")
    print(f"  predictions differ by at most {difference:.1e}")


def predict(rows: list[int], features: int, **_) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in rows:
            path = write_table(folder, count)
            output = run_in_process(
                "predict_alone", "--path", str(path), "--features", str(features)
            )
            rate, before, after = map(float, output)
            print(
                f"  {count:12,} rows: {rate:,.0f} rows/s, peak {before:.0f} MB before "
                f"and {after:.0f} MB after",
                flush=True,
            )


def time_on_one_core(rows: int, columns: int, features: int) -> float:
    """Seconds of a statistics pass in this process, best of three."""
    from zonal import ArraySource
    from zonal.engine.passes import sharing_cores
    from zonal.engine.statistics import collect

    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, columns)).astype(np.float32)
    frame = build_features(x, features)
    source, best = ArraySource(x, x[:, 0]), np.inf
    with sharing_cores(1):
        collect(frame, ArraySource(x[:8192], x[:8192, 0]))
        for _ in range(3):
            begin = time.perf_counter()
            collect(frame, source)
            best = min(best, time.perf_counter() - begin)
    return best


# Bytes per second between workers, as assumed by the model.
WIRE = 1e9


def cost(**_) -> None:
    from scipy.optimize import nnls

    sizes = [(m, d) for m in (128, 256, 512, 1024) for d in (4, 16, 64)]
    terms, times = [], []
    for features, columns in sizes:
        rows = int(6e10 / (features**2 + 2000 * features)) // 8192 * 8192
        seconds = time_on_one_core(rows, columns, features) / rows
        terms.append([1, features, features * columns, features**2])
        times.append(seconds)
        print(
            f"  {features:5} features, {columns:3} columns: {1e6 * seconds:6.2f} µs "
            "per row",
            flush=True,
        )
    of_terms, of_times = np.array(terms, float), np.array(times)
    weights, _ = nnls(of_terms / of_times[:, None], np.ones(len(times)))
    worst = np.abs(of_terms @ weights / of_times - 1).max()
    print(
        "  per row on one core: "
        + " + ".join(
            f"{1e9 * weight:.3g} {name}".strip()
            for weight, name in zip(weights, ["", "M", "M d", "M²"], strict=True)
        )
        + f" ns; largest error {worst:.0%}"
    )
    # With tiny partitions, the time is that of the scheduler.
    many = cluster_pass(40_000, 400, 1, 16)
    task = many / 400
    print(f"  {1e3 * task:.1f} ms of the scheduler per partition")
    whole = cluster_pass(1_600_000, 40, 2, 512)

    def predict_seconds(n: float, m: int, d: int, workers: int, parts: int) -> float:
        per_row = np.array([1, m, m * d, m**2], float) @ weights
        sent = parts * 8 * m**2 / (WIRE * workers)
        return n * per_row / workers + parts * task + sent

    model = predict_seconds(1.6e6, 512, 8, 2, 40)
    print(f"  1,600,000 rows, 512 features, two workers: {whole:.1f} s, ", end="")
    print(f"the model predicts {model:.1f} s")
    print("  the model for 10⁹ rows of 8 columns, partitions of 10⁶ rows:")
    for workers in (1, 10, 100):
        line = ", ".join(
            f"{m} features {predict_seconds(1e9, m, 8, workers, 1000):,.0f} s"
            for m in (256, 512, 1024)
        )
        print(f"    {workers:3} cores: a pass takes {line}")


def cluster_pass(rows: int, parts: int, workers: int, features: int) -> float:
    """Seconds of a statistics pass on single-threaded workers."""
    from distributed import Client, LocalCluster

    from zonal.dask.source import DaskSource
    from zonal.engine.statistics import collect
    from zonal.tables.chunks import Chunk

    whole = table(rows)
    x, y = whole[:, :8], whole[:, 8]
    frame, size = build_features(x, features), rows // parts
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(_disable_threads)
        futures: Any = client.scatter(
            [Chunk(x[k : k + size], y[k : k + size]) for k in range(0, rows, size)]
        )
        # Compiles, with a few rows per partition.
        few: Any = client.scatter([Chunk(x[:5000], y[:5000])] * 4 * workers)
        collect(frame, DaskSource(client, few, [5000] * 4 * workers, 8))
        begin = time.perf_counter()
        collect(frame, DaskSource(client, futures, [size] * parts, 8))
        return time.perf_counter() - begin


def build_features(x: np.ndarray, features: int) -> Any:
    from zonal import ARD, Basis, ContinuousDepth, whiten

    sphere = ARD.isotropic(x.shape[1])
    return whiten(Basis.build(sphere, ContinuousDepth(), features, rows=x))


def pass_alone(rows: list[int], features: int, **_) -> None:
    from zonal import ArraySource
    from zonal.engine.statistics import collect

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    whole = table(rows[0])
    x, y = whole[:, :8], whole[:, 8]
    frame = build_features(x, features)
    collect(frame, ArraySource(x[:8192], y[:8192]))
    begin = time.perf_counter()
    collect(frame, ArraySource(x, y))
    print(time.perf_counter() - begin)


def _disable_threads() -> None:
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"


def workers(rows: list[int], features: int, **_) -> None:
    one = cluster_pass(rows[0], 40, 1, features)
    two = cluster_pass(rows[0], 40, 2, features)
    print(f"  one worker {one:.2f} s, two {two:.2f} s: speed-up {one / two:.2f}")


def partitions(features: int, **_) -> None:
    rows = 10_000_000
    many = cluster_pass(rows, 1000, 1, features)
    few = cluster_pass(rows, 10, 1, features)
    output = run_in_process(
        "pass_alone", "--rows", str(rows), "--features", str(features)
    )
    here = float(output[0])
    print(
        f"  {rows:,} rows on one worker: {many:.1f} s in 1,000 partitions, {few:.1f} s "
        f"in 10 ({many / few - 1:+.1%}); on one core here {here:.1f} s "
        f"({many / here - 1:+.1%})"
    )


PARTS = {
    part.__name__: part
    for part in (
        memory,
        overlap,
        predict,
        workers,
        partitions,
        cost,
        fit_alone,
        predict_alone,
        pass_alone,
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=[*PARTS])
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--path")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if not options.what.endswith("alone"):
        print(f"{options.what}: {os.cpu_count()} cores, {datetime.date.today()}")
    choices = vars(options)
    PARTS[choices.pop("what")](**choices)


if __name__ == "__main__":
    main()
