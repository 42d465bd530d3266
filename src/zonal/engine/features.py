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
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

from zonal.engine.blas import triangular_product
from zonal.engine.linalg import first_factor
from zonal.prior.backends import KernelBackend, backend_for
from zonal.prior.bands import (
    Band,
    BandKernel,
    CompleteLevel,
    band_kernel,
    pull_band,
    single_level,
)
from zonal.prior.basis import Basis, feature_scales, pull_energies, pull_scales
from zonal.prior.parameters import Fields

__all__ = ["CoincidingPhasesWarning", "Frame", "RowSums", "complete_frame", "whiten"]

# Noise on a band's inducing variables, relative to their variance. It limits how much
# whitening amplifies rounding (float32 features lose at most a factor 10³) and can only
# lower the captured variance. Complete bands are well conditioned and get none.
_JITTER = 1e-6
_JITTER_LIMIT = 1e-2
_COINCIDE = 1e-9


def whiten(basis: Basis, dtype: Any = np.float32) -> "Frame":
    """Do the matrix work of each band; return a frame that maps rows to features.

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
        if isinstance(band, CompleteLevel):
            frames.append(complete_frame(band, dimension))
            continue
        shape = band_kernel(band, basis.kernel, dimension)
        frames.append(
            BandFrame(band.phases, shape, _whitening(band, band.phases, shape))
        )
    return Frame(basis, tuple(frames), np.dtype(dtype))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BandFrame:
    """A band ready for rows: its phases, its kernel, and L⁻¹."""

    phases: Float[Array | np.ndarray, "phases d"]
    shape: BandKernel
    whitening: Float[Array | np.ndarray, "phases phases"]


@functools.lru_cache(maxsize=256)
def complete_frame(band: CompleteLevel, dimension: int) -> BandFrame:
    """The frame of a complete level, which does not depend on the kernel."""
    phases = band.place(dimension)
    shape = single_level(band.level, dimension)
    return BandFrame(phases, shape, _whitening(band, phases, shape))


@dataclasses.dataclass(frozen=True, eq=False)
class Frame(Fields):
    """A basis whose matrix work is done: rows in, features and gradients out.

    The kernel values of all bands come from one jitted call. BLAS whitens
    them: its triangular product takes half the work of a full one.
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
        x = self._check_rows(x)
        engine, placed = self._engine(len(x))
        return engine.values(placed, x)

    def features(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows features"]:
        """φ(x), where φ(x)·φ(x') is the captured part of the prior covariance."""
        unit, radial = self.unit_features(x)
        return unit * radial[:, None] * self.scales.astype(self.dtype)[None, :]

    def captured(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> Float[np.ndarray, "rows bands"]:
        """The fraction of each band's variance that its phases capture, per row."""
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
        """Gradients of Σ cotangent · features(x), one per learned parameter."""
        basis = self.basis
        unit, radial = self.unit_features(x)
        scaled = cotangent * self.scales.astype(self.dtype)[None, :]
        unit_bar = scaled * radial[:, None]
        sums = self.pull_rows(x, unit_bar, np.sum(scaled * unit, axis=1))
        products = [
            _to_float64(unit_bar[:, columns].T @ unit[:, columns])
            for columns in (basis.slices[index] for index in basis.incomplete)
        ]
        per_feature = np.sum(_to_float64(cotangent * unit * radial[:, None]), axis=0)
        return self.pull_parameters(sums, products, *pull_scales(basis, per_feature))

    def pull_rows(
        self,
        x: Float[np.ndarray, "rows inputs"],
        unit_bar: Float[np.ndarray, "rows features"],
        radial_bar: Float[np.ndarray, " rows"],
    ) -> "RowSums":
        """Pull cotangents of the unit features and radii back, summed over the rows."""
        x = self._check_rows(x)
        cotangent = np.array(unit_bar, self.dtype)
        for columns, factor in zip(self.basis.slices, self._factors, strict=True):
            triangular_product(cotangent, columns, factor, transposed=True)
        radial_bar = np.asarray(radial_bar, self.dtype)
        engine, placed = self._engine(len(x))
        return RowSums(
            engine.pull_values(placed, self.basis.incomplete, x, cotangent, radial_bar)
        )

    def pull_parameters(
        self,
        sums: "RowSums",
        products: list[np.ndarray],
        energies: Float[np.ndarray, " bands"],
        variance: float,
        missing: float = 0.0,
    ) -> dict[str, np.ndarray]:
        """Gradients of all learned parameters, by name.

        ``products`` holds Σ φ̄ φᵀ of each incomplete band, all that the pullback of its
        whitening needs. The gradients through the bands' energies and the variance are
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

    def _engine(self, rows: int) -> tuple[KernelBackend, Any]:
        """The backend for this many rows, and the arrays prepared for it."""
        shapes = [band.shape for band in self.bands]
        engine = backend_for(rows * self.basis.n_features, *shapes)
        if engine not in self._prepared:
            bands = tuple((band.phases, band.shape) for band in self.bands)
            self._prepared[engine] = engine.prepare(
                self.basis.sphere, bands, self.dtype
            )
        return engine, self._prepared[engine]

    @functools.cached_property
    def _prepared(self) -> dict[KernelBackend, Any]:
        return {}

    @functools.cached_property
    def _factors(self) -> list[np.ndarray]:
        """L⁻¹ of every band, contiguous as BLAS requires."""
        return [np.ascontiguousarray(band.whitening, self.dtype) for band in self.bands]

    def _check_rows(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, self.dtype)
        self.basis.sphere.check(x)
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class RowSums:
    """Gradients summed over rows; sums of chunks add up.

    ``moved`` holds the gradients in the sphere's parameters, by name, and for each
    incomplete band those in its phases and its kernel (None where nothing is learned).
    """

    moved: Any

    def __add__(self, other: "RowSums") -> "RowSums":
        return RowSums(jax.tree.map(np.add, self.moved, other.moved))


def _to_float64(leaf) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _whitening(
    band: Band | CompleteLevel, phases: np.ndarray, shape: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """L⁻¹ of a band's Gram matrix, with the smallest jitter that works."""
    gram = backend_for(len(phases) ** 2, shape).gram(phases, shape)
    if not band.complete:
        _warn_of_coincidence(band, gram)
    # NumPy's Cholesky, as in release 0.1: optimisers amplify differences in last bits.
    jitters = _jitters(0.0 if band.complete else _JITTER)
    factored = first_factor(gram, jitters, cholesky=np.linalg.cholesky)
    if factored is None:
        raise ValueError(
            f"the phases of band {band.name} are indistinguishable; "
            "start from other phases or ask for fewer features"
        )
    return solve_triangular(factored[0], np.eye(len(gram)), lower=True)


def _jitters(jitter: float) -> Iterator[float]:
    while jitter <= _JITTER_LIMIT:
        yield jitter
        jitter = max(10 * jitter, 1e-14)


@contextmanager
def quiet_phases() -> Iterator[None]:
    """Silence `CoincidingPhasesWarning`: phases may coincide temporarily."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoincidingPhasesWarning)
        yield


class CoincidingPhasesWarning(RuntimeWarning):
    """Two phases of a band have become the same."""


def _warn_of_coincidence(band: Band | CompleteLevel, gram: np.ndarray) -> None:
    near = np.tril(np.abs(gram) > 1 - _COINCIDE, -1)
    if near.any():
        first, second = np.argwhere(near)[0]
        warnings.warn(
            f"phases {second} and {first} of band {band.name} coincide (or are "
            "opposite, which is equivalent in this band); together they act as one "
            "feature",
            CoincidingPhasesWarning,
            stacklevel=3,
        )


def _pull_whitening(frame: BandFrame, products: np.ndarray):
    """Turn R = Σ φ̄ φᵀ into gradients in the phases and the band's kernel.

    With W = L⁻¹ and W̄ = R Lᵀ the Cholesky pullback (Murray 2016) collapses to
    K̄ = ½ Wᵀ (P + Pᵀ) W, P = -tril(R) with its diagonal halved.
    """
    whitening = np.asarray(frame.whitening)
    lower = -np.tril(products)
    lower[np.diag_indices_from(lower)] /= 2
    gram_bar = whitening.T @ (lower + lower.T) @ whitening / 2
    backend = backend_for(gram_bar.size, frame.shape)
    return backend.pull_gram(np.asarray(frame.phases), frame.shape, gram_bar)
