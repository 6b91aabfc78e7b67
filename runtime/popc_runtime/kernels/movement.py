"""Views made real, joins, splits: elements move and do not change."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.bound import merged_view
from popc_runtime.kernels.core.copying import copy_calls, subarray

__all__ = ["KERNELS"]


def _copy(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0))


def _reshape(binding: Binding) -> Calls:
    x, out = binding.input(0), binding.output()
    target, source = merged_view(out, x.shape), merged_view(x, out.shape)
    if target is not None:
        return copy_calls(target, x)
    if source is not None:
        return copy_calls(out, source)
    packed = binding.scratch.take(x.shape, x.dtype)
    return (*copy_calls(packed, x), *copy_calls(out, packed.reshape(out.shape)))


def _transpose(binding: Binding) -> Calls:
    return copy_calls(binding.output(), binding.input(0).transpose(binding.integers("perm")))


def _expand(binding: Binding) -> Calls:
    out = binding.output()
    return copy_calls(out, np.broadcast_to(binding.input(0), out.shape, subok=True))


def _tile(binding: Binding) -> Calls:
    """Each dimension n becomes (repeats, n), with the copies broadcast along ``repeats``."""
    x, out = binding.input(0), binding.output()
    repeats = binding.integers("repeats")
    wide = tuple(size for pair in zip(repeats, x.shape, strict=True) for size in pair)
    ones = tuple(size for dim in x.shape for size in (1, dim))
    return copy_calls(out.reshape(wide), np.broadcast_to(x.reshape(ones), wide, subok=True))


def _slice(binding: Binding) -> Calls:
    out = binding.output()
    window = tuple(
        _window(start, size, step)
        for start, size, step in zip(
            binding.integers("starts"), out.shape, binding.integers("steps"), strict=True
        )
    )
    return copy_calls(out, subarray(binding.input(0), window))


def _window(start: int, size: int, step: int) -> slice:
    """``size`` elements from ``start`` on; a slice cannot name the place before index 0."""
    stop = start + size * step
    return slice(start, stop if stop >= 0 else None, step)


def _along(axis: int, window: slice) -> tuple[slice, ...]:
    """The index that takes ``window`` of dimension ``axis``."""
    return (*(slice(None),) * axis, window)


def _parts(axis: int, sizes: list[int]) -> list[tuple[slice, ...]]:
    """Indices of consecutive parts of the given sizes along ``axis``."""
    ends = list(accumulate(sizes))
    return [_along(axis, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


def _concat(binding: Binding) -> Calls:
    out, axis = binding.output(), binding.integer("axis")
    operands = [binding.input(index) for index in range(len(binding.inputs))]
    parts = _parts(axis, [operand.shape[axis] for operand in operands])
    calls: list[Call] = []
    for part, operand in zip(parts, operands, strict=True):
        calls.extend(copy_calls(out[part], operand))
    return tuple(calls)


def _split(binding: Binding) -> Calls:
    x = binding.input(0)
    parts = _parts(binding.integer("axis"), list(binding.integers("split")))
    calls: list[Call] = []
    for part, out in zip(parts, binding.outputs, strict=True):
        if out is not None:
            calls.extend(copy_calls(out, x[part]))
    return tuple(calls)


def _trilu(binding: Binding) -> Calls:
    """Copy, then zero what lies beyond the diagonal ``k`` (ONNX Trilu-14: k > 0 is above it)."""
    x, out, k = binding.input(0), binding.output(), binding.optional(1)
    rows, columns = x.shape[-2:]
    above = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    beyond = np.less if binding.integer("upper", 1) else np.greater
    outside = np.empty(above.shape, bool)
    clear = partial(np.copyto, out, out.dtype.type(0), where=outside)
    diagonal = np.zeros((), np.int64) if k is None else k.reshape(())
    find = partial(beyond, above, diagonal, out=outside)
    if k is None or binding.is_constant(1):
        find()
        return (*copy_calls(out, x), clear)
    return (find, *copy_calls(out, x), clear)


def _reverse_sequence(binding: Binding) -> Calls:
    """Reverse the first ``sequence_lens[b]`` steps of every sequence; both axes are 0 and 1."""
    batch = binding.integer("batch_axis", 1)
    x, out = (np.moveaxis(a, batch, 0) for a in (binding.input(0), binding.output()))
    lengths = binding.input(1)
    if binding.is_constant(1):
        calls: list[Call] = []
        for row, length in enumerate(_checked_lengths(lengths, x.shape[1])):
            calls.extend(copy_calls(out[row, :length], x[row, :length][::-1]))
            calls.extend(copy_calls(out[row, length:], x[row, length:]))
        return tuple(calls)
    steps = np.arange(x.shape[1])[None, :]
    rows = np.arange(x.shape[0])[:, None]

    def call() -> None:
        ends = _checked_lengths(lengths, x.shape[1])[:, None]
        np.copyto(out, x[rows, np.where(steps < ends, ends - 1 - steps, steps)])

    return call


def _checked_lengths(lengths: Array, steps: int) -> Array:
    if lengths.size and (lengths.min() < 0 or lengths.max() > steps):
        raise IndexError(f"sequence lengths {lengths.tolist()} are not all from 0 to {steps}")
    return lengths


KERNELS: Final[dict[str, Kernel]] = {
    "Concat": MoveKernel(_concat),
    "Copy": MoveKernel(_copy),
    "Expand": MoveKernel(_expand),
    "Reshape": MoveKernel(_reshape),
    "ReverseSequence": MoveKernel(_reverse_sequence),
    "Slice": MoveKernel(_slice),
    "Split": MoveKernel(_split),
    "Tile": MoveKernel(_tile),
    "Transpose": MoveKernel(_transpose),
    "Trilu": MoveKernel(_trilu),
}
