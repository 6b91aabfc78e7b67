"""Tables off chip of which only rows are read, and updated: the rest of them stays where it is."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, OpSettings, StepPart, Tensor
from popc.ir.attributes import integer
from popc.ops.build import build
from popc.ops.streaming import READ_ROWS, UPDATE_ROWS
from popc.transforms.streaming.sources import StreamedValue
from popc_runtime.format import DType

__all__ = ["ROW_OPS", "is_row_update", "read_rows", "reads_rows", "update_rows"]

_STEP: Final = "SGD0VarUpdate"  # the one step that leaves rows without a gradient as they are
ROW_OPS: Final = ("Gather", _STEP)


def reads_rows(op: Op, source: StreamedValue) -> bool:
    """True if ``op`` looks rows up in a table of which its graph needs fewer than there are.

    An update may need all of it, but that it fetches by itself.
    """
    table = source.tensor
    if source.remote is None or source.whole is not None or not _is_lookup(op, table):
        return False
    read = 0
    for user in table.uses:
        if _is_lookup(user, table):
            read += user.operand(1).type.size
        elif not (user.subgraphs or user.settings.part is StepPart.UPDATE):
            return False  # fetches all of it
    return read < table.type.shape[0]


def _is_lookup(op: Op, table: Tensor) -> bool:
    return (
        op.op_type == "Gather"
        and op.operand(0) is table
        and op.operand(1) is not table
        and integer(op.attributes, "axis") == 0
    )


def _writes(op: Op, table: Tensor) -> bool:
    return op.op_type == "CopyVarUpdate" and op.operand(0) is table


def is_row_update(op: Op, source: StreamedValue) -> bool:
    """True if ``op`` is a step of SGD on a table, along what lookups alone have given it.

    With a decay every row would change; narrower types are rounded as a whole.
    """
    table = source.tensor
    if op.op_type != _STEP or source.remote is None or source.whole is not None:
        return False
    if op.operand(0) is not table or "rounding" in op.attributes:
        return False
    keep = op.operand(3)
    if keep.data is None or float(keep.data) != 1 or table.type.dtype is not DType.FLOAT32:
        return False
    writes = op.output.uses
    return (
        len(writes) == 1
        and all(_writes(user, table) for user in writes)
        and _is_of_rows(op, op.operand(1))
    )


def _is_of_rows(op: Op, gradient: Tensor) -> bool:
    """True if a gradient is that of one lookup, and nobody else reads it."""
    maker = gradient.producer
    return (
        maker is not None
        and maker.op_type == "GatherGrad"
        and integer(maker.attributes, "axis") == 0
        and gradient.type.dtype is DType.FLOAT32
        and maker.operand(1).type.size < gradient.type.shape[0]
        and set(gradient.uses) == {op}
    )


def read_rows(graph: Graph, op: Op, remote: Tensor, settings: OpSettings) -> Op:
    """The op that fetches the rows of a lookup, in its place."""
    read = build(
        graph,
        READ_ROWS,
        [remote, op.operand(1)],
        {"axis": 0},
        output_names=[f"{op.output.name}_rows"],
        settings=settings,
    )
    graph.replace_op(op, read.outputs)
    return read


def update_rows(graph: Graph, op: Op, remote: Tensor, settings: OpSettings) -> Op:
    """The op that updates the rows of a table, in place of a step and of the gradient of all."""
    gradient = op.operand(1).producer
    assert gradient is not None, op
    values, indices, rate = gradient.operand(0), gradient.operand(1), op.operand(2)
    update = build(
        graph,
        UPDATE_ROWS,
        [remote, indices, values, rate],
        output_names=[f"{op.output.name}_rows"],
        settings=settings,
    )
    graph.replace_op(op, update.outputs)
    graph.remove_op(gradient)
    return update
