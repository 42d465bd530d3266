"""Learning by neighbours and prediction from the nearest rows, without any features.

    python benchmarks/neighbours_alone.py [kin40k protein] [--k 128]

For each table the first published split is learned by `zonal.learning.by_neighbours`,
and test rows are predicted from their k nearest rows with normal noise. Printed are the
root mean squared error and the negative log density of targets standardised by the
training rows, what was learned, and processor seconds of each phase.
`zonal_bench.tables` says where the data come from.
"""

import argparse
import datetime
import os
import time

import numpy as np
from zonal_bench.tables import Split, find_data_folder, load_uci_split

from zonal import UnitVectors
from zonal.engine.local import Queries, StoredRows, conditionals
from zonal.engine.neighbours import Neighbours
from zonal.learning.by_neighbours import learn
from zonal.learning.schedule import NeighbourSchedule
from zonal.prior.parameters import named
from zonal.prior.process import LocalProcess
from zonal.tables.repeats import DistinctRows, merged_rows

TABLES = (
    "kin40k",
    "protein",
    "pol",
    "elevators",
    "bike",
    "keggdirected",
    "keggundirected",
    "pumadyn32nm",
)
# Errors and negative log densities to reach, some of them with features besides.
BARS = {
    "kin40k": (0.093, -1.05),
    "protein": (0.472, 0.53),
    "pol": (0.080, -1.35),
    "elevators": (0.360, 0.40),
    "bike": (0.006, -4.0),
    "keggdirected": (0.089, np.nan),
    "keggundirected": (0.115, np.nan),
    "pumadyn32nm": (0.215, -0.11),
}


def standardised(split: Split) -> tuple[np.ndarray, np.ndarray]:
    centre, width = split.x.mean(axis=0), split.x.std(axis=0)
    return (split.x - centre) / width, (split.x_test - centre) / width


def predictions(
    rows: DistinctRows, process: LocalProcess, x: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and variances of targets, and processor seconds of the search."""
    begin = time.process_time()
    points, radial = process.sphere.points(rows.x)
    asked, asked_radial = process.sphere.points(x)
    lists, _ = Neighbours.build(points.astype(np.float32)).query(
        asked.astype(np.float32), k
    )
    searched = time.process_time() - begin
    noise = float(process.noise)
    found = conditionals(
        StoredRows(points, radial, rows.y[:, None], noise / rows.weight),
        Queries(asked, asked_radial, np.full(len(x), noise)),
        lists,
        process.table(),
        float(process.variance),
    )
    return found.mean[:, 0], found.variance + noise, searched


def run(folder, name: str, k: int, settings: NeighbourSchedule) -> None:
    split = load_uci_split(folder, name)
    x, x_test = standardised(split)
    begin = time.process_time()
    rows = merged_rows(x, split.y)
    state, report = learn(rows, settings)
    learned = time.process_time()
    process = state.best
    mean, variance, searched = predictions(rows, process, x_test, k)
    predicted = time.process_time() - learned
    error = split.y_test - mean
    density = 0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
    bar = BARS.get(name, (np.nan, np.nan))
    print(
        f"{name:15s} {len(rows):6d} {np.sqrt(np.mean(error**2)):8.4f} ({bar[0]:.3f}) "
        f"{np.mean(density):8.4f} ({bar[1]:6.2f}) {len(report) - 1:7d} "
        f"{learned - begin:8.1f} {searched:8.2f} {predicted - searched:8.2f}   "
        f"{float(named(process)['kernel.beta']):5.2f} {process.variance:8.3g} "
        f"{process.noise:8.2g}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=TABLES)
    parser.add_argument("--data")
    parser.add_argument("--k", type=int, default=128)
    options = parser.parse_args()
    folder = find_data_folder(options.data)
    # Compile first.
    ball = np.random.default_rng(0).normal(size=(200, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    few = merged_rows(ball, ball[:, 0])
    small = NeighbourSchedule(validation_rows=20, sample_rows=(50,))
    process = learn(few, small, sphere=UnitVectors(3))[0].best
    predictions(few, process, ball, 5)
    print(f"{os.cpu_count()} cores, {datetime.date.today()}, k={options.k}")
    print(
        "table             rows     RMSE (bar)       NLL (bar)     rounds    learn   "
        "search  predict    beta variance    noise"
    )
    for name in options.names:
        run(folder, name, options.k, NeighbourSchedule())


if __name__ == "__main__":
    main()
