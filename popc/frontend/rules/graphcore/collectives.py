"""ai.graphcore, operators by which the replicas of a program exchange data.

Of groups with a single member nothing is left but the operand.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_transpose
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["RULES"]

# PopART's numbers of what collectives compute, and TensorFlow's names.
_REDUCTIONS: Final = (
    *("add", "mean", "mul", "min", "max", "logical_and", "logical_or", "square_add", "local"),
)
_NAMED: Final = {f"COLLECTIVE_OP_{name.upper()}": name for name in _REDUCTIONS}

# PopART's numbers of the kinds of groups.
_ALL, _CONSECUTIVE, _ORTHOGONAL, _NONE = range(4)


@frozen
class _Group:
    """The replicas that take part: ``size`` of them, ``stride`` apart."""

    size: int
    stride: int

    @property
    def attributes(self) -> AttributeMap:
        """The group as attributes of ops."""
        return {"size": self.size, "stride": self.stride}


def _group(node: Node) -> _Group:
    """The group that attributes describe, in PopART's way or in TensorFlow's; all if none does."""
    replicas = node.importer.context.replicas
    kind, size = node.integers("__collectiveCommGroup", (_ALL, 0))[:2]
    kind = node.integer("__comm_group_type", kind)
    size = node.integer("__comm_group_size", size)
    for name in ("replication_factor", "replica_group_size"):
        if node.has(name):
            kind, size = _CONSECUTIVE, node.integer(name)
    if kind == _NONE or replicas == 1:
        return _Group(1, 1)
    if kind == _ALL:
        return _Group(replicas, 1)
    if kind not in (_CONSECUTIVE, _ORTHOGONAL):
        raise ModelError(f"unknown kind of replica group: {kind}")
    if size < 1 or replicas % size:
        raise ModelError(
            f"{replicas} replicas (replicated_graph_count) cannot be divided into groups of {size}"
        )
    return _Group(size, 1 if kind == _CONSECUTIVE else replicas // size)


def _reduction(node: Node) -> str:
    """The operation of a reduction."""
    if node.has("op") and isinstance(node.attributes["op"], str):
        name = node.text("op")
        if name not in _NAMED:
            raise ModelError(f"unknown collective operator {name!r}")
        return _NAMED[name]
    number = node.integer("__collectiveOperator", node.integer("op", 0))
    if not 0 <= number < len(_REDUCTIONS):
        raise ModelError(f"unknown collective operator {number}")
    return _REDUCTIONS[number]


def _reduced(node: Node, op_type: str, x: Tensor, reduction: str) -> Tensor:
    group = _group(node)
    if group.size > 1:
        return node.emit(op_type, [x], {"op": reduction, **group.attributes})
    flat = x if op_type == "ReplicatedAllReduce" else emit_reshape(node, x, (x.type.size,))
    return node.emit("Mul", [flat, flat]) if reduction == "square_add" else flat


def _all_reduce(node: Node) -> Tensor:
    return _reduced(node, "ReplicatedAllReduce", node.input(0), _reduction(node))


def _cross_replica_sum(node: Node) -> Tensor:
    return _reduced(node, "ReplicatedAllReduce", node.input(0), "add")


def _reduce_scatter(node: Node) -> Tensor:
    """The replica's part of the flat result."""
    return _reduced(node, "ReplicatedReduceScatter", node.input(0), _reduction(node))


def _gathered(node: Node) -> Tensor:
    """The operands of a group in a new first dimension."""
    x, group = node.input(0), _group(node)
    if group.size > 1:
        return node.emit("ReplicatedAllGather", [x], group.attributes)
    return emit_reshape(node, x, (1, *x.type.shape))


def _flat_gathered(node: Node) -> Tensor:
    """The parts of all replicas, one after another."""
    x = _gathered(node)
    return emit_reshape(node, x, (x.type.size,))


def _all_to_all(node: Node) -> Tensor:
    """Split along one dimension, exchange the pieces, and join them along another."""
    x, group = node.input(0), _group(node)
    rank, size = x.type.rank, group.size
    split = normal_axis(node.integer("split_dimension", 0), rank)
    joined = normal_axis(node.integer("concat_dimension", 0), rank)
    shape = list(x.type.shape)
    if shape[split] % size:
        raise ModelError(f"dimension {split} of {shape} cannot be divided among {size} replicas")
    if size == 1:
        return x
    piece = [*shape[:split], shape[split] // size, *shape[split + 1 :]]
    rows = emit_reshape(node, x, (*piece[:split], size, *piece[split:]))
    rows = emit_transpose(node, rows, _moved(rank + 1, split, 0))
    rows = node.emit("AllToAll", [rows], group.attributes)
    rows = emit_transpose(node, rows, _moved(rank + 1, 0, joined))
    piece[joined] *= size
    return emit_reshape(node, rows, tuple(piece))


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    """The permutation that moves one axis."""
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return tuple(order)


def _broadcast(node: Node) -> Tensor:
    x, group = node.input(0), _group(node)
    if group.size == 1:
        return x
    attributes = {**group.attributes, "root": node.integer("root", 0)}
    return node.emit("ReplicatedBroadcast", [x], attributes)


def _replica_index(node: Node) -> Tensor:
    if node.importer.context.replicas == 1:
        return node.constant(0, DType.INT32)
    return node.emit("ReplicaIndex", [])


def _assume_equal(node: Node) -> Tensor:
    x = node.input(0)
    if node.importer.context.replicas == 1 or node.known(0) is not None:
        return x
    return node.emit("AssumeEqualAcrossReplicas", [x])


RULES: Final = graphcore_domain(
    {
        "AllGather": takes(1, 1, _gathered),
        "AllToAll": takes(1, 1, _all_to_all),
        "AssumeEqualAcrossReplicas": takes(1, 1, _assume_equal),
        "CrossReplicaSum": takes(1, 1, _cross_replica_sum),
        "ReduceScatter": takes(1, 1, _reduce_scatter),
        "ReplicatedAllGather": takes(1, 2, _flat_gathered),
        "ReplicatedAllReduce": takes(1, 2, _all_reduce),
        "ReplicatedBroadcast": takes(1, 1, _broadcast),
        "ReplicatedReduceScatter": takes(1, 2, _reduce_scatter),
        "ReplicationIndex": takes(0, 0, _replica_index),
    }
)
