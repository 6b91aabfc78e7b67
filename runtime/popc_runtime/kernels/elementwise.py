"""Elementwise arithmetic, comparison, logic and rounding, with numpy broadcasting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.activation import bit_mask, bits_of
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.blocking import blocked, coalesce, work_dtype
from popc_runtime.kernels.core.negation import negative

__all__ = ["KERNELS"]

_NARROW: Final = 32  # elements of an inner loop below which numpy's loop overhead dominates
_WIDE: Final = 1024  # elements to lengthen such a loop to

Ufunc = Callable[..., Any]


def _operands(binding: Binding) -> list[Array]:
    return [binding.input(index) for index in range(len(binding.inputs))]


def _ufunc(function: Ufunc) -> Kernel:
    """One numpy ufunc over all inputs, straight into the output."""

    def kernel(binding: Binding) -> Calls:
        arrays = coalesce(binding.output(), _operands(binding))
        constant = [binding.is_constant(index) for index in range(len(binding.inputs))]
        out, *operands = _with_long_rows(arrays, constant)
        return partial(function, *operands, out=out)

    return kernel


def _test(function: Ufunc) -> Kernel:
    """A ufunc that sorts floats into classes, into a result that lies without gaps.

    With AVX2, numpy 2.4 writes wrong elements where results of isnan, isinf, isfinite and signbit
    do not follow each other.
    """

    def kernel(binding: Binding) -> Calls:
        out, x = coalesce(binding.output(), [binding.input(0)])
        if out.flags.c_contiguous:
            return partial(function, x, out=out)
        near = binding.scratch.take(out.shape, out.dtype)
        return partial(function, x, out=near), partial(np.copyto, out, near)

    return kernel


def _with_long_rows(arrays: tuple[Array, ...], constant: list[bool]) -> tuple[Array, ...]:
    """Output and operands with constants of short rows repeated, to give longer inner loops.

    Adding a bias of 3 channels to an image with channels last takes three elements per inner loop;
    with the bias repeated over a few hundred pixels it takes a thousand.
    """
    out, *operands = arrays
    if out.ndim < 2 or not 0 < out.shape[-1] < _NARROW:
        return arrays
    rows, run = out.shape[-2:]
    short = [
        fixed and bool(array.ndim) and array.strides[-2] == 0
        for array, fixed in zip(operands, constant, strict=True)
    ]
    few = -(-_WIDE // run)
    together = next((n for n in range(few, min(rows, 8 * few) + 1) if rows % n == 0), 1)
    if together == 1 or not any(short):
        return arrays
    target, *parts = (_split_rows(array, together) if array.ndim else array for array in arrays)
    for index, array in enumerate(parts):
        if short[index]:
            once = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides[:-2])
            parts[index] = np.ascontiguousarray(array[once])
    return coalesce(target, parts)


def _split_rows(array: Array, together: int) -> Array:
    """A view with the last axis but one cut into groups of ``together``."""
    *outer, rows, run = array.shape
    *steps, step, unit = array.strides
    shape = (*outer, rows // together, together, run)
    return as_strided(array, shape, (*steps, step * together, step, unit), subok=True)


def _through_float32(function: Ufunc) -> Kernel:
    """Like `_ufunc`, but float16 is computed in float32: numpy has no vector code for it."""

    def steps(out: Array, *operands: Array) -> tuple[Call, ...]:
        return (partial(function, *operands, out=out),)

    direct = _ufunc(function)

    def kernel(binding: Binding) -> Calls:
        out, operands = binding.output(), _operands(binding)
        if work_dtype(out, *operands) == out.dtype:
            return direct(binding)
        return blocked(steps, out, operands, binding.scratch)

    return kernel


def _sum(binding: Binding) -> Calls:
    """Operand by operand; float16 is added up in float32 and rounded once."""
    return blocked(_sum_steps, binding.output(), _operands(binding), binding.scratch)


def _sum_steps(out: Array, first: Array, *others: Array) -> Iterator[Call]:
    total = first
    for other in others:
        yield partial(np.add, total, other, out=out)
        total = out
    if not others:
        yield partial(np.copyto, out, first)


def _scaled_add(binding: Binding) -> Calls:
    """x * scale0 + y * scale1; the scales are operands or attributes."""
    x, y, out = binding.input(0), binding.input(1), binding.output()
    scales = [_scale(binding, index, out) for index in range(2)]
    return blocked(_scaled_steps, out, [x, y, *scales], binding.scratch, temporaries=1)


def _scale(binding: Binding, index: int, out: Array) -> Array:
    given = binding.optional(index + 2)
    if given is not None:
        return given.reshape(())
    return np.asarray(binding.number(f"scale{index}", 1.0), work_dtype(out))


def _scaled_steps(
    out: Array, x: Array, y: Array, first: Array, second: Array, term: Array
) -> Iterator[Call]:
    """The term goes first: the output may be the memory of either operand."""
    yield partial(np.multiply, y, second, out=term)
    yield partial(np.multiply, x, first, out=out)
    yield partial(np.add, out, term, out=out)


def _divide(binding: Binding) -> Calls:
    """Integers: the quotient rounded toward zero, as in C."""
    a, b, out = binding.input(0), binding.input(1), binding.output()
    if out.dtype.kind == "f":
        return _through_float32(np.divide)(binding)
    if out.dtype.kind == "u":
        return _ufunc(np.floor_divide)(binding)
    if out.itemsize < 8:
        # A rounded float64 quotient never crosses an integer if both operands fit 32 bits, and
        # the conversion back truncates.  numpy divides floats several times faster than integers.
        return blocked(_quotient, out, [a, b], binding.scratch, work=np.float64)
    return blocked(_truncated_quotient, out, [a, b], binding.scratch, temporaries=1)


def _quotient(out: Array, a: Array, b: Array) -> Iterator[Call]:
    yield partial(np.divide, a, b, out=out)


def _truncated_quotient(out: Array, a: Array, b: Array, multiple: Array) -> Iterator[Call]:
    yield partial(np.fmod, a, b, out=multiple)
    yield partial(np.subtract, a, multiple, out=multiple)
    yield partial(np.floor_divide, multiple, b, out=out)


def _modulo(binding: Binding) -> Calls:
    """With ``fmod`` the sign of the dividend, as C's fmod, else that of the divisor."""
    function = np.fmod if binding.integer("fmod", 0) else np.remainder
    return _through_float32(function)(binding)


