"""Top-k selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import copy_calls

__all__ = ["KERNELS"]

_LOW_HALF: Final = np.uint64(0xFFFFFFFF)
_TOP_BIT: Final = np.uint32(1 << 31)
_LARGEST: Final = np.int32((1 << 31) - 1)  # the bits of a NaN


def _top_k(binding: Binding) -> Calls:
    """The k largest or smallest elements along an axis, in order; among equals, the lower index.

    NaNs count as equal, and as larger than everything, as numpy sorts them.
    """
    x = binding.input(0)
    axis = binding.integer("axis") % x.ndim
    source = np.moveaxis(x, axis, -1)
    if binding.integer("k") == 0 or x.size == 0:
        return ()
    rows = binding.scratch.take(source.shape, x.dtype)
    select = _select_wide if x.dtype.itemsize == 8 else _select_narrow
    indices, calls = select(binding, rows)
    return (*copy_calls(rows, source), *calls, *_store(binding, rows, indices, axis))


def _store(binding: Binding, rows: Array, indices: Array, axis: int) -> tuple[Call, ...]:
    """Write the chosen elements and their indices; ``indices`` has the axis at the end."""
    length = rows.shape[-1]
    first = np.arange(0, rows.size, length).reshape(*rows.shape[:-1], 1)
    positions = binding.scratch.take(indices.shape, np.int64)
    chosen = binding.scratch.take(indices.shape, rows.dtype)
    calls: list[Call] = []
    values_out, indices_out = binding.optional_output(0), binding.optional_output(1)
    if values_out is not None:
        calls.append(partial(np.add, indices, first, out=positions))
        calls.append(partial(np.take, rows.reshape(-1), positions, None, chosen, "clip"))
        calls.extend(copy_calls(np.moveaxis(values_out, axis, -1), chosen))
    if indices_out is not None:
        calls.extend(copy_calls(np.moveaxis(indices_out, axis, -1), indices))
    return tuple(calls)


def _select_wide(binding: Binding, rows: Array) -> tuple[Array, tuple[Call, ...]]:
    """64-bit elements: a stable sort of everything."""
    k = binding.integer("k")
    indices = binding.scratch.take((*rows.shape[:-1], k), np.int64)
    descending = binding.integer("largest", 1)

    def call() -> None:
        if not descending:
            np.copyto(indices, np.argsort(rows, axis=-1, kind="stable")[..., :k])
            return
        # From the back, both ways: of equals, the lower index is the first again.
        order = np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        np.subtract(rows.shape[-1] - 1, order[..., :k], out=indices)

    return indices, (call,)


def _select_narrow(binding: Binding, rows: Array) -> tuple[Array, tuple[Call, ...]]:
    """Up to 32 bits: partition unsigned keys that hold the element above its index.

    One partial sort then answers both questions, with ties in order of index, and numpy sorts
    64-bit integers with vector instructions.
    """
    k, length = binding.integer("k"), rows.shape[-1]
    keys = binding.scratch.take(rows.shape, np.uint64)
    best = binding.scratch.take((*rows.shape[:-1], k), np.uint64)
    calls: list[Call] = [
        *_order_calls(binding, rows, keys),
        partial(np.left_shift, keys, np.uint64(32), out=keys),
        partial(np.bitwise_or, keys, np.arange(length, dtype=np.uint64), out=keys),
    ]
    if k < length:
        calls.append(partial(keys.partition, k - 1, axis=-1))
    calls += [
        partial(np.copyto, best, keys[..., :k]),
        partial(best.sort, axis=-1),
        partial(np.bitwise_and, best, _LOW_HALF, out=best),
    ]
    return best.view(np.int64), tuple(calls)


def _order_calls(binding: Binding, rows: Array, keys: Array) -> list[Call]:
    """Calls that write unsigned 32-bit numbers in the wanted order into ``keys``."""
    bits = binding.scratch.take(rows.shape, np.uint32)
    calls = _ORDERS[rows.dtype.kind](binding, rows, bits)
    if binding.integer("largest", 1):
        calls.append(partial(np.invert, bits, out=bits))
    calls.append(partial(np.copyto, keys, bits))
    return calls


def _unsigned_order(binding: Binding, rows: Array, bits: Array) -> list[Call]:
    del binding
    return [partial(np.copyto, bits, rows)]


def _signed_order(binding: Binding, rows: Array, bits: Array) -> list[Call]:
    """Flipping the sign bit puts negative numbers first."""
    del binding
    return [
        partial(np.copyto, bits.view(np.int32), rows),
        partial(np.bitwise_xor, bits, _TOP_BIT, out=bits),
    ]


def _float_order(binding: Binding, rows: Array, bits: Array) -> list[Call]:
    """IEEE bit patterns sort as sign and magnitude: flip all bits of negative numbers."""
    signed, numbers = bits.view(np.int32), bits.view(np.float32)
    flip = binding.scratch.take(rows.shape, np.int32)
    nans = binding.scratch.take(rows.shape, np.bool_)
    return [
        partial(np.add, rows, np.float32(0), out=numbers),  # -0 becomes +0
        partial(np.isnan, numbers, out=nans),
        partial(np.copyto, signed, _LARGEST, where=nans),
        partial(np.right_shift, signed, 31, out=flip),
        partial(np.bitwise_or, flip.view(np.uint32), _TOP_BIT, out=flip.view(np.uint32)),
        partial(np.bitwise_xor, bits, flip.view(np.uint32), out=bits),
    ]


_ORDERS: Final[dict[str, Callable[[Binding, Array, Array], list[Call]]]] = {
    "f": _float_order,
    "i": _signed_order,
    "u": _unsigned_order,
}

KERNELS: Final[dict[str, Kernel]] = {"TopK": _top_k}
