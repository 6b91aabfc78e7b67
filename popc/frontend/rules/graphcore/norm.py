"""ai.graphcore, normalisation: statistics as further results, channels anywhere, strided groups."""

from __future__ import annotations

from functools import partial
from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import converted, standard_op
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_transpose
from popc.frontend.values import Value
from popc.frontend.written import update_statistic
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


# -- BatchNormalization ----------------------------------------------------------------------------


def _batch_normalization(node: Node) -> list[Value | None]:
    """Inputs x, scale, bias, mean, variance; with further results by statistics of the batch.

    The results are y, the running mean and variance, the batch's mean and variance.  Unlike that
    of ai.onnx, the running variance is of all but one of the elements, as PyTorch has it.
    """
    inputs = [node.input(index) for index in range(5)]
    epsilon = node.number("epsilon", 1e-5)
    if not any(node.wants_output(index) for index in range(1, 5)):
        return [standard_op(node, "BatchNormalization", inputs, {"epsilon": epsilon})]
    x, scale, bias = inputs[:3]
    y, mean, variance = node.emit_all(
        "BatchNormalizationTraining", [x, scale, bias], {"epsilon": epsilon}
    )
    count = x.type.size // max(x.type.shape[1], 1)
    unbiased = _times(node, variance, count / max(count - 1, 1))
    updated = [
        update_statistic(node, index, partial(_running, node, new))
        for index, new in ((3, mean), (4, unbiased))
    ]
    batch = [converted(node, statistic, x.type.dtype) for statistic in (mean, variance)]
    return [y, *updated, *batch]


def _times(node: Node, x: Tensor, factor: float) -> Tensor:
    return node.emit("Mul", [x, node.constant(factor, x.type.dtype)])


def _running(node: Node, new: Tensor, old: Tensor) -> Tensor:
    """old * momentum + new * (1 - momentum), in the old one's type."""
    momentum = node.number("momentum", 0.9)
    kept = _times(node, converted(node, old, new.type.dtype), momentum)
    total = node.emit("Add", [kept, _times(node, new, 1.0 - momentum)])
    return converted(node, total, old.type.dtype)


# -- groups of channels ----------------------------------------------------------------------------


def _group_normalization(node: Node) -> list[Value | None]:
    """Inputs x, scale, bias.  Results y, and of each sample's groups the mean and 1 / deviation.

    PopART's document calls the last one a variance; what it computes is the inverse of the
    standard deviation.
    """
    return _normalized(node, node.integer("num_groups"), node.integer("channels_axis", 1))


def _whole_normalization(*, per_channel: bool) -> ImportRule:
    """Instance or layer normalisation of TensorFlow: as many groups as channels, or one."""

    def rule(node: Node) -> list[Value | None]:
        axis = node.integer("channels_axis", -1)
        x = node.input(0)
        channels = x.type.shape[normal_axis(axis, x.type.rank)]
        return _normalized(node, channels if per_channel else 1, axis, epsilon=1e-6)[:1]

    return rule


def _normalized(node: Node, groups: int, axis: int, *, epsilon: float = 1e-5) -> list[Value | None]:
    source = node.input(0)
    axis = normal_axis(axis, source.type.rank)
    if source.type.rank < 2 or axis == 0:
        raise ModelError(f"the channels of {source.type} cannot be along axis {axis}")
    rank = source.type.rank
    front = (0, axis, *(place for place in range(1, rank) if place != axis))
    x = emit_transpose(node, source, front)
    channels = x.type.shape[1]
    if groups < 1 or channels % groups:
        raise ModelError(f"{channels} channels cannot be divided into {groups} groups")
    x = _contiguous_groups(node, x, 1, groups)
    parameters = [
        _contiguous_groups(node, _parameter(node, index, x), 0, groups) for index in (1, 2)
    ]
    attributes = {"epsilon": node.number("epsilon", epsilon), "num_groups": groups}
    y = node.emit("GroupNormalization", [x, *parameters], attributes)
    y = _contiguous_groups(node, y, 1, channels // groups)
    result = emit_transpose(node, y, tuple(front.index(place) for place in range(rank)))
    if not (node.wants_output(1) or node.wants_output(2)):
        return [result]
    return [result, *_group_statistics(node, x, groups, node.number("epsilon", epsilon))]


def _parameter(node: Node, index: int, x: Tensor) -> Tensor:
    """Scale or bias of each channel; absent ones change nothing."""
    given = node.optional(index)
    if given is not None:
        return given
    neutral = node.constant(2 - index, x.type.dtype)
    return node.emit("Expand", [neutral], {"shape": (x.type.shape[1],)})


def _contiguous_groups(node: Node, x: Tensor, axis: int, groups: int) -> Tensor:
    """``x`` with the channels of a group side by side, if groups are strided."""
    if not node.integer("strided_channel_grouping", 0):
        return x
    shape = x.type.shape
    if len(shape) <= axis or shape[axis] % groups:
        raise ModelError(f"{x.type} does not hold {groups} groups of channels")
    cut = emit_reshape(node, x, (*shape[:axis], shape[axis] // groups, groups, *shape[axis + 1 :]))
    perm = list(range(len(shape) + 1))
    perm[axis], perm[axis + 1] = axis + 1, axis
    return emit_reshape(node, emit_transpose(node, cut, tuple(perm)), shape)


def _group_statistics(node: Node, x: Tensor, groups: int, epsilon: float) -> list[Tensor]:
    """Mean and 1 / deviation of each group, at least in float32 until they are rounded."""
    count = x.type.shape[0] * groups
    rows = emit_reshape(node, x, (count, x.type.size // max(count, 1)))
    wide = converted(node, rows, DType.FLOAT64 if x.type.dtype is DType.FLOAT64 else DType.FLOAT32)
    mean = node.emit("ReduceMean", [wide], {"axes": (1,), "keepdims": 1})
    squares = node.emit("Square", [node.emit("Sub", [wide, mean])])
    variance = node.emit("ReduceMean", [squares], {"axes": (1,), "keepdims": 0})
    spread = node.emit("Add", [variance, node.constant(epsilon, variance.type.dtype)])
    inverse = node.emit("Reciprocal", [node.emit("Sqrt", [spread])])
    results = (emit_reshape(node, mean, (count,)), inverse)
    return [converted(node, result, x.type.dtype) for result in results]


RULES: Final = graphcore_domain(
    {
        "BatchNormalization": takes(5, 5, _batch_normalization),
        "GroupNormalization": takes(3, 3, _group_normalization),
        "InstanceNormalization": takes(1, 3, _whole_normalization(per_channel=True)),
        "LayerNormalization": takes(1, 3, _whole_normalization(per_channel=False)),
    }
)
