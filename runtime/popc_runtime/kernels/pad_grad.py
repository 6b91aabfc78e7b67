"""The gradient of Pad where it repeats elements: each adds up what all its copies got."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.format.limits import MAX_BORDER_RUNS
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.copying import copy_calls, subarray
from popc_runtime.kernels.parts.accumulate import clear
from popc_runtime.kernels.parts.borders import border_runs
from popc_runtime.kernels.parts.epilogue import in_float32

__all__ = ["KERNELS"]

# Elements of one axis before padding, and as many after it (or several that repeat one element).
_Run: TypeAlias = tuple[slice, slice]


def _pad_grad(binding: Binding) -> Calls:
    """The interior is copied; corners are the products of the axes' borders."""
    grad, out = binding.input(0), binding.output()
    pads, mode = binding.integers("pads"), binding.text("mode")
    axes = [
        list(_runs(mode, dim, begin, end))
        for dim, begin, end in zip(out.shape, pads[: out.ndim], pads[out.ndim :], strict=True)
    ]
    if prod(map(len, axes)) > MAX_BORDER_RUNS:
        raise ValueError(f"borders have more than {MAX_BORDER_RUNS:,} parts")
    calls: list[Call] = [clear(out)] if min(pads, default=0) < 0 else []
    for number, runs in enumerate(product(*axes)):
        target = subarray(out, [to for to, _ in runs])
        source = subarray(grad, [from_ for _, from_ in runs])
        calls.extend(_add(binding, target, source) if number else copy_calls(target, source))
    return tuple(calls)


def _runs(mode: str, dim: int, begin: int, end: int) -> Iterator[_Run]:
    """The interior of an axis of ``dim`` elements, then its borders."""
    cropped = max(-begin, 0)
    first, kept = max(begin, 0), dim - cropped - max(-end, 0)
    yield slice(cropped, cropped + kept), slice(first, first + kept)
    for border, inside in border_runs(mode, first, first + kept, dim + begin + end):
        yield _shifted(inside, cropped - first), border


def _shifted(window: slice, offset: int) -> slice:
    """A slice whose stop ``None`` stands before index 0 of what ``offset`` is added to."""
    stop = -1 if window.stop is None else window.stop
    stop += offset
    return slice(window.start + offset, stop if stop >= 0 else None, window.step)


def _add(binding: Binding, target: Array, source: Array) -> tuple[Call, ...]:
    if target.size == 0 or source.size == 0:
        return ()
    repeated = tuple(
        axis for axis in range(target.ndim) if source.shape[axis] != target.shape[axis]
    )
    if not repeated:
        return (partial(np.add, target, source, out=target),)
    total = binding.scratch.take(target.shape, target.dtype)
    return (
        partial(np.add.reduce, source, axis=repeated, out=total, keepdims=True),
        partial(np.add, target, total, out=target),
    )


KERNELS: Final[dict[str, Kernel]] = {"PadGrad": in_float32(_pad_grad)}
