"""Depth recovery: rows drawn from networks of known depth, and the depth learned.

    python benchmarks/depth.py [--rows 400] [--seeds 10]

For each depth L a function is drawn from the Gaussian process of an infinitely wide
ReLU network of L hidden layers (its neural tangent kernel, variance 1), at points drawn
evenly from the sphere in R^4, and noise of standard deviation 0.05 is added. A default
`SphericalGPRegressor` on that sphere is fitted; printed are the equivalent depths that
it learned, one for each seed. The energies of the lowest levels rest on as few numbers
as there are harmonics in them, so one function tells its depth only roughly.
"""

import argparse
import datetime
import os
import warnings

import numpy as np

from zonal import NTK, SphericalGPRegressor

DEPTHS = (1, 3, 10)
DIMENSION, NOISE = 4, 0.05


def drawn(depth: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points, and targets of a function of a network so deep."""
    generator = np.random.default_rng([seed, depth])
    s = generator.normal(size=(rows, DIMENSION))
    s /= np.linalg.norm(s, axis=1, keepdims=True)
    shape = NTK(depth).shape(np.clip(s @ s.T, -1, 1), DIMENSION)
    covariance = np.asarray(shape, np.float64) + 1e-6 * np.eye(rows)
    function = np.linalg.cholesky(covariance) @ generator.normal(size=rows)
    return s, function + NOISE * generator.normal(size=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"depth: {os.cpu_count()} cores, {datetime.date.today()}")
    for depth in DEPTHS:
        learned = []
        for seed in range(options.seeds):
            s, y = drawn(depth, options.rows, seed)
            model = SphericalGPRegressor(geometry="sphere").fit(s, y)
            learned.append(model.depth_.layers)
        low, middle, high = np.quantile(learned, [0.25, 0.5, 0.75])
        print(
            f"  drawn with {depth:2} layers: learned {sorted(learned)}, median "
            f"{middle:g}, quartiles {low:g} and {high:g}",
            flush=True,
        )


if __name__ == "__main__":
    main()
