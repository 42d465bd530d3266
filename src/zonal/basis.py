"""The basis: from rows to whitened features, and from their gradients to parameters.

A `Basis` is a sphere, a kernel and its bands. In each band with normalised kernel κ_b
and phases V_b the features are

    φ_b(x) = L_b⁻¹ κ_b(V_b s),    L_b L_bᵀ = κ_b(V_b V_bᵀ),

so that the inducing variables are independent standard normals, block by block, and
φ_b(x)·φ_b(x') is as much of κ_b(s·s') as the phases capture, never more. The matrix
work of a band (Gram, Cholesky, and their gradients) is done once, in float64, by
`Basis.whiten`; the `Frame` that it returns turns rows into features in one jitted
call, float32 by default, and pulls gradients back the same way.

Unit features leave out √(variance · energy) and the radius: depth, free level weights
and the variance then only scale them, and can be learned without touching a row again.
"""

import dataclasses
import warnings
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
    Plan,
    band_energies,
    band_kernel,
    numpy_shape,
    plan_bands,
    pull_band,
)
from zonal.kernels import Kernel
from zonal.parameters import POSITIVE, Number, learned
from zonal.phases import greedy_phases, kmeans_phases, random_phases
from zonal.sphere import Sphere

__all__ = ["Basis", "Frame"]

# Noise on a band's inducing variables, relative to their variance. It bounds what the
# whitening can amplify (float32 features lose at most a factor 10³) and only ever
# lowers what the band captures. Complete bands are well conditioned and get none.
_JITTER = 1e-6
_JITTER_LIMIT = 1e-2
_COINCIDE = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """A zonal Gaussian process prior and the features that stand for it.

    Parameters
    ----------
    sphere, kernel, bands
        The map to the sphere, the kernel's shape, and the bands it is split into.
    variance
        Prior variance of the function at a row of radius one.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> basis = Basis.build(ContinuousDepth(), ARD.isotropic(3), n_features=64)
    >>> rows = np.random.default_rng(0).normal(size=(5, 3))
    >>> basis.whiten().features(rows).shape
    (5, 64)
    """

    sphere: Sphere
    kernel: Kernel
    bands: tuple[Band | CompleteLevel, ...]
    variance: Number = learned(POSITIVE, default=1.0)

    def __post_init__(self) -> None:
        if not self.bands:
            raise ValueError("a basis needs at least one band")
        top = -1
        for band in self.bands:
            if band.first <= top:
                raise ValueError(
                    f"level {band.first} is in two bands; a level belongs to one"
                )
            top = np.inf if band.last is None else band.last

    @classmethod
    def build(
        cls,
        kernel: Kernel,
        sphere: Sphere,
        n_features: int = 512,
        layout: str = "banded",
        *,
        rows: Float[np.ndarray, "rows inputs"] | None = None,
        start: str = "greedy",
        n_levels: int = 8,
        seed: int = 0,
    ) -> "Basis":
        """Spend a budget of features on bands and place their phases.

        Phases start from ``rows`` of the table, never more than there are rows, or at
        random if none are given.
        """
        plans = plan_bands(layout, kernel, sphere.dimension, n_features, n_levels)
        points = None if rows is None else sphere_points(sphere, rows)
        bands = tuple(
            CompleteLevel(plan.first)
            if plan.complete
            else Band(
                plan.first, plan.last, _start(plan, kernel, sphere, points, start, seed)
            )
            for plan in plans
        )
        return cls(sphere, kernel, bands)

    @property
    def n_features(self) -> int:
        return sum(band.size(self.sphere.dimension) for band in self.bands)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The columns of each band."""
        ends = np.cumsum([band.size(self.sphere.dimension) for band in self.bands])
        return tuple(
            slice(int(end) - band.size(self.sphere.dimension), int(end))
            for band, end in zip(self.bands, ends, strict=True)
        )

    @property
    def energies(self) -> Float[np.ndarray, " bands"]:
        """Each band's share of the prior variance; the rest lies in no band."""
        return band_energies(self.bands, self.kernel, self.sphere.dimension)

    def whiten(self, dtype: Any = np.float32) -> "Frame":
        """Do the matrix work of every band; the result maps rows to features."""
        dimension = self.sphere.dimension
        shapes = [band_kernel(band, self.kernel, dimension) for band in self.bands]
        frames = [
            BandFrame(
                phases := band.place(dimension), _whitening(band, phases, shape), shape
            )
            for band, shape in zip(self.bands, shapes, strict=True)
        ]
        return Frame(self, tuple(frames), np.dtype(dtype))


