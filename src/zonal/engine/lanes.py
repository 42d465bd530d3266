"""Vectors of one register, to solve the systems of many rows in parallel.

A system of 32 equations is too small to fill vector registers by itself. Sixteen such
systems in parallel, one per lane, fill them at every step: each number of the algorithm
becomes a vector of 16 (float32) or 8 (float64) contiguous numbers. LLVM splits these
vectors where a processor's registers are shorter.

Numba has no such type, so this module adds it: `Lanes`, with arithmetic, loads and
stores, the lookup of `AngleTable`, and the matrix product at the core of Cholesky's
algorithm.

Numba compiles a function of another module again only when that module's file changes:
after a change here, delete the ``*.nbi`` files in ``__pycache__``.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, register_model

from zonal.prior.angles import INTERVALS, OCTAVES, OFFSET, POINTS_BITS

__all__ = [
    "TILE",
    "coefficients",
    "empty_lanes",
    "full",
    "inverse_width",
    "lane_count",
    "larger",
    "load",
    "locate",
    "smaller",
    "square_root",
    "store",
    "subtract_products",
]

# Bytes in a vector.
_BYTES = 64
# Rows and columns of a tile: its 16 sums and 8 factors fit 32 registers.
TILE = 4
# The compiler may fuse products with sums, and change nothing else.
_FLAGS = ("contract",)


class Lanes(types.Type):
    """The type of a vector."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.count = 8 * _BYTES // dtype.bitwidth
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        number = ir.FloatType() if lanes.dtype == types.float32 else ir.DoubleType()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.count))


def _bits_type(lanes: Lanes) -> ir.VectorType:
    return ir.VectorType(ir.IntType(lanes.dtype.bitwidth), lanes.count)


def _constant(vector: ir.VectorType, value) -> ir.Constant:
    return ir.Constant(vector, [value] * vector.count)


def _data(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


def _pointer(context, builder, lanes, data, index):
    vector = context.get_value_type(lanes)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def load(typing_context, array, index):
    """The vector that starts at an index of a flat array."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, arguments):
        data = _data(context, builder, array, arguments[0])
        pointer = _pointer(context, builder, lanes, data, arguments[1])
        return builder.load(pointer, align=_BYTES // lanes.count)

    return lanes(array, types.intp), code


@intrinsic
def store(typing_context, array, index, value):
    """Store a vector at an index of a flat array."""

    def code(context, builder, signature, arguments):
        data = _data(context, builder, array, arguments[0])
        pointer = _pointer(context, builder, value, data, arguments[1])
        builder.store(arguments[2], pointer, align=_BYTES // value.count)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), code


@intrinsic
def full(typing_context, array, value):
    """A vector of equal numbers, of an array's type."""
    lanes = Lanes(array.dtype)

    def code(context, builder, signature, arguments):
        scalar = context.cast(builder, arguments[1], types.float64, lanes.dtype)
        vector = ir.Constant(context.get_value_type(lanes), ir.Undefined)
        for lane in range(lanes.count):
            index = ir.Constant(ir.IntType(32), lane)
            vector = builder.insert_element(vector, scalar, index)
        return vector

    return lanes(array, types.float64), code


class _Vectors(AbstractTemplate):
    """The type of an operator of two vectors."""

    def generic(self, args, kws):
        left, right = args
        if isinstance(left, Lanes) and left == right:
            return left(left, right)
        return None


def _operation(function, instruction: str):
    """Register the instruction of an operator on two vectors."""
    register = infer_global(function)
    register(type(instruction, (_Vectors,), {}))  # pyright: ignore[reportOptionalCall]

    @lower_builtin(function, Lanes, Lanes)
    def code(context, builder, signature, arguments):
        return getattr(builder, instruction)(*arguments, flags=_FLAGS)


_operation(operator.add, "fadd")
_operation(operator.sub, "fsub")
_operation(operator.mul, "fmul")
_operation(operator.truediv, "fdiv")


def _extremum(order: str):
    def code(context, builder, signature, arguments):
        first = builder.fcmp_ordered(order, *arguments)
        return builder.select(first, *arguments)

    return code


# A comparison with NaN is false, so the result is the right argument.


@intrinsic
def larger(typing_context, left, right):
    """The larger number in each lane."""
    return left(left, right), _extremum(">")


@intrinsic
def smaller(typing_context, left, right):
    """The smaller number in each lane."""
    return left(left, right), _extremum("<")


@intrinsic
def square_root(typing_context, value):
    """The square root of each lane."""

    def code(context, builder, signature, arguments):
        vector = arguments[0].type
        width = "f32" if value.dtype == types.float32 else "f64"
        function = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector]),
            f"llvm.sqrt.v{value.count}{width}",
        )
        return builder.call(function, arguments)

    return value(value), code


