"""Likelihoods: millions of rows, counts, outliers, varying noise and convergence.

    python benchmarks/likelihoods.py scale [--rows 5000000]
    python benchmarks/likelihoods.py counts
    python benchmarks/likelihoods.py robust
    python benchmarks/likelihoods.py noise
    python benchmarks/likelihoods.py convergence [--plot FILE]

``scale``: seeded rows with known class probabilities, the last tenth for testing; the
best possible AUC is that of the true probabilities.
``counts``: bike hire, with counts from the centred log counts of the table.
``robust``: normal rows with 5 % gross outliers, compared with a fit to clean rows.
``noise``: normal rows with varying noise, heteroscedastic and homoscedastic.
``convergence``: passes until the relative change of the bound is below 1e-6, on SUSY
and a tenth of covtype, from scratch and from the sites of a sample.

``make bench EXPERIMENTS="susy airline covtype"`` compares classifiers with peers on
real tables; `zonal_bench.tables` lists the sources of the data.
"""

# pyright: reportMissingImports=false

import argparse
import datetime
import os
import time
import warnings

import numpy as np
from scipy.special import expit
from sklearn.metrics import roc_auc_score
from zonal_bench.tables import (
    find_data_folder,
    hash_rows,
    load_susy_split,
    read_columns,
)

from zonal import (
    ArraySource,
    Heteroscedastic,
    Labels,
    NegativeBinomial,
    Poisson,
    Recipe,
    StudentT,
    fit,
    whiten,
)
from zonal.engine.statistics import collect
from zonal.inference.natural_gradient import Effort, Watch, infer
from zonal.inference.problem import Problem
from zonal.tables.sources import source_of


def fit_classifier(x, y, x_test, features: int = 512, **choices):
    """Class probabilities of the test rows, seconds of the fit, and the model."""
    labels = Labels.of(y)
    recipe = Recipe(n_features=features, **choices)
    begin = time.perf_counter()
    source = ArraySource(x, labels.codes(y))
    model = fit(source, recipe, labels.likelihood())
    seconds = time.perf_counter() - begin
    return model.predict(x_test).probabilities(), seconds, model


def draw_classes(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eight columns, two classes, and the true probability of the second."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 8)).astype(np.float32)
    f = 1.5 * np.sin(x[:, 0] + x[:, 1]) + x[:, 2] * x[:, 3]
    f += 0.8 * np.cos(1.5 * x[:, 4]) - x[:, 5] * np.tanh(x[:, 6]) + 0.5 * x[:, 7]
    probability = expit(f)
    return x, (generator.random(rows) < probability).astype(np.float64), probability


def scale(rows: int, **_) -> None:
    x, y, probability = draw_classes(rows, seed=0)
    train, test = slice(None, -rows // 10), slice(-rows // 10, None)
    predicted, seconds, model = fit_classifier(x[train], y[train], x[test])
    best = roc_auc_score(y[test], probability[test])
    auc = roc_auc_score(y[test], predicted[:, 1])
    basis = model.process.basis
    source = ArraySource(x[train], y[train])
    begin = time.perf_counter()
    collect(whiten(basis), source)
    one_pass = time.perf_counter() - begin
    passes = sum(step.stage == "infer" for step in model.history)
    print(f"  {len(y[train]):,} rows, {basis.n_features} features, {passes} passes")
    print(f"  {seconds:.0f} s = {seconds / one_pass:.1f} x one statistics pass")
    print(f"  AUC {auc:.4f}, best possible {best:.4f}, difference {best - auc:.4f}")


def counts(data: str | None, **_) -> None:
    parts = read_columns(find_data_folder(data), "bike")
    hires = np.round(np.exp(parts["y"] - parts["y"].min()))
    test = parts["test_0"].astype(bool)
    x = np.column_stack(
        [values for name, values in parts.items() if name.startswith("x")]
    )
    y, y_test = hires[~test], hires[test]
    for likelihood in (Poisson(), NegativeBinomial()):
        begin = time.perf_counter()
        model = fit(ArraySource(x[~test], y), likelihood=likelihood)
        seconds = time.perf_counter() - begin
        prediction = model.predict(x[test])
        density = float(np.mean(prediction.log_density(y_test)))
        low, high = prediction.quantiles(np.array([0.05, 0.95])).T
        coverage = np.mean((low <= y_test) & (y_test <= high))
        error = np.sqrt(np.mean((prediction.mean - y_test) ** 2))
        print(
            f"  {type(likelihood).__name__:20}log probability {density:.4f}  RMSE "
            f"{error:.2f}  coverage of 90 % {coverage:.3f}  {seconds:.0f} s  "
            f"{model.likelihood}",
            flush=True,
        )


def draw_normal_rows(rows: int, seed: int):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 4))
    f = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    return x, f, generator


