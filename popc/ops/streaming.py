"""Transfers between a chip and streaming memory, and what lies there.

A value in streaming memory is a tensor like any other, but only a ``RemoteLoad`` reads it.  It lies
there if a ``RemoteStore`` makes it, if it is a variable that is kept there, or if it is another
name of such a value: a capture, or the state of a loop that begins as one.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Tensor, TensorType
from popc.ir.attributes import integer
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["LOAD", "OPS", "STORE", "constants_off_chip", "find_remote"]

LOAD: Final = "RemoteLoad"
STORE: Final = "RemoteStore"


def _moved(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Each operand, elsewhere.  Several operands move in one exchange."""
    del attributes
    types = tuple(input_ for input_ in inputs if input_ is not None)
    if not types or len(types) < len(inputs):
        raise ModelError("a transfer needs at least one tensor, and none may be missing")
    return types


OPS: Final[dict[str, OpSpec]] = {
    LOAD: OpSpec(_moved, transfer=True),
    # With ``at_load`` it happens once, when the program is loaded.
    STORE: OpSpec(_moved, transfer=True),
}


def find_remote(graph: Graph) -> frozenset[Tensor]:
    """The tensors of ``graph``, and of those nested in it, that lie in streaming memory."""
    found: set[Tensor] = set()
    if any(t.off_chip for t in graph.variables) or any(
        op.op_type == STORE for part in graph.walk() for op in part.ops
    ):
        _visit(graph, found)
    return frozenset(found)


def _visit(graph: Graph, found: set[Tensor]) -> None:
    found.update(tensor for tensor in graph.tensors.values() if tensor.off_chip)
    for op in graph.topological():
        if op.op_type == STORE:
            found.update(op.outputs)
        for subgraph in op.subgraphs.values():
            for outer, inner in _passes_on(op.inputs, subgraph.inputs):
                if outer in found:
                    found.add(inner)
            _visit(subgraph, found)
        if op.op_type == "Loop":
            states = integer(op.attributes, "states")
            body = op.subgraphs["body"]
            pairs = zip(body.inputs[2 : 2 + states], op.outputs[:states], strict=True)
            found.update(result for state, result in pairs if state in found)
        elif op.subgraphs:
            results = [branch.outputs for branch in op.subgraphs.values()]
            for index, output in enumerate(op.outputs):
                if all(outputs[index] in found for outputs in results):
                    found.add(output)


def constants_off_chip(graph: Graph) -> list[Tensor]:
    """The constants that nothing but transfers to the chip read, those that share data once."""
    found: dict[int, Tensor] = {}
    read: set[int] = set()
    for tensor in (constant for part in graph.walk() for constant in part.constants):
        if all(op.op_type == LOAD for op in tensor.uses) and tensor.uses:
            found.setdefault(id(tensor.data), tensor)
        elif tensor.uses:
            read.add(id(tensor.data))
    return [tensor for number, tensor in found.items() if number not in read]


def _passes_on(operands: list[Tensor | None], inputs: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Operands of an op with subgraphs, and what they are called inside: the last are the last."""
    pairs = zip(reversed(operands), reversed(inputs), strict=False)
    return [(outer, inner) for outer, inner in pairs if outer is not None]
