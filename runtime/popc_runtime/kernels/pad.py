"""Pad: one copy of the interior, then the borders, all prepared when the program is bound."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.core.copying import copy_calls, subarray
from popc_runtime.kernels.core.stored import to_bfloat16
from popc_runtime.kernels.parts.borders import border_runs

__all__ = ["KERNELS"]


def _pad(binding: Binding) -> Calls:
    """Negative pads crop first.

    Borders are filled axis by axis.  Those of a later axis span the borders of the earlier ones,
    so that corners come out as numpy.pad defines them.
    """
    x, out = binding.input(0), binding.output()
    pads = binding.integers("pads")
    begins, ends = pads[: x.ndim], pads[x.ndim :]
    kept = [
        slice(max(-begin, 0), dim - max(-end, 0))
        for begin, end, dim in zip(begins, ends, x.shape, strict=True)
    ]
    cropped = subarray(x, kept)
    window = [
        slice(max(begin, 0), max(begin, 0) + dim)
        for begin, dim in zip(begins, cropped.shape, strict=True)
    ]
    calls = list(copy_calls(subarray(out, window), cropped))
    mode = binding.text("mode", "constant")
    for axis in range(x.ndim):
        if cropped.shape[axis] != out.shape[axis]:
            calls.extend(_borders(binding, mode, out, window, axis))
        window[axis] = slice(None)
    return tuple(calls)


def _borders(binding: Binding, mode: str, out: Array, window: list[slice], axis: int) -> list[Call]:
    inner = window[axis]
    if mode == "constant":
        return _constant_borders(binding, out, window, axis)
    calls: list[Call] = []
    for to, from_ in border_runs(mode, inner.start, inner.stop, out.shape[axis]):
        target, source = list(window), list(window)
        target[axis], source[axis] = to, from_
        calls.extend(_copy_run(subarray(out, target), subarray(out, source)))
    return calls


def _copy_run(target: Array, source: Array) -> tuple[Call, ...]:
    return copy_calls(target, np.broadcast_to(source, target.shape, subok=True))


def _constant_borders(binding: Binding, out: Array, window: list[slice], axis: int) -> list[Call]:
    value = _fill_value(binding, out)
    inner = window[axis]
    calls: list[Call] = []
    for border in (slice(0, inner.start), slice(inner.stop, out.shape[axis])):
        target = list(window)
        target[axis] = border
        if subarray(out, target).size:
            calls.append(partial(np.copyto, subarray(out, target), value))
    return calls


def _fill_value(binding: Binding, out: Array) -> Array:
    operand = binding.optional(1)
    if operand is not None:
        return operand.reshape(())
    value = binding.attributes.get("value", 0)
    if binding.output_dtypes[0] is DType.BFLOAT16:
        return to_bfloat16(np.asarray(value, np.float32))
    return np.asarray(value).astype(out.dtype)


KERNELS: Final[dict[str, Kernel]] = {"Pad": MoveKernel(_pad)}
