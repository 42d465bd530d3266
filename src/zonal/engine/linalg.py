"""Cholesky factors of matrices that rounding has touched."""

from collections.abc import Callable, Iterable

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg import cholesky as lapack_cholesky

__all__ = ["factorise", "first_factor", "mirrored"]

_LEAST_PIVOT = 0.99
# Columns mirrored at a time.
_BLOCK = 256


def first_factor(
    matrix: np.ndarray,
    jitters: Iterable[float],
    accept: Callable[[np.ndarray], bool] = lambda factor: True,
    cholesky: Callable[[np.ndarray], np.ndarray] = lambda matrix: lapack_cholesky(
        matrix, lower=True, overwrite_a=True, check_finite=False
    ),
) -> tuple[np.ndarray, float] | None:
    """Lower Cholesky factor with the first jitter that works, and that jitter.

    Returns None where no jitter works.
    """
    for jitter in jitters:
        lifted = np.array(matrix, order="F")
        lifted[np.diag_indices_from(lifted)] += jitter
        try:
            factor = cholesky(lifted)
        except LinAlgError:
            continue
        if accept(factor):
            return factor, jitter
    return None


def factorise(system: np.ndarray) -> tuple[np.ndarray, float]:
    """Cholesky factor of I + S, and the amount added to its diagonal.

    Every pivot of I + S is at least one. A smaller one reveals rounding of S (float32
    products, and noise that is tiny compared with n times the variance). The diagonal
    is then raised until the pivots are large enough. That only lowers the bound, and
    keeps an optimiser from exploiting an indefinite matrix.
    """
    if not np.all(np.isfinite(system)):
        raise ValueError(
            "the statistics are not finite; collect them again from finite rows"
        )

    def lifts():
        yield 0.0
        lift = 0.01
        while True:
            yield lift
            lift *= 2

    system = np.array(system)
    system[np.diag_indices_from(system)] += 1
    factored = first_factor(
        system, lifts(), lambda factor: np.diag(factor).min() >= _LEAST_PIVOT
    )
    assert factored is not None, "a large enough lift works for any finite matrix"
    return factored


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix with the given lower triangle, in the same memory."""
    for start in range(0, len(lower), _BLOCK):
        stop = start + _BLOCK
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower
