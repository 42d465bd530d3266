"""Search for nearest rows: the tree, the same tree giving up early, SciPy's, and BLAS.

    python benchmarks/neighbours.py [kin40k covtype] [--k 32] [--queries 500]

For each table the rows are mapped to the sphere with equal scales, and with scales that
fall from column to column (a few columns matter). Printed are the effective dimension
(the participation ratio of the principal variances), the processor time of building in
seconds and of a query in microseconds, and the share of the true neighbours that each
finds. `zonal_bench.tables` says where the data come from.
"""

import argparse
import datetime
import os
import time

import numpy as np
from scipy.spatial import KDTree
from zonal_bench.tables import (
    find_data_folder,
    load_covtype_split,
    load_flights_split,
    load_uci_split,
    read_columns,
)

from zonal.engine.neighbours import Neighbours
from zonal.tables.repeats import merged_rows

TABLES = ("protein", "kin40k", "pumadyn32nm", "covtype", "flights")
FLIGHTS = 300_000
# How fast scales fall from column to column, where few columns matter.
FALL = 0.7
CLOSENESS = (0.8, 0.7, 0.6)


def rows_of(folder, name: str) -> np.ndarray:
    if name == "covtype":
        split = load_covtype_split(folder)
        parts = read_columns(folder, "covtype")
        x = np.column_stack([parts[one] for one in list(parts)[:-1]]).astype(float)
    else:
        split = (
            load_flights_split(folder)
            if name == "flights"
            else load_uci_split(folder, name)
        )
        x = split.x[:FLIGHTS].astype(float)
    x = x[:, x.std(axis=0) > 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return merged_rows(x, np.zeros(len(x))).x


def on_sphere(x: np.ndarray, scales: np.ndarray) -> np.ndarray:
    z = np.column_stack([x * scales, np.ones(len(x))])
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def effective_dimension(points: np.ndarray) -> float:
    variances = np.linalg.eigvalsh(np.cov(points[:50_000].T))
    return variances.sum() ** 2 / (variances**2).sum()


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    pairs = zip(found, truth, strict=True)
    return float(np.mean([np.isin(*pair).mean() for pair in pairs]))


def by_blas(points: np.ndarray, own: np.ndarray, k: int) -> np.ndarray:
    """Largest cosines in float32, a block of queries at a time."""
    found = []
    for block in np.array_split(own, -(-len(own) // 64)):
        cosines = points[block] @ points.T
        cosines[np.arange(len(block)), block] = -np.inf
        found.append(np.argpartition(-cosines, k - 1, axis=1)[:, :k])
    return np.concatenate(found)


def measure(name: str, kind: str, points: np.ndarray, k: int, queries: int) -> None:
    own = np.random.default_rng(0).choice(len(points), queries, replace=False)
    rows, columns = points.shape
    print(
        f"{name}, {kind}: {rows} rows, {columns} coordinates, "
        f"effective dimension {effective_dimension(points):.1f}"
    )

    def timed(function):
        start = time.process_time()
        return function(), time.process_time() - start

    def line(method, built, spent, count, found):
        print(
            f"    {method:18s} build {built:6.2f} s   query {spent / count * 1e6:8.0f} "
            f"µs   recall {recall(found, truth[:count]):.4f}",
            flush=True,
        )

    neighbours, built = timed(lambda: Neighbours.build(points))
    (truth, _), spent = timed(lambda: neighbours.query(points[own], k, own))
    line("tree", built, spent, queries, truth)
    for closeness in CLOSENESS:
        (found, _), spent = timed(
            lambda share=closeness: neighbours.query(points[own], k, own, share)
        )
        line(f"tree, {closeness:g}", built, spent, queries, found)
    few = own[:50]
    tree, built = timed(lambda: KDTree(points, leafsize=32))
    (_, found), spent = timed(lambda: tree.query(points[few], k + 1))
    line("SciPy's tree", built, spent, len(few), np.asarray(found)[:, 1:])
    found, spent = timed(lambda: by_blas(points, few, k))
    line("BLAS", 0.0, spent, len(few), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=TABLES)
    parser.add_argument("--data")
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--queries", type=int, default=500)
    options = parser.parse_args()
    folder = find_data_folder(options.data)
    print(f"{os.cpu_count()} cores, {datetime.date.today()}, k={options.k}")
    # Compile first.
    ball = on_sphere(np.random.default_rng(0).normal(size=(500, 2)), np.ones(2))
    Neighbours.build(ball).query(ball, 3)
    for name in options.names:
        x = rows_of(folder, name)
        columns = x.shape[1]
        equal = np.full(columns, columns**-0.5)
        falling = FALL ** np.arange(columns)
        measure(name, "equal scales", on_sphere(x, equal), options.k, options.queries)
        measure(name, "falling", on_sphere(x, falling), options.k, options.queries)


if __name__ == "__main__":
    main()
