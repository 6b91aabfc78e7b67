"""Quantisation: between floats and small integers, by scale and zero point.

The arithmetic is float32 whatever the types of the operands (float64 where that is the result's),
and a quotient is a division, never a product with the reciprocal: the last bit decides which way a
tie rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.format.program import Attributes
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.core.negation import negative

__all__ = ["KERNELS", "fake_quantize_steps", "saturation"]


def _to_integer(scale_by: Callable[..., Any]) -> Kernel:
    """``saturate(round(scale_by(x, operand 1)) + operand 2)``, ties rounding to even."""

    def kernel(binding: Binding) -> Calls:
        offset = _offset(binding)
        calls = list(offset.before)
        parameters = [_widened(binding, 1, np.float32), *offset.arrays]
        for out, x, *aligned in _granules(binding, parameters):
            operands = [x, *aligned]
            steps = _rounding_steps(scale_by, has_zero=offset.has_zero)
            calls += blocked(steps, out, operands, binding.scratch, work=np.float32)
        return tuple(calls)

    return kernel


def _rounding_steps(
    scale_by: Callable[..., Any], *, has_zero: bool
) -> Callable[..., Iterator[Call]]:
    """Saturating before rounding gives the same integers, since the limits are integers."""

    def steps(
        out: Array, x: Array, factor: Array, low: Array, high: Array, zero: Array
    ) -> Iterator[Call]:
        yield partial(scale_by, x, factor, out=out)
        yield from saturation(out, low, high)
        yield partial(np.rint, out, out=out)
        if has_zero:
            yield partial(np.add, out, zero, out=out)

    return steps


def saturation(out: Array, low: Any, high: Any) -> Iterator[Call]:
    """Limits in place; NaN becomes the lower one, as in onnxruntime.

    A scale of infinity makes NaN of the infinities of a mask, which have to stay the lowest.
    """
    yield partial(np.fmax, out, low, out=out)
    yield partial(np.minimum, out, high, out=out)


@dataclass(frozen=True, slots=True)
class _Offset:
    """A zero point, and the limits that a value may have before it is added; all float32.

    ``before`` are the calls that compute them, unless they are known while binding.
    """

    low: Array
    high: Array
    zero: Array
    before: tuple[Call, ...] = ()

    @property
    def arrays(self) -> tuple[Array, Array, Array]:
        return self.low, self.high, self.zero

    @property
    def has_zero(self) -> bool:
        """True if there is something to add."""
        return bool(self.before) or bool(self.zero.any())


def _offset(binding: Binding) -> _Offset:
    """The zero point in operand 2; absent means zero."""
    limits = np.iinfo(binding.output().dtype)
    zero = binding.optional(2)
    if zero is not None and not binding.is_constant(2):
        return _run_time_offset(zero, limits, binding.scratch)
    value = np.zeros((), np.float32) if zero is None else zero.astype(np.float32)
    low, high = (np.asarray(limit - value) for limit in (limits.min, limits.max))
    return _Offset(low, high, value)


def _run_time_offset(zero: Array, limits: np.iinfo[Any], scratch: Scratch) -> _Offset:
    """The offset of a zero point that each run computes anew."""
    low, high, value = (scratch.take(zero.shape, np.float32) for _ in range(3))
    before = (
        partial(np.copyto, value, zero, casting="unsafe"),
        partial(np.subtract, np.float32(limits.min), value, out=low),
        partial(np.subtract, np.float32(limits.max), value, out=high),
    )
    return _Offset(low, high, value, before)


def _widened(binding: Binding, index: int, dtype: Any) -> Array:
    """Operand ``index``, converted at once if it is constant (`blocked` converts it otherwise)."""
    array = binding.input(index)
    return array.astype(dtype) if binding.is_constant(index) else array


def _granules(binding: Binding, parameters: list[Array]) -> Iterator[tuple[Array, ...]]:
    """(output, input, parameters) that broadcast against each other.

    There is one such group, or two for blocks along an axis if the last block is shorter.
    """
    out, x = binding.output(), binding.input(0)
    axis = binding.integer("axis", x.ndim - 1)  # as numpy broadcasts, if there is no attribute
    size = binding.integer("block_size", 0)
    if size == 0:
        yield out, x, *(_along(array, axis, x.ndim) for array in parameters)
        return
    count, rest = divmod(x.shape[axis], size)
    whole = (slice(None),) * axis + (slice(0, count * size),)
    split = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    blocks = (slice(None),) * axis + (slice(0, count), np.newaxis)
    per_block = [array[blocks] if array.ndim else array for array in parameters]
    yield out[whole].reshape(split), x[whole].reshape(split), *per_block
    if rest:
        tail = (slice(None),) * axis + (slice(count * size, None),)
        last = (slice(None),) * axis + (slice(count, None),)
        yield out[tail], x[tail], *(array[last] if array.ndim else array for array in parameters)


def _along(parameter: Array, axis: int, rank: int) -> Array:
    """A 1-D parameter as one that broadcasts along ``axis``; others broadcast as they are."""
    if parameter.size == 1:
        return parameter.reshape(())
    if parameter.ndim != 1:
        return parameter
    return parameter.reshape((-1,) + (1,) * (rank - 1 - axis))


def _dequantize(binding: Binding) -> Calls:
    """``(x - operand 2) * operand 1``; 8 and 16 bits less a zero point are exact in float32."""
    scratch = binding.scratch
    is_wide = binding.input(0).dtype == np.int32
    work = np.promote_types(binding.output().dtype, np.float32)
    parameters = [_widened(binding, 1, work)]
    if _has_zero(binding):
        parameters.append(binding.input(2) if is_wide else _widened(binding, 2, work))
    calls: list[Call] = []
    for out, x, *aligned in _granules(binding, parameters):
        if is_wide and len(aligned) > 1:  # 32 bits are exact only as integers
            difference = scratch.take(x.shape, np.int32)
            calls.append(partial(np.subtract, x, aligned.pop(), out=difference))
            x = difference  # noqa: PLW2901 - the operand of the rest
        calls += blocked(_scaling_steps, out, [x, *aligned], scratch, work=work)
    return tuple(calls)


def _has_zero(binding: Binding) -> bool:
    zero = binding.optional(2)
    return zero is not None and not (binding.is_constant(2) and not zero.any())


def _scaling_steps(out: Array, x: Array, scale: Array, *zero: Array) -> Iterator[Call]:
    if zero:
        yield partial(np.subtract, x, zero[0], out=out)
        yield partial(np.multiply, out, scale, out=out)
    else:
        yield partial(np.multiply, x, scale, out=out)


def _dynamic_quantize(binding: Binding) -> Calls:
    """uint8 by the range of the input, extended to hold zero (ONNX DynamicQuantizeLinear-11)."""
    x, y = binding.input(0), binding.output()
    scale = _present(binding.optional_output(1), np.float32)
    zero = _present(binding.optional_output(2), np.uint8)
    least, value, most = (np.empty((), np.float32) for _ in range(3))
    empty_range = np.empty((), np.bool_)
    range_calls: tuple[Call, ...] = (
        partial(np.minimum.reduce, x, axis=None, out=least, initial=0),
        partial(np.maximum.reduce, x, axis=None, out=most, initial=0),
        partial(np.equal, least, most, out=empty_range),
        partial(np.subtract, most, least, out=scale),
        partial(np.divide, scale, np.float32(255), out=scale),
        partial(np.copyto, scale, np.float32(1), where=empty_range),
        partial(np.divide, least, scale, out=value),
        partial(negative, value, out=value),
        *saturation(value, np.float32(0), np.float32(255)),
        partial(np.rint, value, out=value),
        partial(np.copyto, zero, value, casting="unsafe"),
    )
    offset = _run_time_offset(zero, np.iinfo(np.uint8), binding.scratch)
    steps = _rounding_steps(np.divide, has_zero=True)
    operands = [x, scale, *offset.arrays]
    blocks = blocked(steps, y, operands, binding.scratch, work=np.float32)
    return (*range_calls, *offset.before, *blocks)


def _present(output: Array | None, dtype: type[np.generic]) -> Array:
    """An output, or memory in its place if nobody wants it."""
    return np.empty((), dtype) if output is None else output


def fake_quantize_steps(attributes: Attributes, out: Array, x: Array) -> Iterator[Call]:
    """``round(clip(x / scale, low, high)) * scale``: `QuantizeLinear` and back, for one scale.

    The limits are those of the integers less the zero point, which therefore cancels out.  A
    result of zero may be negative zero.
    """
    scale, low, high = (np.asarray(attributes[name], x.dtype) for name in ("scale", "low", "high"))
    yield partial(np.divide, x, scale, out=out)
    yield from saturation(out, low, high)
    yield partial(np.rint, out, out=out)
    yield partial(np.multiply, out, scale, out=out)


KERNELS: Final[dict[str, Kernel]] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "QuantizeLinear": _to_integer(np.divide),
    "Requantize": _to_integer(np.multiply),
}
