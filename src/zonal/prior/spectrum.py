"""Level weights of a shape function: the share of κ(1) in each level.

For κ(t) = Σ_l w_l P_l(t) the weights follow from Funk-Hecke,

    w_l = N(l,d) · ∫ κ(cos θ) P_l(cos θ) dμ(θ),    dμ ∝ sin^{d-2} θ dθ,

which Fejér's quadrature in θ resolves to about √N(l,d) roundings: perfect on a
small sphere, useless in high dimension, where N(l,d) is huge. There a second method
takes over, in which no number is ever negative. The shape functions of networks are
power series κ(t) = Σ_n a_n tⁿ with a_n >= 0, and multiplying by t moves one level up or
down:

    t P_l = (l+d-2)/(2l+d-2) · P_{l+1}  +  l/(2l+d-2) · P_{l-1}.

Those factors are probabilities, so tⁿ = Σ_l m_nl P_l, where m_n is the law after n
steps of a walk on the levels that starts at 0; the weights are its law at the random
time n with probabilities a_n. Each method bounds its error per level, and the method
with the smaller error is used; a weight below its error is unresolved, is returned as
zero, and so belongs to the tail.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.fft import dct

from zonal.prior.polynomials import (
    check_dimension,
    check_levels,
    gegenbauer,
    harmonic_count,
)

__all__ = ["funk_hecke"]

_ROUNDING = np.finfo(np.float64).eps
_TERMS = 2048  # power-series terms that the walk follows
_CIRCLE = 16 * _TERMS  # samples of κ on a circle just inside the unit one
_RADIUS = np.exp(-40 / _CIRCLE)  # aliased terms fall by e^-40, rounding grows by e^2.5

Shape = Callable[[Any], Any]


def funk_hecke(
    shape: Shape, dimension: int, max_level: int
) -> Float[np.ndarray, " levels"]:
    """Weights w_0, ..., w_L of a shape function κ with κ(1) = 1, on the sphere in R^d.

    ``shape`` must accept complex arguments inside the unit disc and have a power series
    without negative terms, as the kernels of infinitely wide networks have. The result
    is non-negative and sums to at most one; the remainder is the tail.

    Examples
    --------
    >>> funk_hecke(lambda t: t**2, dimension=3, max_level=3)
    array([0.33333333, 0.        , 0.66666667, 0.        ])
    """
    check_dimension(dimension)
    check_levels([max_level])
    weights, error = _by_quadrature(shape, dimension, max_level)
    if np.any(error > 1e-6 * weights):
        other, other_error = _by_walk(shape, dimension, max_level)
        better = other_error < error
        weights, error = (
            np.where(better, other, weights),
            np.where(better, other_error, error),
        )
    weights = np.where(weights > 4 * error, weights, 0.0)
    return weights / max(1.0, weights.sum())


def _by_quadrature(shape: Shape, dimension: int, max_level: int):
    # Levels whose harmonic counts exceed float64 are left to the walk.
    counts = np.array(
        [
            float(count) if count.bit_length() < 1000 else np.inf
            for count in (harmonic_count(k, dimension) for k in range(max_level + 1))
        ]
    )
    resolved = np.isfinite(counts)
    counts = np.where(resolved, counts, 0.0)
    nodes = 1024 + 2 * max_level
    coarse, _ = _integrals(shape, dimension, max_level, nodes)
    fine, size = _integrals(shape, dimension, max_level, 2 * nodes)
    error = counts * (16 * _ROUNDING * size + np.abs(fine - coarse))
    return counts * fine, np.where(resolved, error, np.inf)


def _integrals(shape: Shape, dimension: int, max_level: int, nodes: int):
    """∫ κ P_l dμ for every level, and the integral of its absolute value."""
    angle, mass = _nodes(dimension, nodes)
    cosine = np.cos(angle)
    values = mass * shape(cosine)
    terms = gegenbauer(cosine, max_level, dimension) * values[:, None]
    return terms.sum(axis=0), np.abs(terms).sum(axis=0)


@functools.lru_cache(maxsize=64)
def _nodes(dimension: int, count: int):
    """Nodes in the angle and weights of the sphere's measure, total mass one.

    Fejér's first rule: it converges as fast as the integrand is smooth in θ, and its
    weights are sums of cosines, exact to rounding at any count.
    """
    moments = np.zeros(count)
    moments[::2] = 2 / (1 - np.arange(0, count, 2) ** 2.0)
    fejer = np.asarray(dct(moments, type=3)) / count
    angle = (1 + np.cos(np.pi * (np.arange(count) + 0.5) / count)) * (np.pi / 2)
    mass = fejer * np.exp((dimension - 2) * np.log(np.sin(angle)))
    return angle, mass / mass.sum()


def _by_walk(shape: Shape, dimension: int, max_level: int):
    series = _power_series(shape)
    laws, chance = _walk(dimension, max_level)
    error = max(0.0, 1.0 - series.sum()) * chance + _SERIES_ERROR * laws.sum(axis=0)
    # Not a matrix product: a level's weight must not depend on ``max_level``.
    return np.sum(series[:, None] * laws, axis=0), error


@functools.lru_cache(maxsize=16)
def _walk(dimension: int, max_level: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of the first levels after each number of steps of the walk.

    Also returned is a bound, per level, on the probability that longer walks end there.
    Neither depends on the shape function.
    """
    level = np.arange(max(_TERMS, max_level + 2))
    up = (level + dimension - 2) / np.maximum(2 * level + dimension - 2, 1)
    up[0] = 1.0
    laws = np.empty((_TERMS, max_level + 1))
    before, law = np.zeros((2, len(level)))
    law[0] = 1.0
    for step in range(_TERMS):
        laws[step] = law[: max_level + 1]
        # The highest level is out of reach within the steps taken, so the roll is a
        # plain shift: nothing wraps around.
        before, law = law, np.roll(up * law, 1) + np.roll((1 - up) * law, -1)
    # The walk reaches level l after about l + l²/(d-1) steps. Longer walks end on a
    # level that it has passed with at most the present probability (that of one of two
    # steps, as a walk preserves parity). For levels ahead there is no bound but one.
    behind = 4 * (level + level**2 / (dimension - 1)) < _TERMS
    chance = np.where(behind, before + law, 1.0)
    return laws, chance[: max_level + 1]


_SERIES_ERROR = 20 * _ROUNDING


def _power_series(shape: Shape) -> Float[np.ndarray, " terms"]:
    """Coefficients a_n of κ(t) = Σ a_n tⁿ, by Cauchy's integral on a circle."""
    half_circle = np.exp(2j * np.pi * np.arange(_CIRCLE // 2 + 1) / _CIRCLE)
    values = shape(_RADIUS * half_circle)
    coefficients = np.fft.irfft(values.conj(), _CIRCLE)[:_TERMS]
    coefficients *= _RADIUS ** -np.arange(_TERMS)
    return np.where(coefficients > _SERIES_ERROR, coefficients, 0.0)
