"""Starting values of phases: drawn from rows, greedy, k-means or random.

    python benchmarks/phases.py [kin40k protein] [--features 512] [--steps 25]

A band of levels 2 to 20 (and 2 to 60) gets its phases from 6,000 standardised rows by
each method. The script prints the seconds, the mean share of the variance of the band
that is not captured at other rows, and the bound in nats per row on 16,000 rows: with
energies and noise fitted, and after further steps of L-BFGS.

`zonal_bench.tables` lists the sources of the data.
"""

import argparse
import dataclasses
import datetime
import os
import time
import warnings

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from zonal_bench.tables import find_data_folder, load_uci_split

from zonal import ARD, ArraySource, Basis, ContinuousDepth, Process, whiten
from zonal.engine.bound import evaluate
from zonal.engine.features import quiet_phases
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.learning.ascent import Ascent
from zonal.prior.backends import numpy_kernel
from zonal.prior.bands import Band, band_kernel
from zonal.prior.phases import greedy_phases
from zonal.tables.scaling import Scaling
from zonal.tables.sources import source_of

SCALE = 0.1
STARTS = ("drawn", "greedy", "kmeans", "random")


def build_basis(start: str, levels: int, features: int, x: np.ndarray) -> Basis:
    sphere = ARD(np.full(x.shape[1], SCALE))
    kernel = ContinuousDepth(1.0, levels)
    known = start if start in ("drawn", "random") else "random"
    basis = Basis.build(sphere, kernel, features, rows=x, start=known)
    if start == known:
        return basis
    bands = []
    points = np.unique(sphere.points(x)[0], axis=0)
    for band in basis.bands:
        if isinstance(band, Band):
            if start == "kmeans":
                phases = kmeans_phases(points, len(band.phases))
            else:
                shape = numpy_kernel(band_kernel(band, kernel, sphere.dimension))
                phases = greedy_phases(points, len(band.phases), shape)
            band = dataclasses.replace(band, phases=phases)
        bands.append(band)
    return dataclasses.replace(basis, bands=tuple(bands))


def kmeans_phases(points: np.ndarray, count: int) -> np.ndarray:
    """Cluster centres of the points, put back on the sphere."""
    kmeans = MiniBatchKMeans(
        n_clusters=count,
        batch_size=max(1024, 4 * count),
        n_init=1,  # pyright: ignore[reportArgumentType]
        random_state=0,
        reassignment_ratio=0.0,
    )
    centres = np.asarray(kmeans.fit(points).cluster_centers_, np.float64)
    return centres / np.linalg.norm(centres, axis=1, keepdims=True)


def compare_start(start: str, levels: int, features: int, steps: int, x, y) -> None:
    begin = time.perf_counter()
    basis = build_basis(start, levels, features, x[:6_000])
    seconds = time.perf_counter() - begin
    uncaptured = 1 - float(whiten(basis).captured(x[6_000:9_000])[:, -1].mean())
    rows = source_of(ArraySource(x, y).sample(16_000))
    statistics = collect(whiten(basis), rows)
    process = fit_scales(statistics, Process(basis, 0.2))
    before = evaluate(statistics, process).value / statistics.rows
    ascent = Ascent(process, [rows])
    ascent.run(steps, lambda: False)
    print(
        f"    {start:8}{seconds:6.1f} s  uncaptured {uncaptured:.3f}"
        f"  bound {before:8.4f}  after {steps} steps {ascent.bound:8.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["kin40k", "protein"])
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"phases: {os.cpu_count()} cores, {datetime.date.today()}")
    for name in options.tables:
        split = load_uci_split(find_data_folder(options.data), name)
        scaling = Scaling.learn(ArraySource(split.x, split.y))
        x = scaling.inputs(split.x)
        for levels in (20, 60):
            print(f"  {name}, {levels} levels, {options.features} features")
            with quiet_phases():
                for start in STARTS:
                    compare_start(
                        start, levels, options.features, options.steps, x, split.y
                    )


if __name__ == "__main__":
    main()
