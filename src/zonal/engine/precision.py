"""Precision: float32 where it suffices, float64 where it does not.

Features are float32 and every sum and factorisation float64, unless a whole pass in
float64 costs next to nothing. The cost of a pass is its *work*, rows times squared
features. Sums of float32 products can still be too coarse for the
algebra that follows (little noise, many rows): `refine` then repeats them in float64.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["CoarseSumsError", "check_sums", "refine", "suited_dtype"]

Result = TypeVar("Result")


class CoarseSumsError(ArithmeticError):
    """Sums of float32 products are too coarse for the algebra that uses them."""


def suited_dtype(rows: float | int | None, n_features: int, budget: float) -> Any:
    """Float64 where a pass over the rows costs at most ``budget``, else float32.

    ``rows`` is None where their number is unknown.

    Examples
    --------
    >>> suited_dtype(1000, 10, 1e6), suited_dtype(None, 10, 1e6)
    (<class 'numpy.float64'>, <class 'numpy.float32'>)
    """
    rows = np.inf if rows is None else rows
    return np.float64 if rows * n_features**2 <= budget else np.float32


def check_sums(lift: float, dtype: Any) -> None:
    """Raise `CoarseSumsError` where rounding of float32 products matters.

    ``lift`` is the amount added to the diagonal of a system to factorise it.
    """
    if lift > 0 and dtype == np.float32:
        raise CoarseSumsError


def refine(attempt: Callable[[Any], Result], dtype: Any) -> Result:
    """The result of ``attempt(dtype)``, or of float64 where its sums are too coarse."""
    try:
        return attempt(dtype)
    except CoarseSumsError:
        return attempt(np.float64)
