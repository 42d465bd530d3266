"""Zonal kernels of infinitely wide networks, of integer or continuous depth.

A kernel is a shape function κ(t) of the cosine between two points, κ(1) = 1, or
equivalently its level weights w_l in κ(t) = Σ_l w_l P_l(t). `ArcCosine` and `NTK` are
given by their shape function, in closed form, with infinitely many levels;
`ContinuousDepth` and `FreeSpectrum` by their weights, up to a last level. Networks are
deep if high levels have much weight; `equivalent_depth` makes this a number of layers.

References: Cho & Saul (2009) for the arc-cosine kernels; Jacot et al. (2018) for the
neural tangent kernel; Eleftheriadis, Richards & Hensman (2023) for continuous depth.
"""

import abc
import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

import jax
import numpy as np
from jaxtyping import Array, Float

from zonal.prior.parameters import POSITIVE, SIMPLEX, Number, check_values, parameter
from zonal.prior.polynomials import (
    AnyArray,
    check_dimension,
    check_levels,
    harmonic_count,
    level_sum,
)
from zonal.prior.spectrum import funk_hecke
from zonal.saving import savable

__all__ = [
    "NTK",
    "ArcCosine",
    "ContinuousDepth",
    "FreeSpectrum",
    "Kernel",
    "equivalent_depth",
    "nearest_depth",
]


class Kernel(abc.ABC):
    """Base class of kernels: a shape function, its level weights and their tail."""

    @property
    @abc.abstractmethod
    def last_level(self) -> int | None:
        """The highest level with weight, or None if there are infinitely many."""

    @property
    def scalar_parameters(self) -> tuple[str, ...]:
        """Names of the scalar parameters, if all level weights depend on few of them.

        Gradients in these are cheaper than gradients in all level weights.
        """
        return ()

    @abc.abstractmethod
    def level_weights(
        self, dimension: int, max_level: int | None = None
    ) -> Float[np.ndarray, " levels"]:
        """Weights w_0, ..., w_L on the sphere in R^d; L defaults to the last level."""

    @abc.abstractmethod
    def shape_function(
        self, t: Float[AnyArray, "*points"], dimension: int
    ) -> Float[Array, "*points"]:
        """κ(t) on the sphere in R^d, differentiable in t, its slope finite at ±1."""

    def proportions(
        self, dimension: int, first: int, last: int
    ) -> Float[np.ndarray, " levels"]:
        """The weights of levels ``first`` to ``last``, scaled to sum to one."""
        weights = self.level_weights(dimension, last)[first:]
        return weights / weights.sum()

    def proportion_slopes(
        self, dimension: int, first: int, last: int
    ) -> Float[np.ndarray, "numbers levels"]:
        """Derivatives of these proportions in each scalar parameter."""
        return np.zeros((0, last + 1 - first))

    def tail_mass(self, dimension: int, max_level: int) -> float:
        """The weight of all levels above ``max_level``."""
        return max(0.0, 1.0 - float(self.level_weights(dimension, max_level).sum()))

    def pull_weights(
        self, dimension: int, gradient: Float[np.ndarray, " levels"]
    ) -> Mapping[str, np.ndarray]:
        """Gradients in the parameters, from the gradient in the level weights."""
        return {}


class _ClosedForm(Kernel):
    """A kernel given by its shape function, the same in every dimension."""

    @property
    def last_level(self) -> None:
        return None

    @abc.abstractmethod
    def _value(self, t: AnyArray) -> AnyArray:
        """κ(t) for NumPy (real or complex) and JAX arrays."""

    @abc.abstractmethod
    def _slope(self, t: AnyArray) -> AnyArray:
        """dκ/dt, clipped where the true slope is infinite."""

    def shape_function(
        self, t: Float[AnyArray, "*points"], dimension: int
    ) -> Float[Array, "*points"]:
        return _closed_form(self, jax.numpy.asarray(t))

    def level_weights(
        self, dimension: int, max_level: int | None = None
    ) -> Float[np.ndarray, " levels"]:
        if max_level is None:
            raise ValueError(f"{self} has infinitely many levels; pass max_level")
        return _closed_weights(self, dimension, max_level).copy()


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _closed_form(kernel: _ClosedForm, t):
    return kernel._value(t)