def sphere_points(
    sphere: Sphere, rows: Float[np.ndarray, "rows inputs"]
) -> Float[np.ndarray, "rows d"]:
    """Rows of a table as points on the sphere, in float64."""
    rows = np.asarray(rows, np.float64)
    sphere.check(rows)
    with jax.enable_x64(True):
        return np.asarray(_directions(sphere, jnp.asarray(rows)))


@jax.jit
def _directions(sphere, x):
    return sphere.directions(x)[0]


def _start(
    plan: Plan,
    kernel: Kernel,
    sphere: Sphere,
    points: np.ndarray | None,
    start: str,
    seed: int,
) -> np.ndarray:
    if start not in ("greedy", "kmeans", "random"):
        raise ValueError(f"start is 'greedy', 'kmeans' or 'random', not {start!r}")
    if points is None or start == "random":
        return random_phases(plan.size, sphere.dimension, seed + plan.first)
    size = min(plan.size, len(points))
    if start == "kmeans":
        return kmeans_phases(points, size, seed + plan.first)
    band = Band(plan.first, plan.last, points[:1])
    return greedy_phases(
        points, size, numpy_shape(band_kernel(band, kernel, sphere.dimension))
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class BandFrame:
    """A band ready for rows: its phases, its kernel, and L⁻¹."""

    phases: Float[Array | np.ndarray, "phases d"]
    whitening: Float[Array | np.ndarray, "phases phases"]
    shape: BandKernel

    def __call__(self, s: Float[Array, "rows d"]) -> Float[Array, "rows phases"]:
        cosines = jnp.matmul(s, self.phases.T, precision="highest")
        return jnp.matmul(self.shape(cosines), self.whitening.T, precision="highest")


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """A basis whose matrix work is done: rows in, features and gradients out."""

    basis: Basis
    bands: tuple[BandFrame, ...]
    dtype: np.dtype

    def unit_features(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows features"], Float[np.ndarray, " rows"]]:
        """Whitened features without scale, and the radial factor r^p of each row."""
        unit, radial = self._run(_unit_features, x)
        return np.asarray(unit), np.asarray(radial)

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
        squares = unit.astype(np.float64) ** 2
        starts = [part.start for part in self.basis.slices]
        return np.add.reduceat(squares, starts, axis=1)

    @property
    def scales(self) -> Float[np.ndarray, " features"]:
        """√(variance · energy) of each feature's band."""
        widths = [part.stop - part.start for part in self.basis.slices]
        return np.repeat(np.sqrt(self.basis.variance * self.basis.energies), widths)

    def gradient(
        self,
        x: Float[np.ndarray, "rows inputs"],
        cotangent: Float[np.ndarray, "rows features"],
    ) -> dict[str, np.ndarray]:
        """Gradients of Σ cotangent · features(x), one for each learned parameter."""
        unit, radial = self.unit_features(x)
        scaled = cotangent * self.scales.astype(self.dtype)[None, :]
        moved = self.pull_rows(x, scaled * radial[:, None], np.sum(scaled * unit, 1))
        by_feature = np.sum(
            (cotangent * unit * radial[:, None]).astype(np.float64), axis=0
        )
        by_band = np.add.reduceat(
            by_feature, [part.start for part in self.basis.slices]
        )
        energies, variance = self.basis.energies, self.basis.variance
        # A band without energy has no features to speak of, and no gradient.
        root = np.sqrt(np.where(energies > 0, energies, np.inf))
        gradients = self.pull_parameters(moved, by_band * np.sqrt(variance) / 2 / root)
        gradients["variance"] = np.asarray(
            by_band @ np.sqrt(energies) / 2 / np.sqrt(variance)
        )
        return gradients

    def pull_rows(
        self,
        x: Float[np.ndarray, "rows inputs"],
        unit: Float[np.ndarray, "rows features"],
        radial: Float[np.ndarray, " rows"],
    ) -> "RowSums":
        """Pull cotangents of the unit features and radii back, summed over the rows."""
        sphere, bands = self._run(
            _pull_rows, x, unit.astype(self.dtype), radial.astype(self.dtype)
        )
        return RowSums(jax.tree.map(_double, sphere), jax.tree.map(_double, bands))

    def pull_parameters(
        self, sums: "RowSums", energies: Float[np.ndarray, " bands"]
    ) -> dict[str, np.ndarray]:
        """Finish the gradient: from row sums and energies to the named parameters."""
        basis, dimension = self.basis, self.basis.sphere.dimension
        gradients = {
            f"sphere.{field.name}": getattr(sums.sphere, field.name)
            for field in dataclasses.fields(sums.sphere)
            if "constraint" in field.metadata
        }
        top = max(band.last or 0 for band in basis.bands)
        weights = np.zeros(max(top, basis.kernel.last_level or 0) + 1)
        for band, frame, moved, energy in zip(
            basis.bands, self.bands, sums.bands, energies, strict=True
        ):
            levels = slice(band.first, None if band.last is None else band.last + 1)
            if band.last is not None:
                weights[levels] += energy
            if isinstance(band, CompleteLevel):
                continue
            phases, shape = _pull_whitening(frame, moved.whitening)
            gradients[f"bands.{band.name}.phases"] = phases + moved.phases
            if isinstance(shape, LevelSum) and band.first != band.last:
                coefficients = shape.coefficients + moved.shape.coefficients
                weights[levels] += pull_band(
                    band, basis.kernel, dimension, coefficients
                )
        pulled = basis.kernel.pull_weights(dimension, weights)
        return gradients | {f"kernel.{name}": value for name, value in pulled.items()}

    def _run(self, function, x, *cotangents):
        x = np.asarray(x, self.dtype)
        self.basis.sphere.check(x)
        with jax.enable_x64(self.dtype == np.float64):
            sphere, bands = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, self.dtype),
                (self.basis.sphere, self.bands),
            )
            return function(sphere, bands, jnp.asarray(x), *cotangents)


