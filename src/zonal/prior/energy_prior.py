"""A prior on the spectrum: above level 1 energies follow the kernel's own decay.

With few columns a basis has many bands, each with an energy of its own. The bound alone
would pick the three or four levels that some rows happen to look like and leave no
variance to all others: a function of a few waves, known everywhere, also where there
are no rows. So the logarithms of energies, in units of what the kernel's decay gives
each band, are taken to scatter around a common value with a deviation of 0.1. Constant
and linear level are left free. The prior counts once, not for each row: a table of tens
of thousands of rows says itself what its spectrum is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from zonal.prior.basis import Basis, count_levels

__all__ = ["energy_prior", "with_energy_prior"]

_DEVIATION = 0.1
_FIRST_LEVEL = 2


def energy_prior(basis: Basis) -> tuple[float, dict[str, np.ndarray]]:
    """The log density of a basis's free energies, and its gradients by name.

    Examples
    --------
    >>> import dataclasses
    >>> from zonal import ContinuousDepth, UnitVectors
    >>> basis = Basis.build(UnitVectors(3), ContinuousDepth(max_level=5), 36)
    >>> energies = 7 * basis.shares
    >>> value, _ = energy_prior(dataclasses.replace(basis, free_energies=energies))
    >>> round(abs(value), 6)
    0.0
    >>> energies[3] *= 2
    >>> value, _ = energy_prior(dataclasses.replace(basis, free_energies=energies))
    >>> round(value, 3)
    -18.017
    """
    above = [k for k, band in enumerate(basis.bands) if band.first >= _FIRST_LEVEL]
    if basis.free_energies is None or len(above) < 2:
        return 0.0, {}
    every = basis.shares
    bound_to = [number for number in above if every[number] > 0]
    energies = np.asarray(basis.free_energies, np.float64)[bound_to]
    shares = every[bound_to]
    apart = np.log(energies / shares)
    apart = (apart - apart.mean()) / _DEVIATION
    of_energies = np.zeros(len(basis.bands))
    of_energies[bound_to] = -apart / _DEVIATION / energies
    of_levels = np.zeros(count_levels(basis))
    for number, slope in zip(bound_to, apart / _DEVIATION / shares, strict=True):
        band = basis.bands[number]
        stop = None if band.last is None else band.last + 1
        of_levels[band.first : stop] = slope
    pulled = basis.kernel.pull_weights(basis.sphere.dimension, of_levels)
    gradients = {f"basis.kernel.{name}": one for name, one in pulled.items()}
    gradients["basis.free_energies"] = of_energies
    return -0.5 * float(apart @ apart), gradients


def with_energy_prior(
    basis: Basis, value: float, gradients: Mapping[str, Any]
) -> tuple[float, dict[str, Any]]:
    """A bound of a process on this basis and its gradients, with the prior added."""
    prior, slopes = energy_prior(basis)
    moved = dict(gradients)
    for name in slopes.keys() & moved.keys():
        moved[name] = np.asarray(moved[name] + slopes[name])
    return value + prior, moved
