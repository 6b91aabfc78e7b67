"""Pad and its gradient."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integers, text
from popc.ops.infer import check_choice, operand, optional_operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes
from popc_runtime.format.limits import MAX_BORDER_RUNS
from popc_runtime.kernels.parts.borders import border_runs

__all__ = ["OPS"]


def _pad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    source, pads = operand(inputs, 0), integers(attributes, "pads")
    check_choice(attributes, "mode", ("constant", "edge", "reflect", "wrap"))
    if len(pads) != 2 * source.rank:
        raise ModelError(f"needs {2 * source.rank} pads, not {len(pads)}")
    shape: list[int] = []
    for axis, dim in enumerate(source.shape):
        begin, end = pads[axis], pads[axis + source.rank]
        kept = dim + min(begin, 0) + min(end, 0)
        if kept < 0:
            raise ModelError(f"pads {begin} and {end} take more than dimension {axis}, {dim}")
        if kept == 0 and max(begin, end) > 0 and text(attributes, "mode") != "constant":
            raise ModelError(f"dimension {axis} is empty: there is nothing to repeat")
        shape.append(dim + begin + end)
    if text(attributes, "mode") != "constant":
        _parts(source.shape, attributes)
    value = optional_operand(inputs, 1)
    if value is not None and (value.size != 1 or value.dtype is not source.dtype):
        raise ModelError(f"the value must be one {source.dtype}, not {value}")
    return (source.with_shape(tuple(shape)),)


def _pad_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of a Pad by ``pads`` that repeats elements; those of constants are a crop."""
    grad, pads = operand(inputs, 0), integers(attributes, "pads")
    check_choice(attributes, "mode", ("edge", "reflect", "wrap"))
    if len(pads) != 2 * grad.rank:
        raise ModelError(f"needs {2 * grad.rank} pads, not {len(pads)}")
    sides = zip(grad.shape, pads[: grad.rank], pads[grad.rank :], strict=True)
    source = grad.with_shape(tuple(dim - begin - end for dim, begin, end in sides))
    if min(source.shape, default=0) < 0 or _pad((source,), attributes) != (grad,):
        raise ModelError(f"{grad} is not the result of padding by {list(pads)}")
    parts = prod(count + 1 for count in _parts(source.shape, attributes))
    if parts > MAX_BORDER_RUNS:
        raise ModelError(f"borders have {parts:,} parts, and may have {MAX_BORDER_RUNS:,}")
    return (source,)


def _parts(shape: Shape, attributes: Attributes) -> list[int]:
    """The number of times that the borders of each axis repeat what is between them.

    Raises:
        ModelError: more often than kernels do.
    """
    mode, pads = text(attributes, "mode"), integers(attributes, "pads")
    counts: list[int] = []
    for axis, (dim, begin, end) in enumerate(
        zip(shape, pads[: len(shape)], pads[len(shape) :], strict=True)
    ):
        first = max(begin, 0)
        last = first + dim + min(begin, 0) + min(end, 0)
        try:
            counts.append(len(border_runs(mode, first, last, dim + begin + end)))
        except ValueError as error:
            raise ModelError(f"dimension {axis}: {error}") from None
    return counts


OPS: Final[dict[str, OpSpec]] = {"Pad": OpSpec(_pad), "PadGrad": OpSpec(_pad_grad)}
