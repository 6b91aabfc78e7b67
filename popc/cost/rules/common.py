"""Helpers that rules of several families share."""

from __future__ import annotations

from collections.abc import Callable, Container
from math import prod
from typing import TypeAlias

from popc.cost.formulas.activation import steps_of_activation
from popc.cost.formulas.elementwise import BINARY, NON_LINEAR
from popc.cost.formulas.numbers import ceil_div
from popc.cost.mapping import Layout, device_bytes
from popc.cost.planner import Dims
from popc.cost.work import Work
from popc.ir import Shape
from popc_runtime.format import DType

__all__ = [
    "CostRule",
    "batch_of",
    "channel_dims",
    "copying",
    "custom",
    "dims_along",
    "epilogue",
    "free",
    "layer_sizes",
    "one_step_of",
    "per_scalar",
    "residual_and_activation",
    "row_dims",
    "scaled_add",
    "softmax_steps",
    "steps",
]

# Adds the phases of an op to its Work.
CostRule: TypeAlias = Callable[[Work], None]


def free(work: Work) -> None:
    """Nothing happens: the result is another way to look at the operand, or the operand itself."""
    del work


def steps(*names: str) -> CostRule:
    """One elementwise vertex after another, by their names in `popc.cost.formulas.elementwise`."""

    def rule(work: Work) -> None:
        bring_together(work)
        for name in names:
            one_step(work, name)

    return rule


def bring_together(work: Work) -> None:
    """Exchange operands that do not lie where operand 0 does; small ones are broadcast."""
    size = work.result().size
    for index, tensor in enumerate(work.op.inputs):
        if tensor is None or tensor.type.size <= 1:
            continue
        if tensor.type.size < size:
            share = work.share_of_result()
            bytes_ = min(share, tensor.type.size) * device_bytes(tensor.type.dtype)
            work.receive(f"operand {index}", bytes_, sources=ceil_div(bytes_, 128))
        elif index:
            work.align(index)


def scaled_add(work: Work) -> None:
    """One operand, and another one times a scalar."""
    bring_together(work)
    work.scaled_add()


def one_step(work: Work, name: str) -> None:
    """One elementwise vertex; one with a scalar or vector if an operand is smaller."""
    dtype = work.input().dtype if work.op.inputs else work.result().dtype
    size = work.result().size
    if name in NON_LINEAR:
        work.non_linear(name)
    elif name not in BINARY:
        work.unary(name, dtype=dtype)
    elif (small := _smaller_operand(work, size)) is not None:
        work.scaled(name, rows=0 if small <= 1 else min(small, size))
    else:
        work.binary(name, dtype=dtype)


def _smaller_operand(work: Work, size: int) -> int | None:
    sizes = [tensor.type.size for tensor in work.op.present_inputs]
    return min(sizes) if len(sizes) > 1 and min(sizes) < size else None


def custom(cycles: int) -> CostRule:
    """A vertex that poplibs does not have: so many worker cycles for each element."""

    def rule(work: Work) -> None:
        bring_together(work)
        work.per_element(cycles)

    return rule


def per_scalar(cycles: int) -> CostRule:
    """Work on a few numbers: one worker of one tile takes so many cycles for each."""

    def rule(work: Work) -> None:
        size = sum(tensor.type.size for tensor in work.op.outputs)
        work.on_one_tile(size, cycles)

    return rule


def copying(work: Work) -> None:
    """Every result is copied to where it belongs."""
    for tensor in work.op.outputs:
        work.move(tensor.type)


def epilogue(work: Work, first: int, channels: int) -> None:
    """Bias, residual and activation after a product; operands ``first`` and the next."""
    if work.has(first):
        if work.input(first).size == work.result().size:
            work.align(first, work.layout)
            work.binary("add")
        else:
            work.bias(first, channels)
    residual_and_activation(work, first + 1)


def residual_and_activation(work: Work, residual: int, dtype: DType | None = None) -> None:
    """Add the work that follows a bias; operand ``residual``.

    ``dtype`` is what they are computed in, if not in that of the result.
    """
    if work.has(residual):
        work.align(residual, work.layout)
        work.binary("add", dtype=dtype)
    activation = work.text("activation")
    if activation:
        for name in steps_of_activation(activation, work.text("activation_approximate")):
            one_step_of(work, name, dtype)


def one_step_of(work: Work, name: str, dtype: DType | None = None) -> None:
    """A vertex over the result alone, while that is of type ``dtype``."""
    if name in NON_LINEAR:
        work.non_linear(name, dtype=dtype)
    elif name in BINARY:
        work.scaled(name, dtype=dtype)
    else:
        work.unary(name, dtype=dtype)


def softmax_steps(work: Work, size: int, rows: int) -> None:
    """The stable form over ``rows`` rows of ``size`` elements in all."""
    dtype = work.input().dtype
    dims = row_dims(size, rows)
    work.reduce(dims, dtype, maximum=True, whole=True)
    work.spread(rows, size, dtype)
    work.scaled("add", rows=rows, size=size)
    work.unary("exp", size=size, dtype=dtype)
    work.reduce(dims, dtype, whole=True, result=DType.FLOAT32)
    work.unary("inverse", size=rows, dtype=DType.FLOAT32)
    work.cast(DType.FLOAT32, dtype, rows)
    work.spread(rows, size, dtype)
    work.scaled("add", rows=rows, size=size)


def row_dims(size: int, rows: int) -> Dims:
    """The dimensions of ``size`` elements in ``rows`` rows, of which each is reduced."""
    return (rows, False), (size // max(rows, 1), True)


def dims_along(shape: Shape, along: Container[int], layout: Layout) -> Dims:
    """Sizes of axes as they lie; neighbours that are reduced or kept together are one."""
    sizes = [(size, axis in along) for axis, size in enumerate(shape)]
    if layout.image and layout.block and len(shape) > 2:
        channels, reduced = sizes.pop(1)
        block = min(layout.block, channels)
        sizes = [(-(-channels // block), reduced), *sizes, (block, reduced)]
    dims: list[tuple[int, bool]] = []
    for size, reduced in sizes:
        if dims and dims[-1][1] == reduced:
            dims[-1] = dims[-1][0] * size, reduced
        elif size > 1:
            dims.append((size, reduced))
    return dims


def channel_dims(work: Work) -> Dims:
    """The dimensions of images, all reduced but channels, axis 1, which may lie in blocks."""
    x = work.input()
    along = {axis for axis in range(len(x.shape)) if axis != 1}
    return dims_along(x.shape, along, work.layout_of(work.op.operand(0)))


def batch_of(shape: Shape) -> int:
    """The number of matrices in a tensor of matrices."""
    return prod(shape[:-2])


def layer_sizes(shape: Shape, axis: int) -> tuple[int, int]:
    """Rows, and elements of one, where rows end with the last axis and begin with ``axis``."""
    axis %= max(len(shape), 1)
    return prod(shape[:axis]), prod(shape[axis:])
