"""Resizing: the same process in a larger basis, or in a smaller one.

The kernel's parameters do not belong to the features, so a process learned with a few
hundred of them is solved with thousands, and learned anew with a few hundred again.
"""

import dataclasses

import numpy as np

from zonal.bands import Band, CompleteLevel, band_kernel
from zonal.basis import Basis
from zonal.kernel_values import numpy_shape
from zonal.objective import Process
from zonal.phases import drawn_phases
from zonal.sources import Chunk

__all__ = ["resized"]

# Rows that further phases are drawn from, for each of them, and rows at least.
_CANDIDATES = 5
_LEAST_CANDIDATES = 6_000

BasisBand = Band | CompleteLevel


def resized(process: Process, n_features: int, rows: Chunk, seed: int) -> Process:
    """The same process with more phases, drawn from where those before leave most.

    With fewer, the first of them stay: those that were learned, where it was enlarged.
    More features than rows would be of no use.
    """
    basis = process.basis
    n_features = min(n_features, len(rows))
    if n_features == basis.n_features:
        return process
    dimension = basis.sphere.dimension
    larger = Basis.build(basis.sphere, basis.kernel, n_features, "banded", seed=seed)
    enough = max(_LEAST_CANDIDATES, _CANDIDATES * n_features)
    candidates = rows.thinned(enough, seed).x
    points = np.unique(basis.sphere.points(candidates)[0], axis=0)
    bands = []
    for band in larger.bands:
        if isinstance(band, Band):
            old = next((one for one in basis.bands if one.last == band.last), None)
            known = old.phases if isinstance(old, Band) else np.zeros((0, dimension))
            known = known[: len(band.phases)]
            extra = min(len(band.phases) - len(known), len(points))
            shape = numpy_shape(band_kernel(band, basis.kernel, dimension))
            more = drawn_phases(points, extra, shape, known, seed)
            band = dataclasses.replace(band, phases=np.vstack([known, more]))
        bands.append(band)
    larger = dataclasses.replace(larger, bands=tuple(bands))
    return dataclasses.replace(process, basis=_with_energies_of(larger, basis))


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
