"""Parameters that only scale the features, fitted from statistics alone.

Depth, free energies, variance and noise enter the bound through D, σ and u alone
(`zonal.engine.bound`): they are optimised to convergence after one pass, without
touching the data again.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from zonal.engine.blas import suited_blas
from zonal.engine.bound import Evaluation, Tightening, evaluate
from zonal.engine.statistics import Statistics
from zonal.prior.basis import pull_energies
from zonal.prior.energy_prior import with_energy_prior
from zonal.prior.parameters import free, free_gradient, named, with_free
from zonal.prior.process import Process

__all__ = ["fit_scales"]

# Rows of the uncaptured table that the scale fit uses; the reported bound is always the
# exact sum.
_SUMMARY_ROWS = 4096
# Beyond this many features, a step of the scale fit takes seconds.
_MANY_FEATURES = 1500
# The scale fit stops after a step that gains less than this, in nats.
_LEAST_GAIN = 1e-4
# The largest energy of a band, relative to the mean square of the target: a much wider
# prior only loses digits.
_LARGEST_ENERGY = 100.0
# The smallest noise that statistics resolve, relative to the same mean square: below
# it, rounding of the sums outweighs the noise.
_LEAST_NOISE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}


def scale_gradients(process: Process, result: Evaluation) -> dict[str, np.ndarray]:
    """Gradients in parameters that only scale the features: kernel, variance, noise."""
    pulled = pull_energies(
        process.basis,
        result.energies_bar,
        result.variance_bar,
        uncovered=result.missing_bar,
    )
    gradients = {f"basis.{name}": value for name, value in pulled.items()}
    return gradients | {"noise": np.asarray(result.noise_bar)}


def fit_scales(
    statistics: Statistics | Sequence[Statistics],
    process: Process,
    names: Sequence[str] = ("basis.free_energies", "noise"),
    tightened: Tightening = True,
    max_steps: int | None = None,
) -> Process:
    """Optimise parameters that only scale the features, from statistics alone.

    By default these are the noise and the energy of each band, which is freed if the
    kernel determined it. Free energies have a prior (`zonal.prior.energy_prior`). A
    band of several levels keeps its inner proportions. Several statistics belong to
    several functions that share the process: their bounds add up. Without
    ``max_steps``, the fit runs to convergence, or for fifteen steps where a step takes
    seconds.
    """
    if "basis.free_energies" in names and process.basis.free_energies is None:
        basis = process.basis
        freed = dataclasses.replace(
            basis, free_energies=np.maximum(basis.energies, 1e-6)
        )
        process = dataclasses.replace(process, basis=freed)
    per_function = (
        [statistics] if isinstance(statistics, Statistics) else list(statistics)
    )
    per_function = [
        dataclasses.replace(sums, uncaptured=sums.uncaptured.summary(_SUMMARY_ROWS))
        for sums in per_function
    ]
    rows = per_function[0].rows

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        candidate = with_free(process, vector, names)
        results = [evaluate(sums, candidate, tightened) for sums in per_function]
        slopes = [scale_gradients(candidate, result) for result in results]
        value, gradients = with_energy_prior(
            candidate.basis,
            sum(result.value for result in results),
            {
                name: np.asarray(sum(slope[name] for slope in slopes))
                for name in slopes[0]
            },
        )
        slope = free_gradient(candidate, gradients, vector, names)
        return -value / rows, -slope / rows

    squares = max(sums.squares for sums in per_function)
    size = max(squares / rows, np.finfo(np.float64).tiny)
    floor = _LEAST_NOISE[per_function[0].uncaptured.parts.dtype]
    start = free(process, names)
    log_limits = {
        "noise": (np.log(floor * size), None),
        "basis.free_energies": (None, np.log(_LARGEST_ENERGY * size)),
    }
    limits = [
        log_limits.get(name, (None, None))
        for name in named(process, names)
        for _ in free(process, [name])
    ]
    features = len(per_function[0].moment)
    with suited_blas(features):
        fit: Any = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={
                "maxiter": max_steps or (200 if features <= _MANY_FEATURES else 15),
                "ftol": max(1e-12, _LEAST_GAIN / rows),
                "gtol": 1e-7,
            },
        )
    return with_free(process, fit.x, names)
