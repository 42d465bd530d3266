"""Rows per second of local conditionals, their gradients, and what compiling costs.

    python benchmarks/local.py

Seeded rows on the sphere in R^8, each with its nearest rows, on one thread. Times are
of the processor, the best of several: the values and the gradient of leave-one-out
densities in float32 and float64. Compiling is timed in two new processes, one with an
empty cache and one with what the first has left there.
"""

# pyright: reportMissingImports=false

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
from scipy.spatial import KDTree

from zonal import ContinuousDepth
from zonal.engine.local import StoredRows, leave_one_out
from zonal.engine.passes import sharing_cores
from zonal.prior.angles import AngleTable

DIMENSION, STORED, QUERIES = 8, 20_000, 2_048


def make_rows() -> StoredRows:
    x = np.random.default_rng(0).normal(size=(STORED, DIMENSION - 1)) / 2
    directions = np.column_stack([x, np.ones(STORED)])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radial, noise = np.ones(STORED), np.full(STORED, 0.1)
    return StoredRows(directions, radial, np.sin(2 * x[:, :1]), noise)


def measure_speed(sizes: list[int], rounds: int) -> None:
    rows = make_rows()
    table = AngleTable.build(ContinuousDepth(beta=1.6), DIMENSION)
    queries = np.arange(QUERIES)
    tree = KDTree(rows.directions)
    _, nearest = tree.query(rows.directions[:QUERIES], max(sizes) + 1)
    nearest = np.asarray(nearest)
    print("dtype    neighbours  values/s  gradients/s")
    for dtype in (np.float32, np.float64):
        for size in sizes:
            rates = []
            for gradient in (False, True):
                best = np.inf
                for _ in range(rounds):
                    start = time.thread_time()
                    leave_one_out(
                        rows,
                        queries,
                        nearest[:, 1 : size + 1],
                        table,
                        1.0,
                        dtype=dtype,
                        gradient=gradient,
                    )
                    best = min(best, time.thread_time() - start)
                rates.append(QUERIES / best)
            print(f"{dtype.__name__}  {size:10}  {rates[0]:8.0f}  {rates[1]:11.0f}")


def measure_compiling() -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        for state in ("empty", "full"):
            print(f"cache {state}:", flush=True)
            command = [sys.executable, __file__, "--first"]
            subprocess.run(command, env=environment, check=True)


def measure_first_call() -> None:
    rows = make_rows()
    kernel = ContinuousDepth(beta=1.6)
    start = time.process_time()
    table = AngleTable.build(kernel, DIMENSION)
    print(f"  first table {time.process_time() - start:.3f} s")
    start = time.process_time()
    AngleTable.build(ContinuousDepth(beta=1.7), DIMENSION)
    print(f"  another beta {time.process_time() - start:.4f} s")
    lists = np.array([[1, 2, 3]])
    for dtype in (np.float32, np.float64):
        start = time.process_time()
        leave_one_out(rows, np.array([0]), lists, table, 1.0, dtype=dtype)
        print(f"  {dtype.__name__} {time.process_time() - start:.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", action="store_true")
    parser.add_argument("--neighbours", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.first:
        measure_first_call()
    else:
        print(f"{datetime.date.today()}, {os.cpu_count()} processors")
        measure_compiling()
        with sharing_cores(1):
            measure_speed(arguments.neighbours, arguments.rounds)
