"""A law per row beside one shape for all rows and the plain normal of the process.

    python benchmarks/row_law.py [kin40k protein]      # UCI tables and households
    python benchmarks/row_law.py --made                # tables that tempt it
    python benchmarks/row_law.py --truth               # known noise functions

Split 0 of each table, on one core, from one fit: the three laws differ in calibration
alone. Printed are the negative log density of standardised targets (NLL) under each
law, then of the law that calibration chooses: CRPS, coverage of 90 % intervals, overall
and by thirds of the predicted deviation and of the prediction. Then processor seconds
of the fit without calibration, of calibration, and of predicting the test rows without
and with it (the best of three).
"""

from zonal_bench.processes import use_one_core

use_one_core()

import argparse  # noqa: E402 (threads are counted by imports)
import dataclasses  # noqa: E402
import datetime  # noqa: E402
import os  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
from zonal_bench.tables import (  # noqa: E402
    UCI,
    Split,
    find_data_folder,
    load_household_split,
    load_uci_split,
)

from zonal.inference.calibration import calibrate  # noqa: E402
from zonal.learning.recipe import Recipe  # noqa: E402
from zonal.likelihoods.noise import Gaussian  # noqa: E402
from zonal.model import Model, fit  # noqa: E402
from zonal.prediction import Prediction  # noqa: E402
from zonal.tables.scaling import ScaledSource  # noqa: E402
from zonal.tables.sources import ArraySource  # noqa: E402

TABLES = (*UCI[:12], "houseelectric_minute_48k")
LEVELS = np.array([0.05, 0.95])
ROWS, TEST_ROWS = 8_000, 8_000


def read_split(folder: Path, name: str) -> Split:
    if name.startswith("houseelectric"):
        return load_household_split(folder)
    return load_uci_split(folder, name)


