"""Speed and memory of the engine, relative to BLAS in the same run.

    python benchmarks/engine.py speed
    python benchmarks/engine.py memory

``speed``: seeded normal rows, 8 columns, 1024 features, float32. Each task alternates
with its reference, best of several rounds: a statistics pass with the SYRK calls on
chunks of the same size; value and gradient with a statistics pass; predictions with
standard deviations with one product of the rows and a features x features matrix;
fitting of energies and noise on a tenth of the rows with all rows.

``memory``: peak resident memory of a statistics pass over generated rows, which are
never in memory together; each size has its own process.
"""

# pyright: reportMissingImports=false

import argparse
import datetime
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from zonal import ARD, ArraySource, Basis, ContinuousDepth, Process, whiten
from zonal.engine.gradient import value_and_gradient
from zonal.engine.posterior import Posterior
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.tables.chunks import Chunk
from zonal.tables.sources import CHUNK_ROWS, Source

COLUMNS, FEATURES = 8, 1024


def time_alternating(
    tasks: dict[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """Best time of each task over rounds of all tasks."""
    best = dict.fromkeys(tasks, np.inf)
    for _ in range(rounds):
        for name, task in tasks.items():
            begin = time.perf_counter()
            task()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def draw_rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(count, COLUMNS)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * x[:, 2] ** 2
    return x, y.astype(np.float32)


def build_process(layout: str) -> Process:
    x, _ = draw_rows(4000, seed=1)
    sphere = ARD(np.full(COLUMNS, 0.5))
    basis = Basis.build(sphere, ContinuousDepth(), FEATURES, layout, rows=x)
    return Process(basis, 0.1)


def speed(layout: str, rows: int, rounds: int) -> None:
    x, y = draw_rows(rows)
    source, small = ArraySource(x, y), ArraySource(x[: rows // 10], y[: rows // 10])
    block = np.random.default_rng(2).normal(size=(CHUNK_ROWS, FEATURES))
    block = block.astype(np.float32)
    square = block[:FEATURES]
    chunks = -(-rows // CHUNK_ROWS)
    prior = build_process(layout)
    frame = whiten(prior.basis)
    posterior = Posterior(prior, collect(frame, small))
    posterior.predict(x[:CHUNK_ROWS])
    value_and_gradient(prior, ArraySource(x[:CHUNK_ROWS], y[:CHUNK_ROWS]))
    times = time_alternating(
        {
            "SYRK": lambda: [block.T @ block for _ in range(chunks)],
            "statistics": lambda: collect(frame, source),
            "value and gradient": lambda: value_and_gradient(prior, source),
            "GEMM": lambda: [block @ square for _ in range(chunks)],
            "predict": lambda: posterior.predict(x),
        },
        rounds,
    )
    print(f"{layout}, {rows:,} rows, {prior.basis.n_features} features:")
    for name, unit in (
        ("statistics", "SYRK"),
        ("value and gradient", "statistics"),
        ("predict", "GEMM"),
    ):
        ratio = times[name] / times[unit]
        print(f"  {name:20}{times[name]:8.2f} s = {ratio:.2f} x {unit}")
    few, many = collect(frame, small), collect(frame, source)
    fitted = time_alternating(
        {
            "few": lambda: fit_scales(few, prior, max_steps=20),
            "many": lambda: fit_scales(many, prior, max_steps=20),
        },
        2,
    )
    print(
        f"  energies and noise, 20 steps: {fitted['few']:.2f} s at {rows // 10:,} "
        f"rows, {fitted['many']:.2f} s at {rows:,}",
        flush=True,
    )


class Generated(Source):
    """Rows that are generated when they are read."""

    def __init__(self, count: int):
        self.count = count

    @property
    def n_inputs(self) -> int:
        return COLUMNS

    @property
    def n_rows(self) -> int:
        return self.count

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Chunk]:
        for start in range(0, self.count, size):
            yield Chunk(*draw_rows(min(size, self.count - start), seed=start))


def memory() -> None:
    peaks = {}
    for count in (500_000, 5_000_000):
        process = subprocess.run(
            [sys.executable, __file__, "one-pass", "--rows", str(count)],
            check=True,
            capture_output=True,
            text=True,
        )
        peaks[count] = float(process.stdout)
        print(f"  {count:,} rows: {peaks[count]:.0f} MB", flush=True)
    first, last = peaks.values()
    print(f"  difference: {last - first:.0f} MB")


def one_pass(rows: int) -> None:
    collect(whiten(build_process("banded").basis), Generated(rows))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["speed", "memory", "one-pass"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "one-pass":
        one_pass(options.rows)
        return
    print(f"{options.what}: {os.cpu_count()} cores, {datetime.date.today()}")
    if options.what == "speed":
        for layout in ("banded", "sparse"):
            speed(layout, options.rows, options.rounds)
    else:
        memory()


if __name__ == "__main__":
    main()
