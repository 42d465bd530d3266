"""Means, variances and scores of distributions that are known by their quantiles.

A mapped target (`zonal.tables.target_maps`) has quantiles in closed form, but no
moments. They are integrals over the probability u, taken after the substitution u =
Φ(t) by Gauss-Legendre rules on panels in t, between the quantiles at 10⁻⁴ and 1 − 10⁻⁴.
Beyond these the distribution is replaced by its two outermost quantiles: the moments of
the exponential of a heavy-tailed variable do not exist otherwise.
"""

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

__all__ = ["LEVELS", "NORMAL", "crps_of", "moments_of"]

Rows = Float[np.ndarray, " rows"]
Values = Float[np.ndarray, "rows levels"]

# Probability of each tail that is moved to the outermost quantile.
_TAIL = 1e-4
# tests/likelihoods/test_quadrature.py checks the accuracy of this rule.
_PANELS, _ORDER = 24, 8
# A variance beyond the squares of these is beyond float64.
_LARGEST_DEVIATION = 1e150

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_ENDS = np.linspace(ndtri(_TAIL), -ndtri(_TAIL), _PANELS + 1)
_HALF = (_ENDS[1] - _ENDS[0]) / 2
_INNER = (((_ENDS[:-1] + _ENDS[1:]) / 2)[:, None] + _HALF * _NODES).ravel()
_DENSITY = np.exp(-0.5 * _INNER**2) / np.sqrt(2 * np.pi)

#: Standard normal quantiles at the levels: both ends, and the nodes between them.
NORMAL = np.concatenate([[_ENDS[0]], _INNER, [_ENDS[-1]]])
#: Levels whose quantiles determine moments and scores.
LEVELS = ndtr(NORMAL)


def _unit_weights() -> np.ndarray:
    """Weight of each level; they sum to one."""
    inner = np.tile(_HALF * _NODE_WEIGHTS, _PANELS) * _DENSITY
    inner *= (1 - 2 * _TAIL) / inner.sum()
    return np.concatenate([[_TAIL], inner, [_TAIL]])


WEIGHTS = _unit_weights()
# Mean of the probability u that each level stands for: tails are half outside.
_MEAN_LEVELS = np.concatenate([[_TAIL / 2], LEVELS[1:-1], [1 - _TAIL / 2]])

# Integrals of the Lagrange polynomials of the nodes from −1, as coefficients.
_BASIS = np.linalg.inv(np.vander(_NODES, increasing=True)).T
_INTEGRALS = np.array(
    [np.polynomial.polynomial.polyint(row, lbnd=-1) for row in _BASIS]
)


def moments_of(values: Values) -> tuple[Rows, Rows]:
    """Mean and variance from quantiles at `LEVELS`.

    Examples
    --------
    >>> mean, variance = moments_of(np.exp(0.5 * NORMAL)[None])
    >>> bool(abs(mean[0] / np.exp(0.125) - 1) < 2e-4)
    True
    """
    mean = values @ WEIGHTS
    distance = values - mean[:, None]
    largest = np.maximum(np.abs(distance).max(axis=1, initial=0.0), 1e-300)
    squares = (distance / largest[:, None]) ** 2 @ WEIGHTS
    deviation = np.minimum(largest * np.sqrt(squares), _LARGEST_DEVIATION)
    return mean, deviation**2


def crps_of(values: Values, y: Rows, below: Rows) -> Rows:
    """Continuous ranked probability score from quantiles at `LEVELS`.

    With the quantile function Q it is E|Y − y| − ∫ (2u − 1) Q(u) du, and

        E|Y − y| = y (2u* − 1) + ∫ Q du − 2 ∫_0^u* Q du,  u* = P(Y ≤ y).

    ``below`` are the probabilities u*. The last integral ends within a panel, where Q
    is the polynomial through its nodes.

    Reference: Gneiting & Raftery (2007), "Strictly proper scoring rules, prediction and
    estimation", equation 21.
    """
    # The replaced distribution has all of its tails at its ends.
    below = np.where(y < values[:, 0], 0.0, np.where(y > values[:, -1], 1.0, below))
    inside = (below > 0) & (below < 1)
    mean = values @ WEIGHTS
    to_end = _integral_to(values, np.clip(below, _TAIL, 1 - _TAIL))
    to_end = np.where(inside, to_end, np.where(below > 0, mean, 0.0))
    distance = y * (2 * below - 1) + mean - 2 * to_end
    pairs = values @ (WEIGHTS * (2 * _MEAN_LEVELS - 1))
    return np.maximum(distance - pairs, 0.0)


def _integral_to(values: Values, below: Rows) -> Rows:
    """Integral of the quantile function from zero to the probabilities ``below``."""
    parts = (values * WEIGHTS)[:, 1:-1].reshape(len(values), _PANELS, _ORDER)
    sums = np.cumsum(parts.sum(axis=2), axis=1)
    sums = np.column_stack([np.zeros(len(values)), sums])
    position = (ndtri(below) - _ENDS[0]) / (2 * _HALF)
    panel = np.clip(position.astype(np.int64), 0, _PANELS - 1)
    local = np.clip(2 * (position - panel) - 1, -1.0, 1.0)
    # Each node has the share of its weight that stands before the end.
    shares = np.polynomial.polynomial.polyval(local, _INTEGRALS.T)
    shares /= _NODE_WEIGHTS[:, None]
    rows = np.arange(len(values))
    partial = np.sum(parts[rows, panel] * shares.T, axis=1)
    return _TAIL * values[:, 0] + sums[rows, panel] + partial
