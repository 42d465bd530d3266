"""The basis: from rows to whitened features, and from their gradients to parameters.

A `Basis` is a sphere, a kernel and its bands. In each band with normalised kernel κ_b
and phases V_b the features are

    φ_b(x) = L_b⁻¹ κ_b(V_b s),    L_b L_bᵀ = κ_b(V_b V_bᵀ),

so that the inducing variables are independent standard normals, block by block, and
φ_b(x)·φ_b(x') is as much of κ_b(s·s') as the phases capture, never more. The matrix
work of a band (Gram, Cholesky, and their gradients) is done once, in float64, by
`Basis.whiten`; the `Frame` that it returns turns rows into features, float32 by
default, and pulls gradients back the same way.

Unit features leave out √(variance · energy) and the radius: depth, free level weights
and the variance then only scale them, and can be learned without touching a row again.
"""

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import get_blas_funcs, solve_triangular

from zonal.bands import (
    Band,
    BandKernel,
    CompleteLevel,
    LevelSum,
    Plan,
    SingleLevel,
    band_energies,
    band_kernel,
    numpy_shape,
    plan_bands,
    pull_band,
)
from zonal.kernels import Kernel
from zonal.parameters import POSITIVE, Number, check_values, learned
from zonal.phases import greedy_phases, kmeans_phases, random_phases
from zonal.polynomials import chebyshev_columns
from zonal.sphere import Sphere

__all__ = ["Basis", "Frame"]

# Noise on a band's inducing variables, relative to their variance. It bounds what the
# whitening can amplify (float32 features lose at most a factor 10³) and only ever
# lowers what the band captures. Complete bands are well conditioned and get none.
_JITTER = 1e-6
_JITTER_LIMIT = 1e-2
_COINCIDE = 1e-9
# On a CPU, bands larger than this are whitened by BLAS's triangular product, which
# takes half the work of a full one; smaller ones stay inside the jitted call.
_LARGE = 256
# Rows that starting phases are chosen from.
_MOST_CANDIDATES = 20_000
# Rows are padded to one of a few lengths, so that few shapes are ever compiled.
_SHORTEST = 256


