"""Kernel values of rows, Gram matrices, and their gradients, in NumPy.

Derivatives are written out by hand, and nothing is compiled: faster than XLA for
kernels that are polynomials and tables of a few hundred rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.polynomial.chebyshev import chebder

from zonal.prior.bands import (
    BandGradient,
    BandKernel,
    LevelSum,
    PhasedKernel,
    SingleLevel,
)
from zonal.prior.sphere import Sphere

__all__ = [
    "evaluate",
    "gram",
    "prepare",
    "pull_gram",
    "pull_values",
    "series",
    "series_slope",
    "supports",
    "values",
]

Prepared = tuple[Sphere, Sequence[PhasedKernel]]


def supports(kernel: BandKernel) -> bool:
    """Whether a band's kernel is a polynomial, and so can be evaluated here."""
    return isinstance(kernel, (SingleLevel, LevelSum))


def prepare(sphere: Sphere, bands: Sequence[PhasedKernel], dtype: Any) -> Prepared:
    """Sphere and bands, unchanged."""
    return sphere, bands


def values(
    prepared: Prepared, x: Float[np.ndarray, "rows inputs"]
) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
    """Kernel values of all bands side by side, and the radial factor per row."""
    sphere, bands = prepared
    s, radial = sphere.points(x)
    blocks = [
        series(s @ np.asarray(phases).T, _coefficients(kernel))
        for phases, kernel in bands
    ]
    return np.hstack(blocks).astype(x.dtype, copy=False), radial.astype(x.dtype)


def pull_values(
    prepared: Prepared,
    incomplete: tuple[int, ...],
    x: Float[np.ndarray, "rows inputs"],
    cotangent: Float[np.ndarray, "rows features"],
    radial_bar: Float[np.ndarray, " rows"],
) -> tuple[dict[str, np.ndarray], list[BandGradient]]:
    """Gradients in the sphere's parameters by name, and in each incomplete band."""
    sphere, bands = prepared
    s, _ = sphere.points(x)
    s_bar = np.zeros_like(s)
    band_gradients: list[BandGradient] = []
    start = 0
    for index, (phases, kernel) in enumerate(bands):
        phases = np.asarray(phases)
        stop = start + len(phases)
        t, t_bar = s @ phases.T, np.asarray(cotangent[:, start:stop], np.float64)
        kernel_gradient = _pull_series(kernel, t, t_bar)
        t_bar = t_bar * series(t, series_slope(_coefficients(kernel)))
        s_bar += t_bar @ phases
        if index in incomplete:
            band_gradients.append((t_bar.T @ s, kernel_gradient))
        start = stop
    return sphere.pull(x, s_bar, np.asarray(radial_bar, np.float64)), band_gradients


def gram(
    phases: Float[np.ndarray, "phases d"], kernel: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """The kernel matrix of a band's phases, in float64."""
    return series(_cosines(phases), _coefficients(kernel))


def pull_gram(
    phases: Float[np.ndarray, "phases d"],
    kernel: BandKernel,
    gram_bar: Float[np.ndarray, "phases phases"],
) -> BandGradient:
    """The gradient in a band, from the gradient in its Gram matrix."""
    t = _cosines(phases)
    t_bar = gram_bar * series(t, series_slope(_coefficients(kernel)))
    # The cosine between a phase and itself is 1 wherever the phase moves.
    t_bar[np.diag_indices_from(t_bar)] = 0.0
    return (t_bar + t_bar.T) @ phases, _pull_series(kernel, t, gram_bar)


def evaluate(
    kernel: BandKernel, t: Float[np.ndarray, "*points"]
) -> Float[np.ndarray, "*points"]:
    """A band's kernel at cosines, in float64."""
    return series(np.asarray(t, np.float64), _coefficients(kernel))


def _coefficients(kernel: BandKernel) -> np.ndarray:
    assert isinstance(kernel, (SingleLevel, LevelSum)), "not a polynomial"
    return np.asarray(kernel.coefficients)


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
    """Chebyshev coefficients of the derivative of a series."""
    return np.zeros(1) if len(coefficients) == 1 else chebder(coefficients)


def _pull_series(
    kernel: BandKernel, t: np.ndarray, cotangent: np.ndarray
) -> np.ndarray | None:
    """The gradient in the parameters of a band's kernel; None if it has none."""
    if not isinstance(kernel, LevelSum):
        return None
    if kernel.tangents is not None:
        tangents = np.asarray(kernel.tangents)
        return np.array([np.sum(series(t, row) * cotangent) for row in tangents])
    sums, previous, current = [], np.ones_like(t), t
    for _ in _coefficients(kernel):
        sums.append(np.sum(previous * cotangent))
        previous, current = current, 2 * t * current - previous
    return np.array(sums)