@dataclasses.dataclass(frozen=True, eq=False)
class RowSums:
    """Gradients summed over rows, in the sphere and in each band's frame."""

    sphere: Any
    bands: Any


def _double(leaf) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _map_rows(sphere, bands, x):
    s, radial = sphere.directions(x)
    return jnp.concatenate([band(s) for band in bands], axis=1), radial


_unit_features = jax.jit(_map_rows)


@jax.jit
def _pull_rows(sphere, bands, x, unit, radial):
    _, pull = jax.vjp(lambda *tree: _map_rows(tree[0], tree[1], x), sphere, bands)
    return pull((unit, radial))


def _gram(phases, shape):
    # A phase meets itself at t = 1, whatever it is: no gradient flows through the
    # diagonal, where the slope of an NTK would be huge.
    itself = jnp.eye(phases.shape[0], dtype=bool)
    return shape(jnp.where(itself, 1.0, jnp.clip(phases @ phases.T, -1.0, 1.0)))


def _whitening(
    band: Band | CompleteLevel, phases: np.ndarray, shape: BandKernel
) -> Float[np.ndarray, "phases phases"]:
    """L⁻¹ of a band's Gram matrix, with as little jitter as will do."""
    with jax.enable_x64(True):
        gram = np.array(jax.jit(_gram)(phases, shape))
    gram = (gram + gram.T) / 2
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


def _warn_of_coincidence(band: Band | CompleteLevel, gram: np.ndarray) -> None:
    apart = np.abs(np.tril(gram, -1))
    first, second = np.unravel_index(np.argmax(apart), apart.shape)
    if len(gram) > 1 and apart[first, second] > 1 - _COINCIDE:
        warnings.warn(
            f"phases {second} and {first} of band {band.name} coincide (or are "
            "opposite, which is the same to this band); they share one feature's worth",
            RuntimeWarning,
            stacklevel=4,
        )


def _pull_whitening(frame: BandFrame, cotangent: np.ndarray):
    """From a gradient in L⁻¹ to gradients in the phases and the band's kernel.

    With W = L⁻¹ the Cholesky pullback (Murray 2016) collapses to
    K̄ = ½ Wᵀ (P + Pᵀ) W, P = tril(-W̄ Wᵀ) with its diagonal halved.
    """
    whitening = frame.whitening
    lower = np.tril(-cotangent @ whitening.T)
    lower[np.diag_indices_from(lower)] /= 2
    gram_bar = whitening.T @ (lower + lower.T) @ whitening / 2
    with jax.enable_x64(True):
        phases, shape = _pull_gram(frame.phases, frame.shape, gram_bar)
    return _double(phases), jax.tree.map(_double, shape)


@jax.jit
def _pull_gram(phases, shape, gram_bar):
    _, pull = jax.vjp(_gram, phases, shape)
    return pull(gram_bar)