def _power(binding: Binding) -> Calls:
    """The result has the dtype of the base, whatever that of the exponent."""
    base, exponent, out = binding.input(0), binding.input(1), binding.output()
    if out.dtype.kind == "f":
        if binding.is_constant(1) and exponent.size == 1:
            fixed = _FIXED_POWERS.get(float(exponent.reshape(())))
            if fixed is not None:
                return blocked(fixed, out, [base], binding.scratch, temporaries=1)
        same = base.dtype == exponent.dtype
        work = None if same else np.promote_types(out.dtype, np.float32)
        return blocked(_power_steps, out, [base, exponent], binding.scratch, work=work)
    if exponent.dtype.kind == "f":
        return blocked(_power_steps, out, [base, exponent], binding.scratch, work=np.float64)
    return partial(_integer_power, base, exponent, out)


def _power_steps(out: Array, base: Array, exponent: Array) -> Iterator[Call]:
    yield partial(np.power, base, exponent, out=out)


def _ones(out: Array, base: Array, spare: Array) -> Iterator[Call]:
    del base, spare
    yield partial(np.copyto, out, np.asarray(1, out.dtype))


def _copy(out: Array, base: Array, spare: Array) -> Iterator[Call]:
    del spare
    yield partial(np.copyto, out, base)


def _square(out: Array, base: Array, spare: Array) -> Iterator[Call]:
    del spare
    yield partial(np.square, base, out=out)


def _cube(out: Array, base: Array, square: Array) -> Iterator[Call]:
    yield partial(np.square, base, out=square)
    yield partial(np.multiply, square, base, out=out)


def _inverse(out: Array, base: Array, spare: Array) -> Iterator[Call]:
    del spare
    yield partial(np.reciprocal, base, out=out)


_FIXED_POWERS: Final = {-1.0: _inverse, 0.0: _ones, 1.0: _copy, 2.0: _square, 3.0: _cube}


