"""The opposite of outlining: every call replaced by what it calls."""

from __future__ import annotations

from popc.ir import Graph, Op, Tensor
from popc.ops.control import callee_of

__all__ = ["inline_calls"]


def inline_calls(graph: Graph) -> int:
    """Write out all calls in ``graph`` and in the graphs nested in it; how many there were."""
    count = 0
    for nested in reversed(list(graph.walk())):
        for op in nested.topological():
            callee = callee_of(op)
            if callee is not None:
                _inline(nested, op, callee)
                count += 1
    return count


def _inline(graph: Graph, call: Op, callee: Graph) -> None:
    twins: dict[Tensor, Tensor] = dict(zip(callee.inputs, call.present_inputs, strict=True))
    for tensor in callee.constants:
        assert tensor.data is not None, tensor
        twins[tensor] = graph.add_constant(tensor.name, tensor.type, tensor.data)
    for op in callee.topological():
        copy = graph.add_op(
            op.op_type,
            [None if tensor is None else twins[tensor] for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[tensor.name for tensor in op.outputs],
            settings=op.settings,
            subgraphs=op.subgraphs,
        )
        twins.update(zip(op.outputs, copy.outputs, strict=True))
    graph.replace_op(call, [twins[tensor] for tensor in callee.outputs])
