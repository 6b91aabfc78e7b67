"""Transfers between a chip and streaming memory, and what lies there.

A value in streaming memory is a tensor like any other, but only a ``RemoteLoad`` reads it, or ops
that touch some of its rows: ``RemoteGather`` and ``RemoteScatterAdd``.  It lies there if a
``RemoteStore`` or a ``RemoteScatterAdd`` makes it, if it is a variable that is kept there, or if it
is another name of such a value: a capture, or the state of a loop that begins as one.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, Tensor, TensorType
from popc.ir.attributes import integer
from popc.ops.infer import operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = [
    "LOAD",
    "OPS",
    "READ_ROWS",
    "STORE",
    "UPDATE_ROWS",
    "constants_off_chip",
    "fetches",
    "find_remote",
]

LOAD: Final = "RemoteLoad"
STORE: Final = "RemoteStore"
READ_ROWS: Final = "RemoteGather"
UPDATE_ROWS: Final = "RemoteScatterAdd"
_MAKERS: Final = (STORE, UPDATE_ROWS)


def _moved(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Each operand, elsewhere.  Several operands move in one exchange."""
    del attributes
    types = tuple(input_ for input_ in inputs if input_ is not None)
    if not types or len(types) < len(inputs):
        raise ModelError("a transfer needs at least one tensor, and none may be missing")
    return types


def _rows_read(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The rows of operand 0, a table, that operand 1 names."""
    if integer(attributes, "axis") != 0:
        raise ModelError("only rows, along axis 0, can be fetched")
    table, indices = operand(inputs, 0), operand(inputs, 1)
    if table.rank == 0 or not indices.dtype.is_integer:
        raise ModelError(f"{indices} do not name rows of {table}")
    return (table.with_shape((*indices.shape, *table.shape[1:])),)


def _rows_updated(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operand 0, from whose rows what operand 2 says of them is taken, times operand 3.

    Operands: the table, row numbers, a row of values for each, and the learning rate.  What is
    said of one row more than once is added up first.
    """
    del attributes
    table, indices, values = (operand(inputs, index) for index in range(3))
    rate = operand(inputs, 3)
    if table.rank == 0 or not indices.dtype.is_integer:
        raise ModelError(f"{indices} do not name rows of {table}")
    if {table.dtype, values.dtype} != {DType.FLOAT32} or rate.rank:
        raise ModelError("rows are updated in float32, by a rate of rank 0")
    if values.shape != (*indices.shape, *table.shape[1:]):
        raise ModelError(f"{values} are not the rows of {table} that {indices} name")
    return (table,)


OPS: Final[dict[str, OpSpec]] = {
    LOAD: OpSpec(_moved, transfer=True),
    # With ``at_load`` it happens once, when the program is loaded.
    STORE: OpSpec(_moved, transfer=True),
    READ_ROWS: OpSpec(_rows_read, transfer=True),
    UPDATE_ROWS: OpSpec(_rows_updated, transfer=True, inplace=(0,)),
}


def fetches(op: Op, tensor: Tensor) -> bool:
    """True if ``op`` may read ``tensor`` where it lies, off chip."""
    if op.op_type in (READ_ROWS, UPDATE_ROWS):
        return op.operand(0) is tensor and tensor not in op.inputs[1:]
    return op.op_type == LOAD


def find_remote(graph: Graph) -> frozenset[Tensor]:
    """The tensors of ``graph``, and of those nested in it, that lie in streaming memory."""
    found: set[Tensor] = set()
    if any(t.off_chip for t in graph.variables) or any(
        part.may_have(_MAKERS) for part in graph.walk()
    ):
        _visit(graph, found)
    return frozenset(found)


def _visit(graph: Graph, found: set[Tensor]) -> None:
    found.update(tensor for tensor in graph.tensors.values() if tensor.off_chip)
    for op in graph.topological():
        if op.op_type in _MAKERS:
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
        if all(fetches(op, tensor) for op in tensor.uses) and tensor.uses:
            found.setdefault(id(tensor.data), tensor)
        elif tensor.uses:
            read.add(id(tensor.data))
    return [tensor for number, tensor in found.items() if number not in read]


def _passes_on(operands: list[Tensor | None], inputs: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Operands of an op with subgraphs, and what they are called inside: the last are the last."""
    pairs = zip(reversed(operands), reversed(inputs), strict=False)
    return [(outer, inner) for outer, inner in pairs if outer is not None]
