"""Frames: from rows to whitened features, and from their gradients to parameters.

The matrix work of a basis (Gram, Cholesky and inverse of every band) is done once, in
float64, by `whiten`; the `Frame` that it returns turns rows into features, float32 by
default, and pulls gradients back the same way.
"""

import dataclasses
import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

from zonal.bands import (
    Band,
    BandKernel,
    CompleteLevel,
    LevelSum,
    SingleLevel,
    band_kernel,
    pull_band,
)
from zonal.basis import (
    Basis,
    feature_scales,
    pull_energies,
    pull_scales,
)
from zonal.blas import triangular_product
from zonal.polynomials import chebyshev_columns

__all__ = ["CoincidingPhasesWarning", "Frame", "RowSums", "whiten"]

# Noise on a band's inducing variables, relative to their variance. It bounds what the
# whitening can amplify (float32 features lose at most a factor 10³) and only ever
# lowers what the band captures. Complete bands are well conditioned and get none.
_JITTER = 1e-6
_JITTER_LIMIT = 1e-2
_COINCIDE = 1e-9
# Rows are padded to one of a few lengths, so that few shapes are ever compiled.
_SHORTEST = 256


def whiten(basis: Basis, dtype: Any = np.float32) -> "Frame":
    """Do the matrix work of every band; the result maps rows to features.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), n_features=64)
    >>> rows = np.random.default_rng(0).normal(size=(5, 3))
    >>> whiten(basis).features(rows).shape
    (5, 64)
    """
    dimension = basis.sphere.dimension
    frames = []
    for band in basis.bands:
        phases = band.place(dimension)
        shape = band_kernel(band, basis.kernel, dimension)
        whitening = _whitening(band, phases, shape)
        frames.append(BandFrame(phases, shape, whitening))
    return Frame(basis, tuple(frames), np.dtype(dtype))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BandFrame:
    """A band ready for rows: its phases, its kernel, and L⁻¹."""

    phases: Float[Array | np.ndarray, "phases d"]
    shape: BandKernel
    whitening: Float[Array | np.ndarray, "phases phases"]


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A basis whose matrix work is done: rows in, features and gradients out.

    The kernel values of all bands come from one jitted call. Whitening them is left to
    BLAS, whose triangular product takes half the work of a full one.
    """

    basis: Basis
    bands: tuple[BandFrame, ...]
    dtype: np.dtype

    def unit_features(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """Whitened features without scale, and the radial factor r^p of each row."""
        values, radial = self.kernel_values(x)
        for columns, factor in zip(self.basis.slices, self._factors, strict=True):
            triangular_product(values, columns, factor)
        return values, radial

    def kernel_values(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """κ_b(V_b s) of every band, not yet whitened, and the radial factors."""
        x = self._checked(x)
        with jax.enable_x64(self.dtype == np.float64):
            blocks, radial = _map_rows(*self._leaves, jnp.asarray(_padded(x)))
        values = np.empty((len(x), self.basis.n_features), self.dtype)
        start = 0
        for block in blocks:
            stop = start + block.shape[1]
            values[:, start:stop] = np.asarray(block)[: len(x)]
            start = stop
        return values, np.asarray(radial)[: len(x)]

    def features(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows features"]:
        """φ(x), with φ(x)·φ(x') the part of the prior covariance that is captured."""
        unit, radial = self.unit_features(x)
        return unit * radial[:, None] * self.scales.astype(self.dtype)[None, :]

    def captured(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows bands"]:
        """The fraction of each band's variance that its phases capture, row by row."""
        unit, _ = self.unit_features(x)
        return self.basis.by_band(unit.astype(np.float64) ** 2)

    @property
    def scales(self) -> Float[np.ndarray, " features"]:
        """√(variance · energy) of each feature's band."""
        return feature_scales(self.basis)

    def gradient(
        self,
        x: Float[np.ndarray, "rows inputs"],
        cotangent: Float[np.ndarray, "rows features"],
    ) -> dict[str, np.ndarray]:
        """Gradients of Σ cotangent · features(x), one for each learned parameter."""
        basis = self.basis
        unit, radial = self.unit_features(x)
        scaled = cotangent * self.scales.astype(self.dtype)[None, :]
        unit_bar = scaled * radial[:, None]
        sums = self.pull_rows(x, unit_bar, np.sum(scaled * unit, axis=1))
        products = [
            _double(unit_bar[:, columns].T @ unit[:, columns])
            for columns in (basis.slices[index] for index in basis.incomplete)
        ]
        per_feature = np.sum(_double(cotangent * unit * radial[:, None]), axis=0)
        return self.pull_parameters(sums, products, *pull_scales(basis, per_feature))

    def pull_rows(
        self,
        x: Float[np.ndarray, "rows inputs"],
        unit_bar: Float[np.ndarray, "rows features"],
        radial_bar: Float[np.ndarray, " rows"],
    ) -> "RowSums":
        """Pull cotangents of the unit features and radii back, summed over the rows."""
        x = self._checked(x)
        cotangent = _padded(np.array(unit_bar, self.dtype), with_zeros=True)
        for columns, factor in zip(self.basis.slices, self._factors, strict=True):
            triangular_product(cotangent, columns, factor, transposed=True)
        radial_bar = _padded(np.asarray(radial_bar, self.dtype), with_zeros=True)
        with jax.enable_x64(self.dtype == np.float64):
            moved = _pull_rows(
                *self._leaves,
                self.basis.incomplete,
                jnp.asarray(_padded(x)),
                cotangent,
                radial_bar,
            )
        return RowSums(jax.tree.map(_double, moved))

    def pull_parameters(
        self,
        sums: "RowSums",
        products: list[np.ndarray],
        energies: Float[np.ndarray, " bands"],
        variance: float,
        missing: float = 0.0,
    ) -> dict[str, np.ndarray]:
        """Finish the gradient, with a gradient for every learned parameter by name.

        ``products`` holds Σ φ̄ φᵀ of each incomplete band, which is all that its
        whitening needs. What flows through the bands' energies and the variance is
        added here too.
        """
        basis = self.basis
        gradients = pull_energies(basis, energies, variance, missing)
        sphere, bands = sums.moved
        for name, value in sphere.items():
            gradients[f"sphere.{name}"] = value
        for index, moved, product in zip(
            basis.incomplete, bands, products, strict=True
        ):
            band = basis.bands[index]
            more = _pull_whitening(self.bands[index], product)
            phases, series = jax.tree.map(np.add, moved, more)
            gradients[f"bands.{band.name}.phases"] = phases
            if series is not None:
                kernel, dimension = basis.kernel, basis.sphere.dimension
                pulled = pull_band(band, kernel, dimension, series)
                for name, value in pulled.items():
                    total = gradients[f"kernel.{name}"] + value
                    gradients[f"kernel.{name}"] = np.asarray(total)
        return gradients

    @functools.cached_property
    def _leaves(self):
        """Sphere, phases and kernels as arrays of the frame's dtype."""
        bands = tuple((band.phases, band.shape) for band in self.bands)
        with jax.enable_x64(self.dtype == np.float64):
            return jax.tree.map(
                lambda leaf: jnp.asarray(leaf, self.dtype), (self.basis.sphere, bands)
            )

    @functools.cached_property
    def _factors(self) -> list[np.ndarray]:
        """L⁻¹ of every band as BLAS wants it."""
        return [np.ascontiguousarray(one.whitening, self.dtype) for one in self.bands]

    def _checked(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, self.dtype)
        self.basis.sphere.check(x)
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class RowSums:
    """Gradients summed over rows; sums of chunks add up.

    ``moved`` holds gradients in the sphere's parameters by name, and for every
    incomplete band in its phases and its kernel (None where nothing is learned).
    """

    moved: Any

    def __add__(self, other: "RowSums") -> "RowSums":
        return RowSums(jax.tree.map(np.add, self.moved, other.moved))


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


def _double(leaf) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _padded(rows: np.ndarray, with_zeros: bool = False) -> np.ndarray:
    """Rows up to the next power of two, repeating the last (or with zeros)."""
    length = max(_SHORTEST, 1 << max(len(rows) - 1, 0).bit_length())
    if length == len(rows):
        return rows
    mode = "constant" if with_zeros or len(rows) == 0 else "edge"
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1), mode)


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


