"""The same process in a larger basis, or in a smaller one.

The kernel's parameters do not belong to the features, so a process learned with a few
hundred of them is solved with thousands, and learned anew with a few hundred again.
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

# Rows that further phases are drawn from, for each of them, rows at least and at most.
_CANDIDATES = 5
_LEAST_CANDIDATES = 6_000
_MOST_CANDIDATES = 20_000

BasisBand = Band | CompleteLevel


def enlarged(process: Process, n_features: int, rows: Chunk, seed: int) -> Process:
    """The same process with more phases, drawn from where those before leave most.

    More features than rows would be of no use, and fewer than there are is no more.
    """
    if min(n_features, len(rows)) <= process.basis.n_features:
        return process
    n_features = min(n_features, len(rows))
    enough = min(max(_LEAST_CANDIDATES, _CANDIDATES * n_features), _MOST_CANDIDATES)
    sphere = process.basis.sphere
    points = np.unique(sphere.points(thin(rows, enough, seed).x)[0], axis=0)
    return _resized(process, n_features, points, seed)


def reduced(process: Process, n_features: int) -> Process:
    """The same process with fewer phases: the first, which were learned, stay."""
    if n_features >= process.basis.n_features:
        return process
    points = np.zeros((0, process.basis.sphere.dimension))
    return _resized(process, n_features, points, seed=0)


def _resized(
    process: Process, n_features: int, points: np.ndarray, seed: int
) -> Process:
    """The same process in another basis; phases it lacks are drawn from points."""
    basis = process.basis
    dimension = basis.sphere.dimension
    other = Basis.build(basis.sphere, basis.kernel, n_features, "banded", seed=seed)
    bands = []
    for band in other.bands:
        if isinstance(band, Band):
            old = next((one for one in basis.bands if one.last == band.last), None)
            known = old.phases if isinstance(old, Band) else np.zeros((0, dimension))
            known = known[: len(band.phases)]
            shape = numpy_kernel(band_kernel(band, basis.kernel, dimension))
            extra = len(band.phases) - len(known)
            more = drawn_phases(points, extra, shape, known, seed)
            band = dataclasses.replace(band, phases=np.vstack([known, more]))
        bands.append(band)
    other = dataclasses.replace(other, bands=tuple(bands))
    return dataclasses.replace(process, basis=_with_energies_of(other, basis))


def _with_energies_of(basis: Basis, other: Basis) -> Basis:
    """The energies of another basis of the same kernel, moved level by level."""
    per_share = np.ones(len(basis.bands))
    for index, band in enumerate(basis.bands):
        # Within a band of the other basis all levels have the same energy per weight.
        levels = [
            (ours, energy / max(share, 1e-300))
            for ours, energy, share in zip(
                other.bands, other.energies, other.shares, strict=True
            )
            if ours.first <= (np.inf if band.last is None else band.last)
            and band.first <= (np.inf if ours.last is None else ours.last)
        ]
        overlap = [_overlap(band, ours, basis) for ours, _ in levels]
        rates = [rate for _, rate in levels]
        if sum(overlap) > 0:
            per_share[index] = np.average(rates, weights=overlap)
    energies = np.maximum(basis.shares * per_share, 1e-8)
    return dataclasses.replace(basis, free_energies=energies)


def _overlap(one: BasisBand, other: BasisBand, basis: Basis) -> float:
    """The kernel's weight in the levels that two bands share."""
    first = max(one.first, other.first)
    ends = [band.last for band in (one, other) if band.last is not None]
    dimension = basis.sphere.dimension
    below = basis.kernel.level_weights(dimension, first)[:first].sum()
    if not ends:
        return float(1.0 - below)
    weights = basis.kernel.level_weights(dimension, min(ends))
    return float(weights[first:].sum())