@intrinsic
def lane_count(typing_context, array):
    """The number of lanes in a vector of an array's type."""
    count = Lanes(array.dtype).count

    def code(context, builder, signature, arguments):
        return ir.Constant(ir.IntType(64), count)

    return types.int64(array), code


def empty_lanes(count: int, dtype: np.dtype) -> np.ndarray:
    """An uninitialised flat array for vectors, aligned to cache lines."""
    room = np.empty((count + 1) * _BYTES, np.uint8)
    start = -room.ctypes.data % _BYTES
    return room[start : start + count * _BYTES].view(dtype)


# The lookup of AngleTable: the leading bits give the interval, the others the position.


def _folded(context, builder, lanes, chord):
    """Bits of min(u, 4 - u) plus the offset, and whether 4 - u was taken."""
    vector, bits = chord.type, _bits_type(lanes)
    mirrored = builder.fcmp_ordered(">", chord, _constant(vector, 2.0))
    other = builder.fsub(_constant(vector, 4.0), chord)
    folded = builder.select(mirrored, other, chord)
    positive = builder.fcmp_ordered(">", folded, _constant(vector, 0.0))
    folded = builder.select(positive, folded, _constant(vector, 0.0))
    folded = builder.fadd(folded, _constant(vector, OFFSET))
    return builder.bitcast(folded, bits), mirrored


def _layout(lanes: Lanes) -> tuple[int, int]:
    """The number of mantissa bits, and the exponent's bias."""
    return (23, 127) if lanes.dtype == types.float32 else (52, 1023)


@intrinsic
def locate(typing_context, chord, starts):
    """Positions of squared chords in their intervals of an `AngleTable`, from 0 to 1.

    Writes the index at which each interval's coefficients start into ``starts``.
    """

    def code(context, builder, signature, arguments):
        vector, bits = arguments[0].type, _bits_type(chord)
        mantissa, bias = _layout(chord)
        word, mirrored = _folded(context, builder, chord, arguments[0])
        shift = _constant(bits, mantissa - POINTS_BITS)
        first = (bias - OCTAVES + 1) << POINTS_BITS
        interval = builder.sub(builder.lshr(word, shift), _constant(bits, first))
        half = builder.select(mirrored, _constant(bits, INTERVALS), _constant(bits, 0))
        start = builder.shl(builder.add(interval, half), _constant(bits, 2))
        narrow = ir.VectorType(ir.IntType(32), chord.count)
        if narrow != bits:
            start = builder.trunc(start, narrow)
        data = _data(context, builder, starts, arguments[1])
        builder.store(start, builder.bitcast(data, narrow.as_pointer()), align=4)
        rest = _constant(bits, (1 << (mantissa - POINTS_BITS)) - 1)
        lifted = builder.shl(builder.and_(word, rest), _constant(bits, POINTS_BITS))
        place = builder.or_(lifted, _constant(bits, bias << mantissa))
        place = builder.bitcast(place, vector)
        return builder.fsub(place, _constant(vector, 1.0))

    return chord(chord, starts), code


@intrinsic
def inverse_width(typing_context, chord):
    """One over the width of the intervals, negative where the grid runs in 4 - u."""

    def code(context, builder, signature, arguments):
        vector, bits = arguments[0].type, _bits_type(chord)
        mantissa, bias = _layout(chord)
        word, mirrored = _folded(context, builder, chord, arguments[0])
        mask = ((1 << (chord.dtype.bitwidth - 1 - mantissa)) - 1) << mantissa
        exponent = builder.and_(word, _constant(bits, mask))
        inverse = builder.sub(_constant(bits, (2 * bias) << mantissa), exponent)
        points = float(1 << POINTS_BITS)
        factor = builder.select(
            mirrored, _constant(vector, -points), _constant(vector, points)
        )
        return builder.fmul(builder.bitcast(inverse, vector), factor)

    return chord(chord), code


