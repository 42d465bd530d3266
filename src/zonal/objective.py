"""The collapsed bound on the log marginal likelihood, and its gradient in closed form.

With scaled statistics S = D G D/σ², m = D h/σ², D = diag √(v e_b), and A = I + S,

    L = -½ [ n log 2πσ² - Σ log a + log|A| + Σ a y²/σ² - mᵀA⁻¹m ] - penalty,

as in Titsias (2009). The penalty pays for what the features do not capture of a row,
u = k - |φ|²: the standard one is ½ Σ a u/σ², the tightened one (Titsias 2025)
½ Σ log(1 + a u/σ²), never larger, with the same posterior. In between is the
*common* one, ½ n log(1 + mean(a u/σ²)): one factor for the conditional variance of all
rows, which is what other likelihoods can have (`zonal.inference`).

Depth, free energies, variance and noise enter through D, σ and u alone: `fit_scales`
optimises them to convergence after one pass, without touching the data again. All of it
is float64 LAPACK.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_solve, cholesky, get_lapack_funcs
from scipy.optimize import minimize

from zonal.basis import Basis, feature_scales, pull_energies, pull_scales
from zonal.blas import single_threaded_blas, suited_blas
from zonal.chunks import Chunk
from zonal.energy_prior import with_energy_prior
from zonal.frame import Frame, RowSums, whiten
from zonal.parameters import (
    free,
    free_gradient,
    named,
    with_free,
)
from zonal.passes import chunk_results
from zonal.process import Process
from zonal.sources import Source
from zonal.statistics import (
    Statistics,
    Uncaptured,
    collect_all,
    uncaptured_of,
)

__all__ = ["Evaluation", "evaluate", "fit_scales", "value_and_gradient"]

# Which penalty: the standard one, the tightened one, or the one with a common factor.
Tightening = bool | Literal["common"]

# Rows of the uncaptured table that the scale fit works with; the bound that is reported
# is always the exact sum.
_SUMMARY_ROWS = 4096
_LEAST_PIVOT = 0.99
# Columns of a triangle that are mirrored at a time.
_BLOCK = 256
# So many features make a step of the scale fit take seconds.
_MANY_FEATURES = 1500
# A step of the scale fit that gains less than this, in nats, is the last.
_LEAST_GAIN = 1e-4
# The largest energy of a band, relative to the mean square of the target: a prior much
# wider than that only loses digits.
_LARGEST_ENERGY = 100.0
# The smallest noise that statistics resolve, relative to the same: below it, the
# rounding of the sums outweighs what the noise contributes.
_LEAST_NOISE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """The bound and its cotangents at one set of parameters.

    A ``lift`` above zero says that rounding of the statistics shows in the bound, and
    by how much its eigenvalues were in doubt. ``factor`` is that of the common penalty.
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


def factorise(system: np.ndarray) -> tuple[np.ndarray, float]:
    """Cholesky factor of I + S, and what had to be added to it.

    Every pivot of I + S is at least one. A smaller one shows how much rounding S has
    suffered (float32 products, and noise that is tiny beside n times the variance);
    then as much is added as lifts the pivots back. That only lowers the bound, and
    keeps an optimiser from living off an indefinite matrix.
    """
    if not np.all(np.isfinite(system)):
        raise ValueError("the statistics are not finite; collect them again")
    lift = 0.0
    while True:
        lifted = np.array(system, order="F")
        lifted[np.diag_indices_from(lifted)] += 1 + lift
        try:
            factor = cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            factor = None
        if factor is not None and np.diag(factor).min() >= _LEAST_PIVOT:
            return factor, lift
        lift = max(2 * lift, 0.01)


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix that a lower triangle stands for, in the same memory."""
    for start in range(0, len(lower), _BLOCK):
        stop = start + _BLOCK
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


def robust_cholesky(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Lower Cholesky factor of a matrix, with as little jitter as will do, and that.

    For matrices between 0 and I, such as I - A⁻¹.
    """
    identity, jitter = np.eye(len(matrix)), 0.0
    while True:
        try:
            return cholesky(matrix + jitter * identity, lower=True), jitter
        except LinAlgError:
            jitter = max(3 * jitter, 1e-12)
            if jitter > 1e-3:
                break
    # Rounding has gone too far for jitter: what is below zero is taken for zero.
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    upper = np.asarray(np.linalg.qr(root.T, mode="r"))
    return upper.T, 0.0