def _whitening(
    band: Band | CompleteLevel, phases: np.ndarray, shape: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """L⁻¹ of a band's Gram matrix, with as little jitter as will do."""
    with jax.enable_x64(True):
        gram = np.array(_jitted_gram(phases, shape))
    if not band.complete:
        _warn_of_coincidence(band, gram)
    jitter = 0.0 if band.complete else _JITTER
    while True:
        try:
            factor = np.linalg.cholesky(gram + jitter * np.eye(len(gram)))
        except np.linalg.LinAlgError:
            jitter = max(10 * jitter, 1e-14)
            if jitter > _JITTER_LIMIT:
                raise ValueError(
                    f"the phases of band {band.name} cannot be told apart; "
                    "start from other phases or ask for fewer features"
                ) from None
            continue
        return solve_triangular(factor, np.eye(len(gram)), lower=True)


@contextmanager
def quiet_phases() -> Iterator[None]:
    """Phases may meet on their way; that is survived, and passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoincidingPhasesWarning)
        yield


class CoincidingPhasesWarning(RuntimeWarning):
    """Two phases of a band have become the same."""


def _warn_of_coincidence(band: Band | CompleteLevel, gram: np.ndarray) -> None:
    apart = np.abs(np.tril(gram, -1))
    first, second = np.unravel_index(np.argmax(apart), apart.shape)
    if len(gram) > 1 and apart[first, second] > 1 - _COINCIDE:
        warnings.warn(
            f"phases {second} and {first} of band {band.name} coincide (or are "
            "opposite, which is the same to this band); they share one feature's worth",
            CoincidingPhasesWarning,
            stacklevel=3,
        )


def _pull_whitening(frame: BandFrame, products: np.ndarray):
    """From R = Σ φ̄ φᵀ to gradients in the phases and the band's kernel.

    With W = L⁻¹ and W̄ = R Lᵀ the Cholesky pullback (Murray 2016) collapses to
    K̄ = ½ Wᵀ (P + Pᵀ) W, P = -tril(R) with its diagonal halved.
    """
    whitening = np.asarray(frame.whitening)
    lower = -np.tril(products)
    lower[np.diag_indices_from(lower)] /= 2
    gram_bar = whitening.T @ (lower + lower.T) @ whitening / 2
    with jax.enable_x64(True):
        return jax.tree.map(_double, _pull_gram(frame.phases, frame.shape, gram_bar))


@jax.jit
def _pull_gram(phases, shape, gram_bar):
    _, pull = jax.vjp(_gram, phases, shape)
    return _of_band(*pull(gram_bar))
