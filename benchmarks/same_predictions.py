"""Whether two versions of the code predict the same, after fits on generated data.

    PYTHONPATH=old/src python benchmarks/same_predictions.py save before.npz
    PYTHONPATH=new/src python benchmarks/same_predictions.py compare before.npz

``compare`` prints the largest relative difference of each model and quantity, and exits
with status 1 if one exceeds ``--tolerance``. Both runs belong on one machine, with the
same number of threads: products in another order differ in their last bits, and
learning makes such differences larger.

It uses only the public estimators, so one file runs with every version.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import zonal
from zonal import SphericalGPClassifier, SphericalGPRegressor

NEW_ROWS = 100
LEVELS = [0.05, 0.5, 0.95]

Quantities = dict[str, np.ndarray]


def inputs(rows: int, columns: int, seed: int):
    """Rows to learn from and new ones, a smooth function of them, and a generator."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-2, 2, (rows + NEW_ROWS, columns))
    f = np.sin(2 * X[:, 0]) + np.prod(X[:, :2], axis=1) / 2
    return X, f, generator


def of_numbers(model: Any, X, y, **exposure) -> Quantities:
    mean, std = model.predict(X, return_std=True, **exposure)
    return {
        "bound": np.array(model.bound_),
        "mean": mean,
        "std": std,
        "quantiles": model.predict_quantiles(X, LEVELS, **exposure),
        "log score": np.array(model.log_score(X, y, **exposure)),
        "draws": model.sample_y(X, 3, random_state=0, **exposure),
    }


def of_classes(model: Any, X, y) -> Quantities:
    return {
        "bound": np.array(model.bound_),
        "probabilities": model.predict_proba(X),
        "log score": np.array(model.log_score(X, y)),
    }


def numbers(rows: int, n_features: int) -> Quantities:
    X, f, generator = inputs(rows, 3, seed=rows)
    y = f + generator.normal(size=len(f)) / 5
    model = SphericalGPRegressor(n_features).fit(X[:rows], y[:rows])
    return of_numbers(model, X[rows:], y[rows:])


def classes(count: int) -> Quantities:
    rows = 500
    X, f, generator = inputs(rows, 3, seed=count)
    scores = f + generator.normal(size=len(f)) / 3
    y = np.digitize(scores, np.quantile(scores, np.arange(1, count) / count))
    model = SphericalGPClassifier(48).fit(X[:rows], y[:rows])
    return of_classes(model, X[rows:], y[rows:])


def counts() -> Quantities:
    rows = 500
    X, f, generator = inputs(rows, 2, seed=0)
    hours = generator.uniform(0.5, 4, len(f))
    y = generator.poisson(hours * np.exp(1 + f / 2))
    model = SphericalGPRegressor(48, likelihood="poisson")
    model.fit(X[:rows], y[:rows], exposure=hours[:rows])
    return of_numbers(model, X[rows:], y[rows:], exposure=hours[rows:])


def places() -> Quantities:
    rows = 500
    X, f, generator = inputs(rows, 2, seed=1)
    y = f + generator.normal(size=len(f)) / 5
    X = X * [40, 85]
    model = SphericalGPRegressor(64, geometry="sphere").fit(X[:rows], y[:rows])
    return of_numbers(model, X[rows:], y[rows:])


MODELS: dict[str, Callable[[], Quantities]] = {
    "600 rows": lambda: numbers(600, n_features=64),
    # A feature per row: learned from the exact likelihood.
    "350 rows": lambda: numbers(350, n_features=350),
    "two classes": lambda: classes(2),
    "three classes": lambda: classes(3),
    "counts": counts,
    "places": places,
}


def predictions() -> dict[str, np.ndarray]:
    found = {}
    for model, fitted in MODELS.items():
        begin = time.perf_counter()
        for quantity, values in fitted().items():
            found[f"{model}: {quantity}"] = values
        print(f"{model:14} {time.perf_counter() - begin:5.1f} s", file=sys.stderr)
    return found


def difference(before: np.ndarray, after: np.ndarray) -> float:
    """The largest relative difference; small numbers count by the array's scale."""
    if before.shape != after.shape:
        return np.inf
    size = np.abs(before)
    least = max(1e-3 * size.max(), np.finfo(np.float64).tiny)
    relative = np.abs(after - before) / np.maximum(size, least)
    return float(np.nan_to_num(relative, nan=np.inf).max())


def compare(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> float:
    """Print a line per model and quantity; the largest difference of all."""
    differences = {
        name: difference(before[name], after[name])
        if name in before and name in after
        else np.inf
        for name in {**before, **after}
    }
    for name, value in differences.items():
        print(f"{name:30} {value:9.2e}")
    return max(differences.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["save", "compare"])
    parser.add_argument("file")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"zonal of {zonal.__path__[0]}", file=sys.stderr)
    found = predictions()
    if options.action == "save":
        np.savez_compressed(options.file, allow_pickle=False, **found)
        return
    with np.load(options.file) as before:
        largest = compare(dict(before), found)
    print(f"{'largest':30} {largest:9.2e}")
    sys.exit(int(largest > options.tolerance))


if __name__ == "__main__":
    main()
