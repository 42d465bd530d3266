"""Kernel values of rows, Gram matrices, and their gradients, in NumPy.

The same functions as in `zonal.prior.band_values_xla`, with derivatives written
out by hand, for kernels that are polynomials and tables of a few hundred rows:
nothing to compile.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.polynomial.chebyshev import chebder

from zonal.prior.bands import BandKernel, LevelSum, SingleLevel
from zonal.prior.sphere import Sphere

__all__ = [
    "gram",
    "placed",
    "pull_gram",
    "pull_values",
    "shape_values",
    "suits",
    "values",
]

# Beyond so many points compiling pays.
_MOST_POINTS = 50_000

Placed = tuple[Sphere, Sequence[tuple[np.ndarray, BandKernel]]]


def suits(shape: BandKernel, points: int) -> bool:
    """Whether a band's kernel at so many points is best evaluated here."""
    return points <= _MOST_POINTS and isinstance(shape, (SingleLevel, LevelSum))


def placed(sphere: Sphere, bands: Any, dtype: Any) -> Placed:
    """What the functions below need, as it is."""
    return sphere, bands


def values(
    at: Placed, x: Float[np.ndarray, "rows inputs"]
) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
    """Kernel values of all bands side by side, and the radial factors of the rows."""
    sphere, bands = at
    s, radial = sphere.points(x)
    blocks = [series(s @ phases.T, _coefficients(shape)) for phases, shape in bands]
    return np.hstack(blocks).astype(x.dtype, copy=False), radial.astype(x.dtype)


def pull_values(
    at: Placed,
    incomplete: tuple[int, ...],
    x: Float[np.ndarray, "rows inputs"],
    cotangent: Float[np.ndarray, "rows features"],
    radial_bar: Float[np.ndarray, " rows"],
) -> Any:
    """Gradients in the sphere by name, and in each incomplete band: phases, kernel."""
    sphere, bands = at
    s, _ = sphere.points(x)
    s_bar = np.zeros_like(s)
    moved, start = [], 0
    for index, (phases, shape) in enumerate(bands):
        stop = start + len(phases)
        t, t_bar = s @ phases.T, np.asarray(cotangent[:, start:stop], np.float64)
        own = _pull_series(shape, t, t_bar)
        t_bar = t_bar * series(t, series_slope(_coefficients(shape)))
        s_bar += t_bar @ phases
        if index in incomplete:
            moved.append((t_bar.T @ s, own))
        start = stop
    return sphere.pull(x, s_bar, np.asarray(radial_bar, np.float64)), moved


def gram(
    phases: Float[np.ndarray, "phases d"], shape: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """A band's kernel between its phases."""
    return series(_cosines(phases), _coefficients(shape))


def pull_gram(
    phases: Float[np.ndarray, "phases d"],
    shape: BandKernel,
    gram_bar: Float[np.ndarray, "phases phases"],
) -> Any:
    """Gradients in the phases and the kernel of a band, from one in its Gram matrix."""
    t = _cosines(phases)
    t_bar = gram_bar * series(t, series_slope(_coefficients(shape)))
    # A phase meets itself at t = 1, whatever it is.
    t_bar[np.diag_indices_from(t_bar)] = 0.0
    return (t_bar + t_bar.T) @ phases, _pull_series(shape, t, gram_bar)


def shape_values(shape: BandKernel, t: np.ndarray) -> np.ndarray:
    """A band's kernel at some cosines, in float64."""
    return series(np.asarray(t, np.float64), _coefficients(shape))


def _coefficients(shape: BandKernel) -> np.ndarray:
    assert isinstance(shape, (SingleLevel, LevelSum)), "others do not suit"
    return np.asarray(shape.coefficients)


def _cosines(phases: np.ndarray) -> np.ndarray:
    t = np.clip(phases @ phases.T, -1.0, 1.0)
    t[np.diag_indices_from(t)] = 1.0
    return t


def series(t: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Σ_k c_k T_k(t) by Clenshaw's rule, with three arrays of memory."""
    if len(coefficients) == 1:
        return np.full_like(t, coefficients[0])
    twice = 2 * t
    first, second, spare = np.zeros_like(t), np.zeros_like(t), np.empty_like(t)
    for coefficient in coefficients[:0:-1]:
        np.multiply(twice, first, out=spare)
        spare -= second
        spare += coefficient
        first, second, spare = spare, first, second
    np.multiply(t, first, out=spare)
    spare -= second
    spare += coefficients[0]
    return spare


def series_slope(coefficients: np.ndarray) -> np.ndarray:
    return np.zeros(1) if len(coefficients) == 1 else chebder(coefficients)


def _pull_series(
    shape: BandKernel, t: np.ndarray, cotangent: np.ndarray
) -> np.ndarray | None:
    """The gradient in what is learned of a band's kernel, if anything is."""
    if not isinstance(shape, LevelSum):
        return None
    if shape.tangents is not None:
        along = np.asarray(shape.tangents)
        return np.array([np.sum(series(t, one) * cotangent) for one in along])
    sums, previous, current = [], np.ones_like(t), t
    for _ in _coefficients(shape):
        sums.append(np.sum(previous * cotangent))
        previous, current = current, 2 * t * current - previous
    return np.array(sums)
