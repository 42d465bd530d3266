"""The same process in a larger basis, or in a smaller one.

The kernel's parameters do not depend on the features. So a process is learned with a
few hundred features, solved with thousands, and learned again with a few hundred.
"""

import dataclasses

import numpy as np

from zonal.prior.backends import numpy_kernel
from zonal.prior.bands import Band, CompleteLevel, band_kernel
from zonal.prior.basis import Basis
from zonal.prior.phases import drawn_phases
from zonal.prior.process import Process
from zonal.tables.chunks import Chunk
from zonal.tables.sampling import thin

__all__ = ["enlarged", "reduced"]

# Candidate rows per further phase, and the fewest and most candidates in all.
_CANDIDATES = 5
_LEAST_CANDIDATES = 6_000
_MOST_CANDIDATES = 20_000

BasisBand = Band | CompleteLevel


def enlarged(process: Process, n_features: int, rows: Chunk, seed: int) -> Process:
    """The same process with more phases, where present ones leave most uncaptured.

    Uses at most one feature per row; returns the process unchanged if it is already
    that large.
    """
    if min(n_features, len(rows)) <= process.basis.n_features:
        return process
    n_features = min(n_features, len(rows))
    enough = min(max(_LEAST_CANDIDATES, _CANDIDATES * n_features), _MOST_CANDIDATES)
    sphere = process.basis.sphere
    points = np.unique(sphere.points(thin(rows, enough, seed).x)[0], axis=0)
    return _resize(process, n_features, points, seed)


def reduced(process: Process, n_features: int) -> Process:
    """The same process with fewer phases; keeps the first ones, which were learned."""
    if n_features >= process.basis.n_features:
        return process
    points = np.zeros((0, process.basis.sphere.dimension))
    return _resize(process, n_features, points, seed=0)


def _resize(
    process: Process, n_features: int, points: np.ndarray, seed: int
) -> Process:
    """The same process in another basis; missing phases are drawn from ``points``."""
    basis = process.basis
    dimension = basis.sphere.dimension
    resized = Basis.build(basis.sphere, basis.kernel, n_features, "banded", seed=seed)
    bands = []
    for band in resized.bands:
        if isinstance(band, Band):
            old = next(
                (other for other in basis.bands if other.last == band.last), None
            )
            known = old.phases if isinstance(old, Band) else np.zeros((0, dimension))
            known = known[: len(band.phases)]
            shape = numpy_kernel(band_kernel(band, basis.kernel, dimension))
            extra = len(band.phases) - len(known)
            more = drawn_phases(points, extra, shape, known, seed)
            band = dataclasses.replace(band, phases=np.vstack([known, more]))
        bands.append(band)
    resized = dataclasses.replace(resized, bands=tuple(bands))
    return dataclasses.replace(process, basis=_transfer_energies(basis, resized))


def _transfer_energies(source: Basis, basis: Basis) -> Basis:
    """The basis with the energies of another of the same kernel, level by level."""
    per_share = np.ones(len(basis.bands))
    for index, band in enumerate(basis.bands):
        # Within a band of the source, all levels have the same energy per weight.
        levels = [
            (old, energy / max(share, 1e-300))
            for old, energy, share in zip(
                source.bands, source.energies, source.shares, strict=True
            )
            if old.first <= (np.inf if band.last is None else band.last)
            and band.first <= (np.inf if old.last is None else old.last)
        ]
        overlap = [_overlap(band, old, basis) for old, _ in levels]
        rates = [rate for _, rate in levels]
        if sum(overlap) > 0:
            per_share[index] = np.average(rates, weights=overlap)
    energies = np.maximum(basis.shares * per_share, 1e-8)
    return dataclasses.replace(basis, free_energies=energies)


def _overlap(left: BasisBand, right: BasisBand, basis: Basis) -> float:
    """The kernel's weight in the levels that two bands share."""
    first = max(left.first, right.first)
    ends = [band.last for band in (left, right) if band.last is not None]
    dimension = basis.sphere.dimension
    below = basis.kernel.level_weights(dimension, first)[:first].sum()
    if not ends:
        return float(1.0 - below)
    weights = basis.kernel.level_weights(dimension, min(ends))
    return float(weights[first:].sum())
