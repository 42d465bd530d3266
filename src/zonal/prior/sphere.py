"""Maps from rows of a table to points on the sphere.

A row x becomes z = (a⊙x, b), or (Ax, b), and then a direction s = z/|z| and a radius
r = |z|. Only ratios to the bias matter to the direction, and the overall scale of
(a, b) only multiplies the kernel's variance. So b is the unit: `scales` are a/b, and
the radius is divided by √(1 + Σ (a/b)²), its root mean square over standardised
columns. All directions of the parameters then matter, and the variance is the prior
variance of a typical row.

The maps of data on a sphere (`UnitVectors`, `LatitudeLongitude`) have no parameters.
"""

import abc
import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from zonal.prior.parameters import POSITIVE, REAL, Number, check_values, parameter
from zonal.prior.polynomials import AnyArray, check_dimension
from zonal.saving import savable

__all__ = ["ARD", "LatitudeLongitude", "Projection", "Sphere", "UnitVectors"]

# Largest valid longitude in degrees: grids start anywhere and go round once.
_MAX_LONGITUDE = 720


class Sphere(abc.ABC):
    """Base class of maps from rows to the sphere."""

    @property
    @abc.abstractmethod
    def n_inputs(self) -> int:
        """Number of columns per row."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """Dimension d of the space that the sphere lives in."""

    @abc.abstractmethod
    def directions(
        self, x: Float[AnyArray, "rows inputs"]
    ) -> tuple[Float[AnyArray, "rows d"], Float[AnyArray, " rows"]]:
        """Unit vectors s and radial factors r^p; pure, for NumPy and ``jax.jit``."""

    def points(
        self, rows: Float[np.ndarray, "rows inputs"]
    ) -> tuple[Float[np.ndarray, "rows d"], Float[np.ndarray, " rows"]]:
        """Rows of a table as unit vectors and radial factors, in float64."""
        rows = np.asarray(rows, np.float64)
        self.check(rows)
        direction, radial = self.directions(rows)
        return np.asarray(direction), np.asarray(radial)

    def pull(
        self,
        x: Float[np.ndarray, "rows inputs"],
        s_bar: Float[np.ndarray, "rows d"],
        radial_bar: Float[np.ndarray, " rows"],
    ) -> dict[str, np.ndarray]:
        """Gradients in the parameters, from those in directions and radial factors."""
        return {}

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError for rows that cannot be mapped, naming the first."""
        if x.ndim != 2 or x.shape[1] != self.n_inputs:
            raise ValueError(
                f"expected rows of {self.n_inputs} columns, got shape {x.shape}"
            )
        bad = np.argwhere(~np.isfinite(x))
        if len(bad):
            row, column = bad[0]
            raise ValueError(
                f"column {column} is not finite in row {row} ({len(bad)} such "
                "entries); remove or impute them"
            )