def unexplained_of(basis: Basis, table: Uncaptured) -> tuple[np.ndarray, float]:
    """Precision times unexplained variance of each row, and the share in no band."""
    missing = basis.missing_energy
    energies = basis.energies[list(basis.incomplete)]
    rest = table.parts.astype(np.float64) @ energies + missing * table.prior
    return float(basis.variance) * rest, missing


def _penalty(
    table: Uncaptured, unexplained: np.ndarray, noise: float, tightened: Tightening
) -> tuple[float, np.ndarray, float]:
    """The penalty, its slope in what is unexplained of each row, the common factor."""
    slope = _penalty_slope(table, unexplained, noise, tightened, 1.0)
    standard = 0.5 * table.count.astype(np.float64) @ unexplained / noise
    if tightened == "common":
        rows = float(table.count.sum(dtype=np.float64))
        mean = 2 * float(standard) / max(rows, np.finfo(np.float64).tiny)
        return 0.5 * rows * float(np.log1p(mean)), slope / (1 + mean), 1 / (1 + mean)
    if tightened:
        penalty = 0.5 * np.sum(table.count * np.log1p(unexplained / noise))
        return float(penalty), slope, 1.0
    return float(standard), slope, 1.0


def _penalty_slope(
    table: Uncaptured,
    unexplained: np.ndarray,
    noise: float,
    tightened: Tightening,
    factor: float,
) -> np.ndarray:
    """The slope of the penalty for some rows; a common factor is that of all."""
    slope = 0.5 * table.count.astype(np.float64) / noise
    if tightened == "common":
        return factor * slope
    return slope / (1 + unexplained / noise) if tightened else slope


