"""Rounding: numbers that do not depend on the order in which rows are summed."""

import numpy as np

__all__ = ["round_bits", "round_to_width"]

# Binary digits that are left of a number, and of a number relative to a width.
_MANTISSA_BITS = 30
_WIDTH_BITS = 30


def round_bits(values: np.ndarray | float) -> np.ndarray:
    """Numbers rounded to the digits that do not depend on the order of a summation.

    A model is then the same to the last bit, whether rows come from memory, from files
    or from several machines.
    """
    mantissa, exponent = np.frexp(values)
    integers = np.round(np.ldexp(mantissa, _MANTISSA_BITS))
    return np.asarray(np.ldexp(integers, exponent - _MANTISSA_BITS))


def round_to_width(values: np.ndarray | float, width: np.ndarray | float) -> np.ndarray:
    """Numbers rounded to multiples of a small fraction (about 2⁻³⁰) of a width."""
    _, exponent = np.frexp(np.where(np.isfinite(width), width, 1.0))
    integers = np.round(np.ldexp(values, _WIDTH_BITS - exponent))
    return np.asarray(np.ldexp(integers, exponent - _WIDTH_BITS))
