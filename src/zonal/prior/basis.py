"""The basis: a Gaussian process prior, and the features that represent it.

A `Basis` is a sphere, a kernel and its bands. In each band with normalised kernel κ_b
and phases V_b the features are

    φ_b(x) = L_b⁻¹ κ_b(V_b s),    L_b L_bᵀ = κ_b(V_b V_bᵀ),

so that the inducing variables are independent standard normals, block by block, and
φ_b(x)·φ_b(x') is the part of κ_b(s·s') that the phases capture, never more.

Unit features leave out √(variance · energy) and the radius: depth, free level weights
and the variance then only scale them, and can be learned without touching a row again.
"""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from zonal.prior.backends import numpy_kernel
from zonal.prior.bands import Band, CompleteLevel, band_energies, band_kernel
from zonal.prior.kernels import NTK, Kernel, equivalent_depth, nearest_depth
from zonal.prior.layouts import Plan, plan_bands
from zonal.prior.parameters import POSITIVE, Number, check_values, parameter
from zonal.prior.phases import drawn_phases, random_phases
from zonal.prior.sphere import Sphere
from zonal.saving import savable

__all__ = ["Basis", "count_levels", "feature_scales", "pull_energies", "pull_scales"]

# Rows from which starting phases are chosen.
_MAX_CANDIDATES = 20_000
# Levels of an unbounded band that are reported.
_REPORTED_LEVELS = 30


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Basis:
    """A zonal Gaussian process prior and the features that represent it.

    Parameters
    ----------
    sphere, kernel, bands
        The map to the sphere, the kernel, and the bands it is split into.
        Without bands there are no features.
    variance
        Prior variance of the function at a row of radius one.
    free_energies
        Each band's part of the variance, as parameters of their own; None takes them
        from the kernel's level weights, which otherwise act only within bands.

    Examples
    --------
    >>> from zonal import ARD, ContinuousDepth
    >>> basis = Basis.build(ARD.isotropic(3), ContinuousDepth(), n_features=64)
    >>> [band.name for band in basis.bands], basis.n_features
    (['level_0', 'level_1', 'levels_2_20'], 64)
    """

    sphere: Sphere
    kernel: Kernel
    bands: tuple[Band | CompleteLevel, ...]
    variance: Number = parameter(POSITIVE, default=1.0)
    free_energies: Float[np.ndarray, " bands"] | None = parameter(
        POSITIVE, default=None
    )

    def __post_init__(self) -> None:
        top = -1
        for band in self.bands:
            if band.first <= top:
                raise ValueError(
                    f"level {band.first} is in two bands; let bands not overlap"
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
                f"{type(self.kernel).__name__} ends; end the band there too"
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
        start: str = "drawn",
        n_levels: int = 8,
        seed: int = 0,
    ) -> "Basis":
        """Spend a budget of features on bands and place their phases.

        Phases start from ``rows`` of the table, at most one phase per row, or at random
        if no rows are given.
        """
        plans = plan_bands(layout, kernel, sphere.dimension, n_features, n_levels)
        points = None if rows is None else _starting_points(sphere, rows)
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
    def level_variances(self) -> Float[np.ndarray, " levels"]:
        """The prior variance per level, given the energies of the bands."""
        last = self.kernel.last_level
        ends = [
            band.first + _REPORTED_LEVELS if band.last is None else band.last
            for band in self.bands
        ] or [_REPORTED_LEVELS if last is None else last]
        weights = self.kernel.level_weights(self.sphere.dimension, max(ends))
        for band, energy, share in zip(
            self.bands, self.energies, self.shares, strict=True
        ):
            stop = None if band.last is None else band.last + 1
            weights[band.first : stop] *= energy / max(share, 1e-300)
        return weights * float(self.variance)

    @property
    def depth(self) -> int:
        """Hidden layers of the network whose spectrum is nearest to this prior's.

        It depends on the variance of all levels, free energies included. For an `NTK`
        it is the depth of the kernel.
        """
        if isinstance(self.kernel, NTK):
            return self.kernel.depth
        variances = self.level_variances
        if len(variances) < 3:
            return equivalent_depth(self.kernel, self.sphere.dimension)
        return nearest_depth(variances, self.sphere.dimension)

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
        """The kernel's energy in each band; levels in no band have the rest."""
        return band_energies(self.bands, self.kernel, self.sphere.dimension)

    @property
    def energies(self) -> Float[np.ndarray, " bands"]:
        """Each band's part of the prior variance, in units of ``variance``."""
        return self.shares if self.free_energies is None else self.free_energies

    @property
    def total_energy(self) -> float:
        """The prior variance in units of ``variance``, levels in no band included."""
        return float(self.energies.sum()) + self.uncovered_energy

    @property
    def uncovered_energy(self) -> float:
        """The weight of the levels that lie in no band."""
        uncovered = 1.0 - float(self.shares.sum())
        return uncovered if uncovered > 1e-12 else 0.0

    @property
    def incomplete(self) -> tuple[int, ...]:
        """Indices of the bands that are not complete."""
        return tuple(i for i, band in enumerate(self.bands) if not band.complete)

    def follows(self, layout: str) -> bool:
        """Whether the bands are of the kinds that a layout makes.

        Only the banded layout has incomplete bands of several levels, and only the
        sparse one incomplete bands of a single level.
        """
        incomplete = [self.bands[index] for index in self.incomplete]
        if layout == "harmonics":
            return not incomplete
        single = [band.first == band.last for band in incomplete]
        return all(single) if layout == "sparse" else not any(single)

    def by_band(
        self, columns: Float[np.ndarray, "*rows features"]
    ) -> Float[np.ndarray, "*rows bands"]:
        """Sums of the features' columns per band."""
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
            covariance = np.array(self.kernel.shape_function(t, dimension))
        if self.free_energies is not None:
            excess = self.energies - self.shares
            for band, energy in zip(self.bands, excess, strict=True):
                kernel = numpy_kernel(band_kernel(band, self.kernel, dimension))
                covariance += energy * kernel(t)
        return float(self.variance) * np.outer(radial, radial_other) * covariance