@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """A zonal Gaussian process prior and the features that stand for it.

    Parameters
    ----------
    sphere, kernel, bands
        The map to the sphere, the kernel's shape, and the bands it is split into.
    variance
        Prior variance of the function at a row of radius one.
    free_energies
        Each band's part of the variance, where it is learned by itself; None leaves it
        to the kernel's level weights, which then only shape the inside of a band.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), n_features=64)
    >>> rows = np.random.default_rng(0).normal(size=(5, 3))
    >>> basis.whiten().features(rows).shape
    (5, 64)
    """

    sphere: Sphere
    kernel: Kernel
    bands: tuple[Band | CompleteLevel, ...]
    variance: Number = learned(POSITIVE, default=1.0)
    free_energies: Float[np.ndarray, " bands"] | None = learned(POSITIVE, default=None)

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
            self._check_band(band)
        energies = self.free_energies
        if energies is not None and len(energies) != len(self.bands):
            raise ValueError(
                f"{len(self.bands)} bands need as many free energies, "
                f"got {len(energies)}"
            )
        check_values(self)

    def _check_band(self, band: Band | CompleteLevel) -> None:
        last = self.kernel.last_level
        if last is not None and (band.last is None or band.last > last):
            raise ValueError(
                f"band {band.name} reaches above level {last}, where "
                f"{type(self.kernel).__name__} ends; let it end there too"
            )
        width = band.place(self.sphere.dimension).shape[1]
        if width != self.sphere.dimension:
            raise ValueError(
                f"the phases of band {band.name} have {width} coordinates; "
                f"the sphere lives in R^{self.sphere.dimension}"
            )

    @classmethod
    def build(
        cls,
        sphere: Sphere,
        kernel: Kernel,
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
        points = None if rows is None else _starting_points(sphere, rows, seed)
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
    def shares(self) -> Float[np.ndarray, " bands"]:
        """The kernel's own energy in each band; what is missing lies in no band."""
        return band_energies(self.bands, self.kernel, self.sphere.dimension)

    @property
    def energies(self) -> Float[np.ndarray, " bands"]:
        """Each band's part of the prior variance, in units of ``variance``."""
        return self.shares if self.free_energies is None else self.free_energies

    @property
    def total_energy(self) -> float:
        """All bands and the rest: the prior variance in units of ``variance``."""
        return float(self.energies.sum()) + self.missing_energy

    @property
    def missing_energy(self) -> float:
        """The weight of the levels that lie in no band."""
        missing = 1.0 - float(self.shares.sum())
        return missing if missing > 1e-12 else 0.0

    @property
    def incomplete(self) -> tuple[int, ...]:
        """The bands whose phases capture less than everything."""
        return tuple(i for i, band in enumerate(self.bands) if not band.complete)

    def by_band(
        self, columns: Float[np.ndarray, "*rows features"]
    ) -> Float[np.ndarray, "*rows bands"]:
        """Sum the features' columns band by band."""
        return np.add.reduceat(columns, [part.start for part in self.slices], axis=-1)

    def covariance(
        self,
        x: Float[np.ndarray, "rows inputs"],
        other: Float[np.ndarray, "others inputs"] | None = None,
    ) -> Float[np.ndarray, "rows others"]:
        """The prior covariance of the function between rows, dense and in float64."""
        other = x if other is None else other
        s, radial = self.sphere.points(x)
        s_other, radial_other = self.sphere.points(other)
        t = np.clip(s @ s_other.T, -1.0, 1.0)
        dimension = self.sphere.dimension
        with jax.enable_x64(True):
            shape = np.array(self.kernel.shape(t, dimension))
        if self.free_energies is not None:
            for band, more in zip(self.bands, self.energies - self.shares, strict=True):
                part = numpy_shape(band_kernel(band, self.kernel, dimension))
                shape += more * part(t)
        return float(self.variance) * np.outer(radial, radial_other) * shape

    def whiten(self, dtype: Any = np.float32) -> "Frame":
        """Do the matrix work of every band; the result maps rows to features."""
        dimension = self.sphere.dimension
        frames = []
        for band in self.bands:
            phases = band.place(dimension)
            shape = band_kernel(band, self.kernel, dimension)
            frames.append(BandFrame(phases, shape, _whitening(band, phases, shape)))
        return Frame(self, tuple(frames), np.dtype(dtype))


def _starting_points(sphere: Sphere, rows: np.ndarray, seed: int) -> np.ndarray:
    """Different rows on the sphere, as many as greedy selection can hold in memory."""
    if len(rows) == 0:
        raise ValueError("no rows were given to start from; give some, or rows=None")
    if len(rows) > _MOST_CANDIDATES:
        generator = np.random.default_rng(seed)
        rows = rows[np.sort(generator.choice(len(rows), _MOST_CANDIDATES, False))]
    return np.unique(sphere.points(rows)[0], axis=0)


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
    """A band ready for rows: its phases, its kernel, and L⁻¹ (None: left raw)."""

    phases: Float[Array | np.ndarray, "phases d"]
    shape: BandKernel
    whitening: Float[Array | np.ndarray, "phases phases"] | None

    def __call__(self, s: Float[Array, "rows d"]) -> Float[Array, "rows phases"]:
        cosines = jnp.matmul(s, self.phases.T, precision="highest")
        return self.whitened(self.shape(cosines))

    def whitened(
        self, values: Float[Array, "rows phases"]
    ) -> Float[Array, "rows phases"]:
        """Kernel values to features, unless that is left to somebody else."""
        if self.whitening is None:
            return values
        return jnp.matmul(values, self.whitening.T, precision="highest")


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
        blocks, radial = self.unit_blocks(x)
        return (blocks[0] if len(blocks) == 1 else np.hstack(blocks)), radial

    def unit_blocks(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[list[np.ndarray], Float[np.ndarray, " rows"]]:
        """The unit features as neighbouring blocks of columns, and the radial factors.

        A large band is a block of its own; the small bands between make one block.
        """
        blocks, radial = self.kernel_blocks(x)
        for index, group in enumerate(self._groups):
            if self._is_large(group):
                blocks[index] = self._triangular(group[0], blocks[index], False)
        return blocks, radial

    def kernel_blocks(
        self, x: Float[np.ndarray, "rows inputs"]
    ) -> tuple[list[np.ndarray], Float[np.ndarray, " rows"]]:
        """As `unit_blocks`, the large bands not yet whitened."""
        x = self._checked(x)
        with jax.enable_x64(self.dtype == np.float64):
            blocks, radial = _map_rows(*self._leaves, jnp.asarray(_padded(x)))
        return [np.asarray(block)[: len(x)] for block in blocks], np.asarray(radial)[
            : len(x)
        ]

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
        unit, radial = self.unit_features(x)
        scaled = cotangent * self.scales.astype(self.dtype)[None, :]
        sums = self.pull_rows(
            x, unit, scaled * radial[:, None], np.sum(scaled * unit, axis=1)
        )
        per_feature = np.sum(
            (cotangent * unit * radial[:, None]).astype(np.float64), axis=0
        )
        return self.pull_parameters(sums, *pull_scales(self.basis, per_feature))

    def pull_rows(
        self,
        x: Float[np.ndarray, "rows inputs"],
        unit: Float[np.ndarray, "rows features"],
        unit_bar: Float[np.ndarray, "rows features"],
        radial_bar: Float[np.ndarray, " rows"],
    ) -> "RowSums":
        """Pull cotangents of the unit features and radii back, summed over the rows."""
        x = self._checked(x)
        unit_bar = np.asarray(unit_bar, self.dtype)
        cotangents, products = [], {}
        for group in self._groups:
            columns = slice(
                self.basis.slices[group[0]].start, self.basis.slices[group[-1]].stop
            )
            block = np.ascontiguousarray(unit_bar[:, columns])
            if self._is_large(group):
                products[group[0]] = block.T @ unit[:, columns]
                block = self._triangular(group[0], block, True)
            cotangents.append(_padded(block, with_zeros=True))
        radial_bar = _padded(np.asarray(radial_bar, self.dtype), with_zeros=True)
        with jax.enable_x64(self.dtype == np.float64):
            sphere, bands = _pull_rows(
                *self._leaves, jnp.asarray(_padded(x)), tuple(cotangents), radial_bar
            )
        phases, coefficients = [], []
        for index, moved in enumerate(bands):
            phases.append(_double(moved.phases))
            coefficients.append(
                _double(moved.shape.coefficients)
                if isinstance(moved.shape, LevelSum)
                else np.zeros(0)
            )
            if moved.whitening is not None:
                whitening = self.bands[index].whitening
                products[index] = _double(moved.whitening) @ np.asarray(whitening).T
        return RowSums(
            {
                field.name: _double(getattr(sphere, field.name))
                for field in dataclasses.fields(sphere)
                if "constraint" in field.metadata
            },
            phases,
            coefficients,
            [_double(products[index]) for index in range(len(bands))],
        )

    def pull_parameters(
        self,
        sums: "RowSums",
        energies: Float[np.ndarray, " bands"],
        variance: float,
        missing: float = 0.0,
    ) -> dict[str, np.ndarray]:
        """Finish the gradient, with a gradient for every learned parameter by name.

        What flows through the bands' energies and the variance is added here.
        """
        basis = self.basis
        weights = np.zeros(_count_levels(basis))
        gradients = {f"sphere.{name}": value for name, value in sums.sphere.items()}
        for index in basis.incomplete:
            band, frame = basis.bands[index], self.bands[index]
            phases, shape = _pull_whitening(frame, sums.products[index])
            gradients[f"bands.{band.name}.phases"] = phases + sums.phases[index]
            if isinstance(shape, LevelSum):
                part = pull_band(
                    band,
                    basis.kernel,
                    basis.sphere.dimension,
                    _double(shape.coefficients) + sums.coefficients[index],
                )
                weights[band.first : band.first + len(part)] += part
        return gradients | pull_energies(basis, energies, variance, weights, missing)

    @functools.cached_property
    def _groups(self) -> tuple[tuple[int, ...], ...]:
        """Neighbouring small bands together, each large band alone."""
        groups: list[tuple[int, ...]] = []
        for index in range(len(self.bands)):
            if (
                groups
                and not self._is_large((index,))
                and not self._is_large(groups[-1])
            ):
                groups[-1] += (index,)
            else:
                groups.append((index,))
        return tuple(groups)

    @functools.cached_property
    def large_bands(self) -> frozenset[int]:
        """The bands that `kernel_blocks` leaves unwhitened."""
        return frozenset(group[0] for group in self._groups if self._is_large(group))

    def _is_large(self, group: tuple[int, ...]) -> bool:
        part = self.basis.slices[group[0]]
        on_cpu = jax.default_backend() == "cpu"
        return on_cpu and part.stop - part.start > _LARGE

    @functools.cached_property
    def _leaves(self):
        """Sphere and bands as arrays of the frame's dtype, large bands left raw."""
        bands = tuple(
            dataclasses.replace(band, whitening=None)
            if index in self.large_bands
            else band
            for index, band in enumerate(self.bands)
        )
        with jax.enable_x64(self.dtype == np.float64):
            sphere, bands = jax.tree.map(
                lambda leaf: jnp.asarray(leaf, self.dtype), (self.basis.sphere, bands)
            )
        return sphere, bands, self._groups

    @functools.cached_property
    def _factors(self) -> dict[int, np.ndarray]:
        """L⁻¹ of the large bands as BLAS wants them."""
        return {
            group[0]: np.asfortranarray(self.bands[group[0]].whitening, self.dtype)
            for group in self._groups
            if self._is_large(group)
        }

    def _triangular(self, band: int, block: np.ndarray, transposed: bool) -> np.ndarray:
        """Block @ L⁻ᵀ, or block @ L⁻¹ if transposed, by BLAS's triangular product."""
        (product,) = get_blas_funcs(("trmm",), dtype=self.dtype)
        factor = self._factors[band]
        return product(1.0, factor, block.T, lower=1, trans_a=int(transposed)).T

    def _checked(self, x: np.ndarray) -> np.ndarray:
        x = np.asarray(x, self.dtype)
        self.basis.sphere.check(x)
        return x


@dataclasses.dataclass(frozen=True, eq=False)
class RowSums:
    """Gradients summed over rows; sums of chunks add up.

    ``products`` holds Σ φ̄ φᵀ of each band, which is all that its whitening needs.
    """

    sphere: dict[str, np.ndarray]
    phases: list[np.ndarray]
    coefficients: list[np.ndarray]
    products: list[np.ndarray]

    def __add__(self, other: "RowSums") -> "RowSums":
        return RowSums(
            {name: value + other.sphere[name] for name, value in self.sphere.items()},
            [a + b for a, b in zip(self.phases, other.phases, strict=True)],
            [a + b for a, b in zip(self.coefficients, other.coefficients, strict=True)],
            [a + b for a, b in zip(self.products, other.products, strict=True)],
        )


def feature_scales(basis: Basis) -> Float[np.ndarray, " features"]:
    """√(variance · energy) of each feature's band."""
    widths = [part.stop - part.start for part in basis.slices]
    return np.repeat(np.sqrt(basis.variance * basis.energies), widths)


def pull_scales(
    basis: Basis, gradient: Float[np.ndarray, " features"]
) -> tuple[Float[np.ndarray, " bands"], float]:
    """A gradient in the features' scales, as ones in energies and variance."""
    by_band = basis.by_band(gradient)
    variance = float(basis.variance)
    # A band without energy has no features to speak of, and no gradient.
    root = np.sqrt(np.where(basis.energies > 0, basis.energies, np.inf))
    energies = by_band * np.sqrt(variance) / (2 * root)
    of_variance = by_band @ np.sqrt(basis.energies) / (2 * np.sqrt(variance))
    return energies, float(of_variance)


def pull_energies(
    basis: Basis,
    energies: Float[np.ndarray, " bands"],
    variance: float,
    weights: Float[np.ndarray, " levels"] | None = None,
    missing: float = 0.0,
) -> dict[str, np.ndarray]:
    """Gradients in energies and variance, as ones in the parameters behind them.

    ``weights`` is what else is known of the gradient in the kernel's level weights,
    ``missing`` the gradient in the weight of each level that lies in no band.
    """
    through = np.full(_count_levels(basis), missing)
    fixed = basis.free_energies is not None
    for band, energy in zip(basis.bands, energies, strict=True):
        if band.last is not None:
            through[band.first : band.last + 1] = 0.0 if fixed else energy
    total = through if weights is None else through + weights
    pulled = basis.kernel.pull_weights(basis.sphere.dimension, total)
    kernel = {f"kernel.{name}": value for name, value in pulled.items()}
    own = {"free_energies": energies} if fixed else {}
    return kernel | own | {"variance": np.asarray(variance)}


def _count_levels(basis: Basis) -> int:
    top = max(band.last or 0 for band in basis.bands)
    return max(top, basis.kernel.last_level or 0) + 1


def _double(leaf) -> np.ndarray:
    return np.asarray(leaf, np.float64)


def _padded(rows: np.ndarray, with_zeros: bool = False) -> np.ndarray:
    """Rows up to the next power of two, repeating the last (or with zeros)."""
    length = max(_SHORTEST, 1 << max(len(rows) - 1, 0).bit_length())
    if length == len(rows):
        return rows
    mode = "constant" if with_zeros or len(rows) == 0 else "edge"
    return np.pad(rows, [(0, length - len(rows))] + [(0, 0)] * (rows.ndim - 1), mode)


def _forward(sphere, bands, groups, x):
    s, radial = sphere.directions(x)
    return tuple(_block(s, [bands[index] for index in group]) for group in groups), (
        radial
    )


def _block(s, bands):
    """The features of neighbouring bands, single levels in one common sweep."""
    singles = [band for band in bands if isinstance(band.shape, SingleLevel)]
    values = iter(_single_levels(s, singles) if len(singles) > 1 else ())
    parts = []
    for band in bands:
        if len(singles) > 1 and isinstance(band.shape, SingleLevel):
            parts.append(band.whitened(next(values)))
        else:
            parts.append(band(s))
    return jnp.concatenate(parts, axis=1)


def _single_levels(s, bands):
    """κ_b(V_b s) of bands of one level each, as one array cut into bands."""
    sizes = [band.phases.shape[0] for band in bands]
    terms = max(band.shape.coefficients.shape[0] for band in bands)
    series = [
        jnp.pad(c := band.shape.coefficients, (0, terms - c.shape[0]))[:, None]
        for band in bands
    ]
    columns = jnp.concatenate(
        [
            jnp.broadcast_to(one, (terms, size))
            for one, size in zip(series, sizes, strict=True)
        ],
        axis=1,
    )
    phases = jnp.concatenate([band.phases for band in bands])
    cosines = jnp.matmul(s, phases.T, precision="highest")
    values = chebyshev_columns(cosines, jax.lax.stop_gradient(columns))
    return jnp.split(values, np.cumsum(sizes)[:-1].tolist(), axis=1)


_map_rows = jax.jit(_forward, static_argnums=2)


@functools.partial(jax.jit, static_argnums=2)
def _pull_rows(sphere, bands, groups, x, cotangents, radial):
    _, pull = jax.vjp(
        lambda *tree: _forward(tree[0], tree[1], groups, x), sphere, bands
    )
    return pull((cotangents, radial))


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
        phases, shape = _pull_gram(frame.phases, frame.shape, gram_bar)
    return _double(phases), shape


@jax.jit
def _pull_gram(phases, shape, gram_bar):
    _, pull = jax.vjp(_gram, phases, shape)
    return pull(gram_bar)
