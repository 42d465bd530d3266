"""Rounding: numbers that do not depend on the order in which rows are summed."""

import numpy as np

__all__ = ["rounded", "to_multiple"]

# Binary digits of a deviation that are kept, and places of a mean beside it.
_BITS = 30
_PLACES = 30


def rounded(values: np.ndarray | float) -> np.ndarray:
    """Numbers with the digits that do not depend on the order of a summation.

    What is learned then is the same to the last bit, whether rows come from memory,
    from files or from several machines.
    """
    mantissa, exponent = np.frexp(values)
    kept = np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS)
    return np.asarray(kept)


def to_multiple(values: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
    """Numbers rounded to a small part of a width."""
    _, exponent = np.frexp(np.where(np.isfinite(width), width, 1.0))
    kept = np.round(np.ldexp(values, _PLACES - exponent))
    return np.asarray(np.ldexp(kept, exponent - _PLACES))
