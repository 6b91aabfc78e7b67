"""Views, copies, joins, splits: elements move and do not change."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import (
    default_domain,
    integers_of,
    required_integers,
)
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.frontend.values import Value
from popc.ir import Shape, Tensor
from popc.ops.infer import broadcast_shapes, normal_axis
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

_SHAPE: Final = "the output shape"


# -- shapes ----------------------------------------------------------------------------------------


def _reshape(node: Node) -> Tensor:
    x = node.input(0)
    wanted = required_integers(node, 1, "shape", _SHAPE)
    keep_zeros = node.version >= 14 and bool(node.integer("allowzero", 0))
    return emit_reshape(node, x, _resolved(wanted, x.type.shape, keep_zeros=keep_zeros))


def _resolved(wanted: Shape, shape: Shape, *, keep_zeros: bool) -> Shape:
    """``wanted`` with 0 replaced by the input's dimension, and -1 by what is left."""
    dims = list(wanted)
    for axis, dim in enumerate(dims):
        if dim == 0 and not keep_zeros:
            if axis >= len(shape):
                raise ModelError(
                    f"0 at axis {axis} of {list(wanted)} has no input dimension to copy"
                )
            dims[axis] = shape[axis]
    if dims.count(-1) > 1 or min(dims, default=0) < -1:
        raise ModelError(f"{list(wanted)} is not a shape")
    if -1 in dims:
        rest = -prod(dims)
        if rest == 0 or prod(shape) % rest:
            raise ModelError(f"shape {list(shape)} cannot be reshaped to {list(wanted)}")
        dims[dims.index(-1)] = prod(shape) // rest
    return tuple(dims)


def _squeeze(node: Node) -> Tensor:
    """Without axes (or with an empty list, as onnxruntime has it), all dimensions of size 1 go."""
    x = node.input(0)
    shape = x.type.shape
    axes = integers_of(node, 1, "axes", _SHAPE)
    if axes:
        gone = {normal_axis(axis, len(shape)) for axis in axes}
    else:
        gone = {axis for axis, dim in enumerate(shape) if dim == 1}
    for axis in gone:
        if shape[axis] != 1:
            raise ModelError(f"dimension {axis} is {shape[axis]} and cannot be squeezed")
    return emit_reshape(node, x, tuple(d for axis, d in enumerate(shape) if axis not in gone))


