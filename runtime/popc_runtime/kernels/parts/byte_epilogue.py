"""Epilogues of the sums of an integer product or convolution, if there is one.

Sums are rounded to float32 once, and then, in this order and each if it is there: multiplied by
operand 5, rounded to multiples (attributes ``rounding_scale``, ``rounding_low`` and
``rounding_high``), increased by operand 6 and operand 7, handed to an activation (as in
`epilogue`), and for a result of 8 bits multiplied by ``quantize_factor`` and quantised by
``quantize_scale`` and ``quantize_zero``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.format.program import Attribute
from popc_runtime.kernels.activation import ACTIVATIONS
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.parts.byte_operands import BIAS, RESIDUAL, SCALE, quotient_limits
from popc_runtime.kernels.quantize import fake_quantize_steps, saturation

__all__ = ["finished"]

_ROUNDING: Final = "rounding_"
_ACTIVATION: Final = "activation_"


def finished(kernel: Kernel, channel_axis: Callable[[Binding], int]) -> Kernel:
    """``kernel``, which computes sums, with what follows them.

    ``channel_axis`` tells which axis of a result, counted from its end, has scales and biases.
    """

    def whole(binding: Binding) -> Calls:
        if not _has_epilogue(binding):
            return kernel(binding)
        out, scratch = binding.output(), binding.scratch
        sums = scratch.take(out.shape, np.float32)
        inner = replace(
            binding,
            outputs=(sums,),
            output_dtypes=(DType.FLOAT32,),
            attributes=_without_epilogue(binding),
        )
        calls = kernel(inner)
        axis = channel_axis(binding)
        operands = [binding.optional(index) for index in (SCALE, BIAS, RESIDUAL)]
        there = [operand is not None for operand in operands]
        aligned = [_aligned(operand, axis) for operand in operands[:2] if operand is not None]
        aligned += [operand for operand in operands[2:] if operand is not None]
        activation = ACTIVATIONS.get(binding.text("activation", ""))
        finish = blocked(
            partial(_steps, binding, there),
            out,
            [sums, *aligned],
            scratch,
            temporaries=0 if activation is None else activation.temporaries,
            masks=0 if activation is None else activation.masks,
            work=np.float32,
        )
        return (*(calls if isinstance(calls, tuple) else (calls,)), *finish)

    return whole


def _has_epilogue(binding: Binding) -> bool:
    operands = any(binding.optional(index) is not None for index in (SCALE, BIAS, RESIDUAL))
    dtype = binding.output_dtypes[0]
    others = "rounding_scale" in binding.attributes or binding.text("activation", "") != ""
    return operands or others or dtype in (DType.INT8, DType.UINT8)


def _without_epilogue(binding: Binding) -> dict[str, Attribute]:
    prefixes = (_ROUNDING, "activation", "quantize_")
    return {
        name: value for name, value in binding.attributes.items() if not name.startswith(prefixes)
    }


def _aligned(channels: Array, axis: int) -> Array:
    """Numbers of channels, as they broadcast to a result with channels at ``axis``."""
    if channels.size == 1:
        return channels.reshape(())
    return channels.reshape((-1,) + (1,) * (-1 - axis))


def _steps(
    binding: Binding, there: list[bool], out: Array, sums: Array, *rest: Array
) -> Iterator[Call]:
    """The calls of one block; ``there`` says which of scale, bias and residual there are."""
    others = iter(rest)
    scale, bias, residual = (next(others) if given else None for given in there)
    values = sums
    if scale is not None:
        yield partial(np.multiply, values, scale, out=out)
        values = out
    if "rounding_scale" in binding.attributes:
        yield from fake_quantize_steps(_part(binding, _ROUNDING), out, values)
        values = out
    for addend in (bias, residual):
        if addend is not None:
            yield partial(np.add, values, addend, out=out)
            values = out
    name = binding.text("activation", "")
    if name:
        steps = ACTIVATIONS[name].steps
        yield from steps(_part(binding, _ACTIVATION), out, values, *others)
        values = out
    limits = quotient_limits(binding.attributes, binding.output_dtypes[0])
    if limits is not None:
        yield from _quantizing(binding, limits, out, values)


def _part(binding: Binding, prefix: str) -> dict[str, Attribute]:
    return {
        name.removeprefix(prefix): value
        for name, value in binding.attributes.items()
        if name.startswith(prefix)
    }


def _quantizing(
    binding: Binding, limits: tuple[float, float], out: Array, values: Array
) -> Iterator[Call]:
    low, high = map(np.float32, limits)
    factor = binding.number("quantize_factor", 1.0)
    if factor != 1:
        yield partial(np.multiply, values, np.float32(factor), out=out)
        values = out
    yield partial(np.divide, values, np.float32(binding.number("quantize_scale")), out=out)
    yield from saturation(out, low, high)
    yield partial(np.rint, out, out=out)
    yield partial(np.add, out, np.float32(binding.integer("quantize_zero", 0)), out=out)
