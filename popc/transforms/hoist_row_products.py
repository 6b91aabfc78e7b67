"""Multiply all rows of a sequence at once, before the loop that would take them one by one."""

from __future__ import annotations

from math import prod
from typing import ClassVar

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import produced_by
from popc_runtime.ground.frozen import frozen

__all__ = ["HoistRowProducts"]

_FIRST_STATE = 2  # operands of a loop: the trip count, the condition, the states, the captures
_MOST_BYTES = 1 << 26  # of all the products together


@frozen
class HoistRowProducts(RewritePass):
    """The product of an element of a sequence with a fixed matrix is made outside the loop.

    Recurrent networks written as loops multiply the input of each step with the same weights,
    which are then read from memory in each step.  One product of the whole sequence reads them
    once.

    Before::

        %y = Loop(-, -, %h0, %x) states=1 trip_count=80
          body = graph (%i, %c, %h, %x1) {
            %row = Gather(%x1, %i) axis=0
            %p = MatMul(%row, @w)
            ...

    After::

        %q = MatMul(%x, @w)
        %y = Loop(-, -, %h0, %x, %q) states=1 trip_count=80
          body = graph (%i, %c, %h, %x1, %q1) {
            %p = Gather(%q1, %i) axis=0
            ...

    Only where the loop surely makes as many iterations as the sequence has elements.
    """

    name: ClassVar[str] = "hoist_row_products"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Loop"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Hoist all such products out of one loop."""
        if op.op_type != "Loop" or op.attributes["conditional"] or op.inputs[0] is not None:
            return False
        body = op.subgraphs["body"]
        products = [inner for inner in body.topological() if _is_row_product(op, body, inner)]
        for product in products:
            _hoist(graph, op, body, product)
        return bool(products)


def _is_row_product(loop: Op, body: Graph, op: Op) -> bool:
    """True if ``op`` multiplies an element of a fixed sequence with a fixed matrix."""
    gather = produced_by(op.operand(0), "Gather") if _is_plain_product(op) else None
    if gather is None or gather.attributes["axis"] != 0 or gather.operand(1).type.rank != 0:
        return False
    sequence, weights = gather.operand(0), op.operand(1)
    if not (_is_fixed(loop, body, sequence) and _is_fixed(loop, body, weights)):
        return False
    steps = sequence.type.shape[0]
    nbytes = steps * prod(op.output.type.shape) * op.output.type.dtype.storage.itemsize
    trips = loop.attributes["trip_count"]
    assert isinstance(trips, int), "a loop has a trip count"
    fits = sequence.type.rank >= 3 and weights.type.rank == 2
    return fits and 0 < steps <= trips and nbytes <= _MOST_BYTES


def _is_plain_product(op: Op) -> bool:
    return op.op_type == "MatMul" and len(op.present_inputs) == 2 and not op.attributes


def _is_fixed(loop: Op, body: Graph, tensor: Tensor) -> bool:
    """True if ``tensor`` is the same in all iterations, and known outside the loop."""
    return tensor.is_constant or tensor in body.inputs[_FIRST_STATE + _states(loop) :]


def _states(loop: Op) -> int:
    states = loop.attributes["states"]
    assert isinstance(states, int), "a loop has a number of states"
    return states


def _hoist(graph: Graph, loop: Op, body: Graph, product: Op) -> None:
    gather = produced_by(product.operand(0), "Gather")
    assert gather is not None, "matched before"
    operands = [
        _outside(graph, loop, body, tensor) for tensor in (gather.operand(0), product.operand(1))
    ]
    rows = build(graph, "MatMul", operands, settings=product.settings).output
    graph.append_input(loop, rows)
    formal = body.add_input(rows.name, rows.type)
    index = gather.operand(1)
    picked = build(body, "Gather", [formal, index], {"axis": 0}, settings=gather.settings)
    body.replace_op(product, [picked.output])


def _outside(graph: Graph, loop: Op, body: Graph, tensor: Tensor) -> Tensor:
    """The tensor of the graph around the loop for a fixed one of the body."""
    if tensor.data is not None:
        return graph.add_constant(tensor.name, tensor.type, tensor.data)
    return loop.operand(body.inputs.index(tensor))