def _unsqueeze(node: Node) -> Tensor:
    x = node.input(0)
    axes = required_integers(node, 1, "axes", _SHAPE)
    rank = x.type.rank + len(axes)
    new = {normal_axis(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise ModelError(f"axes {list(axes)} are not distinct")
    rest = iter(x.type.shape)
    return emit_reshape(node, x, tuple(1 if axis in new else next(rest) for axis in range(rank)))


def _flatten(node: Node) -> Tensor:
    x = node.input(0)
    axis = node.integer("axis", 1)
    if axis != x.type.rank:
        axis = normal_axis(axis, x.type.rank)
    return emit_reshape(node, x, (prod(x.type.shape[:axis]), prod(x.type.shape[axis:])))


def _expand(node: Node) -> Tensor:
    x = node.input(0)
    wanted = required_integers(node, 1, "shape", _SHAPE)
    shape = broadcast_shapes([x.type.shape, wanted])
    return x if shape == x.type.shape else node.emit("Expand", [x], {"shape": shape})


def _identity(node: Node) -> Value:
    return node.value(0)


def _shape(node: Node) -> Tensor:
    """From opset 15 on, a part of the shape, with the bounds clamped."""
    shape = node.input(0).type.shape
    end = node.integer("end") if node.has("end") else len(shape)
    return node.constant(np.array(shape[node.integer("start", 0) : end], np.int64))


def _size(node: Node) -> Tensor:
    return node.constant(np.int64(node.input(0).type.size))


# -- order -----------------------------------------------------------------------------------------


def _transpose(node: Node) -> Tensor:
    x = node.input(0)
    return emit_transpose(node, x, node.integers("perm", range(x.type.rank)[::-1]))


def _depth_to_space(node: Node) -> Tensor:
    """ONNX DepthToSpace-13: the block's place within the depth is first (DCR) or last (CRD)."""
    x, block = node.input(0), node.integer("blocksize")
    batch, depth, height, width = _image(x)
    if block < 1 or depth % (block * block):
        raise ModelError(f"depth {depth} does not hold blocks of {block} by {block}")
    left = depth // (block * block)
    if node.version >= 11 and node.text("mode", "DCR") == "CRD":
        split, perm = (batch, left, block, block, height, width), (0, 1, 4, 2, 5, 3)
    else:
        split, perm = (batch, block, block, left, height, width), (0, 3, 4, 1, 5, 2)
    moved = emit_transpose(node, emit_reshape(node, x, split), perm)
    return emit_reshape(node, moved, (batch, left, height * block, width * block))


def _space_to_depth(node: Node) -> Tensor:
    x, block = node.input(0), node.integer("blocksize")
    batch, depth, height, width = _image(x)
    if block < 1 or height % block or width % block:
        raise ModelError(f"{height} by {width} is not made of blocks of {block} by {block}")
    rows, columns = height // block, width // block
    cut = emit_reshape(node, x, (batch, depth, rows, block, columns, block))
    moved = emit_transpose(node, cut, (0, 3, 5, 1, 2, 4))
    return emit_reshape(node, moved, (batch, depth * block * block, rows, columns))


def _image(x: Tensor) -> tuple[int, int, int, int]:
    if x.type.rank != 4:
        raise ModelError(f"needs [batch, depth, height, width], not {x.type}")
    batch, depth, height, width = x.type.shape
    return batch, depth, height, width


def _reverse_sequence(node: Node) -> Tensor:
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    if {batch, time} != {0, 1}:
        raise ModelError(f"batch axis {batch} and time axis {time} must be 0 and 1")
    return node.emit("ReverseSequence", node.tensors(), {"batch_axis": batch})


# -- parts -----------------------------------------------------------------------------------------


def _slice(node: Node) -> Tensor:
    x = node.input(0)
    what = "the size of the slice"
    starts = required_integers(node, 1, "starts", what)
    ends = required_integers(node, 2, "ends", what)
    axes = integers_of(node, 3, "axes", what) or tuple(range(len(starts)))
    steps = integers_of(node, 4, "steps", what) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(
            f"starts, ends, axes and steps differ in length: "
            f"{len(starts)}, {len(ends)}, {len(axes)}, {len(steps)}"
        )
    windows = [range(dim) for dim in x.type.shape]
    seen: set[int] = set()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = normal_axis(axis, x.type.rank)
        if place in seen or step == 0:
            raise ModelError(f"axis {axis} is sliced twice, or by step 0")
        seen.add(place)
        windows[place] = _window(x.type.shape[place], start, end, step)
    return emit_slice(node, x, windows)


def _window(dim: int, start: int, end: int, step: int) -> range:
    """The indices of a slice; numbers below zero count from the end.

    Unlike Python's, a slice backwards from before the first element begins at that one.
    """
    start, end = (number + dim if number < 0 else number for number in (start, end))
    if step > 0:
        return range(min(max(start, 0), dim), min(max(end, 0), dim), step)
    return range(min(max(start, 0), dim - 1), min(max(end, -1), dim - 1), step)


def _split(node: Node) -> list[Tensor]:
    x = node.input(0)
    axis = normal_axis(node.integer("axis", 0), x.type.rank)
    parts = integers_of(node, 1, "split", "the size of the parts")
    if parts is None:
        parts = _even_parts(node, x.type.shape[axis])
    if len(parts) == 1:
        return [x]
    return node.emit_all("Split", [x], {"axis": axis, "split": parts})


def _even_parts(node: Node, dim: int) -> tuple[int, ...]:
    """Equal parts; with ``num_outputs`` (opset 18) the last one may be smaller."""
    count = node.integer("num_outputs", len(node.output_names))
    part = -(-dim // count)
    last = dim - part * (count - 1)
    if last < 0 or (last != part and not node.has("num_outputs")):
        raise ModelError(f"dimension {dim} cannot be split into {count} equal parts")
    return (*(part,) * (count - 1), last)


def _concat(node: Node) -> Tensor:
    operands = node.tensors()
    axis = node.integer("axis", 1 if node.version < 4 else None)
    axis = normal_axis(axis, node.input(0).type.rank)
    return node.emit("Concat", operands, {"axis": axis}) if len(operands) > 1 else operands[0]


def _tile(node: Node) -> Tensor:
    x = node.input(0)
    if node.version < 6:
        count = required_integers(node, 1, "tiles", _SHAPE)[0]
        axis = normal_axis(required_integers(node, 2, "axis", _SHAPE)[0], x.type.rank)
        repeats = tuple(count if other == axis else 1 for other in range(x.type.rank))
    else:
        repeats = required_integers(node, 1, "repeats", _SHAPE)
    if repeats == (1,) * x.type.rank:
        return x
    return node.emit("Tile", [x], {"repeats": repeats})


def _trilu(node: Node) -> Tensor:
    upper = int(bool(node.integer("upper", 1)))
    return node.emit("Trilu", [node.input(0), node.optional(1)], {"upper": upper})


RULES: Final = default_domain(
    {
        "Concat": _concat,
        "DepthToSpace": _depth_to_space,
        "Expand": _expand,
        "Flatten": _flatten,
        "Identity": _identity,
        "Reshape": _reshape,
        "ReverseSequence": _reverse_sequence,
        "Shape": _shape,
        "Size": _size,
        "Slice": _slice,
        "SpaceToDepth": _space_to_depth,
        "Split": _split,
        "Squeeze": _squeeze,
        "Tile": _tile,
        "Transpose": _transpose,
        "Trilu": _trilu,
        "Unsqueeze": _unsqueeze,
    }
)
