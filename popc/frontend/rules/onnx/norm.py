"""Normalisation by statistics of the elements' group."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, default_domain, reshaped
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import Value
from popc.frontend.written import update_statistic
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.format import DType

__all__ = ["RULES"]


# -- BatchNormalization ----------------------------------------------------------------------------


def _batch_normalization(node: Node) -> list[Value | None]:
    """In training, further outputs are the running mean and variance.

    Up to opset 13 the mean and variance of the batch follow (BatchNormalization-15).
    """
    x = node.input(0)
    parameters = [node.input(index) for index in range(1, 5)]
    shape = _channel_shape(node, x)
    flat = reshaped(node, x, shape)
    if len(parameters[0].type.shape) > 1:
        parameters = [reshaped(node, item, (item.type.size,)) for item in parameters]
    attributes = {"epsilon": node.number("epsilon", 1e-5)}
    if not _is_training(node):
        y = node.emit("BatchNormalization", [flat, *parameters], attributes)
        return [reshaped(node, y, x.type.shape)]
    operands = [flat, *parameters[:2]]
    y, *statistics = node.emit_all("BatchNormalizationTraining", operands, attributes)
    running = [
        _running_statistic(node, index, new) for index, new in zip((3, 4), statistics, strict=True)
    ]
    return [reshaped(node, y, x.type.shape), *running, *statistics]


def _channel_shape(node: Node, x: Tensor) -> tuple[int, ...]:
    """[N, C, ...].  Before opset 9, ``spatial=0`` asked for statistics of each element."""
    if x.type.rank == 1:
        return (*x.type.shape, 1)
    if node.version < 9 and not node.integer("spatial", 1):
        return (x.type.shape[0], prod(x.type.shape[1:]))
    return x.type.shape


def _is_training(node: Node) -> bool:
    """Opset 14 has an attribute for it; opset 7 goes by the outputs, older ones by ``is_test``."""
    if node.version >= 14:
        return node.integer("training_mode", 0) != 0
    if node.version < 7 and node.integer("is_test", 0):
        return False
    return any(node.wants_output(index) for index in range(1, 5))


def _running_statistic(node: Node, index: int, new: Tensor) -> Tensor:
    """The tensor that operand ``index`` becomes."""

    def mean_of_both(old: Tensor) -> Tensor:
        flat = old if old.type.rank == 1 else reshaped(node, old, (old.type.size,))
        return reshaped(node, _running(node, flat, new), old.type.shape)

    return update_statistic(node, index, mean_of_both)


def _running(node: Node, old: Tensor, new: Tensor) -> Tensor:
    """A running mean of both: old * momentum + new * (1 - momentum), in the old one's type."""
    momentum = node.number("momentum", 0.9)
    dtype = new.type.dtype
    kept = node.emit("Mul", [converted(node, old, dtype), node.constant(momentum, dtype)])
    added = node.emit("Mul", [new, node.constant(1.0 - momentum, dtype)])
    return converted(node, node.emit("Add", [kept, added]), old.type.dtype)


# -- statistics of one sample ----------------------------------------------------------------------


def _instance_normalization(node: Node) -> Tensor:
    inputs = [node.input(index) for index in range(3)]
    return node.emit("InstanceNormalization", inputs, {"epsilon": node.number("epsilon", 1e-5)})


def _group_normalization(node: Node) -> Tensor:
    """Opset 18 had scale and bias per group; they are per channel since opset 21."""
    x, scale, bias = (node.input(index) for index in range(3))
    groups = node.integer("num_groups")
    if node.version < 21 and groups and x.type.rank > 1 and scale.type.shape == (groups,):
        width = x.type.shape[1] // groups
        scale, bias = (_repeated(node, item, width) for item in (scale, bias))
    attributes = {"epsilon": node.number("epsilon", 1e-5), "num_groups": groups}
    return node.emit("GroupNormalization", [x, scale, bias], attributes)


def _repeated(node: Node, x: Tensor, count: int) -> Tensor:
    """Each element of a vector ``count`` times."""
    size = x.type.size
    column = reshaped(node, x, (size, 1))
    return reshaped(node, node.emit("Expand", [column], {"shape": (size, count)}), (size * count,))


def _layer_normalization(node: Node) -> list[Value | None]:
    x = node.input(0)
    attributes = {
        "axis": normal_axis(node.integer("axis", -1), x.type.rank),
        "epsilon": node.number("epsilon", 1e-5),
        "stash_type": dtype_from_onnx(node.integer("stash_type", 1)).value,
    }
    inputs = [x, node.input(1), node.optional(2)]
    return [*node.emit_all("LayerNormalization", inputs, attributes)]


def _rms_normalization(node: Node) -> Tensor:
    x = node.input(0)
    attributes = {
        "axis": normal_axis(node.integer("axis", -1), x.type.rank),
        "epsilon": node.number("epsilon", 1e-5),
    }
    return node.emit("RMSNormalization", [x, node.input(1)], attributes)


def _mean_variance_normalization(node: Node) -> Tensor:
    """(x - mean) / (deviation + 1e-9), as ONNX's function body defines it.

    What it says of the variance, mean(x²) - mean(x)², is negative for equal elements that round;
    squares of what lies around the mean are not.  Narrow floats have no 1e-9, so they widen.
    """
    x = node.input(0)
    wide = converted(node, x, DType.FLOAT32) if x.type.dtype.itemsize < 4 else x
    axes = tuple(normal_axis(axis, x.type.rank) for axis in node.integers("axes", (0, 2, 3)))
    over: AttributeMap = {"axes": axes, "keepdims": 1}
    centred = node.emit("Sub", [wide, node.emit("ReduceMean", [wide], over)])
    variance = node.emit("ReduceMean", [node.emit("Mul", [centred, centred])], over)
    epsilon = node.constant(1e-9, wide.type.dtype)
    deviation = node.emit("Add", [node.emit("Sqrt", [variance]), epsilon])
    return converted(node, node.emit("Div", [centred, deviation]), x.type.dtype)


def _lrn(node: Node) -> Tensor:
    attributes = {
        "alpha": node.number("alpha", 1e-4),
        "beta": node.number("beta", 0.75),
        "bias": node.number("bias", 1.0),
        "size": node.integer("size"),
    }
    return node.emit("LRN", [node.input(0)], attributes)


RULES: Final = default_domain(
    {
        "BatchNormalization": _batch_normalization,
        "GroupNormalization": _group_normalization,
        "InstanceNormalization": _instance_normalization,
        "LRN": _lrn,
        "LayerNormalization": _layer_normalization,
        "MeanVarianceNormalization": _mean_variance_normalization,
        "RMSNormalization": _rms_normalization,
    }
)
