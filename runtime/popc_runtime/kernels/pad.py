"""Pad: one copy of the interior, then the borders, all prepared when the program is bound."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, MoveKernel
from popc_runtime.kernels.copying import copy_calls, subarray
from popc_runtime.kernels.preparation import to_bfloat16

__all__ = ["KERNELS", "border_runs"]


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
    return copy_calls(target, np.broadcast_to(source, target.shape))


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


def border_runs(mode: str, start: int, stop: int, total: int) -> list[tuple[slice, slice]]:
    """Border ranges of one axis and the interior ranges that they repeat, as (target, source).

    A run goes up (wrap), down (reflect) or stays (edge); pads longer than the interior give
    several runs.
    """
    indices = _REPEATED[mode](np.arange(-start, total - start), stop - start)
    runs: list[tuple[slice, slice]] = []
    for begin, end in ((0, start), (stop, total)):
        while begin < end:
            length, step = _run_length(indices[begin:end])
            first = start + int(indices[begin])
            runs.append((slice(begin, begin + length), _source(first, length, step)))
            begin += length  # noqa: PLW2901 - walks the border
    return runs


def _run_length(indices: Array) -> tuple[int, int]:
    """Length of the leading run of constant step, and the step."""
    if len(indices) == 1:
        return 1, 1
    steps = np.diff(indices)
    changes = np.flatnonzero(steps != steps[0])
    return int(changes[0]) + 1 if len(changes) else len(indices), int(steps[0])


def _source(first: int, length: int, step: int) -> slice:
    if step == 0:
        return slice(first, first + 1)
    stop = first + length * step
    return slice(first, stop if stop >= 0 else None, step)


def _edge(positions: Array, size: int) -> Array:
    return np.clip(positions, 0, size - 1)


def _reflect(positions: Array, size: int) -> Array:
    """There and back without repeating the ends: 0 1 2 1 0 1 2 ..."""
    period = max(2 * (size - 1), 1)
    there = positions % period
    back: Array = np.minimum(there, period - there)
    return back


def _wrap(positions: Array, size: int) -> Array:
    wrapped: Array = positions % size
    return wrapped


# (positions relative to the interior, size of the interior) -> the element that stands there
_REPEATED: Final[dict[str, Callable[[Array, int], Array]]] = {
    "edge": _edge,
    "reflect": _reflect,
    "wrap": _wrap,
}

KERNELS: Final[dict[str, Kernel]] = {"Pad": MoveKernel(_pad)}
