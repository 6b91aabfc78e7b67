"""Sums of products that are rounded to float16 while they add up (attribute ``partials``).

Hardware that keeps partial sums in float16 adds up a few products more precisely, adds that to the
sum so far, and rounds it.  What is added up at a time here:

* matrix products: 16 products of an element,
* convolutions, transposed ones too: 16 channels at all places of the window,
* the gradient of a convolution's weights: one sample.

The rounding is that of results: to nearest, or stochastic if the instruction says so.  Bias,
residual and activation come after the sum and are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.rounding import rounding_calls, to_nearest_half
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.kernels.parts.epilogue import epilogue_calls

__all__ = ["adds_up_in_half", "half_convolution", "half_product", "half_weights_grad"]

_AT_A_TIME: Final = 16  # products between two roundings of a sum in half precision
_BLOCK: Final = 24576  # elements of a result that stay in the cache while they add up


def adds_up_in_half(binding: Binding) -> bool:
    """True if the sums of an instruction are rounded to float16 while they add up."""
    return binding.text("partials", "") == "half"


def _rounded(binding: Binding, total: Array) -> tuple[Call, ...]:
    """Calls that round ``total`` (C-contiguous float32) to numbers that float16 has."""
    rounding, scratch = Rounding.of(binding.attributes), binding.scratch
    mark = scratch.mark()
    special = tuple(rounding_calls(rounding, total, DType.FLOAT16, scratch, binding.random))
    scratch.rewind(mark)
    nearest = tuple(to_nearest_half(total, scratch))
    scratch.rewind(mark)
    return (*special, *nearest)


# -- matrix products -----------------------------------------------------------------------------


def half_product(binding: Binding, left: Array, right: Array, out: Array) -> Iterator[Call]:
    """The product ``left @ right`` of float32 [..., rows, columns]; ``out`` is C-contiguous."""
    if out.size == 0:
        return
    row = prod(out.shape[1:])
    rows = max(1, _BLOCK // row)
    spare = binding.scratch.take((min(rows, out.shape[0]) * row,), np.float32)
    for start in range(0, out.shape[0], rows):
        part = slice(start, start + rows)
        target = out[part]
        term = spare[: target.size].reshape(target.shape)
        operands = _along_first(left, right, out, part)
        yield partial(_add_up, *operands, target, term, _rounded(binding, target))


def _along_first(left: Array, right: Array, out: Array, part: slice) -> tuple[Array, Array]:
    """The operands of a part of the first dimension: rows, or a dimension of a batch."""
    if out.ndim == 2:
        return left[part], right

    def cut(array: Array) -> Array:
        is_repeated = array.ndim < out.ndim or array.shape[0] == 1
        return array if is_repeated else array[part]

    return cut(left), cut(right)


def _add_up(left: Array, right: Array, total: Array, term: Array, rounding: Sequence[Call]) -> None:
    target = total
    for start in range(0, max(left.shape[-1], 1), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        np.matmul(left[..., part], right[..., part, :], out=target)
        if target is term:
            np.add(total, term, out=total)
        for call in rounding:
            call()
        target = term


# -- convolutions --------------------------------------------------------------------------------

# group, its number of channels -> the data and the weights of some of its channels
Cut: TypeAlias = Callable[[slice, slice], tuple[Array, Array]]


def half_convolution(kernel: Kernel, binding: Binding, *, transposed: bool) -> Calls:
    """``kernel``, that of Conv or ConvTranspose, on a few channels at a time.

    X [N, C, *sizes], W [M, C / group, *kernel] or, transposed, [C, M / group, *kernel], [B [M]],
    [residual].
    """
    x, w, out, group = (
        binding.input(0),
        binding.input(1),
        binding.output(),
        binding.integer("group", 1),
    )
    if out.size == 0:
        return ()
    channels, outputs = x.shape[1] // group, out.shape[1] // group
    sizes = (out.shape[0], outputs, *out.shape[2:])
    total = out if group == 1 else binding.scratch.take(sizes, np.float32)
    calls: list[Call] = []
    for number in range(group):
        parts = []
        for start in range(0, channels, _AT_A_TIME):
            some = slice(start, min(start + _AT_A_TIME, channels))
            among = slice(number * channels + some.start, number * channels + some.stop)
            own = slice(number * outputs, (number + 1) * outputs)
            parts.append((x[:, among], w[among] if transposed else w[own, some]))
        calls += _sum_of_terms(kernel, binding, parts, total, {"group": 1, "activation": ""})
        if group > 1:
            own = slice(number * outputs, (number + 1) * outputs)
            calls.append(partial(np.copyto, out[:, own], total))
    bias = binding.optional(2)
    if bias is not None:
        bias = bias.reshape(-1, *(1,) * (out.ndim - 2))
    return (*calls, *epilogue_calls(binding, out, (bias, binding.optional(3))))


def half_weights_grad(kernel: Kernel, binding: Binding) -> Calls:
    """``kernel``, that of ConvWeightsGrad, on one sample at a time: dY [N, ...], X [N, ...]."""
    dy, x, out = binding.input(0), binding.input(1), binding.output()
    parts = [(dy[n : n + 1], x[n : n + 1]) for n in range(dy.shape[0])]
    if out.size == 0 or not parts:
        return partial(out.fill, 0)
    return tuple(_sum_of_terms(kernel, binding, parts, out, {}))


def _sum_of_terms(
    kernel: Kernel,
    binding: Binding,
    parts: Sequence[tuple[Array, Array]],
    total: Array,
    attributes: dict[str, int | str],
) -> Iterator[Call]:
    """The sum of what ``kernel`` makes of each pair of operands, rounded after each of them."""
    scratch = binding.scratch
    term = scratch.take(total.shape, np.float32)
    rounding = _rounded(binding, total)
    for index, operands in enumerate(parts):
        mark = scratch.mark()
        calls = kernel(
            replace(
                binding,
                inputs=operands,
                outputs=(term if index else total,),
                input_dtypes=binding.input_dtypes[:2],
                constant=binding.constant[:2],
                attributes={**binding.attributes, **attributes, "partials": "float"},
            )
        )
        scratch.rewind(mark)
        yield from calls if isinstance(calls, tuple) else (calls,)
        if index:
            yield partial(np.add, total, term, out=total)
        yield from rounding
