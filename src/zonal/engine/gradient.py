"""The gradient of the bound: two passes over the rows.

The first collects the statistics. The bound's cotangents in them are closed form
(`zonal.engine.bound`); the second pass pulls these back through the features of every
row. Both are sums over chunks, so memory does not grow with the rows.
"""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from zonal.engine.blas import single_threaded_blas
from zonal.engine.bound import (
    Evaluation,
    Tightening,
    evaluate,
    penalty_slope,
    unexplained_of,
)
from zonal.engine.features import Frame, RowSums, whiten
from zonal.engine.passes import chunk_results
from zonal.engine.precision import check_sums, refine
from zonal.engine.statistics import Statistics, collect_all, uncaptured_of
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sources import Source

__all__ = ["value_and_gradient"]


def value_and_gradient(
    process: Process,
    sources: Source | Sequence[Source],
    tightened: Tightening = True,
    dtype: Any = np.float32,
) -> tuple[float, dict[str, np.ndarray]]:
    """The bound on all rows and its exact gradient, in two passes over chunks.

    Several sources are the same inputs with several targets, each a function of the
    same prior: their bounds add up, and each row's features are computed once.
    Products are repeated in float64 where float32 is too coarse for the noise.
    """
    sources = [sources] if isinstance(sources, Source) else sources

    def attempt(dtype: Any) -> tuple[float, dict[str, np.ndarray]]:
        frame = whiten(process.basis, dtype)
        statistics = collect_all(frame, sources)
        results = [evaluate(sums, process, tightened) for sums in statistics]
        check_sums(max(result.lift for result in results), dtype)
        return _combine_gradients(
            frame, sources, process, statistics, results, tightened
        )

    with single_threaded_blas():
        return refine(attempt, dtype)


def _combine_gradients(
    frame: Frame,
    sources: Sequence[Source],
    process: Process,
    statistics: Sequence[Statistics],
    results: Sequence[Evaluation],
    tightened: Tightening,
) -> tuple[float, dict[str, np.ndarray]]:
    """The bound of several functions and its gradient, given their evaluations."""
    sums, products = pull_back(frame, sources, process, results, tightened)
    for index, product in zip(process.basis.incomplete, products, strict=True):
        columns = process.basis.slices[index]
        for sums_of_output, result in zip(statistics, results, strict=True):
            product += 2 * result.gram_bar[columns] @ sums_of_output.gram[:, columns]
            product += np.outer(
                result.moment_bar[columns], sums_of_output.moment[columns]
            )
    pulled = frame.pull_parameters(
        sums,
        products,
        np.sum([result.energies_bar for result in results], axis=0),
        sum(result.variance_bar for result in results),
        sum(result.missing_bar for result in results),
    )
    gradients = {f"basis.{name}": value for name, value in pulled.items()}
    gradients["noise"] = np.asarray(sum(result.noise_bar for result in results))
    return sum(result.value for result in results), gradients


def pull_back(
    frame: Frame,
    sources: Sequence[Source],
    process: Process,
    results: Sequence[Evaluation],
    tightened: Tightening = True,
) -> tuple[RowSums, list[np.ndarray]]:
    """Pull the cotangents of the statistics back through every row (second pass).

    A row's features have the cotangent φ̄ = 2ωφḠ + ωy h̄ + cφ, where the
    last term comes from the penalty, band by band. Those of several functions are
    added before they are pulled back. Also returns Σ cφφᵀ of each incomplete band; the
    rest of Σ φ̄φᵀ follows from the statistics.
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
    """Cotangents of one function's bound in the features and radii of some rows."""
    basis, noise, dtype = process.basis, float(process.noise), unit.dtype
    weight, precision = chunk.weights, chunk.precisions
    table = uncaptured_of(basis, unit, radial, weight, precision)
    unexplained, _ = unexplained_of(basis, table)
    slope = penalty_slope(table, unexplained, noise, tightened, result.factor)
    first = weight * precision * radial
    target = first * chunk.targets
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
