"""Kernel values of rows, Gram matrices, and their gradients, compiled by XLA.

For few points compiling takes longer than computing in NumPy; see
`zonal.prior.backends`.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from zonal.prior.bands import (
    BandGradient,
    BandKernel,
    LevelSum,
    PhasedKernel,
    SingleLevel,
)
from zonal.prior.polynomials import chebyshev_columns
from zonal.prior.sphere import Sphere

__all__ = ["evaluate", "gram", "prepare", "pull_gram", "pull_values", "values"]

# Rows are padded to powers of two from here up, so that few programs are compiled.
_MIN_LENGTH = 256
# Cosines per call of a compiled kernel.
_COSINES_PER_CALL = 1 << 17

Prepared = tuple[Sphere, Sequence[PhasedKernel]]


def prepare(sphere: Sphere, bands: Sequence[PhasedKernel], dtype: Any) -> Prepared:
    """Sphere, phases and kernels as arrays on the device."""
    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (sphere, bands))


def values(
    prepared: Prepared, x: Float[np.ndarray, "rows inputs"]
) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
    """Kernel values of all bands side by side, and the radial factor per row."""
    with jax.enable_x64(x.dtype == np.float64):
        blocks, radial = _jitted_forward(*prepared, jnp.asarray(_pad(x)))
    kernel_values = np.empty((len(x), sum(block.shape[1] for block in blocks)), x.dtype)
    start = 0
    for block in blocks:
        stop = start + block.shape[1]
        kernel_values[:, start:stop] = np.asarray(block)[: len(x)]
        start = stop
    return kernel_values, np.asarray(radial)[: len(x)]


def pull_values(
    prepared: Prepared,
    incomplete: tuple[int, ...],
    x: Float[np.ndarray, "rows inputs"],
    cotangent: Float[np.ndarray, "rows features"],
    radial_bar: Float[np.ndarray, " rows"],
) -> tuple[dict[str, np.ndarray], list[BandGradient]]:
    """Gradients in the sphere's parameters by name, and in each incomplete band."""
    with jax.enable_x64(x.dtype == np.float64):
        gradients = _jitted_pull_forward(
            *prepared,
            incomplete,
            jnp.asarray(_pad(x)),
            _pad(cotangent, with_zeros=True),
            _pad(radial_bar, with_zeros=True),
        )
    return jax.tree.map(_double, gradients)


def gram(
    phases: Float[np.ndarray, "phases d"], kernel: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """The kernel matrix of a band's phases, in float64."""
    with jax.enable_x64(True):
        return np.array(_jitted_gram(phases, kernel))


def pull_gram(
    phases: Float[np.ndarray, "phases d"],
    kernel: BandKernel,
    gram_bar: Float[np.ndarray, "phases phases"],
) -> BandGradient:
    """The gradient in a band, from the gradient in its Gram matrix."""
    with jax.enable_x64(True):
        return jax.tree.map(_double, _jitted_pull_gram(phases, kernel, gram_bar))


def evaluate(
    kernel: BandKernel, t: Float[np.ndarray, "*points"]
) -> Float[np.ndarray, "*points"]:
    """A band's kernel at cosines, in float64.

    Cosines are flattened and evaluated in blocks of equal length. Few programs are
    then compiled; otherwise every new array shape would need its own.
    """
    flat = np.ravel(t)
    kernel_values = np.empty(flat.shape)
    with jax.enable_x64(True):
        for start in range(0, len(flat), _COSINES_PER_CALL):
            block = flat[start : start + _COSINES_PER_CALL]
            padded = np.asarray(_jitted_kernel(kernel, _pad(block)))
            kernel_values[start : start + len(block)] = padded[: len(block)]
    return kernel_values.reshape(t.shape)


def _double(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _pad(rows: np.ndarray, with_zeros: bool = False) -> np.ndarray:
    """Pad to the next power of two with copies of the last row, or with zeros."""
    length = max(_MIN_LENGTH, 1 << max(len(rows) - 1, 0).bit_length())
    if length == len(rows):
        return rows
    mode = "constant" if with_zeros or len(rows) == 0 else "edge"
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1), mode)


def _sphere_parameters(sphere: Any) -> dict[str, Array]:
    """The learned leaves of a sphere by name."""
    return {
        field.name: getattr(sphere, field.name)
        for field in dataclasses.fields(sphere)
        if "constraint" in field.metadata
    }


def _band_parameters(phases: Any, kernel: BandKernel) -> tuple[Any, Any]:
    """The learned leaves of a band."""
    if not isinstance(kernel, LevelSum):
        return phases, None
    return phases, kernel.coefficients if kernel.amounts is None else kernel.amounts


def _forward(sphere, bands, x):
    """Blocks of columns of kernel values, and the radial factor per row.

    Adjacent bands of one level each form one block and are evaluated in one sweep.
    """
    s, radial = sphere.directions(x)
    blocks, singles = [], []
    for band in bands:
        if isinstance(band[1], SingleLevel):
            singles.append(band)
            continue
        blocks += _single_levels(s, singles)
        singles = []
        phases, kernel = band
        blocks.append(kernel(_cosines(s, phases)))
    return blocks + _single_levels(s, singles), radial


def _cosines(s, phases):
    return jnp.matmul(s, phases.T, precision="highest")


def _single_levels(s, bands):
    """P_l(V s) of bands of one level each: no block, or one."""
    if not bands:
        return []
    if len(bands) == 1:
        ((phases, kernel),) = bands
        return [kernel(_cosines(s, phases))]
    terms = max(kernel.coefficients.shape[0] for _, kernel in bands)
    columns = jnp.concatenate(
        [
            jnp.broadcast_to(
                jnp.pad(c := kernel.coefficients, (0, terms - c.shape[0]))[:, None],
                (terms, phases.shape[0]),
            )
            for phases, kernel in bands
        ],
        axis=1,
    )
    cosines = _cosines(s, jnp.concatenate([phases for phases, _ in bands]))
    return [chebyshev_columns(cosines, jax.lax.stop_gradient(columns))]


_jitted_forward = jax.jit(_forward)


@functools.partial(jax.jit, static_argnums=2)
def _jitted_pull_forward(sphere, bands, incomplete, x, cotangent, radial_bar):
    """Gradients in the sphere and the incomplete bands, from those in the values."""

    def forward(sphere, incomplete_bands):
        all_bands = list(bands)
        for index, band in zip(incomplete, incomplete_bands, strict=True):
            all_bands[index] = band
        blocks, radial = _forward(sphere, all_bands, x)
        return jnp.concatenate(blocks, axis=1), radial

    _, pull = jax.vjp(forward, sphere, [bands[index] for index in incomplete])
    sphere_bar, bands_bar = pull((cotangent, radial_bar))
    return _sphere_parameters(sphere_bar), [_band_parameters(*bar) for bar in bands_bar]


def _gram(phases, kernel):
    # The cosine between a phase and itself is 1 wherever the phase moves, so no
    # gradient flows through the diagonal, where the slope of an NTK would be huge.
    diagonal = jnp.eye(phases.shape[0], dtype=bool)
    return kernel(jnp.where(diagonal, 1.0, jnp.clip(phases @ phases.T, -1.0, 1.0)))


_jitted_gram = jax.jit(_gram)


@jax.jit
def _jitted_pull_gram(phases, kernel, gram_bar):
    _, pull = jax.vjp(_gram, phases, kernel)
    return _band_parameters(*pull(gram_bar))


@jax.jit
def _jitted_kernel(kernel, t):
    return kernel(t)