def _integer_power(base: Array, exponent: Array, out: Array) -> None:
    """Powers modulo 2^bits; a negative exponent gives the reciprocal rounded toward zero."""
    wide = np.uint64 if out.dtype.kind == "u" else np.int64
    value = base.astype(wide)
    result = np.power(value, np.maximum(exponent, 0).astype(wide))
    if exponent.dtype.kind == "i" and np.any(exponent < 0):
        unit = np.where(exponent % 2 == 0, value * value, value)
        reciprocal = np.where(np.abs(base) == 1, unit, 0)
        result = np.where(exponent < 0, reciprocal, result)
    np.copyto(out, result, casting="unsafe")


def _extremum_share(reaches: Ufunc, passes: Ufunc) -> Kernel:
    """The gradient of the larger (or smaller) of x and y for x: half of it where they are equal.

    Operands are the gradient, x and y.
    """

    def steps(out: Array, g: Array, x: Array, y: Array, *temporaries: Array) -> Iterator[Call]:
        half, other, select, mask = temporaries
        yield partial(np.multiply, g, np.asarray(0.5, g.dtype), out=half)
        for compare, share in ((reaches, other), (passes, half)):
            yield partial(compare, x, y, out=mask)
            yield bit_mask(mask, bits_of(select))
            yield partial(np.bitwise_and, bits_of(half), bits_of(select), out=bits_of(share))
        yield partial(np.add, half, other, out=out)

    def kernel(binding: Binding) -> Calls:
        operands = _operands(binding)
        return blocked(steps, binding.output(), operands, binding.scratch, temporaries=3, masks=1)

    return kernel


def _bit_shift(binding: Binding) -> Calls:
    left = binding.text("direction") == "LEFT"
    return _ufunc(np.left_shift if left else np.right_shift)(binding)


def _is_inf(binding: Binding) -> Calls:
    """Either sign of infinity may be left out (``detect_negative``, ``detect_positive``)."""
    negative = binding.integer("detect_negative", 1)
    positive = binding.integer("detect_positive", 1)
    if negative and positive:
        return _test(np.isinf)(binding)
    out, x = coalesce(binding.output(), [binding.input(0)])
    if not (negative or positive):
        return partial(np.copyto, out, np.asarray(False))  # noqa: FBT003 - the value
    infinity = np.asarray(np.inf if positive else -np.inf, x.dtype)
    return partial(np.equal, x, infinity, out=out)


def _where(binding: Binding) -> Calls:
    """Chosen bitwise: three vector operations cost a tenth of numpy's element-by-element choice."""
    condition, x, y = (binding.input(index) for index in range(3))
    out = binding.output()
    bits = np.dtype(f"i{out.itemsize}")
    operands = [condition, x.view(bits), y.view(bits)]
    return blocked(_where_steps, out.view(bits), operands, binding.scratch, temporaries=2)


def _where_steps(
    out: Array, condition: Array, x: Array, y: Array, select: Array, changes: Array
) -> Iterator[Call]:
    """Flips in y what differs from x, where the condition is true: y ^ ((x ^ y) & select)."""
    yield bit_mask(condition, select)
    yield partial(np.bitwise_xor, x, y, out=changes)
    yield partial(np.bitwise_and, changes, select, out=changes)
    yield partial(np.bitwise_xor, changes, y, out=out)


_WIDENED: Final[dict[str, Ufunc]] = {
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Add": np.add,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atan2": np.arctan2,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Floor": np.floor,
    "Log": np.log,
    "Log1p": np.log1p,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Reciprocal": np.reciprocal,
    "Round": np.rint,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Sub": np.subtract,
    "Tan": np.tan,
}


_DIRECT: Final[dict[str, Ufunc]] = {
    "Abs": np.absolute,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.invert,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Neg": negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Sign": np.sign,
    "Xor": np.logical_xor,
}

KERNELS: Final[dict[str, Kernel]] = {
    **{name: _through_float32(function) for name, function in _WIDENED.items()},
    **{name: _ufunc(function) for name, function in _DIRECT.items()},
    "IsNaN": _test(np.isnan),
    "BitShift": _bit_shift,
    "Div": _divide,
    "IsInf": _is_inf,
    "MaxArgGrad": _extremum_share(np.greater_equal, np.greater),
    "MinArgGrad": _extremum_share(np.less_equal, np.less),
    "Mod": _modulo,
    "Pow": _power,
    "ScaledAdd": _scaled_add,
    "Sum": _sum,
    "Where": MoveKernel(_where),
}