def scale_gradients(process: Process, result: Evaluation) -> dict[str, np.ndarray]:
    """Gradients in what only scales the features: kernel, variance, gains and noise."""
    pulled = pull_energies(
        process.basis,
        result.energies_bar,
        result.variance_bar,
        missing=result.missing_bar,
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

    By default the energy of each band, set free if it was the kernel's, and the noise.
    Free energies have a prior (`zonal.energy_prior`).
    A band of several levels keeps its inner proportions. Several statistics are of
    several functions that share the process: their bounds add up. Without ``max_steps``
    it goes on to convergence, or for fifteen steps where features are so many that a
    step takes seconds.
    """
    if "basis.free_energies" in names and process.basis.free_energies is None:
        basis = process.basis
        freed = dataclasses.replace(
            basis, free_energies=np.maximum(basis.energies, 1e-6)
        )
        process = dataclasses.replace(process, basis=freed)
    every = [statistics] if isinstance(statistics, Statistics) else list(statistics)
    every = [
        dataclasses.replace(one, uncaptured=one.uncaptured.summary(_SUMMARY_ROWS))
        for one in every
    ]
    rows = every[0].rows

    def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
        candidate = with_free(process, vector, names)
        results = [evaluate(one, candidate, tightened) for one in every]
        every_slope = [scale_gradients(candidate, result) for result in results]
        value, gradients = with_energy_prior(
            candidate.basis,
            sum(result.value for result in results),
            {
                name: np.asarray(sum(one[name] for one in every_slope))
                for name in every_slope[0]
            },
        )
        slope = free_gradient(candidate, gradients, vector, names)
        return -value / rows, -slope / rows

    squares = max(one.squares for one in every)
    size = max(squares / rows, np.finfo(np.float64).tiny)
    floor = _LEAST_NOISE[every[0].uncaptured.parts.dtype]
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
    features = len(every[0].moment)
    with suited_blas(features):
        found: Any = minimize(
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
    return with_free(process, found.x, names)


def value_and_gradient(
    process: Process,
    sources: Source | Sequence[Source],
    tightened: Tightening = True,
    dtype: Any = np.float32,
) -> tuple[float, dict[str, np.ndarray]]:
    """The bound on all rows and its exact gradient: two passes, memory of a chunk.

    Several sources are the same inputs with several targets, each a function of the
    same prior: their bounds add up, and every row's features serve all of them.
    Products that float32 rounds too coarsely for the noise are taken in float64.
    """
    every = [sources] if isinstance(sources, Source) else sources
    with single_threaded_blas():
        frame = whiten(process.basis, dtype)
        statistics = collect_all(frame, every)
        results = [evaluate(one, process, tightened) for one in statistics]
        if frame.dtype == np.float32 and any(one.lift > 0 for one in results):
            return value_and_gradient(process, every, tightened, np.float64)
        sums, products = pull_back(frame, every, process, results, tightened)
        for index, product in zip(process.basis.incomplete, products, strict=True):
            columns = process.basis.slices[index]
            for one, result in zip(statistics, results, strict=True):
                product += 2 * result.gram_bar[columns] @ one.gram[:, columns]
                product += np.outer(result.moment_bar[columns], one.moment[columns])
        pulled = frame.pull_parameters(
            sums,
            products,
            np.sum([one.energies_bar for one in results], axis=0),
            sum(one.variance_bar for one in results),
            sum(one.missing_bar for one in results),
        )
    gradients = {f"basis.{name}": value for name, value in pulled.items()}
    gradients["noise"] = np.asarray(sum(one.noise_bar for one in results))
    return sum(one.value for one in results), gradients


def pull_back(
    frame: Frame,
    sources: Sequence[Source],
    process: Process,
    results: Sequence[Evaluation],
    tightened: Tightening = True,
) -> tuple[RowSums, list[np.ndarray]]:
    """The second pass: cotangents of the statistics, pulled back through every row.

    A row's features have the cotangent φ̄ = 2ωφḠ + ωy h̄ + cφ, the last term from the
    penalty, band by band; those of several functions add up before they are pulled
    back. Also returned is Σ cφφᵀ of each incomplete band: the rest of Σ φ̄φᵀ follows
    from the statistics.
    """
    pull = functools.partial(_pull_chunk, frame, process, results, tightened)
    sums, products = None, []
    for part, parts in chunk_results(pull, *sources):
        if sums is None:
            sums, products = part, parts
        else:
            sums = sums + part
            products = [a + b for a, b in zip(products, parts, strict=True)]
    assert sums is not None, "a source has at least one chunk"
    return sums, products


def _pull_chunk(
    frame: Frame,
    process: Process,
    results: Sequence[Evaluation],
    tightened: Tightening,
    *chunks: Chunk,
) -> tuple[RowSums, list[np.ndarray]]:
    x = chunks[0].x
    unit, radial = frame.unit_features(x)
    radial = radial.astype(np.float64)
    unit_bar, radial_bar, products = _row_cotangents(
        process, results[0], tightened, unit, radial, chunks[0]
    )
    for result, chunk in zip(results[1:], chunks[1:], strict=True):
        more = _row_cotangents(process, result, tightened, unit, radial, chunk)
        unit_bar += more[0]
        radial_bar += more[1]
        products = [a + b for a, b in zip(products, more[2], strict=True)]
    return frame.pull_rows(x, unit_bar, radial_bar), products


def _row_cotangents(
    process: Process,
    result: Evaluation,
    tightened: Tightening,
    unit: np.ndarray,
    radial: np.ndarray,
    chunk: Chunk,
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """What one function's bound says of some rows' features and radii."""
    basis, noise, dtype = process.basis, float(process.noise), unit.dtype
    weight, precision = chunk.weights, chunk.precisions
    table = uncaptured_of(basis, unit, radial, weight, precision)
    unexplained, _ = unexplained_of(basis, table)
    slope = _penalty_slope(table, unexplained, noise, tightened, result.factor)
    first = weight * precision * radial
    target = first * np.asarray(chunk.y, np.float64)
    moment_bar = result.moment_bar.astype(dtype)
    unit_bar = unit @ (2 * result.gram_bar).astype(dtype)
    radial_bar = first * np.einsum("ij,ij->i", unit, unit_bar)
    radial_bar += target / radial * (unit @ moment_bar)
    radial_bar -= 2 * slope * unexplained / radial
    unit_bar *= (first * radial).astype(dtype)[:, None]
    unit_bar += target.astype(dtype)[:, None] * moment_bar[None, :]
    energies = float(basis.variance) * basis.energies
    products = []
    for index in basis.incomplete:
        columns = basis.slices[index]
        root = np.sqrt(2 * energies[index] * slope * precision) * radial
        root = root.astype(dtype)
        scaled = unit[:, columns] * root[:, None]
        products.append((scaled.T @ scaled).astype(np.float64))
        scaled *= root[:, None]
        unit_bar[:, columns] += scaled
    return unit_bar, radial_bar, products
