"""Cholesky factors of matrices that rounding has touched."""

import numpy as np
from scipy.linalg import LinAlgError, cholesky

__all__ = ["factorise", "mirrored", "robust_cholesky"]

_LEAST_PIVOT = 0.99
# Columns of a triangle that are mirrored at a time.
_BLOCK = 256


def factorise(system: np.ndarray) -> tuple[np.ndarray, float]:
    """Cholesky factor of I + S, and what had to be added to it.

    Every pivot of I + S is at least one. A smaller one shows how much rounding S has
    suffered (float32 products, and noise that is tiny beside n times the variance);
    then as much is added as lifts the pivots back. That only lowers the bound, and
    keeps an optimiser from living off an indefinite matrix.
    """
    if not np.all(np.isfinite(system)):
        raise ValueError("the statistics are not finite; collect them again")
    lift = 0.0
    while True:
        lifted = np.array(system, order="F")
        lifted[np.diag_indices_from(lifted)] += 1 + lift
        try:
            factor = cholesky(lifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            factor = None
        if factor is not None and np.diag(factor).min() >= _LEAST_PIVOT:
            return factor, lift
        lift = max(2 * lift, 0.01)


def mirrored(lower: np.ndarray) -> np.ndarray:
    """The symmetric matrix that a lower triangle stands for, in the same memory."""
    for start in range(0, len(lower), _BLOCK):
        stop = start + _BLOCK
        corner = lower[start:stop, start:stop]
        corner[...] = np.tril(corner) + np.tril(corner, -1).T
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower


def robust_cholesky(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Lower Cholesky factor of a matrix, with as little jitter as will do, and that.

    For matrices between 0 and I, such as I - A⁻¹.
    """
    identity, jitter = np.eye(len(matrix)), 0.0
    while True:
        try:
            return cholesky(matrix + jitter * identity, lower=True), jitter
        except LinAlgError:
            jitter = max(3 * jitter, 1e-12)
            if jitter > 1e-3:
                break
    # Rounding has gone too far for jitter: what is below zero is taken for zero.
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    upper = np.asarray(np.linalg.qr(root.T, mode="r"))
    return upper.T, 0.0
