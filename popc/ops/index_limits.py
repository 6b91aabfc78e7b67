"""Limits of integer inputs: what reads them as indices has places for so many numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc_runtime.format import DType

__all__ = ["index_limits"]


def _places_along_axis(op: Op) -> int:
    shape = op.operand(0).type.shape
    return shape[integer(op.attributes, "axis", 0) % len(shape)]


def _classes(op: Op) -> int:
    return op.operand(0).type.shape[1]


# By op: the operand that holds indices, and how many there are places for.
_READERS: Final[Mapping[str, tuple[int, Callable[[Op], int]]]] = {
    "Gather": (1, _places_along_axis),
    "GatherElements": (1, _places_along_axis),
    "NegativeLogLikelihoodLoss": (1, _classes),
    "Nll": (1, lambda op: op.operand(0).type.shape[-1]),
    "OneHot": (0, lambda op: integer(op.attributes, "depth")),
    "ScatterElements": (1, _places_along_axis),
    "ScatterReduce": (1, _places_along_axis),
    "SoftmaxCrossEntropyLoss": (1, _classes),
}
# Results hold numbers of the operands, and no others.
_MASK: Final = 2
_MOVERS: Final = frozenset(
    ("Cast", "Concat", "Copy", "Detach", "Expand", "Reshape", "Slice", "Split", "Transpose")
)


def _is_from_one(op: Op) -> bool:
    """True for what takes its operand from 1."""
    if op.op_type != "Sub":
        return False
    data = op.operand(0).data
    return data is not None and data.size > 0 and bool((data == 1).all())


def index_limits(graph: Graph) -> dict[str, int]:
    """By integer input of ``graph``: less than this its numbers must be; not there if any will do.

    Masks have two numbers: what is taken from 1, or made a truth value.  What is read in graphs
    within ``graph`` is not looked at.
    """
    inputs: dict[Tensor, set[str]] = {
        tensor: {tensor.name}
        for tensor in graph.inputs
        if not tensor.type.dtype.is_float and tensor.type.dtype.value != "bool"
    }
    limits: dict[str, int] = {}
    for op in graph.topological() if inputs else ():
        if op.op_type in _READERS:
            index, places = _READERS[op.op_type]
            tensor = op.optional(index)
            for name in inputs.get(tensor, ()) if tensor is not None else ():
                limits[name] = min(limits.get(name, places(op)), places(op))
        elif op.op_type in _MOVERS or _is_from_one(op):
            names = {name for tensor in op.inputs if tensor for name in inputs.get(tensor, ())}
            if op.op_type == "Sub" or op.output.type.dtype is DType.BOOL:
                limits |= {name: min(limits.get(name, _MASK), _MASK) for name in names}
            elif names:
                inputs |= dict.fromkeys(op.outputs, names)
    return {name: limit for name, limit in sorted(limits.items()) if limit > 0}
