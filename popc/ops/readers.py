"""The ops that read the memory of a tensor, directly or by way of what may be a view of it."""

from __future__ import annotations

from collections.abc import Iterator

from popc.ir import Op, Tensor
from popc.ops import OPS
from popc.ops.rows import is_row_of_operands

__all__ = ["may_be_view", "readers_of"]


def readers_of(tensor: Tensor) -> Iterator[Op]:
    """Ops that read ``tensor``, and those that read results which may be views of it."""
    for op in tensor.uses:
        yield op
        if may_be_view(op):
            for output in op.outputs:
                yield from readers_of(output)


def may_be_view(op: Op) -> bool:
    """True if results may lie in the memory of operands; of a Concat, in that of variables."""
    spec = OPS.get(op.op_type)
    is_row = op.op_type == "Concat" and is_row_of_operands(op)
    return is_row or (spec is not None and spec.view is not None)
