"""Predictions in gaps between rows, and beyond them.

    python benchmarks/gaps.py [--columns 1 2 4] [--many]

Functions are drawn from Gaussian processes (RBF, Matérn-3/2, Matérn-1/2) or are growing
waves, two of each; noise has a standard deviation of 0.1. With one column, rows lie in
two intervals (60 in total, or 800 with ``--many``), and test rows between and beyond
them; with several columns, at most 160 rows lie outside a ball, and test rows inside.
The script prints the negative log density, the coverage of central 90 % intervals and
the error, for zonal (features alone), for zonal without its prior on the spectrum
(`zonal.prior.energy_prior`), and for scikit-learn's dense processes.
"""

import argparse
import datetime
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    Kernel,
    Matern,
    WhiteKernel,
)
from zonal_bench.scores import make_normal, score_numbers

from zonal import SphericalGPRegressor

KERNELS = (RBF(0.8), Matern(0.8, nu=1.5), Matern(1.5, nu=0.5), None)
NOISE = 0.1


def tables(columns: int, many: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """Training rows and targets, test rows and targets."""
    for seed in range(2 * len(KERNELS)):
        generator = np.random.default_rng(seed)
        if columns == 1:
            left, right = (500, 300) if many else (35, 25)
            x = np.concatenate(
                [generator.uniform(-3, -0.7, left), generator.uniform(1, 2.6, right)]
            )[:, None]
            gaps = [(-0.5, 0.8, 12), (-4, -3.2, 4), (2.8, 3.6, 4)]
            x_test = np.concatenate([np.linspace(*gap) for gap in gaps])[:, None]
        else:
            x = generator.uniform(-2, 2, size=(160, columns))
            x = x[np.linalg.norm(x, axis=1) > 0.9]
            x_test = generator.uniform(-0.6, 0.6, size=(20, columns))
        both = np.vstack([x, x_test])
        kernel = KERNELS[seed % len(KERNELS)]
        if kernel is None:
            phase = (2 + generator.random()) * both[:, 0] + generator.random()
            f = np.sin(phase) * np.exp(0.3 * both[:, -1])
        else:
            covariance = np.asarray(kernel(both)) + 1e-8 * np.eye(len(both))
            f = np.linalg.cholesky(covariance) @ generator.normal(size=len(both))
        y = f + NOISE * generator.normal(size=len(both))
        yield x, y[: len(x)], x_test, y[len(x) :]


def zonal(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Any:
    model = SphericalGPRegressor(n_neighbors=0)
    distribution: Any = model.fit(x, y).predict_dist(x_test)
    return distribution.prediction


def zonal_without_prior(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Any:
    with mock.patch("zonal.prior.energy_prior._DEVIATION", 1e9):
        return zonal(x, y, x_test)


def dense(kernel: Kernel) -> Callable[..., Any]:
    def predict(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> Any:
        whole = ConstantKernel() * kernel + WhiteKernel(0.1)
        model = GaussianProcessRegressor(
            whole, normalize_y=True, n_restarts_optimizer=2, random_state=0
        ).fit(x, y)
        mean, std, *_ = model.predict(x_test, return_std=True)
        return make_normal(mean, np.square(std))

    return predict


METHODS = {
    "zonal": zonal,
    "zonal without the prior": zonal_without_prior,
    "scikit-learn, RBF": dense(RBF()),
    "scikit-learn, Matérn-3/2": dense(Matern(nu=1.5)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--columns", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--many", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"gaps: {os.cpu_count()} cores, {datetime.date.today()}")
    for columns in options.columns:
        for name, method in METHODS.items():
            scores = [
                score_numbers(method(x, y, x_test), y_test)
                for x, y, x_test, y_test in tables(columns, options.many)
            ]
            nll, rmse = (
                np.mean([score[key] for score in scores]) for key in ("nll", "rmse")
            )
            coverage = np.mean([score["coverage"]["90%"] for score in scores])
            print(
                f"  {columns} columns, {name:26}NLL {nll:6.2f}  RMSE {rmse:.3f}  "
                f"coverage of 90 % {coverage:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