def robust(**_) -> None:
    x, f, generator = draw_normal_rows(5000, 0)
    clean = f + 0.2 * generator.normal(size=len(x))
    wild = generator.random(len(x)) < 0.05
    y = np.where(wild, clean + 10 * generator.normal(size=len(x)), clean)
    x_test, f_test, _ = draw_normal_rows(5000, 1)
    for name, model in (
        ("normal noise, clean", fit(ArraySource(x, clean))),
        ("normal noise, 5 % outliers", fit(ArraySource(x, y))),
        ("Student-t, 5 % outliers", fit(ArraySource(x, y), likelihood=StudentT())),
    ):
        error = np.sqrt(np.mean((model.predict(x_test).mean - f_test) ** 2))
        print(f"  {name:30}RMSE to the truth {error:.4f}", flush=True)
        noisy = np.sqrt(error**2 + 0.2**2)
        print(f"  {'':30}RMSE to clean targets {noisy:.4f}", flush=True)


def noise(**_) -> None:
    def rows(seed):
        x, f, generator = draw_normal_rows(5000, seed)
        std = 0.2 * np.exp(0.8 * x[:, 3])
        return x, f + std * generator.normal(size=len(x))

    x, y = rows(0)
    x_test, y_test = rows(1)
    for name, model in (
        ("homoscedastic", fit(ArraySource(x, y))),
        ("heteroscedastic", fit(ArraySource(x, y), likelihood=Heteroscedastic())),
    ):
        nll = -float(np.mean(model.predict(x_test).log_density(y_test)))
        print(f"  {name:20}NLL {nll:.4f}", flush=True)


def convergence(data: str | None, plot: str | None, features: int, **_) -> None:
    folder = find_data_folder(data)
    rows = load_susy_split(folder)
    curves = {
        f"SUSY, {start}": values
        for start, values in trace_bounds(rows.x, rows.y, features).items()
    }
    parts = read_columns(folder, "covtype")
    y = parts.pop("Cover_Type")
    x = np.column_stack([values.astype(np.float64) for values in parts.values()])
    some = hash_rows(x) % np.uint64(10) == 0
    for start, values in trace_bounds(x[some], y[some], features).items():
        curves[f"covtype, a tenth, {start}"] = values
    for name, (bounds, seconds) in curves.items():
        gaps = np.abs(np.diff(bounds)) / np.abs(bounds[1:])
        print(f"  {name}: {len(bounds)} passes, {seconds[-1]:.1f} s")
        print("    relative changes " + ", ".join(f"{gap:.0e}" for gap in gaps))
    if plot is not None:
        draw_curves(curves, plot)


def trace_bounds(x: np.ndarray, y: np.ndarray, features: int):
    """Bounds per row and seconds of passes, from scratch and from sites of a sample.

    The parameters are learned before; the sample has 6000 rows, as in a fit.
    """
    labels = Labels.of(y)
    codes = labels.codes(y)
    recipe = Recipe(n_features=features, most_steps=30, most_rows=6000)
    model = fit(ArraySource(x, codes), recipe, labels.likelihood())
    source = ArraySource(model.scaling.inputs(x), codes)
    solution = model.solution

    def passes(rows, start=None):
        seconds, begin = [], time.perf_counter()
        problem = Problem(rows, solution.likelihood, solution.offsets)
        watch = Watch(lambda *_: seconds.append(time.perf_counter() - begin))
        effort = Effort(np.float64)
        state = infer(problem, solution.processes, start, effort, watch=watch)
        return state, (np.array(state.bounds) / len(y), np.array(seconds))

    few, _ = passes(source_of(source.sample(6000)))
    return {
        "from scratch": passes(source)[1],
        "from a sample": passes(source, few.statistics)[1],
    }


def draw_curves(curves, path: str) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True)
    for name, (bounds, seconds) in curves.items():
        gap = np.maximum(bounds[-1] - bounds, 1e-9)
        left.semilogy(np.arange(1, len(gap) + 1), gap, "o-", label=name)
        right.semilogy(seconds, gap, "o-", label=name)
    left.set_xlabel("passes")
    left.set_ylabel("nats per row below the final bound")
    right.set_xlabel("seconds")
    left.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


PARTS = {part.__name__: part for part in (scale, counts, robust, noise, convergence)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=[*PARTS])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--plot")
    parser.add_argument("--data")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{options.what}: {os.cpu_count()} cores, {datetime.date.today()}")
    choices = vars(options)
    PARTS[choices.pop("what")](**choices)


if __name__ == "__main__":
    main()
