"""Emit movement ops, unless there is nothing to move."""

from __future__ import annotations

from collections.abc import Sequence

from popc.frontend.node import Node
from popc.ir import Shape, Tensor

__all__ = ["emit_reshape", "emit_slice", "emit_transpose", "with_axis"]


def emit_reshape(node: Node, x: Tensor, shape: Shape) -> Tensor:
    """``x`` with another shape of the same size."""
    return x if x.type.shape == shape else node.emit("Reshape", [x], {"shape": shape})


def with_axis(node: Node, x: Tensor, axis: int) -> Tensor:
    """``x`` with one more axis, of size 1."""
    shape = x.type.shape
    return emit_reshape(node, x, (*shape[:axis], 1, *shape[axis:]))


def emit_transpose(node: Node, x: Tensor, perm: tuple[int, ...]) -> Tensor:
    """``x`` with its axes in the order ``perm``."""
    if perm == tuple(range(x.type.rank)):
        return x
    return node.emit("Transpose", [x], {"perm": perm})


def emit_slice(node: Node, x: Tensor, windows: Sequence[range]) -> Tensor:
    """The elements of ``x`` whose index lies in the window of every axis."""
    if all(window == range(dim) for window, dim in zip(windows, x.type.shape, strict=True)):
        return x
    # Where a step is not used, or nothing is read, any value would do: choose the plainest.
    return node.emit(
        "Slice",
        [x],
        {
            "starts": tuple(window.start if window else 0 for window in windows),
            "sizes": tuple(len(window) for window in windows),
            "steps": tuple(window.step if len(window) > 1 else 1 for window in windows),
        },
    )
