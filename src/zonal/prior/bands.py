"""Bands: neighbouring levels of a kernel, taken together.

A zonal Gaussian process is a sum of independent processes, one per level. A *band* is
one or more neighbouring levels taken together, with an energy (its levels' share of the
variance) and a normalised kernel.
"""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial.chebyshev import chebinterpolate

from zonal.prior.kernels import Kernel
from zonal.prior.parameters import UNIT_ROWS, check_values, parameter
from zonal.prior.phases import complete_phases
from zonal.prior.polynomials import (
    chebyshev_along,
    chebyshev_rows,
    chebyshev_sum,
    check_levels,
    harmonic_count,
)
from zonal.saving import savable

__all__ = ["Band", "CompleteLevel"]


@savable
@dataclasses.dataclass(frozen=True)
class CompleteLevel:
    """A single level with all its harmonics, which has no parameters."""

    level: int

    @property
    def name(self) -> str:
        return f"level_{self.level}"

    @property
    def first(self) -> int:
        return self.level

    @property
    def last(self) -> int:
        return self.level

    @property
    def complete(self) -> bool:
        return True

    def size(self, dimension: int) -> int:
        return harmonic_count(self.level, dimension)

    def place(self, dimension: int) -> Float[np.ndarray, "phases d"]:
        return complete_phases(self.level, dimension)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class Band:
    """Levels ``first`` to ``last`` (None: all levels above) with learned phases."""

    first: int
    last: int | None
    phases: Float[np.ndarray, "phases d"] = parameter(UNIT_ROWS)

    def __post_init__(self) -> None:
        check_levels([self.first])
        if self.last is not None and self.last < self.first:
            raise ValueError(
                f"a band from level {self.first} to {self.last} is empty; "
                "its last level must not be below its first"
            )
        if len(self.phases) == 0:
            raise ValueError(f"band {self.name} has no phases; give it at least one")
        check_values(self)

    @property
    def name(self) -> str:
        if self.first == self.last:
            return f"level_{self.first}"
        return f"levels_{self.first}_{'up' if self.last is None else self.last}"

    @property
    def complete(self) -> bool:
        return False

    def size(self, dimension: int) -> int:
        return len(self.phases)

    def place(self, dimension: int) -> Float[np.ndarray, "phases d"]:
        return self.phases


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class SingleLevel:
    """The kernel P_l(t) of one level as a Chebyshev series, without parameters."""

    coefficients: Float[Array | np.ndarray, " terms"]

    def __call__(self, t: Float[Array, "*points"]) -> Float[Array, "*points"]:
        return chebyshev_sum(t, jax.lax.stop_gradient(self.coefficients))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LevelSum:
    """A band's normalised kernel Σ π_l P_l(t), Σ π_l = 1, as a Chebyshev series.

    If the kernel has only scalar parameters, ``tangents`` holds the derivative of the
    series in each of them, and gradients go to ``amounts`` (which are zero). Otherwise
    both are None and gradients go to the coefficients themselves.
    """

    coefficients: Float[Array | np.ndarray, " terms"]
    tangents: Float[Array | np.ndarray, "numbers terms"] | None = None
    amounts: Float[Array | np.ndarray, " numbers"] | None = None

    def __call__(self, t: Float[Array, "*points"]) -> Float[Array, "*points"]:
        if self.tangents is None or self.amounts is None:
            return chebyshev_sum(t, self.coefficients)
        return chebyshev_along(t, self.coefficients, self.tangents, self.amounts)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class AngleSum:
    """All levels of a closed-form kernel from one up, (κ - Σ_low w_l P_l) / mass.

    This is smooth as a function of the angle, so a Chebyshev series in the angle equals
    the closed form to rounding. The series is computed in float64: a difference in
    float32 would lose the digits that the low levels take up.
    """

    coefficients: Float[Array | np.ndarray, " terms"]

    def __call__(self, t: Float[Array, "*points"]) -> Float[Array, "*points"]:
        return chebyshev_sum(_angle(t), jax.lax.stop_gradient(self.coefficients))


@jax.custom_jvp
def _angle(t):
    """The angle of a cosine, mapped from [0, π] to [-1, 1]."""
    return (2 / np.pi) * jnp.arccos(jnp.clip(t, -1.0, 1.0)) - 1


@_angle.defjvp
def _angle_jvp(primals, tangents):
    (t,), (dt,) = primals, tangents
    # At the poles the slope is infinite; it is clipped at the resolution of t.
    sine = jnp.sqrt(jnp.maximum((1 - t) * (1 + t), jnp.finfo(t.dtype).eps))
    return _angle(t), (-2 / np.pi) * dt / sine


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ClosedTail:
    """The kernel of `AngleSum`, computed as the plain difference.

    For kernels that are not smooth in the angle (deep networks of step functions). The
    tail is most of such a rough kernel, so the difference loses no digits.
    """

    kernel: Kernel = dataclasses.field(metadata={"static": True})
    low: Float[Array | np.ndarray, " terms"]
    mass: Float[Array | np.ndarray, ""]

    def __call__(self, t: Float[Array, "*points"]) -> Float[Array, "*points"]:
        # A closed form is the same in every dimension.
        rest = self.kernel.shape_function(t, dimension=2) - chebyshev_sum(t, self.low)
        return rest / self.mass


