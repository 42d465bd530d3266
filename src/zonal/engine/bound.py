"""The collapsed bound on the log marginal likelihood, and its gradient in closed form.

With scaled statistics S = D G D/σ², m = D h/σ², D = diag √(v e_b), and A = I + S,

    L = -½ [ n log 2πσ² - Σ log a + log|A| + Σ a y²/σ² - mᵀA⁻¹m ] - penalty,

as in Titsias (2009). The penalty pays for the prior variance of each row that the
features do not capture, u = k - |φ|²: the standard one is ½ Σ a u/σ², the tightened one
(Titsias 2025) ½ Σ log(1 + a u/σ²), never larger, with the same posterior. In between is
the *common* one, ½ n log(1 + mean(a u/σ²)): one factor for the conditional variance of
all rows, the only form available to other likelihoods
(`zonal.inference.natural_gradient`).

Depth, free energies, variance and noise enter through D, σ and u alone: `fit_scales`
optimises them to convergence after one pass, without touching the data again. The
algebra is float64 LAPACK.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, get_lapack_funcs

from zonal.engine.linalg import factorise, mirrored
from zonal.engine.statistics import Statistics, Uncaptured
from zonal.prior.basis import Basis, feature_scales, pull_scales
from zonal.prior.process import Process

__all__ = ["Evaluation", "Tightening", "evaluate"]

# The penalty: standard (False), tightened (True), or tightened by a common factor.
Tightening = bool | Literal["common"]


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """The bound and its cotangents at one set of parameters.

    A ``lift`` above zero means that rounding of the statistics affects the bound; it
    is the amount added to the eigenvalues of the system. ``factor`` belongs to the
    common penalty.
    """

    value: float
    lift: float
    gram_bar: Float[np.ndarray, "features features"]
    moment_bar: Float[np.ndarray, " features"]
    energies_bar: Float[np.ndarray, " bands"]
    variance_bar: float
    missing_bar: float
    noise_bar: float
    factor: float = 1.0


def evaluate(
    statistics: Statistics, process: Process, tightened: Tightening = True
) -> Evaluation:
    """The bound of a process on some data, with all its cotangents."""
    basis, noise = process.basis, float(process.noise)
    scales = feature_scales(basis)
    system = np.outer(scales, scales) * statistics.gram / noise
    moment = scales * statistics.moment / noise
    root, lift = factorise(system)
    solution = cho_solve((root, True), moment)
    (invert,) = get_lapack_funcs(("potri",), (root,))
    inverse = mirrored(invert(root, lower=1)[0])
    log_determinant = 2 * np.sum(np.log(np.diag(root)))
    n = statistics.rows
    value = -0.5 * (
        n * np.log(2 * np.pi * noise)
        - statistics.log_precision
        + log_determinant
        + statistics.squares / noise
        - moment @ solution
    )
    system_bar = -0.5 * (inverse + np.outer(solution, solution))
    scales_bar = (
        2 * (system_bar * statistics.gram) @ scales + solution * statistics.moment
    ) / noise
    energies_bar, variance_bar = pull_scales(basis, scales_bar)
    noise_bar = (
        -np.sum(system_bar * system)
        - solution @ moment
        - n / 2
        + statistics.squares / (2 * noise)
    ) / noise
    table = statistics.uncaptured
    unexplained, missing = unexplained_of(basis, table)
    penalty, slope, factor = _penalty(table, unexplained, noise, tightened)
    variance = float(basis.variance)
    energies_bar[list(basis.incomplete)] -= variance * (slope @ table.parts)
    return Evaluation(
        value=float(value - penalty),
        lift=lift,
        gram_bar=system_bar * np.outer(scales, scales) / noise,
        moment_bar=scales * solution / noise,
        energies_bar=energies_bar,
        variance_bar=variance_bar - float(slope @ unexplained) / variance,
        missing_bar=-variance * float(slope @ table.prior) if missing > 0 else 0.0,
        noise_bar=float(noise_bar + slope @ unexplained / noise),
        factor=factor,
    )


def unexplained_of(basis: Basis, table: Uncaptured) -> tuple[np.ndarray, float]:
    """Precision times unexplained variance of each row, and the share in no band."""
    missing = basis.uncovered_energy
    energies = basis.energies[list(basis.incomplete)]
    rest = table.parts.astype(np.float64) @ energies + missing * table.prior
    return float(basis.variance) * rest, missing


def _penalty(
    table: Uncaptured, unexplained: np.ndarray, noise: float, tightened: Tightening
) -> tuple[float, np.ndarray, float]:
    """The penalty, its slope in each row's unexplained variance, the common factor."""
    slope = penalty_slope(table, unexplained, noise, tightened, 1.0)
    standard = 0.5 * table.count.astype(np.float64) @ unexplained / noise
    if tightened == "common":
        rows = float(table.count.sum(dtype=np.float64))
        mean = 2 * float(standard) / max(rows, np.finfo(np.float64).tiny)
        return 0.5 * rows * float(np.log1p(mean)), slope / (1 + mean), 1 / (1 + mean)
    if tightened:
        penalty = 0.5 * np.sum(table.count * np.log1p(unexplained / noise))
        return float(penalty), slope, 1.0
    return float(standard), slope, 1.0


def penalty_slope(
    table: Uncaptured,
    unexplained: np.ndarray,
    noise: float,
    tightened: Tightening,
    factor: float,
) -> np.ndarray:
    """The slope of the penalty for some rows; ``factor`` is common to all rows."""
    slope = 0.5 * table.count.astype(np.float64) / noise
    if tightened == "common":
        return factor * slope
    return slope / (1 + unexplained / noise) if tightened else slope