@_closed_form.defjvp
def _closed_form_jvp(kernel, primals, tangents):
    (t,), (dt,) = primals, tangents
    return kernel._value(t), kernel._slope(t) * dt


@functools.lru_cache(maxsize=1024)
def _closed_weights(kernel: _ClosedForm, dimension: int, max_level: int) -> np.ndarray:
    return funk_hecke(kernel._value, dimension, max_level)


@savable
@dataclasses.dataclass(frozen=True)
class ArcCosine(_ClosedForm):
    """The covariance of a random network: step (0), ReLU (1) or squared ReLU (2).

    Parameters
    ----------
    order
        The activation: 0, 1 or 2. Higher is smoother.
    depth
        Number of hidden layers.

    Examples
    --------
    >>> ArcCosine(order=1).level_weights(dimension=3, max_level=4).round(4)
    array([0.375 , 0.5   , 0.1172, 0.    , 0.0059])
    """

    order: int = 1
    depth: int = 1

    def __post_init__(self) -> None:
        if self.order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {self.order}")
        _check_depth(self.depth)

    def _value(self, t: AnyArray) -> AnyArray:
        for _ in range(self.depth):
            t = _arcs(t)[self.order]
        return t

    def _slope(self, t: AnyArray) -> AnyArray:
        slope = t.__array_namespace__().ones_like(t)
        for _ in range(self.depth):
            slope = slope * _arc_slope(self.order, t)
            t = _arcs(t)[self.order]
        return slope


@savable
@dataclasses.dataclass(frozen=True)
class NTK(_ClosedForm):
    """The neural tangent kernel of a ReLU network with ``depth`` hidden layers.

    Examples
    --------
    >>> NTK(depth=3).shape_function(np.array([-1.0, 0.0, 1.0]), dimension=3).round(4)
    Array([0.1714, 0.2651, 1.    ], dtype=float32)
    """

    depth: int = 1

    def __post_init__(self) -> None:
        _check_depth(self.depth)

    def _value(self, t: AnyArray) -> AnyArray:
        covariance = tangent = t
        for _ in range(self.depth):
            gate, covariance = _arcs(covariance)[:2]
            tangent = tangent * gate + covariance
        return tangent / (self.depth + 1)

    def _slope(self, t: AnyArray) -> AnyArray:
        covariance = tangent = t
        covariance_slope = tangent_slope = t.__array_namespace__().ones_like(t)
        for _ in range(self.depth):
            gate_slope = _arc_slope(0, covariance) * covariance_slope
            gate, covariance = _arcs(covariance)[:2]
            covariance_slope = gate * covariance_slope
            tangent_slope = tangent_slope * gate + tangent * gate_slope
            tangent_slope = tangent_slope + covariance_slope
            tangent = tangent * gate + covariance
        return tangent_slope / (self.depth + 1)


