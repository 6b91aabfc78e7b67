"""Values that a loop hands through unchanged are not its states."""

from __future__ import annotations

from typing import ClassVar

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.transforms.base import RewritePass
from popc_runtime.ground.frozen import frozen

__all__ = ["InvariantStates"]

_FIRST_STATE = 2  # behind the trip count and the condition


@frozen
class InvariantStates(RewritePass):
    """A state of a Loop that no iteration changes becomes a capture, or a constant of the body.

    Exporters of recurrent networks carry the weights from one iteration to the next.  As states
    they would be copied every time.

    Before::

        %h, %v = Loop(-, -, %h0, %w) states=2 trip_count=3
          body = graph (%i, %c, %h1, %w1) { %h2 = MatMul(%h1, %w1) ; return %c, %h2, %w1 }

    After (and %v is %w)::

        %h = Loop(-, -, %h0, %w) states=1 trip_count=3
          body = graph (%i, %c, %h1, %w1) { %h2 = MatMul(%h1, %w1) ; return %c, %h2 }
    """

    name: ClassVar[str] = "invariant_states"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Loop"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Rebuild a loop that has such states."""
        if op.op_type != "Loop":
            return False
        body = op.subgraphs["body"]
        states = range(integer(op.attributes, "states"))
        fixed = [
            index
            for index in states
            if body.outputs[1 + index] is body.inputs[_FIRST_STATE + index]
        ]
        if not fixed:
            return False
        formals = [body.inputs[_FIRST_STATE + index] for index in fixed]
        _detach(body, fixed, formals)
        captures = [
            initial
            for index, formal in zip(fixed, formals, strict=True)
            if _keep_as_capture(body, initial := op.operand(_FIRST_STATE + index), formal)
        ]
        _rebuild(graph, op, fixed, captures)
        return True


def _detach(body: Graph, fixed: list[int], formals: list[Tensor]) -> None:
    """Take the states out of the inputs and outputs of ``body``."""
    for index in reversed(fixed):
        del body.outputs[1 + index]
        del body.output_names[1 + index]
    body.inputs = [tensor for tensor in body.inputs if tensor not in formals]


def _keep_as_capture(body: Graph, initial: Tensor, formal: Tensor) -> bool:
    """Give ``formal`` its new role in ``body``; whether it needs an operand of the loop."""
    body.inputs.append(formal)
    if initial.data is not None:
        constant = body.add_constant(initial.name, initial.type, initial.data)
        body.replace_uses(formal, constant)
    if formal.uses or body.is_output(formal):
        return True
    body.remove_input(formal)
    return False


def _rebuild(graph: Graph, op: Op, fixed: list[int], captures: list[Tensor]) -> None:
    """Replace ``op`` by a loop without the states ``fixed`` and with more ``captures``."""
    states = integer(op.attributes, "states")
    kept = [index for index in range(len(op.outputs)) if index not in fixed]
    operands = [t for i, t in enumerate(op.inputs) if i - _FIRST_STATE not in fixed]
    attributes: AttributeMap = {**op.attributes, "states": states - len(fixed)}
    new = graph.add_op(
        "Loop",
        [*operands, *captures],
        [op.outputs[index].type for index in kept],
        attributes,
        output_names=[op.outputs[index].name for index in kept],
        settings=op.settings,
        subgraphs=op.subgraphs,
    )
    results = dict(zip(kept, new.outputs, strict=True))
    names = [op.outputs[index].name for index in kept]
    graph.replace_op(
        op,
        [
            results[index] if index in results else op.operand(_FIRST_STATE + index)
            for index in range(len(op.outputs))
        ],
    )
    for tensor, name in zip(new.outputs, names, strict=True):
        graph.rename(tensor, name)
