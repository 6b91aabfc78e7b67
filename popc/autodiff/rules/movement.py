"""Gradients of movement ops: elements move back, and what was repeated adds up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc.ir.attributes import integer, integers

__all__ = ["GRADIENTS"]


def _copy(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad()]


def _reshape(b: Backward) -> Sequence[Tensor | None]:
    return [b.reshape(b.grad(), b.input(0).type.shape)]


def _transpose(b: Backward) -> Sequence[Tensor | None]:
    perm = integers(b.attributes, "perm")
    return [b.transpose(b.grad(), sorted(range(len(perm)), key=perm.__getitem__))]


def _expand(b: Backward) -> Sequence[Tensor | None]:
    return [b.sum_to(b.grad(), b.input(0).type)]


def _tile(b: Backward) -> Sequence[Tensor | None]:
    """With every dimension as (repeats, n), the gradient is the sum over the repeats."""
    x, repeats = b.input(0).type, integers(b.attributes, "repeats")
    pairs = tuple(size for pair in zip(repeats, x.shape, strict=True) for size in pair)
    axes = [2 * axis for axis, count in enumerate(repeats) if count != 1]
    return [b.reshape(b.sum(b.reshape(b.grad(), pairs), axes), x.shape)]


def _same_again(b: Backward) -> Sequence[Tensor | None]:
    """Ops that undo themselves (ReverseSequence) or keep some elements and clear others (Trilu)."""
    return [b.emit(b.op.op_type, [b.grad(), b.optional(1)], b.attributes)]


# -- parts -----------------------------------------------------------------------------------------


def _concat(b: Backward) -> Sequence[Tensor | None]:
    axis, g = integer(b.attributes, "axis"), b.grad()
    grads: list[Tensor | None] = []
    start = 0
    for index, operand in enumerate(b.op.present_inputs):
        stop = start + operand.type.shape[axis]
        grads.append(b.part(g, axis, range(start, stop)) if b.wants(index) else None)
        start = stop
    return grads


def _split(b: Backward) -> Sequence[Tensor | None]:
    axis, parts = integer(b.attributes, "axis"), integers(b.attributes, "split")
    known = [index for index in range(len(parts)) if b.optional_grad(index) is not None]
    if len(known) > 1:
        grads = [b.grad(index) for index in range(len(parts))]
        return [b.emit("Concat", grads, {"axis": axis})]
    (only,) = known
    return [_padded(b, b.grad(only), axis, sum(parts[:only]), sum(parts[only + 1 :]))]


def _padded(b: Backward, g: Tensor, axis: int, begin: int, end: int) -> Tensor:
    zeros = (0,) * g.type.rank
    around = [(*zeros[:axis], count, *zeros[axis + 1 :]) for count in (begin, end)]
    return b.pad(g, *around)


def _slice(b: Backward) -> Sequence[Tensor | None]:
    """Zeros, but for the elements that were read."""
    x = b.input(0).type
    starts, sizes, steps = (integers(b.attributes, key) for key in ("starts", "sizes", "steps"))
    windows = [
        range(start, start + size * step, step)
        for start, size, step in zip(starts, sizes, steps, strict=True)
    ]
    g = b.slice(b.grad(), [_upwards(window) for window in windows])
    strides = [abs(window.step) if len(window) > 1 else 1 for window in windows]
    g = _spread(b, g, strides)
    begins = [min(window, default=0) for window in windows]
    fields = zip(x.shape, begins, g.type.shape, strict=True)
    return [b.pad(g, begins, [dim - begin - spread for dim, begin, spread in fields])]


def _upwards(window: range) -> range:
    """The order in which the elements of ``window`` ascend."""
    count = len(window)
    return range(count) if window.step > 0 or count < 2 else range(count - 1, -1, -1)


def _spread(b: Backward, g: Tensor, strides: Sequence[int]) -> Tensor:
    """``g`` with ``stride - 1`` zeros after each element, along every dimension."""
    if prod(strides) == 1:
        return g
    dims = g.type.shape
    pairs = tuple(size for dim in dims for size in (dim, 1))
    ends = tuple(count for stride in strides for count in (0, stride - 1))
    spread = b.pad(b.reshape(g, pairs), (0,) * len(pairs), ends)
    return b.reshape(spread, tuple(d * stride for d, stride in zip(dims, strides, strict=True)))


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Concat": _concat,
    "Copy": _copy,
    "Expand": _expand,
    "Reshape": _reshape,
    "ReverseSequence": _same_again,
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _same_again,
}
