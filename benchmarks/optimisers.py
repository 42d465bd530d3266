"""L-BFGS on one sample against Adam on resampled batches, from the same start.

    python benchmarks/optimisers.py [kin40k protein] [--seconds 60 120]

Both start after the recipe has chosen starting values, and optimise the same
parameters: scales, depth, energies, noise and phases. L-BFGS maximises the exact bound
of 16,000 rows in rounds of fifty steps, with anchored and free phases in turn, like the
recipe. Adam maximises that of 6,000 rows drawn afresh at every step, with anchored
phases in the first half of the time and free ones in the second, at each of three
learning rates that decay to a tenth. After the time limit, both solve on all rows in
the same way. The script prints the bound of all rows, in nats per row, and error and
negative log density of the test rows, as plain normals.

`zonal_bench.tables` lists the sources of the data.
"""

import argparse
import datetime
import os
import time
import warnings

import numpy as np
from zonal_bench.scores import make_normal, score_numbers
from zonal_bench.tables import Split, find_data_folder, load_uci_split

from zonal import ArraySource, Recipe, whiten
from zonal.engine.bound import evaluate
from zonal.engine.features import quiet_phases
from zonal.engine.posterior import Posterior
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.learning.ascent import Ascent
from zonal.learning.by_bound import learn
from zonal.prior.process import Process
from zonal.tables.scaling import Scaling
from zonal.tables.sources import source_of

RATES = (0.01, 0.03, 0.1)
SAMPLE, BATCH = 16_000, 6_000


def run_lbfgs(
    start: Process, source: ArraySource, seconds: float
) -> tuple[Process, int]:
    end, steps, process = time.monotonic() + seconds, 0, start
    rows = [source_of(source.sample(SAMPLE))]

    def after_step() -> bool:
        nonlocal steps
        steps += 1
        return time.monotonic() > end

    turn = 0
    while time.monotonic() < end:
        ascent = Ascent(process, rows, ("anchored", "free")[turn % 2])
        before = steps
        ascent.run(50, after_step)
        process, turn = ascent.best, turn + 1
        if steps == before:
            break  # converged
    return process, steps


def run_adam(
    start: Process, source: ArraySource, seconds: float, rate: float
) -> tuple[Process, int]:
    begin, steps, process = time.monotonic(), 0, start
    for number, phases in enumerate(("anchored", "free")):
        unknowns = None
        while (spent := (time.monotonic() - begin) / seconds) < (number + 1) / 2:
            rows = [source_of(source.sample(BATCH, seed=steps))]
            if unknowns is None:
                ascent = Ascent(process, rows, phases)
                unknowns = ascent._unknowns
                vector = unknowns.start
                mean, square, own = np.zeros(len(vector)), np.zeros(len(vector)), 0
            ascent._sources = rows
            _, slope = ascent._objective(vector)
            own, steps = own + 1, steps + 1
            mean = 0.9 * mean + 0.1 * slope
            square = 0.999 * square + 0.001 * slope**2
            unit = np.sqrt(square / (1 - 0.999**own)) + 1e-8
            step = rate * 0.1**spent / unknowns._unit
            vector = vector - step * mean / (1 - 0.9**own) / unit
            vector = np.clip(vector, *unknowns.bounds.T)
        if unknowns is not None:
            process = unknowns.process(vector)
    return process, steps


def print_scores(
    name: str, process: Process, steps: int, split: Split, scaling
) -> None:
    source = ArraySource(scaling.inputs(split.x), split.y)
    statistics = collect(whiten(process.basis, "float64"), source)
    process = fit_scales(statistics, process)
    bound = evaluate(statistics, process).value / statistics.rows
    predicted = Posterior(process, statistics).predict(scaling.inputs(split.x_test))
    prediction = make_normal(predicted.mean, predicted.variance + float(process.noise))
    scores = score_numbers(prediction, split.y_test)
    print(
        f"    {name:14}{steps:5} steps  bound {bound:8.4f}  RMSE {scores['rmse']:.4f}"
        f"  NLL {scores['nll']:.4f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["kin40k", "protein"])
    parser.add_argument("--seconds", type=float, nargs="+", default=[60.0, 120.0])
    parser.add_argument("--data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"optimisers: {os.cpu_count()} cores, {datetime.date.today()}")
    for name in options.tables:
        split = load_uci_split(find_data_folder(options.data), name)
        scaling = Scaling.learn(ArraySource(split.x, split.y))
        source = ArraySource(scaling.inputs(split.x), split.y)
        start = learn(source, Recipe(most_steps=0)).process
        # Compiles everything before the clock runs.
        with quiet_phases():
            run_lbfgs(start, source, 1.0)
            run_adam(start, source, 1.0, 1e-9)
            for seconds in options.seconds:
                print(f"  {name}, {seconds:.0f} s")
                print_scores(
                    "L-BFGS", *run_lbfgs(start, source, seconds), split, scaling
                )
                for rate in RATES:
                    result = run_adam(start, source, seconds, rate)
                    print_scores(f"Adam at {rate}", *result, split, scaling)


if __name__ == "__main__":
    main()
