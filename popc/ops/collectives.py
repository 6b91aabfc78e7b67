"""Ops by which replicas tell themselves apart, and exchange data.

Replicas meet in groups: attribute ``size`` says how many are in one, ``stride`` how far apart their
numbers are (1: neighbours).  ``op`` of a reduction says what is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, text
from popc.ops.infer import BOOLS, FLOATS, NUMBERS, check_choice, one_dtype, operand, same_as_first
from popc.ops.spec import OperandTypes, OpSpec
from popc.ops.views import reshape_view
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS", "REDUCTIONS", "group_of_places", "places_in_groups"]

# What a reduction computes, and of which element types; "local" leaves each replica's own.
REDUCTIONS: Final = {
    "add": NUMBERS,
    "mean": FLOATS,
    "mul": NUMBERS,
    "min": NUMBERS,
    "max": NUMBERS,
    "logical_and": BOOLS,
    "logical_or": BOOLS,
    "square_add": NUMBERS,
    "local": frozenset(DType),
}


def places_in_groups(size: int, stride: int, replicas: int) -> tuple[int, ...]:
    """The place of each replica in its group."""
    return tuple(replica // stride % size for replica in range(replicas))


def group_of_places(places: Sequence[int]) -> tuple[int, int]:
    """Size and stride of the groups, of several replicas, in which replicas have ``places``."""
    return max(places) + 1, places.index(1)


def _group(attributes: Attributes) -> int:
    """The number of replicas in a group."""
    size, stride = integer(attributes, "size"), integer(attributes, "stride")
    if min(size, stride) < 1:
        raise ModelError(f"there are no groups of {size} replicas with stride {stride}")
    return size


def _reduced(inputs: OperandTypes, attributes: Attributes) -> TensorType:
    _group(attributes)
    check_choice(attributes, "op", tuple(REDUCTIONS))
    one_dtype(inputs[:1], REDUCTIONS[text(attributes, "op")])
    return operand(inputs, 0)


def _all_reduce(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    return (_reduced(inputs, attributes),)


def _reduce_scatter(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The replica's part of the flat result: as many elements for each, zeros at the end."""
    x = _reduced(inputs, attributes)
    return (x.with_shape((-(-x.size // _group(attributes)),)),)


def _all_gather(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The operands of all members of the group, in a new first dimension."""
    x = operand(inputs, 0)
    return (x.with_shape((_group(attributes), *x.shape)),)


def _all_to_all(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Row i goes to member i of the group, and comes from there."""
    x, size = operand(inputs, 0), _group(attributes)
    if x.shape[:1] != (size,):
        raise ModelError(f"{size} replicas exchange as many rows, not those of {list(x.shape)}")
    return (x,)


def _broadcast(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The operand of the member whose place in the group is ``root``."""
    size, root = _group(attributes), integer(attributes, "root")
    if not 0 <= root < size:
        raise ModelError(f"a group of {size} replicas has no member {root}")
    return (operand(inputs, 0),)


def _replica_index(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The number of the replica, from 0."""
    del inputs, attributes
    return (TensorType(DType.INT32, ()),)


def _part(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The part of the flat operand that belongs to the replica, with zeros behind its end."""
    x = operand(inputs, 0)
    return (x.with_shape((-(-x.size // _group(attributes)),)),)


OPS: Final[dict[str, OpSpec]] = {
    "AllToAll": OpSpec(_all_to_all, collective=True),
    # The operand, which the user says is the same everywhere.
    "AssumeEqualAcrossReplicas": OpSpec(same_as_first, view=reshape_view),
    "ReplicaIndex": OpSpec(_replica_index, per_replica=True),
    "ReplicaPart": OpSpec(_part, per_replica=True, strided_input=False),
    "ReplicatedAllGather": OpSpec(_all_gather, collective=True),
    "ReplicatedAllReduce": OpSpec(_all_reduce, inplace=(0,), collective=True),
    "ReplicatedBroadcast": OpSpec(_broadcast, inplace=(0,), collective=True),
    "ReplicatedReduceScatter": OpSpec(_reduce_scatter, strided_input=False, collective=True),
}
