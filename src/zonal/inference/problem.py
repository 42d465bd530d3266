"""The problem: rows and the likelihood of their targets."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from zonal.engine.statistics import Statistics
from zonal.likelihoods.base import Likelihood
from zonal.tables.sources import Source

__all__ = ["Problem", "TargetSums", "count_targets"]


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Standardised rows and the likelihood of their targets, for inference.

    Parameters
    ----------
    source
        The rows, with targets in the form that the likelihood expects.
    likelihood
        How targets follow from functions.
    offsets
        The prior mean of each function.
    tightened
        Whether the bound has the tightened penalty.
    given
        Sums of the sites of other rows, which stay constant.
    keep_sites
        Whether the solution stores the sites of each row, not only their sums.
    """

    source: Source
    likelihood: Likelihood
    offsets: Float[np.ndarray, " functions"]
    tightened: bool = True
    given: Sequence[Statistics] | None = None
    keep_sites: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class TargetSums:
    """Sums over checked targets: a likelihood's moments, total weight, row count."""

    moments: Float[np.ndarray, " sums"]
    weight: float
    count: int

    def __add__(self, other: "TargetSums") -> "TargetSums":
        return TargetSums(
            self.moments + other.moments,
            self.weight + other.weight,
            self.count + other.count,
        )


def count_targets(
    source: Source, likelihood: Likelihood, part: bool = False
) -> TargetSums:
    """Check every target in one pass over the rows, and sum up their moments.

    A ``part`` of a table may have rows of a single class.
    """
    sums = source.reduced(
        functools.partial(_count_here, likelihood), TargetSums.__add__
    )
    if sums.weight == 0:
        raise ValueError(
            "every weight is zero, so there are no rows to learn from; give at least "
            "one row a positive weight"
        )
    if likelihood.classifies and not part and np.sum(sums.moments > 0) < 2:
        raise ValueError(
            "every row has the same class; give rows of at least two classes"
        )
    return sums


def _count_here(likelihood: Likelihood, source: Source) -> TargetSums:
    moments: Any = 0.0
    weight, row = 0.0, source.first_row
    name = type(likelihood).__name__
    for chunk in source.chunks():
        if chunk.precision is not None and not likelihood.conjugate:
            raise ValueError(
                f"{name} has no use for known precisions; pass weights instead, or "
                "fit with normal noise"
            )
        if chunk.exposure is not None and not likelihood.takes_exposure:
            raise ValueError(
                f"{name} has no use for an exposure; leave it out, or use a likelihood "
                "of counts"
            )
        likelihood.check(chunk, row)
        moments = moments + likelihood.moments(chunk)
        weight += float(chunk.weights.sum())
        row += len(chunk)
    return TargetSums(np.asarray(moments), weight, row - source.first_row)