@savable
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ARD(Sphere):
    """One scale per column: z = (scales ⊙ x, 1), automatic relevance determination.

    Parameters
    ----------
    scales
        a/b for each column, positive.
    radial_order
        The power p of the radius in the kernel: 0 leaves it out, 1 is the paper's.

    Examples
    --------
    >>> sphere = ARD.isotropic(2)
    >>> sphere.dimension, sphere.relevance
    (3, array([0.5, 0.5]))
    """

    scales: Float[AnyArray, " inputs"] = parameter(POSITIVE)
    radial_order: Number = parameter(REAL, default=0.0)

    def __post_init__(self) -> None:
        check_values(self)

    @classmethod
    def isotropic(cls, n_inputs: int, radial_order: float = 0.0) -> "ARD":
        """Equal scales: standardised columns together weigh as much as the bias."""
        if n_inputs < 1:
            raise ValueError(f"a table needs at least one column, got {n_inputs}")
        return cls(np.full(n_inputs, n_inputs**-0.5), radial_order)

    @property
    def n_inputs(self) -> int:
        return self.scales.shape[0]

    @property
    def dimension(self) -> int:
        return self.n_inputs + 1

    @property
    def relevance(self) -> Float[np.ndarray, " inputs"]:
        """Each column's share of the sum of squared scales."""
        squares = np.asarray(self.scales, np.float64) ** 2
        return squares / squares.sum()

    def directions(
        self, x: Float[AnyArray, "rows inputs"]
    ) -> tuple[Float[AnyArray, "rows d"], Float[AnyArray, " rows"]]:
        xp = x.__array_namespace__()
        scales = xp.asarray(self.scales, dtype=x.dtype)
        return _lift(x * scales[None, :], xp.sum(scales**2), self.radial_order)

    def pull(self, x, s_bar, radial_bar):
        scales = np.asarray(self.scales, np.float64)
        z = x * scales[None, :]
        z_bar, squares_bar, order_bar = _pull_lift(
            z, np.sum(scales**2), float(self.radial_order), s_bar, radial_bar
        )
        gradient = np.sum(z_bar * x, axis=0) + 2 * squares_bar * scales
        return {"scales": gradient, "radial_order": np.asarray(order_bar)}


@savable
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Projection(Sphere):
    """A learned linear map to fewer columns: z = (Ax, 1).

    Parameters
    ----------
    matrix
        A/b, of shape (size, inputs).
    radial_order
        The power p of the radius in the kernel: 0 leaves it out, 1 is the paper's.

    Examples
    --------
    >>> Projection.random(n_inputs=90, size=8).dimension
    9
    """

    matrix: Float[AnyArray, "size inputs"] = parameter(REAL)
    radial_order: Number = parameter(REAL, default=0.0)

    def __post_init__(self) -> None:
        check_values(self)

    @classmethod
    def random(
        cls, n_inputs: int, size: int, radial_order: float = 0.0, seed: int = 0
    ) -> "Projection":
        """A random matrix of orthogonal rows that weigh as much as the bias."""
        if not 1 <= size <= n_inputs:
            raise ValueError(
                f"size must be between 1 and the {n_inputs} columns, got {size}"
            )
        normal = np.random.default_rng(seed).normal(size=(n_inputs, size))
        return cls(np.linalg.qr(normal)[0].T * size**-0.5, radial_order)

    @property
    def n_inputs(self) -> int:
        return self.matrix.shape[1]

    @property
    def dimension(self) -> int:
        return self.matrix.shape[0] + 1

    @property
    def relevance(self) -> Float[np.ndarray, " inputs"]:
        """Each column's share of the squared entries of the projection."""
        squares = np.sum(np.asarray(self.matrix, np.float64) ** 2, axis=0)
        return squares / squares.sum()

    def directions(
        self, x: Float[AnyArray, "rows inputs"]
    ) -> tuple[Float[AnyArray, "rows d"], Float[AnyArray, " rows"]]:
        xp = x.__array_namespace__()
        matrix = xp.asarray(self.matrix, dtype=x.dtype)
        return _lift(x @ matrix.T, xp.sum(matrix**2), self.radial_order)

    def pull(self, x, s_bar, radial_bar):
        matrix = np.asarray(self.matrix, np.float64)
        z_bar, squares_bar, order_bar = _pull_lift(
            x @ matrix.T,
            np.sum(matrix**2),
            float(self.radial_order),
            s_bar,
            radial_bar,
        )
        gradient = z_bar.T @ x + 2 * squares_bar * matrix
        return {"matrix": gradient, "radial_order": np.asarray(order_bar)}