def _arcs(t: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
    """κ_0, κ_1 and κ_2 of Cho & Saul from one angle, each scaled to κ(1) = 1."""
    xp = t.__array_namespace__()
    if not xp.isdtype(t.dtype, "complex floating"):
        t = xp.clip(t, -1.0, 1.0)
    left, sine = np.pi - xp.acos(t), xp.sqrt((1 - t) * (1 + t))
    return (
        left / np.pi,
        (t * left + sine) / np.pi,
        ((1 + 2 * t * t) * left / 3 + t * sine) / np.pi,
    )


def _arc_slope(order: int, t: AnyArray) -> AnyArray:
    """The slope of an order is the order below; that of the step is clipped."""
    if order == 1:
        return _arcs(t)[0]
    if order == 2:
        return _arcs(t)[1] * (4 / 3)
    xp = t.__array_namespace__()
    t = xp.clip(t, -1.0, 1.0)
    sine = xp.sqrt((1 - t) * (1 + t))
    return 1 / (np.pi * xp.clip(sine, float(np.sqrt(xp.finfo(t.dtype).eps)), 1.0))


def _check_depth(depth: int) -> None:
    if depth < 1:
        raise ValueError(
            f"depth counts hidden layers and must be 1 or more, got {depth}"
        )


class _Spectral(Kernel):
    """A kernel given by its level weights."""

    def shape_function(
        self, t: Float[AnyArray, "*points"], dimension: int
    ) -> Float[Array, "*points"]:
        return level_sum(t, self.level_weights(dimension), dimension)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class ContinuousDepth(_Spectral):
    """A network of continuous, learned depth: weights that decay like (1+l)^-β.

    With a ``cut`` c, weights (1+l)^-β e^(-l/c) fall off faster beyond level c, as suits
    smooth functions. By default there is no cut.

    Parameters
    ----------
    beta
        The decay. Smaller is deeper: more of the variance sits at high levels.
    max_level
        The last level.
    decay
        ``"energy"``: the weight of a level is (1+l)^-β, so that a depth means the same
        in every dimension. ``"eigenvalue"``: that of each harmonic is, as in the paper,
        so that the weight of a level is its number of harmonics times (1+l)^-β.
    cut
        The level c beyond which weights fall off exponentially.

    Examples
    --------
    >>> ContinuousDepth(beta=1.0, max_level=2).level_weights(dimension=9)
    array([0.54545455, 0.27272727, 0.18181818])
    """

    beta: Number = parameter(POSITIVE, default=1.0)
    max_level: int = 20
    decay: Literal["energy", "eigenvalue"] = "energy"
    cut: Number = parameter(POSITIVE, default=1e12)

    def __post_init__(self) -> None:
        check_values(self)
        if self.decay not in ("energy", "eigenvalue"):
            raise ValueError(
                f"decay must be 'energy' or 'eigenvalue', not {self.decay!r}"
            )
        check_levels([self.max_level])

    @property
    def last_level(self) -> int:
        return self.max_level

    @property
    def scalar_parameters(self) -> tuple[str, ...]:
        # A cut this far above the last level has no effect, and no gradient.
        return ("beta",) if self.cut > 1e6 * (1 + self.max_level) else ("beta", "cut")

    def level_weights(
        self, dimension: int, max_level: int | None = None
    ) -> Float[np.ndarray, " levels"]:
        check_dimension(dimension)
        return _up_to(_softmax(self._log_weights(dimension)), max_level)

    def proportions(
        self, dimension: int, first: int, last: int
    ) -> Float[np.ndarray, " levels"]:
        # From logarithms, so that a band keeps its shape when its energy underflows.
        return _softmax(self._log_weights(dimension)[first : last + 1])

    def proportion_slopes(
        self, dimension: int, first: int, last: int
    ) -> Float[np.ndarray, "numbers levels"]:
        share = self.proportions(dimension, first, last)
        slopes = {"beta": self._log_decay, "cut": self._levels / self.cut**2}
        logs = np.array(
            [slopes[name][first : last + 1] for name in self.scalar_parameters]
        )
        return share * (logs - (logs @ share)[:, None])

    def _log_weights(self, dimension: int) -> np.ndarray:
        log_weights = float(self.beta) * self._log_decay - self._levels / self.cut
        if self.decay == "energy":
            return log_weights
        counts = [harmonic_count(level, dimension) for level in range(len(log_weights))]
        return log_weights + [_log_integer(count) for count in counts]

    def pull_weights(
        self, dimension: int, gradient: Float[np.ndarray, " levels"]
    ) -> Mapping[str, np.ndarray]:
        weights = self.level_weights(dimension)
        energy = gradient * weights
        centred = energy - weights * energy.sum()
        return {
            "beta": np.asarray(centred @ self._log_decay),
            "cut": np.asarray(centred @ self._levels / self.cut**2),
        }

    @property
    def _levels(self) -> np.ndarray:
        return np.arange(self.max_level + 1.0)

    @property
    def _log_decay(self) -> np.ndarray:
        return -np.log1p(self._levels)


@savable
@dataclasses.dataclass(frozen=True, eq=False)
class FreeSpectrum(_Spectral):
    """One free weight per level; the weights are positive and sum to one.

    Examples
    --------
    >>> start = ContinuousDepth(beta=1.0, max_level=2)
    >>> FreeSpectrum.like(start, dimension=9).weights
    array([0.54545455, 0.27272727, 0.18181818])
    """

    weights: Float[np.ndarray, " levels"] = parameter(SIMPLEX)

    def __post_init__(self) -> None:
        check_levels(range(len(self.weights)))
        object.__setattr__(self, "weights", np.asarray(self.weights, np.float64))
        check_values(self)

    @classmethod
    def like(
        cls, kernel: Kernel, dimension: int, max_level: int | None = None
    ) -> "FreeSpectrum":
        """The weights of another kernel as a start, each at least 1e-6.

        A weight of exactly zero could not change in learning.
        """
        weights = np.maximum(kernel.level_weights(dimension, max_level), 1e-6)
        return cls(weights / weights.sum())

    @property
    def last_level(self) -> int:
        return len(self.weights) - 1

    def level_weights(
        self, dimension: int, max_level: int | None = None
    ) -> Float[np.ndarray, " levels"]:
        check_dimension(dimension)
        return _up_to(self.weights, max_level)

    def pull_weights(
        self, dimension: int, gradient: Float[np.ndarray, " levels"]
    ) -> Mapping[str, np.ndarray]:
        return {"weights": gradient}


def equivalent_depth(kernel: Kernel, dimension: int, max_depth: int = 256) -> int:
    """The depth of the ReLU network whose tangent kernel has the nearest spectrum.

    Nearest in Hellinger distance between the energies of levels 1, 2, ..., up to the
    kernel's last level, both scaled to sum to one: the constant level is independent
    of depth. ``max_depth`` is returned for spectra of deeper networks.

    Examples
    --------
    >>> equivalent_depth(NTK(depth=7), dimension=4)
    7
    """
    last = 32 if kernel.last_level is None else kernel.last_level
    if last < 2:
        raise ValueError(
            f"depth shows in levels 2 and up, and the kernel ends at {last}; add levels"
        )
    return nearest_depth(kernel.level_weights(dimension, last), dimension, max_depth)


def nearest_depth(
    energies: Float[np.ndarray, " levels"], dimension: int, max_depth: int = 256
) -> int:
    """The depth of the network whose levels have the nearest energies.

    ``energies`` are those of levels 0, 1, ..., in any unit.
    """
    last = len(energies) - 1
    target = _roots(energies)

    @functools.cache
    def distance(depth: int) -> float:
        difference = _network_energies(depth, dimension, last) - target
        return float(difference @ difference)

    depths = [2**k for k in range(64) if 2**k < max_depth] + [max_depth]
    best = min(range(len(depths)), key=lambda index: distance(depths[index]))
    low, high = depths[max(best - 1, 0)], depths[min(best + 1, len(depths) - 1)]
    # The distance decreases towards the best depth from both sides: ternary search.
    while high - low > 2:
        third = (high - low) // 3
        if distance(low + third) <= distance(high - third):
            high -= third
        else:
            low += third
    return min(range(low, high + 1), key=distance)


@functools.lru_cache(maxsize=256)
def _network_energies(depth: int, dimension: int, last: int) -> np.ndarray:
    return _roots(NTK(depth).level_weights(dimension, last))


def _roots(energies: np.ndarray) -> np.ndarray:
    """Square roots of the shares of levels 1, 2, ..., for Hellinger distances."""
    above = energies[1:]
    if not above.sum() > 0:
        raise ValueError("there is no weight above level 0, hence no depth")
    return np.sqrt(above / above.sum())


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max())
    return shares / shares.sum()


def _up_to(weights: np.ndarray, max_level: int | None) -> np.ndarray:
    """The first weights, with zeros beyond the kernel's last level."""
    if max_level is None:
        return weights
    check_levels([max_level])
    padded = np.zeros(max_level + 1)
    count = min(max_level + 1, len(weights))
    padded[:count] = weights[:count]
    return padded


def _log_integer(count: int) -> float:
    """Log of an integer of any size: harmonic counts can exceed float64."""
    shift = max(0, count.bit_length() - 64)
    return float(np.log(float(count >> shift)) + shift * np.log(2.0))