def spend(function: Callable) -> tuple[float, object]:
    """Processor seconds of a call, and its result."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


def fit_laws(split: Split) -> tuple[dict[str, Model], dict[str, float]]:
    """Models that differ in their law, and processor seconds."""
    rows = ArraySource(split.x, split.y)
    fit_seconds, plain = spend(lambda: fit(rows, Recipe(calibrated=False)))
    assert isinstance(plain, Model)
    source = ScaledSource(rows, plain.scaling)
    plain.predict(split.x[:2])  # builds the index, which a fit with calibration has
    seconds, solution = spend(lambda: calibrate(plain.solution, source))
    chosen = dataclasses.replace(plain, solution=solution)
    # One shape for all rows, from the same errors.
    choose = Gaussian.calibrate
    Gaussian.calibrate = _calibrate_one_shape  # type: ignore[method-assign]
    try:
        one = dataclasses.replace(plain, solution=calibrate(plain.solution, source))
    finally:
        Gaussian.calibrate = choose  # type: ignore[method-assign]
    models = {"plain": plain, "one shape": one, "chosen": chosen}
    return models, {"fit": fit_seconds, "calibration": seconds}


def _calibrate_one_shape(self, rows, mean, variance):
    errors = self._errors_of(rows, mean, variance)
    new = errors[~errors.repeats]
    plain = dataclasses.replace(self, row_law=None, repeat_law=None)
    return plain._with_one_shape(new if len(new) else errors)


def describe_law(model: Model) -> str:
    noise = model.likelihood
    assert isinstance(noise, Gaussian)
    if noise.row_law is not None:
        return f"per row, {len(noise.row_law.shapes)} shapes"
    return "plain" if noise.calibration.widths == (1.0,) else "one shape"


def cover_thirds(prediction: Prediction, y: np.ndarray) -> str:
    """Coverage of 90 % intervals: overall, by thirds of deviation and of prediction."""
    low, high = prediction.quantiles(LEVELS).T
    inside = (low < y) & (y < high)
    parts = [f"{inside.mean():.3f}"]
    for key in (np.sqrt(prediction.variance_y), prediction.mean):
        thirds = np.array_split(np.argsort(key, kind="stable"), 3)
        parts.append(" ".join(f"{inside[third].mean():.2f}" for third in thirds))
    return " | ".join(parts)


def print_run(name: str, split: Split) -> None:
    models, seconds = fit_laws(split)
    y = split.y_test
    losses = {
        law: -float(model.predict(split.x_test).log_density(y).mean())
        for law, model in models.items()
    }
    model = models["chosen"]
    prediction = model.predict(split.x_test)
    crps = prediction.crps(y)
    assert crps is not None
    print(
        f"{name:26s} {losses['plain']:8.3f} {losses['one shape']:8.3f} "
        f"{losses['chosen']:8.3f} {crps.mean():8.4f} {cover_thirds(prediction, y)} "
        f"| {describe_law(model)}"
    )

    def deviations(chosen: Model) -> float:
        runs = [
            spend(lambda: np.sqrt(chosen.predict(split.x_test).variance_y))[0]
            for _ in range(3)
        ]
        return min(runs)

    rates = [deviations(models["plain"]), deviations(model)]
    share = seconds["calibration"] / seconds["fit"]
    print(
        f"{'':26s} fit {seconds['fit']:.1f} s, calibration "
        f"{seconds['calibration']:.1f} s ({share:.0%}), prediction {rates[0]:.2f} s, "
        f"with the law {rates[1]:.2f} s ({rates[1] / rates[0] - 1:+.0%})",
        flush=True,
    )


def standardised(name: str, x: np.ndarray, y: np.ndarray, rows: int) -> Split:
    y = (y - y[:rows].mean()) / y[:rows].std()
    return Split(name, x[:rows], y[:rows], x[rows:], y[rows:])


def make_tables() -> Iterator[Split]:
    """Tables that tempt a law per row."""

    def table(name: str, make: Callable, rows: int = ROWS) -> Split:
        generator = np.random.default_rng(0)
        x = generator.uniform(-1, 1, size=(rows + TEST_ROWS, 4))
        mean = np.sin(3 * x[:, 0]) + x[:, 1] ** 2
        return standardised(name, x, make(generator, x, mean), rows)

    def normal(generator, mean):
        return generator.normal(size=len(mean))

    yield table("same noise everywhere", lambda g, x, m: m + 0.3 * normal(g, m))
    yield table(
        "targets repeat", lambda g, x, m: np.round(2 * (m + 0.3 * normal(g, m))) / 2
    )
    yield table("rounded to integers", lambda g, x, m: np.round(m + normal(g, m)))
    yield table(
        "90 % zeros",
        lambda g, x, m: np.where(g.random(len(m)) < 0.9, 0.0, m + normal(g, m)),
    )
    yield table(
        "noise 100 times apart",
        lambda g, x, m: m + np.where(x[:, 2] < 0, 0.01, 1.0) * normal(g, m),
    )
    yield table("50 rows", lambda g, x, m: m + 0.3 * normal(g, m), 50)
    split = table("each row twice", lambda g, x, m: m + 0.3 * normal(g, m), ROWS // 2)
    x, y = np.repeat(split.x, 2, axis=0), np.repeat(split.y, 2)
    yield dataclasses.replace(split, x=x, y=y)


NOISES = {
    "exp(1.5 x1)": lambda x: 0.3 * np.exp(1.5 * x[:, 1] - 1),
    "step in x3": lambda x: 0.1 + 0.5 * (x[:, 3] > 0),
    "|x0|": lambda x: 0.1 + 0.4 * np.abs(x[:, 0]),
    "exp(sin 4 x1)": lambda x: 0.3 * np.exp(np.sin(4 * x[:, 1])),
    "x0 times x2": lambda x: 0.1 + 0.6 * np.maximum(x[:, 0] * x[:, 2], 0),
}


def print_truth(rows: int = 20_000) -> None:
    """Correlation of predicted deviations with those of known noise."""
    print(
        f"\n{rows:,} rows of 5 columns: correlation of predicted and true deviations,"
    )
    print("NLL, and NLL of the truth")
    for name, deviation in NOISES.items():
        generator = np.random.default_rng(0)
        x = generator.uniform(-1, 1, size=(rows + TEST_ROWS, 5))
        mean, noise = np.sin(3 * x[:, 0]) + x[:, 2] ** 2, deviation(x)
        y = mean + noise * generator.normal(size=len(x))
        model = fit(ArraySource(x[:rows], y[:rows]), Recipe())
        prediction = model.predict(x[rows:])
        found = np.corrcoef(np.sqrt(prediction.variance_y), noise[rows:])[0, 1]
        loss = -prediction.log_density(y[rows:]).mean()
        z = (y - mean)[rows:] / noise[rows:]
        truth = np.mean(np.log(noise[rows:]) + 0.5 * z**2) + 0.5 * np.log(2 * np.pi)
        print(f"{name:20s} {found:6.3f} {loss:8.3f} {truth:8.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--data")
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--truth", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{len(os.sched_getaffinity(0))} core, {datetime.date.today()}")
    if options.truth:
        print_truth()
        return
    print(
        f"{'table':26s} {'plain':>8s} {'one':>8s} {'chosen':>8s} {'CRPS':>8s} "
        "90 % intervals | thirds by deviation | by prediction | law"
    )
    if options.made:
        for split in make_tables():
            print_run(split.name, split)
        return
    folder = find_data_folder(options.data)
    for name in options.tables:
        print_run(name, read_split(folder, name))


if __name__ == "__main__":
    main()
