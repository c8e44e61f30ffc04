"""Registers of sixteen floats inside Numba kernels. A Numba type stands for LLVM's ``<16 x float>`` and is loaded from
row ``r`` of a (rows, 16) array, or from any place of an array. LLVM does not vectorize loops over arrays that could
overlap, and with `fastmath` it orders the same sum differently in each kernel that contains it.
"""

import operator
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

WIDTH = 16
_ALIGNMENT = 64
_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)


class LanesType(types.Type):
    """The Numba type of sixteen float32 values in registers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes16xFloat32")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _VECTOR)


def aligned_zeros(rows: int) -> np.ndarray:
    """Return a zeroed (rows, 16) float32 array. Each row begins on a cache line, so that no load crosses two lines."""
    raw = np.zeros(rows * WIDTH * 4 + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + rows * WIDTH * 4].view(np.float32).reshape(rows, WIDTH)


def _element_pointer(context, builder, array_type, array, index_type, index, vector):
    """Return the address of element ``index`` of an array, as a pointer to a vector."""
    data = context.make_array(array_type)(context, builder, array).data
    offset = context.cast(builder, index, index_type, types.intp)
    return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


def _row_pointer(context, builder, array_type, array, row_type, row, vector=_VECTOR):
    """Return the address of row ``row`` of an array of sixteen columns."""
    first = builder.mul(context.cast(builder, row, row_type, types.intp), ir.IntType(64)(WIDTH))
    return _element_pointer(context, builder, array_type, array, types.intp, first, vector)


@intrinsic
def load(typing, array, row):
    """Return the lanes at row ``row`` of a contiguous float32 array of sixteen columns."""

    def codegen(context, builder, signature, args):
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        return builder.load(pointer, align=4)

    return lanes(array, row), codegen


@intrinsic
def load_signs(typing, array, row):
    """Return the lanes at row ``row`` of a contiguous int8 array of sixteen columns, as floats."""

    def codegen(context, builder, signature, args):
        signs = ir.VectorType(ir.IntType(8), WIDTH)
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], signs)
        return builder.sitofp(builder.load(pointer, align=1), _VECTOR)

    return lanes(array, row), codegen


@intrinsic
def store(typing, array, row, value):
    """Write the lanes to row ``row`` of a contiguous float32 array of sixteen columns."""

    def codegen(context, builder, signature, args):
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.none(array, row, lanes), codegen


@intrinsic
def load_at(typing, array, offset):
    """Return the sixteen elements of a contiguous float32 array that begin at ``offset``."""

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _VECTOR)
        return builder.load(pointer, align=4)

    return lanes(array, offset), codegen


@intrinsic
def store_at(typing, array, offset, value):
    """Write the lanes to the sixteen elements of a contiguous float32 array that begin at ``offset``."""

    def codegen(context, builder, signature, args):
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], _VECTOR)
        builder.store(args[2], pointer, align=4)
        return context.get_dummy_value()

    return types.none(array, offset, lanes), codegen


def _emit_prefetch(builder, pointer, write):
    """Emit the processor's prefetch instruction, which ignores invalid addresses."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), word(write), word(3), word(1)])


@intrinsic
def prefetch(typing, array, row):
    """Prefetch row ``row`` of an array of sixteen columns for reading and writing."""

    def codegen(context, builder, signature, args):
        pointer = _row_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1])
        _emit_prefetch(builder, pointer, 1)
        return context.get_dummy_value()

    return types.none(array, row), codegen


@intrinsic
def prefetch_at(typing, array, offset):
    """Prefetch the cache line of element ``offset`` of a contiguous array for reading."""

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8)
        pointer = _element_pointer(context, builder, signature.args[0], args[0], signature.args[1], args[1], byte)
        _emit_prefetch(builder, pointer, 0)
        return context.get_dummy_value()

    return types.none(array, offset), codegen


@intrinsic
def at(typing, array, offset):
    """Return element ``offset`` of a contiguous array, without Python's check for negative offsets."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        offset = context.cast(builder, args[1], signature.args[1], types.intp)
        return builder.load(builder.gep(data, [offset]))

    return array.dtype(array, offset), codegen


@intrinsic
def splat(typing, value):
    """Return lanes that all contain the same number."""

    def codegen(context, builder, signature, args):
        number = context.cast(builder, args[0], signature.args[0], types.float32)
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), mask)

    return lanes(value), codegen


@intrinsic
def fma(typing, a, b, c):
    """Return ``a * b + c``, as one fused operation if the processor has it."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{WIDTH}f32")
        return builder.call(function, args)

    return lanes(lanes, lanes, lanes), codegen


@intrinsic
def where_positive(typing, condition, a, b):
    """Return ``a`` where ``condition > 0``, else ``b``, lane by lane."""

    def codegen(context, builder, signature, args):
        positive = builder.fcmp_ordered(">", args[0], ir.Constant(_VECTOR, [0.0] * WIDTH))
        return builder.select(positive, args[1], args[2])

    return lanes(lanes, lanes, lanes), codegen


@intrinsic
def total(typing, value):
    """Return the sum of the lanes, by halves."""

    def codegen(context, builder, signature, args):
        vector, width = args[0], WIDTH
        while width > 1:
            width //= 2
            ends = [ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(k, k + width))) for k in (0, width)]
            nothing = ir.Constant(vector.type, ir.Undefined)
            vector = builder.fadd(*(builder.shuffle_vector(vector, nothing, end) for end in ends))
        return builder.extract_element(vector, ir.IntType(32)(0))

    return types.float32(lanes), codegen


def _binary(emit: Callable) -> Callable:
    """Return an intrinsic that takes two arguments of lanes; ``emit`` generates its instruction."""

    @intrinsic
    def operation(typing, a, b):
        def codegen(context, builder, signature, args):
            return emit(builder, args[0], args[1])

        return lanes(lanes, lanes), codegen

    return operation


maximum = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
minimum = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", a, b), a, b))

# Lowered directly: Numba would type each use of an overload once more, and inline it before it compiles.
_INSTRUCTIONS = {
    operator.add: ir.IRBuilder.fadd,
    operator.sub: ir.IRBuilder.fsub,
    operator.mul: ir.IRBuilder.fmul,
    operator.truediv: ir.IRBuilder.fdiv,
}


def _define_operator(python_operator: Callable, instruction: Callable) -> None:
    @type_callable(python_operator)
    def _(context):
        return lambda a, b: lanes if isinstance(a, LanesType) and isinstance(b, LanesType) else None

    @lower_builtin(python_operator, LanesType, LanesType)
    def _(context, builder, signature, args):
        return instruction(builder, *args)


for _operator, _instruction in _INSTRUCTIONS.items():
    _define_operator(_operator, _instruction)