def _lift(z, squares, radial_order):
    """(z, 1) as a direction and a radius of root mean square one, raised to p."""
    xp = z.__array_namespace__()
    # Dividing by the largest entry first keeps z² finite in float32 for any finite z.
    z = xp.concat([z, xp.ones_like(z[:, :1])], axis=1)
    largest = xp.max(xp.abs(z), axis=1, keepdims=True)
    z = z / largest
    norm = xp.sqrt(xp.sum(z * z, axis=1, keepdims=True))
    direction = z / norm
    log_radius = xp.log(norm[:, 0]) + xp.log(largest[:, 0])
    log_radius = log_radius - 0.5 * xp.log1p(squares)
    order = xp.asarray(radial_order, dtype=z.dtype)
    return direction, xp.exp(order * log_radius)


def _pull_lift(z, squares, radial_order, s_bar, radial_bar):
    """Gradients in z, in the squares and in the order of `_lift`, in NumPy."""
    lifted = np.column_stack([np.asarray(z, np.float64), np.ones(len(z))])
    norm = np.linalg.norm(lifted, axis=1, keepdims=True)
    direction = lifted / norm
    log_radius = np.log(norm[:, 0]) - 0.5 * np.log1p(squares)
    weighted = radial_bar * np.exp(radial_order * log_radius)
    inward = np.sum(direction * s_bar, axis=1) - radial_order * weighted
    z_bar = (s_bar - inward[:, None] * direction) / norm
    squares_bar = -0.5 * radial_order * np.sum(weighted) / (1 + squares)
    return z_bar[:, :-1], squares_bar, np.sum(weighted * log_radius)


@savable
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class UnitVectors(Sphere):
    """Rows that are unit vectors.

    Examples
    --------
    >>> UnitVectors(3).dimension
    3
    """

    size: int = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        check_dimension(self.size)

    @property
    def n_inputs(self) -> int:
        return self.size

    @property
    def dimension(self) -> int:
        return self.size

    def directions(
        self, x: Float[AnyArray, "rows inputs"]
    ) -> tuple[Float[AnyArray, "rows d"], Float[AnyArray, " rows"]]:
        xp = x.__array_namespace__()
        # The check allows norms within rounding of one; here they become exact.
        norm = xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))
        return x / norm, xp.ones_like(x[:, 0])

    def check(self, x: np.ndarray) -> None:
        super().check(x)
        norm = np.linalg.norm(x, axis=1)
        bad = np.flatnonzero(np.abs(norm - 1) > 1e-4)
        if len(bad):
            raise ValueError(
                f"row {bad[0]} has norm {norm[bad[0]]:.6g}, not 1 ({len(bad)} such "
                "rows); divide each row by its norm, and remove rows of zero norm"
            )


@savable
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LatitudeLongitude(Sphere):
    """Rows of latitude and longitude in degrees.

    Examples
    --------
    >>> direction, _ = LatitudeLongitude().directions(np.array([[90.0, 0.0]]))
    >>> direction.round(6)
    array([[0., 0., 1.]])
    """

    @property
    def n_inputs(self) -> int:
        return 2

    @property
    def dimension(self) -> int:
        return 3

    def directions(
        self, x: Float[AnyArray, "rows inputs"]
    ) -> tuple[Float[AnyArray, "rows d"], Float[AnyArray, " rows"]]:
        xp = x.__array_namespace__()
        latitude, longitude = x[:, 0] * (np.pi / 180), x[:, 1] * (np.pi / 180)
        radius = xp.cos(latitude)
        direction = xp.stack(
            [radius * xp.cos(longitude), radius * xp.sin(longitude), xp.sin(latitude)],
            axis=1,
        )
        return direction, xp.ones_like(latitude)

    def check(self, x: np.ndarray) -> None:
        super().check(x)
        limits = ((0, "latitude", 90), (1, "longitude", _MAX_LONGITUDE))
        for column, name, limit in limits:
            bad = np.flatnonzero(np.abs(x[:, column]) > limit)
            if len(bad):
                raise ValueError(
                    f"{name} in row {bad[0]} is {x[bad[0], column]:.6g} degrees, "
                    f"beyond ±{limit} ({len(bad)} such rows); the columns are "
                    "latitude, then longitude"
                )
