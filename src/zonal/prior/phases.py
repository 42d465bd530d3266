"""Phases: the points on the sphere at which a band's features are centred.

A level with as many independent phases as it has harmonics is complete: its features
are the spherical harmonics of that level, in some basis, and where the phases lie does
not matter beyond rounding. Complete sets are picked greedily, each next point where the
points so far explain least, from a fixed cloud of random candidates; that keeps the
Gram matrix well conditioned in any dimension. Other bands start from rows of the data,
drawn by the variance that is left to explain, or at random, and are then learned.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_triangular

from zonal.prior.polynomials import check_dimension, gegenbauer_level, harmonic_count

__all__ = [
    "complete_phases",
    "drawn_phases",
    "greedy_phases",
    "random_phases",
]

# Candidates that are proposed together.
_PROPOSALS = 256
# A smaller unexplained variance is rounding.
_ROUNDING = 1e-12
# Noise on given phases, as in whitening, and a variance that exceeds it.
_JITTER = 1e-6
_RESOLVED = 2e-6

Points = Float[np.ndarray, "points d"]
Phases = Float[np.ndarray, "phases d"]


@functools.lru_cache(maxsize=512)
def complete_phases(level: int, dimension: int) -> Phases:
    """N(l,d) phases whose features span a whole level (read-only, cached).

    Examples
    --------
    >>> complete_phases(2, dimension=3).shape
    (5, 3)
    """
    count = harmonic_count(level, dimension)
    if level == 0:
        phases = np.eye(1, dimension)
    elif level == 1:
        phases = np.eye(dimension)
    else:
        # Four candidates a phase: more hardly improves the condition. The floor serves
        # the smallest levels, where a handful of random points could be unlucky.
        cloud = random_phases(max(4 * count, 64), dimension, seed=0)
        phases = greedy_phases(
            cloud, count, lambda t: gegenbauer_level(t, level, dimension)
        )
    phases.setflags(write=False)
    return phases


def greedy_phases(
    candidates: Points,
    count: int,
    kernel: Callable[[np.ndarray], Any],
) -> Phases:
    """Choose ``count`` candidates, each where the ones before explain least.

    This maximises the determinant of the Gram matrix κ(VVᵀ) step by step: a Cholesky
    factorisation with pivoting that touches only the chosen rows, at a cost of
    candidates × count². ``kernel`` is κ, with κ(1) = 1.

    Examples
    --------
    >>> cloud = random_phases(100, dimension=3, seed=1)
    >>> greedy_phases(cloud, 4, lambda t: t**2).shape
    (4, 3)
    """
    if count > len(candidates):
        raise ValueError(
            f"{len(candidates)} candidates cannot give {count} phases; "
            "pass more rows or ask for fewer phases"
        )
    factor = np.zeros((count, len(candidates)))
    unexplained = np.ones(len(candidates))
    chosen: list[int] = []
    for step in range(count):
        pivot = int(np.argmax(unexplained))
        row = kernel(np.clip(candidates @ candidates[pivot], -1.0, 1.0))
        row = row - factor[:step, pivot] @ factor[:step]
        factor[step] = row / np.sqrt(max(unexplained[pivot], np.finfo(float).tiny))
        unexplained -= factor[step] ** 2
        chosen.append(pivot)
        unexplained[chosen] = -np.inf
        if step + 1 < count and unexplained.max() <= _ROUNDING:
            # The rest is explained up to rounding; take the least explained first.
            rest = np.argsort(-unexplained, kind="stable")[: count - step - 1]
            chosen.extend(int(index) for index in rest)
            break
    return candidates[chosen]


def drawn_phases(
    candidates: Points,
    count: int,
    kernel: Callable[[np.ndarray], Any],
    given: Float[np.ndarray, "given d"] | None = None,
    seed: int = 0,
) -> Phases:
    """Draw ``count`` candidates with probability proportional to unexplained variance.

    That is the variance at a candidate, given the phases drawn before and the ``given``
    ones, which are not returned. Fewer phases are drawn if they explain everything. The
    greedy choice prefers outliers, which are explained least; drawing prefers regions
    where much is unexplained in total. Candidates are proposed in blocks and accepted
    with the probability that they would have had one at a time, so that the work is
    matrix products, candidates × count² of it. ``kernel`` is κ, with κ(1) = 1.

    References
    ----------
    Chen, Epperly, Tropp, Webber, "Randomly pivoted Cholesky", 2023; Epperly, Tropp,
    Webber, "Embrace rejection", 2024 (the blocks).

    Examples
    --------
    >>> cloud = random_phases(100, dimension=3, seed=1)
    >>> drawn_phases(cloud, 4, lambda t: np.exp(t - 1)).shape
    (4, 3)
    """
    generator = np.random.default_rng(seed)
    factor = np.zeros((0, len(candidates)))
    if given is not None and len(given):
        factor = _explained_factor(given, candidates, kernel)
    unexplained = 1.0 - np.sum(factor**2, axis=0)
    before = len(factor)
    factor = np.vstack([factor, np.zeros((count, len(candidates)))])
    chosen: list[int] = []
    while len(chosen) < count:
        now, left = before + len(chosen), count - len(chosen)
        chance = np.where(unexplained > _RESOLVED, unexplained, 0.0)
        if not chance.any():
            break
        proposed = generator.choice(
            len(candidates), _PROPOSALS, p=chance / chance.sum()
        )
        gram = kernel(np.clip(candidates[proposed] @ candidates[proposed].T, -1, 1))
        gram = gram - factor[:now, proposed].T @ factor[:now, proposed]
        accepted, root = _accept(gram, unexplained[proposed], left, generator)
        new = proposed[accepted]
        rows = kernel(np.clip(candidates[new] @ candidates.T, -1, 1))
        rows = rows - factor[:now, new].T @ factor[:now]
        rows = solve_triangular(root, rows, lower=True, overwrite_b=True)
        factor[now : now + len(new)] = rows
        unexplained -= np.sum(rows**2, axis=0)
        chosen.extend(new.tolist())
        unexplained[chosen] = 0.0
    return candidates[chosen]


def _accept(
    gram: np.ndarray,
    variances: np.ndarray,
    limit: int,
    generator: np.random.Generator,
) -> tuple[np.ndarray, Float[np.ndarray, "accepted accepted"]]:
    """Indices of the accepted proposals, and the Cholesky factor of their covariance.

    ``gram`` is the covariance of the proposals before any is accepted, ``variances``
    its diagonal. A proposal is accepted with the probability that is the share of its
    variance unexplained by those accepted before, if that variance is not rounding.
    """
    unexplained, accepted = variances.copy(), []
    rows = np.zeros((min(limit, len(gram)), len(gram)))
    for index, uniform in enumerate(generator.random(len(gram))):
        threshold = max(uniform * variances[index], _RESOLVED)
        if len(accepted) == len(rows) or unexplained[index] <= threshold:
            continue
        step = len(accepted)
        row = gram[index] - rows[:step, index] @ rows[:step]
        row[index] = unexplained[index]
        rows[step] = row / np.sqrt(unexplained[index])
        unexplained = unexplained - rows[step] ** 2
        accepted.append(index)
    indices = np.array(accepted, int)
    return indices, np.tril(rows[: len(indices), indices].T)


def _explained_factor(
    given: np.ndarray, candidates: np.ndarray, kernel: Callable[[np.ndarray], Any]
) -> np.ndarray:
    """L⁻¹κ(given, candidates): its squares sum to the explained variance."""
    cross = kernel(np.clip(given @ candidates.T, -1.0, 1.0))
    gram = np.array(kernel(np.clip(given @ given.T, -1.0, 1.0)))
    gram[np.diag_indices_from(gram)] = 1 + _JITTER
    return solve_triangular(np.linalg.cholesky(gram), cross, lower=True)


def random_phases(count: int, dimension: int, seed: int = 0) -> Phases:
    """Points drawn uniformly from the sphere in R^d.

    Examples
    --------
    >>> np.linalg.norm(random_phases(2, dimension=3), axis=1)
    array([1., 1.])
    """
    check_dimension(dimension)
    normal = np.random.default_rng(seed).normal(size=(count, dimension))
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)