BandKernel = SingleLevel | LevelSum | AngleSum | ClosedTail
# A band as back ends take it, and a gradient in its phases and the parameters of its
# kernel (None if it has none).
PhasedKernel = tuple[Float[Array | np.ndarray, "_ d"], BandKernel]
BandGradient = tuple[np.ndarray, np.ndarray | None]


@functools.lru_cache(maxsize=64)
def _tail_kernel(kernel: Kernel, first: int, dimension: int) -> AngleSum | ClosedTail:
    """The normalised kernel of all levels from ``first`` up."""
    weights = kernel.level_weights(dimension, max(first - 1, 0))[:first]
    low = weights @ chebyshev_rows(first - 1, dimension) if first else np.zeros(1)
    mass = 1.0 - weights.sum()

    def tail(x: np.ndarray) -> np.ndarray:
        angle = (x + 1) * (np.pi / 2)
        with jax.enable_x64(True):
            total = np.asarray(kernel.shape_function(np.cos(angle), dimension))
        return (total - np.cos(angle[:, None] * np.arange(len(low))) @ low) / mass

    rounding = 1e-15 / mass
    for degree in (63, 127, 255, 511):
        series = np.asarray(chebinterpolate(tail, degree))  # pyright: ignore
        if np.abs(series[-8:]).max() < 10 * rounding:
            significant = np.flatnonzero(np.abs(series) > rounding)
            return AngleSum(series[: significant[-1] + 1])
    return ClosedTail(kernel, low, np.asarray(mass))


def band_energies(
    bands: tuple[Band | CompleteLevel, ...], kernel: Kernel, dimension: int
) -> Float[np.ndarray, " bands"]:
    """Each band's share of κ(1) = 1."""
    if not bands:
        return np.zeros(0)
    top = max(band.first if band.last is None else band.last for band in bands)
    weights = kernel.level_weights(dimension, top)
    return np.array(
        [
            max(0.0, 1.0 - weights[: band.first].sum())
            if band.last is None
            else weights[band.first : band.last + 1].sum()
            for band in bands
        ]
    )


def band_kernel(
    band: Band | CompleteLevel, kernel: Kernel, dimension: int
) -> BandKernel:
    """The kernel of the band's levels, scaled to one at t = 1, in float64."""
    if band.last is None:
        if kernel.last_level is not None:
            raise ValueError(
                f"{type(kernel).__name__} ends at level {kernel.last_level}; "
                "a band without a last level needs ArcCosine or NTK"
            )
        return _tail_kernel(kernel, band.first, dimension)
    if band.first == band.last:
        return single_level(band.first, dimension)
    rows = chebyshev_rows(band.last, dimension)[band.first :]
    series = kernel.proportions(dimension, band.first, band.last) @ rows
    if len(kernel.scalar_parameters) == 0:
        return LevelSum(series)
    tangents = kernel.proportion_slopes(dimension, band.first, band.last) @ rows
    return LevelSum(series, tangents, np.zeros(len(tangents)))


def single_level(level: int, dimension: int) -> SingleLevel:
    """The kernel of one level, which does not depend on parameters."""
    return SingleLevel(chebyshev_rows(level, dimension)[level])


def pull_band(
    band: Band | CompleteLevel,
    kernel: Kernel,
    dimension: int,
    gradient: Float[np.ndarray, " numbers"],
) -> Mapping[str, np.ndarray]:
    """A gradient in a `LevelSum`, as gradients in the kernel's parameters."""
    if kernel.scalar_parameters:
        pairs = zip(kernel.scalar_parameters, gradient, strict=True)
        return {name: np.asarray(value) for name, value in pairs}
    weights = _pull_series(band, kernel, dimension, gradient)
    return kernel.pull_weights(dimension, weights)


def _pull_series(
    band: Band | CompleteLevel, kernel: Kernel, dimension: int, series: np.ndarray
) -> np.ndarray:
    """A gradient in a band's Chebyshev series, as one in all level weights."""
    assert band.last is not None, "a band without a last level has no parameters"
    assert kernel.last_level is not None, "closed forms have no level parameters"
    weights = np.zeros(kernel.last_level + 1)
    rows = chebyshev_rows(band.last, dimension)[band.first :]
    energy = kernel.level_weights(dimension, band.last)[band.first :].sum()
    if energy > np.finfo(np.float64).tiny:
        gradient = rows @ series
        share = kernel.proportions(dimension, band.first, band.last)
        weights[band.first : band.last + 1] = (gradient - share @ gradient) / energy
    return weights
