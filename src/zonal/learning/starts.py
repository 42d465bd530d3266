"""Starts of learning by neighbours.

Noisy tables have a rough optimum with little noise and a smooth one with much noise.
The scale of the inputs decides which of them is near.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from zonal.prior.angles import AngleTable
from zonal.prior.kernels import ContinuousDepth, Kernel
from zonal.prior.parameters import named, with_values
from zonal.prior.process import LocalProcess
from zonal.prior.sphere import ARD, Projection, Sphere

__all__ = ["apart", "directions", "process_starts"]


def process_starts(
    x: Float[np.ndarray, "rows inputs"],
    sphere: Sphere | None,
    kernel: Kernel | None,
    scales: Sequence[float],
    betas: Sequence[float],
    noises: Sequence[float],
) -> list[LocalProcess]:
    """Every combination of a scale, a kernel and a noise variance.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> starts = process_starts(x, None, None, (0.1, 1.0), (2.0,), (0.02, 0.4))
    >>> [float(start.noise) for start in starts]
    [0.02, 0.4, 0.02, 0.4]
    """
    sphere = ARD.isotropic(x.shape[1]) if sphere is None else sphere
    spheres = [sphere]
    if isinstance(sphere, ARD | Projection):
        spheres = [_rescale(sphere, factor) for factor in scales]
    kernels: Sequence[Kernel] = [kernel] if kernel is not None else []
    if kernel is None or isinstance(kernel, ContinuousDepth):
        template = ContinuousDepth() if kernel is None else kernel
        kernels = [with_values(template, {"beta": beta}) for beta in betas]
    starts = []
    for scaled, candidate in itertools.product(spheres, kernels):
        table = AngleTable.build(candidate, scaled.dimension)
        variance = _unit_variance(x, scaled, table)
        starts += [LocalProcess(scaled, candidate, variance, n) for n in noises]
    return starts


def _rescale(sphere: ARD | Projection, factor: float) -> Sphere:
    name = "scales" if isinstance(sphere, ARD) else "matrix"
    return with_values(sphere, {name: factor * np.asarray(getattr(sphere, name))})


def _unit_variance(x: np.ndarray, sphere: Sphere, table: AngleTable) -> float:
    """The variance at which differences between rows have that of the targets."""
    points = directions(x, sphere).astype(np.float64)
    squares = np.sum((points - np.roll(points, 1, axis=0)) ** 2, axis=1)
    share = 1 - float(np.mean(table.kernel(squares)))
    return float(np.clip(1 / max(share, 1e-2), 1.0, 100.0))


def apart(starts: list[LocalProcess], count: int) -> list[LocalProcess]:
    """The best starts, with distinct kernels and noises as far as possible."""
    chosen: list[LocalProcess] = []
    seen: set[tuple] = set()
    for start in starts:
        key = (repr(named(start.kernel)), float(start.noise))
        if key not in seen:
            seen.add(key)
            chosen.append(start)
    rest = [start for start in starts if not any(start is other for other in chosen)]
    return (chosen + rest)[:count]


def directions(
    x: Float[np.ndarray, "rows inputs"], sphere: Sphere
) -> Float[np.ndarray, "rows d"]:
    """Unit vectors in float32, a block of rows at a time."""
    points = np.empty((len(x), sphere.dimension), np.float32)
    for start in range(0, len(x), 65_536):
        block = slice(start, start + 65_536)
        points[block] = sphere.directions(x[block].astype(np.float64))[0]
    return points
