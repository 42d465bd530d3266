"""Kernel values of rows, Gram matrices, and their gradients, compiled by XLA.

`zonal.prior.band_values_numpy` has the same functions in NumPy, for so few points
that compiling would take longer than computing.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from zonal.prior.bands import BandKernel, LevelSum, SingleLevel
from zonal.prior.polynomials import chebyshev_columns

__all__ = ["gram", "placed", "pull_gram", "pull_values", "shape_values", "values"]

# Rows are padded to one of a few lengths, so that few shapes are ever compiled.
_SHORTEST = 256
# Cosines that a kernel is evaluated at together.
_AT_ONCE = 1 << 17


def placed(sphere: Any, bands: Any, dtype: Any) -> Any:
    """Sphere, phases and kernels as arrays on the device."""
    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (sphere, bands))


def values(
    at: Any, x: Float[np.ndarray, "rows inputs"]
) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
    """Kernel values of all bands side by side, and the radial factors of the rows."""
    with jax.enable_x64(x.dtype == np.float64):
        blocks, radial = _map_rows(*at, jnp.asarray(_padded(x)))
    found = np.empty((len(x), sum(block.shape[1] for block in blocks)), x.dtype)
    start = 0
    for block in blocks:
        stop = start + block.shape[1]
        found[:, start:stop] = np.asarray(block)[: len(x)]
        start = stop
    return found, np.asarray(radial)[: len(x)]


def pull_values(
    at: Any,
    incomplete: tuple[int, ...],
    x: Float[np.ndarray, "rows inputs"],
    cotangent: Float[np.ndarray, "rows features"],
    radial_bar: Float[np.ndarray, " rows"],
) -> Any:
    """Gradients in the sphere by name, and in each incomplete band: phases, kernel."""
    with jax.enable_x64(x.dtype == np.float64):
        moved = _pull_rows(
            *at,
            incomplete,
            jnp.asarray(_padded(x)),
            _padded(cotangent, with_zeros=True),
            _padded(radial_bar, with_zeros=True),
        )
    return jax.tree.map(_double, moved)


def gram(
    phases: Float[np.ndarray, "phases d"], shape: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """A band's kernel between its phases."""
    with jax.enable_x64(True):
        return np.array(_jitted_gram(phases, shape))


def pull_gram(
    phases: Float[np.ndarray, "phases d"],
    shape: BandKernel,
    gram_bar: Float[np.ndarray, "phases phases"],
) -> Any:
    """Gradients in the phases and the kernel of a band, from one in its Gram matrix."""
    with jax.enable_x64(True):
        return jax.tree.map(_double, _pull_gram(phases, shape, gram_bar))


def shape_values(shape: BandKernel, t: np.ndarray) -> np.ndarray:
    """A band's kernel at some cosines, in float64.

    They are taken so many at a time, however they are arranged: few programs are
    compiled, where every block of drawn phases would ask for another.
    """
    flat = np.ravel(t)
    found = np.empty(flat.shape)
    with jax.enable_x64(True):
        for start in range(0, len(flat), _AT_ONCE):
            part = flat[start : start + _AT_ONCE]
            values = np.asarray(_jitted_shape(shape, _padded(part)))
            found[start : start + len(part)] = values[: len(part)]
    return found.reshape(t.shape)


def _double(leaf: Any) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _padded(rows: np.ndarray, with_zeros: bool = False) -> np.ndarray:
    """Rows up to the next power of two, repeating the last (or with zeros)."""
    length = max(_SHORTEST, 1 << max(len(rows) - 1, 0).bit_length())
    if length == len(rows):
        return rows
    mode = "constant" if with_zeros or len(rows) == 0 else "edge"
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1), mode)


def _of_sphere(sphere: Any) -> dict[str, Array]:
    """The leaves of a sphere that are learned, by name."""
    return {
        field.name: getattr(sphere, field.name)
        for field in dataclasses.fields(sphere)
        if "constraint" in field.metadata
    }


def _of_band(phases: Any, shape: BandKernel) -> tuple[Any, Any]:
    """The leaves of a band that are learned."""
    if not isinstance(shape, LevelSum):
        return phases, None
    return phases, shape.coefficients if shape.amounts is None else shape.amounts


def _forward(sphere, bands, x):
    """Kernel values in neighbouring blocks of columns, and the radial factors.

    Bands of one level that lie side by side make one block: they share a sweep.
    """
    s, radial = sphere.directions(x)
    blocks, singles = [], []
    for band in bands:
        if isinstance(band[1], SingleLevel):
            singles.append(band)
            continue
        blocks += _single_levels(s, singles)
        singles = []
        phases, shape = band
        blocks.append(shape(_cosines(s, phases)))
    return blocks + _single_levels(s, singles), radial


def _cosines(s, phases):
    return jnp.matmul(s, phases.T, precision="highest")


def _single_levels(s, bands):
    """P_l(V s) of bands of one level each, as a list of at most one block."""
    if not bands:
        return []
    if len(bands) == 1:
        ((phases, shape),) = bands
        return [shape(_cosines(s, phases))]
    terms = max(shape.coefficients.shape[0] for _, shape in bands)
    columns = jnp.concatenate(
        [
            jnp.broadcast_to(
                jnp.pad(c := shape.coefficients, (0, terms - c.shape[0]))[:, None],
                (terms, phases.shape[0]),
            )
            for phases, shape in bands
        ],
        axis=1,
    )
    cosines = _cosines(s, jnp.concatenate([phases for phases, _ in bands]))
    return [chebyshev_columns(cosines, jax.lax.stop_gradient(columns))]


_map_rows = jax.jit(_forward)


@functools.partial(jax.jit, static_argnums=2)
def _pull_rows(sphere, bands, incomplete, x, cotangent, radial):
    """Gradients in the sphere and the incomplete bands, from those in the values."""

    def forward(sphere, moving):
        moved = list(bands)
        for index, band in zip(incomplete, moving, strict=True):
            moved[index] = band
        blocks, radial = _forward(sphere, moved, x)
        return jnp.concatenate(blocks, axis=1), radial

    _, pull = jax.vjp(forward, sphere, [bands[index] for index in incomplete])
    sphere, moved = pull((cotangent, radial))
    return _of_sphere(sphere), [_of_band(*band) for band in moved]


def _gram(phases, shape):
    # A phase meets itself at t = 1, whatever it is: no gradient flows through the
    # diagonal, where the slope of an NTK would be huge.
    itself = jnp.eye(phases.shape[0], dtype=bool)
    return shape(jnp.where(itself, 1.0, jnp.clip(phases @ phases.T, -1.0, 1.0)))


_jitted_gram = jax.jit(_gram)


@jax.jit
def _pull_gram(phases, shape, gram_bar):
    _, pull = jax.vjp(_gram, phases, shape)
    return _of_band(*pull(gram_bar))


@jax.jit
def _jitted_shape(shape, t):
    return shape(t)
