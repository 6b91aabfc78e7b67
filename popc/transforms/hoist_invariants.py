"""Move ops out of loops and branches when they depend on constants only."""

from __future__ import annotations

from typing import ClassVar, Self

from popc.ir import Graph, Op, Tensor
from popc.ops import OPS
from popc.ops.control import callee_of
from popc.ops.float8 import widens_device_float
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc.transforms.eight_bits import keeps_float8
from popc_runtime.ground.frozen import frozen

__all__ = ["HoistInvariants"]


@frozen
class HoistInvariants(Pass):
    """An op of a subgraph whose operands are all constants moves to the enclosing graph.

    Before::

        %y = Loop(-, -, %s) body = graph (%i, %c, %s) { %w = Cast(@w8) ; %t = MatMul(%s, %w) ... }

    After::

        %w = Cast(@w8)
        %y = Loop(-, -, %s, %w) body = graph (%i, %c, %s, %w) { %t = MatMul(%s, %w) ... }

    At the top level such ops run once, when the archive is loaded.  Where a chip multiplies floats
    of eight bits, they stay beside the product, which takes them as they are stored.
    """

    name: ClassVar[str] = "hoist_invariants"
    target: str = ""

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.target)

    def run(self, graph: Graph) -> int:
        """Hoist level by level, innermost first; the number of ops moved."""
        changes = 0
        narrow = keeps_float8(graph, self.target)
        for outer in reversed(list(graph.walk())):
            for op in outer.holders:
                if callee_of(op) is None:  # others may call it too
                    changes += _hoist_from(outer, op, keeps_float8=narrow)
        return changes


def _hoist_from(outer: Graph, owner: Op, *, keeps_float8: bool) -> int:
    changes = 0
    for body in owner.subgraphs.values():
        twins: dict[Tensor, Tensor] = {}  # value in ``body`` -> the same value in ``outer``
        order = body.topological()
        if keeps_float8:
            order = [op for op in order if not widens_device_float(op)]
        moved = dict.fromkeys(op for op in order if _try_to_copy(outer, op, twins))
        for op in moved:
            for tensor in op.outputs:
                if body.is_output(tensor) or any(user not in moved for user in tensor.users):
                    _capture(outer, owner, body, tensor, twins[tensor])
        for op in reversed(moved):
            body.remove_op(op)
        changes += len(moved)
    return changes


def _try_to_copy(outer: Graph, op: Op, twins: dict[Tensor, Tensor]) -> bool:
    """Rebuild ``op`` in ``outer`` if all it reads is constant or rebuilt there already."""
    spec = OPS.get(op.op_type)
    if spec is None or op.subgraphs or not op.present_inputs:
        return False
    if spec.random or spec.side_effect or spec.transfer:
        return False
    if not all(tensor.is_constant or tensor in twins for tensor in op.present_inputs):
        return False
    for tensor in op.present_inputs:
        if tensor.data is not None and tensor not in twins:
            twins[tensor] = outer.add_constant(tensor.name, tensor.type, tensor.data)
    twin = outer.add_op(
        op.op_type,
        [None if tensor is None else twins[tensor] for tensor in op.inputs],
        [tensor.type for tensor in op.outputs],
        dict(op.attributes),
        output_names=[tensor.name for tensor in op.outputs],
        settings=op.settings,
    )
    twins.update(zip(op.outputs, twin.outputs, strict=True))
    return True


def _capture(outer: Graph, owner: Op, body: Graph, tensor: Tensor, twin: Tensor) -> None:
    """Let ``body`` read ``twin`` through a new input where it read ``tensor``."""
    formal = body.add_input(tensor.name, tensor.type)
    body.replace_uses(tensor, formal)
    outer.append_input(owner, twin)
    for other in owner.subgraphs.values():
        if other is not body:  # the branches of an If take the same operands
            other.add_input(tensor.name, tensor.type)
