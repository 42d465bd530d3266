"""Layouts: how a budget of features is spent on the bands of a kernel.

- ``harmonics``: complete levels from 0 up, as far as the budget goes (Dutordoir et al.
  2020); exact up to the last of them, blind above.
- ``sparse``: one band per level, each with a limited number of learned phases
  (Eleftheriadis et al. 2023).
- ``banded``: complete low levels, then one band for all the rest. Where ``sparse``
  spends one feature per phase and level, this spends one per phase.
"""

import dataclasses

import numpy as np

from zonal.prior.kernels import Kernel
from zonal.prior.polynomials import harmonic_count

__all__ = ["Plan", "plan_bands"]

# A tail with a smaller share of the variance gets no band.
_NEGLIGIBLE = 1e-8


@dataclasses.dataclass(frozen=True)
class Plan:
    """The levels of a band, its number of phases, and whether it is complete."""

    first: int
    last: int | None
    size: int
    complete: bool


def plan_bands(
    layout: str,
    kernel: Kernel,
    dimension: int,
    n_features: int,
    n_levels: int = 8,
) -> list[Plan]:
    """Spend a budget of features on the levels of a kernel.

    Levels without weight (a shallow ReLU network has none at odd levels from 3 up) get
    no features. In ``sparse``, ``n_levels`` levels share the budget.

    Examples
    --------
    >>> from zonal import ContinuousDepth
    >>> for plan in plan_bands("banded", ContinuousDepth(), 9, 512):
    ...     print(plan)
    Plan(first=0, last=0, size=1, complete=True)
    Plan(first=1, last=1, size=9, complete=True)
    Plan(first=2, last=20, size=502, complete=False)
    """
    if n_features < 1:
        raise ValueError(
            f"{n_features} features cannot hold one level; ask for at least one"
        )
    if layout == "harmonics":
        return _plan_harmonics(kernel, dimension, n_features)
    if layout == "sparse":
        return _plan_sparse(kernel, dimension, n_features, n_levels)
    if layout == "banded":
        return _plan_banded(kernel, dimension, n_features)
    raise ValueError(
        f"layout must be 'harmonics', 'sparse' or 'banded', not {layout!r}"
    )


def _complete(level: int, dimension: int) -> Plan:
    return Plan(level, level, harmonic_count(level, dimension), complete=True)


def _present_levels(kernel: Kernel, dimension: int, stop: int) -> list[int]:
    """Those of the first ``stop`` levels to which the kernel gives weight."""
    last = stop - 1 if kernel.last_level is None else min(kernel.last_level, stop - 1)
    weights = kernel.level_weights(dimension, last)
    return [int(level) for level in np.flatnonzero(weights > 0)]


def _affordable(kernel: Kernel, dimension: int, n_features: int) -> list[int]:
    """The lowest levels whose complete sets together fit the budget."""
    # At most every second level is empty, so the even levels bound the number needed.
    stop, least = 0, 0
    while least <= n_features:
        least += harmonic_count(stop, dimension)
        stop += 2
    levels, spent = [], 0
    for level in _present_levels(kernel, dimension, stop + 1):
        spent += harmonic_count(level, dimension)
        if spent > n_features:
            break
        levels.append(level)
    return levels


def _plan_harmonics(kernel: Kernel, dimension: int, n_features: int) -> list[Plan]:
    levels = _affordable(kernel, dimension, n_features)
    if levels in ([], [0]) and kernel.last_level != 0:
        raise ValueError(
            f"{n_features} features hold no complete level above the constant on the "
            f"sphere in R^{dimension}; ask for {1 + dimension} or more, project the "
            "columns to fewer, or use layout='banded'"
        )
    return [_complete(level, dimension) for level in levels]


def _plan_sparse(
    kernel: Kernel, dimension: int, n_features: int, n_levels: int
) -> list[Plan]:
    if n_levels < 1:
        raise ValueError(f"n_levels must be 1 or more, got {n_levels}")
    # At most every second level is empty, so twice as many always hold n_levels.
    levels = _present_levels(kernel, dimension, 2 * n_levels + 1)[:n_levels]
    levels = levels[:n_features]
    counts = [harmonic_count(level, dimension) for level in levels]
    most = max(
        limit
        for limit in range(1, n_features + 1)
        if sum(min(count, limit) for count in counts) <= n_features
    )
    return [
        _complete(level, dimension)
        if count <= most
        else Plan(level, level, most, complete=False)
        for level, count in zip(levels, counts, strict=True)
    ]


def _plan_banded(kernel: Kernel, dimension: int, n_features: int) -> list[Plan]:
    levels = _affordable(kernel, dimension, n_features)
    if kernel.last_level is None or levels != _present_levels(
        kernel, dimension, kernel.last_level + 1
    ):
        # The constant and the linear level may take half of the budget, levels above
        # them a tenth: beyond that a phase in the tail is worth more.
        linear = [level for level in levels if level <= 1]
        if sum(harmonic_count(level, dimension) for level in linear) > n_features / 2:
            linear = linear[:1]
        levels = max(linear, _affordable(kernel, dimension, n_features // 10), key=len)
    plans = [_complete(level, dimension) for level in levels]
    left = n_features - sum(plan.size for plan in plans)
    first = levels[-1] + 1 if levels else 0
    mass = kernel.tail_mass(dimension, first - 1) if first else 1.0
    if kernel.last_level is not None and first > kernel.last_level:
        return plans
    if left < 1 or mass <= _NEGLIGIBLE:
        return plans
    return [*plans, Plan(first, kernel.last_level, left, complete=False)]