def _starting_points(sphere: Sphere, rows: np.ndarray) -> np.ndarray:
    """Distinct rows on the sphere; of a long table, rows at even distances."""
    if len(rows) == 0:
        raise ValueError(
            "no rows were given to start from; pass at least one, or rows=None"
        )
    if len(rows) > _MAX_CANDIDATES:
        rows = rows[np.linspace(0, len(rows) - 1, _MAX_CANDIDATES).astype(int)]
    return np.unique(sphere.points(rows)[0], axis=0)


def _start(
    plan: Plan,
    kernel: Kernel,
    sphere: Sphere,
    points: np.ndarray | None,
    start: str,
    seed: int,
) -> np.ndarray:
    if start not in ("drawn", "random"):
        raise ValueError(f"start must be 'drawn' or 'random', not {start!r}")
    if points is None or start == "random":
        return random_phases(plan.size, sphere.dimension, seed + plan.first)
    size = min(plan.size, len(points))
    band = Band(plan.first, plan.last, points[:1])
    values = numpy_kernel(band_kernel(band, kernel, sphere.dimension))
    return drawn_phases(points, size, values, seed=seed + plan.first)


def feature_scales(basis: Basis) -> Float[np.ndarray, " features"]:
    """√(variance · energy) of each feature's band."""
    widths = [part.stop - part.start for part in basis.slices]
    return np.repeat(np.sqrt(basis.variance * basis.energies), widths)


def pull_scales(
    basis: Basis, gradient: Float[np.ndarray, " features"]
) -> tuple[Float[np.ndarray, " bands"], float]:
    """Gradients in energies and variance, from the gradient in the scales."""
    by_band = basis.by_band(gradient)
    variance = float(basis.variance)
    # The features of a band without energy are zero, and so is their gradient.
    root = np.sqrt(np.where(basis.energies > 0, basis.energies, np.inf))
    energies = by_band * np.sqrt(variance) / (2 * root)
    of_variance = by_band @ np.sqrt(basis.energies) / (2 * np.sqrt(variance))
    return energies, float(of_variance)


def pull_energies(
    basis: Basis,
    energies: Float[np.ndarray, " bands"],
    variance: float,
    uncovered: float = 0.0,
) -> dict[str, np.ndarray]:
    """Gradients in the parameters, from those in energies and variance.

    ``uncovered`` is the gradient in the weight of each level that lies in no band.
    """
    through = np.full(count_levels(basis), uncovered)
    fixed = basis.free_energies is not None
    for band, energy in zip(basis.bands, energies, strict=True):
        if band.last is not None:
            through[band.first : band.last + 1] = 0.0 if fixed else energy
    pulled = basis.kernel.pull_weights(basis.sphere.dimension, through)
    kernel = {f"kernel.{name}": value for name, value in pulled.items()}
    own = {"free_energies": energies} if fixed else {}
    return kernel | own | {"variance": np.asarray(variance)}


def count_levels(basis: Basis) -> int:
    """Number of levels of kernel and bands, level 0 included."""
    top = max(band.last or 0 for band in basis.bands)
    return max(top, basis.kernel.last_level or 0) + 1
