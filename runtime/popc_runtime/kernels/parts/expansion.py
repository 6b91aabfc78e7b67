"""Copies of an input shifted by the taps of a window along a row: the operand of convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call
from popc_runtime.kernels.core.copying import as_runs
from popc_runtime.kernels.parts.windows import WindowAxis

__all__ = ["expand_rows", "fill_columns"]


def expand_rows(
    x: Array, target: Array, rows: WindowAxis, start: int, columns: WindowAxis
) -> Iterator[Call]:
    """Calls that put rows of ``x`` [..., H, W], shifted by each tap, into ``target``.

    Row r of ``target`` [..., taps, R, columns.out] (any strides) holds what tap 0 of window
    ``start`` + r of ``rows`` reads; it is zero in the padding.  What lies in the padding of
    ``columns`` is left as it is: see `fill_columns`.
    """
    height = target.shape[-2]
    inside = rows.span(0)
    first = min(max(inside.first, start), start + height)
    stop = max(min(inside.stop, start + height), first)
    for outside in (slice(0, first - start), slice(stop - start, height)):
        if outside.stop > outside.start:
            yield partial(target[..., outside, :].fill, 0)
    if first == stop:
        return
    top = inside.source + (first - inside.first) * rows.stride
    bottom = top + (stop - first - 1) * rows.stride + 1
    for tap in range(columns.kernel):
        across = columns.span(tap)
        if across.size:
            to = target[..., tap, first - start : stop - start, across.outputs]
            from_ = x[..., top : bottom : rows.stride, across.inputs]
            yield partial(np.copyto, *as_runs(to, np.broadcast_to(from_, to.shape)))


def fill_columns(target: Array, columns: WindowAxis) -> Iterator[Call]:
    """Calls that zero what lies in the padding of ``columns``; it stays so for every block."""
    width = target.shape[-1]
    for tap in range(columns.kernel):
        across = columns.span(tap)
        first, stop = (across.first, across.stop) if across.size else (width, width)
        for side in (slice(0, first), slice(stop, width)):
            part = target[..., tap, :, side]
            if part.size:
                yield partial(part.fill, 0)
