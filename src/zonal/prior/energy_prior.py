"""A prior on the spectrum: above level 1, energies follow the kernel's decay.

With few columns a basis has many bands, each with an energy of its own. The bound alone
would choose the three or four levels that fit the rows best and leave no variance to
the others: the function would be certain even far from all rows. The log ratios of
energies to the kernel's weights are therefore normal around a common value, with a
standard deviation of 0.1. The constant and the linear level are free. The prior counts
once, not per row: tens of thousands of rows determine the spectrum themselves.
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
    indices = [index for index in above if basis.shares[index] > 0]
    energies = np.asarray(basis.free_energies, np.float64)[indices]
    shares = basis.shares[indices]
    log_ratios = np.log(energies / shares)
    residuals = (log_ratios - log_ratios.mean()) / _DEVIATION
    energies_bar = np.zeros(len(basis.bands))
    energies_bar[indices] = -residuals / _DEVIATION / energies
    weights_bar = np.zeros(count_levels(basis))
    for index, slope in zip(indices, residuals / _DEVIATION / shares, strict=True):
        band = basis.bands[index]
        stop = None if band.last is None else band.last + 1
        weights_bar[band.first : stop] = slope
    pulled = basis.kernel.pull_weights(basis.sphere.dimension, weights_bar)
    gradients = {f"basis.kernel.{name}": value for name, value in pulled.items()}
    gradients["basis.free_energies"] = energies_bar
    return -0.5 * float(residuals @ residuals), gradients


def with_energy_prior(
    basis: Basis, value: float, gradients: Mapping[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The bound of a process on this basis and its gradients, plus the prior's."""
    log_prior, prior_gradients = energy_prior(basis)
    total = dict(gradients)
    for name in prior_gradients.keys() & total.keys():
        total[name] = np.asarray(total[name] + prior_gradients[name])
    return value + log_prior, total
