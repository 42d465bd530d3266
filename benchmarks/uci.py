"""Accuracy on the UCI regression sets, beside GPyTorch and LightGBM.

    python benchmarks/uci.py                              # the defaults, all sets
    python benchmarks/uci.py kin40k protein --what layouts
    python benchmarks/uci.py kin40k protein pol --what peers
    python benchmarks/uci.py kin40k protein --what solve

RMSE, negative log predictive density (NLL) and coverage of central intervals (50, 80,
90 and 95 %) on the standardised target of one published split, with the seconds that
fitting took. What is run:

- ``defaults``: `zonal.fit` as it comes, 512 features.
- ``plain``: the same without calibration, as normals.
- ``solve``: learned with 512 features, solved with 4096.
- ``layouts``: layouts, penalties and radial orders, one change from the default each
  (``--steps`` makes all of them shorter).
- ``peers``: GPyTorch's SVGP (512 inducing points, Matern-3/2 with ARD, Adam at 0.01,
  batches of 1024, 20 epochs) and LightGBM (learning rate 0.05, early stopping on a
  tenth of the rows, constant noise from that tenth); ``gpytorch`` and ``lightgbm`` are
  one of them alone.

Peers: ``pip install "zonal[bench]"``. See tables.py for the data.
"""

# pyright: reportMissingImports=false

import argparse
import datetime
import functools
import os
import time
import warnings
from typing import Any

import numpy as np
from tables import UCI, Split, data_folder, uci_split

from zonal import ArraySource, Prediction, Recipe, fit

# Central intervals whose coverage is printed.
LEVELS = (0.5, 0.8, 0.9, 0.95)

CHANGES = {
    "banded, tightened, radial order 0": {},
    "banded, standard penalty": {"tightened": False},
    "banded, radial order 1": {"radial_order": 1.0},
    "sparse, tightened": {"layout": "sparse"},
    "sparse, standard penalty (the paper)": {"layout": "sparse", "tightened": False},
    "sparse, radial order 1": {"layout": "sparse", "radial_order": 1.0},
    "harmonics": {"layout": "harmonics"},
}
# What each part runs of zonal.
ZONAL = {
    "defaults": {"zonal": {}},
    "plain": {"zonal, not calibrated": {"calibrated": False}},
    "solve": {"zonal, solved with 4096": {"solve_features": 4096}},
    "layouts": CHANGES,
}


def zonal_scores(split: Split, **choices) -> dict[str, Any]:
    begin = time.perf_counter()
    model = fit(ArraySource(split.x, split.y), Recipe(**choices))
    seconds = time.perf_counter() - begin
    prediction = model.predict(split.x_test)
    scores = judged(split, prediction, seconds)
    kernel = model.process.basis.kernel
    return scores | {"depth": model.depth, "levels": kernel.last_level or 0}


def judged(split: Split, prediction: Prediction, seconds: float) -> dict[str, Any]:
    error = split.y_test - prediction.mean
    below = prediction.distribution(split.y_test)
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "nll": -float(np.mean(prediction.log_density(split.y_test))),
        "coverage": [float(np.mean(np.abs(below - 0.5) < one / 2)) for one in LEVELS],
        "seconds": seconds,
    }


def lightgbm_scores(split: Split) -> dict[str, Any]:
    import lightgbm

    begin = time.perf_counter()
    aside = np.random.default_rng(0).random(len(split.y)) < 0.1
    model = lightgbm.LGBMRegressor(
        n_estimators=5000, learning_rate=0.05, num_leaves=63, verbose=-1
    )
    model.fit(
        split.x[~aside],
        split.y[~aside],
        eval_set=[(split.x[aside], split.y[aside])],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    noise = np.mean((split.y[aside] - np.asarray(model.predict(split.x[aside]))) ** 2)
    seconds = time.perf_counter() - begin
    mean = np.asarray(model.predict(split.x_test))
    variance = np.full(len(mean), noise)
    return judged(split, Prediction(mean, variance, variance), seconds)


def gpytorch_scores(split: Split, epochs: int = 20) -> dict[str, Any]:
    import gpytorch
    import torch

    torch.manual_seed(0)
    centre, width = split.x.mean(axis=0), split.x.std(axis=0)

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32)

    x, y = tensor((split.x - centre) / width), tensor(split.y)
    points = x[torch.randperm(len(x))[:512]].clone()

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(
                len(points)
            )
            super().__init__(
                gpytorch.variational.VariationalStrategy(self, points, distribution)
            )
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
            )

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(rows), self.covar_module(rows)
            )

    begin = time.perf_counter()
    model, likelihood = SVGP(), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=0.01
    )
    for _ in range(epochs):
        for batch in torch.randperm(len(y)).split(1024):
            optimiser.zero_grad()
            (-bound(model(x[batch]), y[batch])).backward()
            optimiser.step()
    seconds = time.perf_counter() - begin
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        parts = [
            likelihood(model(rows))
            for rows in tensor((split.x_test - centre) / width).split(4096)
        ]
        mean = torch.cat([part.mean for part in parts]).numpy()
        variance = torch.cat([part.variance for part in parts]).numpy()
    return judged(split, Prediction(mean, variance, variance), seconds)


def runs(what: str, steps: int):
    """Name and scores of everything that is asked for."""
    for name, change in ZONAL.get(what, {}).items():
        yield name, functools.partial(zonal_scores, most_steps=steps, **change)
    if what in ("peers", "lightgbm"):
        yield "LightGBM", lightgbm_scores
    if what in ("peers", "gpytorch"):
        yield "GPyTorch SVGP-512", gpytorch_scores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sets", nargs="*", default=UCI)
    parser.add_argument(
        "--what",
        default="defaults",
        choices=[
            "defaults",
            "plain",
            "solve",
            "layouts",
            "peers",
            "lightgbm",
            "gpytorch",
        ],
    )
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--steps", type=int, default=Recipe.most_steps)
    parser.add_argument("--data")
    options = parser.parse_args()
    folder = data_folder(options.data)
    warnings.simplefilter("ignore")
    print(f"split {options.split}, {os.cpu_count()} cores, {datetime.date.today()}")
    head = f"{'set':22}{'what':38}{'RMSE':>8}{'NLL':>9}"
    print(f"{head}  {'in 50, 80, 90, 95 %':22}{'s':>5}  depth")
    for name in options.sets:
        split = uci_split(folder, name, options.split)
        for what, scores in runs(options.what, options.steps):
            found = scores(split)
            depth = (
                f"{found['depth']:.0f} ({found['levels']:.0f} levels)"
                if "depth" in found
                else ""
            )
            coverage = " ".join(f"{one:.3f}" for one in found["coverage"])
            print(
                f"{name:22}{what:38}{found['rmse']:8.4f}{found['nll']:9.4f}"
                f"  {coverage:22}{found['seconds']:5.0f}  {depth}",
                flush=True,
            )


if __name__ == "__main__":
    main()