@intrinsic
def coefficients(typing_context, table, starts):
    """Four vectors: the coefficients of the cubic of each lane's interval."""
    lanes = Lanes(table.dtype)

    def code(context, builder, signature, arguments):
        data = _data(context, builder, table, arguments[0])
        indices = _data(context, builder, starts, arguments[1])
        number = data.type.pointee
        four, word = ir.VectorType(number, 4), ir.IntType(32)
        parts = []
        for lane in range(lanes.count):
            index = builder.load(builder.gep(indices, [ir.Constant(word, lane)]))
            pointer = builder.gep(data, [builder.zext(index, ir.IntType(64))])
            pointer = builder.bitcast(pointer, four.as_pointer())
            parts.append(builder.load(pointer, align=_BYTES // lanes.count))
        # Join the cubics into four vectors, then transpose these.
        while len(parts) > 4:
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [
                _shuffle(builder, *two, range(2 * two[0].type.count)) for two in pairs
            ]
        each = lanes.count // 4
        halves = [
            [
                _shuffle(
                    builder,
                    parts[first],
                    parts[first + 1],
                    [4 * lane + degree for degree in pair for lane in range(2 * each)],
                )
                for first in (0, 2)
            ]
            for pair in ((0, 1), (2, 3))
        ]
        vectors = []
        for low, high in halves:
            first = [*range(2 * each), *range(4 * each, 6 * each)]
            vectors.append(_shuffle(builder, low, high, first))
            second = [index + 2 * each for index in first]
            vectors.append(_shuffle(builder, low, high, second))
        return context.make_tuple(builder, signature.return_type, vectors)

    return types.UniTuple(lanes, 4)(table, starts), code


def _shuffle(builder, left, right, order):
    order = list(order)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
    return builder.shuffle_vector(left, right, mask)


@intrinsic
def subtract_products(typing_context, target, start, factors, left, right, count):
    """Subtract A Bᵀ from a tile of 4 x 4 vectors, where A and B are 4 x ``count``.

    All three are stored by column, so that memory is read in order. The tile stays in
    registers throughout.
    """
    lanes = Lanes(target.dtype)

    def code(context, builder, signature, arguments):
        target_data = _data(context, builder, target, arguments[0])
        factor_data = _data(context, builder, factors, arguments[2])
        _, start, _, left, right, count = arguments
        vector = context.get_value_type(lanes)
        align = _BYTES // lanes.count

        def column(data, first, number):
            step = ir.Constant(ir.IntType(64), TILE * lanes.count)
            offset = builder.add(first, builder.mul(step, number))
            data = _pointer(context, builder, lanes, data, offset)
            rows = (ir.Constant(ir.IntType(64), row) for row in range(TILE))
            return [builder.gep(data, [row]) for row in rows]

        numbers = [ir.Constant(ir.IntType(64), number) for number in range(TILE)]
        cells = [
            cell for number in numbers for cell in column(target_data, start, number)
        ]
        sums = [cgutils.alloca_once(builder, vector) for _ in cells]
        for cell, total in zip(cells, sums, strict=True):
            builder.store(builder.load(cell, align=align), total)
        with cgutils.for_range(builder, count) as loop:
            a, b = (
                [
                    builder.load(one, align=align)
                    for one in column(factor_data, first, loop.index)
                ]
                for first in (left, right)
            )
            pairs = [(row, other) for other in b for row in a]
            for (row, other), total in zip(pairs, sums, strict=True):
                product = builder.fmul(row, other, flags=_FLAGS)
                value = builder.fsub(builder.load(total), product, flags=_FLAGS)
                builder.store(value, total)
        for cell, total in zip(cells, sums, strict=True):
            builder.store(builder.load(total), cell, align=align)
        return context.get_dummy_value()

    index = types.intp
    return types.void(target, index, factors, index, index, index), code
