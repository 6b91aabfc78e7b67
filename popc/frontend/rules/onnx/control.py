"""Control flow in general, and the operator If.

A condition or trip count that is known at compile time disappears: the branch is imported in
place, the loop is unrolled if its iterations need different shapes.  Everything else becomes an
``If`` or ``Loop`` op with subgraphs.  Scan becomes Loop: scan inputs are gathered by the iteration
number inside the body.

IR forms (shared with the scheduler, the planner and lowering):

    If(condition, *captures)  subgraphs then_branch, else_branch: captures -> results
    Loop(trip_count?, condition?, *states, *captures)  attributes trip_count (-1: see operand),
        conditional, states; subgraph body: (iteration, condition, *states, *captures)
        -> (condition, *states, *scans)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.node import Node, RuleResult
from popc.frontend.open_graph import OpenGraph
from popc.frontend.rules.common import default_domain, graph_attribute
from popc.frontend.rules.sized.branches import united
from popc.frontend.rules.subgraphs import flat_scalar, set_outputs
from popc.frontend.written import written_outside
from popc.ir import OpSettings, Tensor

__all__ = ["RULES"]


def _if(node: Node) -> RuleResult:
    branches = [graph_attribute(node, name) for name in ("then_branch", "else_branch")]
    known = node.known(0)
    if known is not None:
        return node.importer.inline(branches[0 if bool(known.reshape(())[()]) else 1], [])
    bodies = [node.importer.import_body(branch, []) for branch in branches]
    alike = united(node, [body.importer for body in bodies], [body.results for body in bodies])
    results = alike.tensors
    types = [tensor.type for tensor in results[0]]
    written = written_outside(body.importer for body in bodies)
    latest = {variable: node.importer.updates.latest(variable) for variable in written}
    for body, tensors in zip(bodies, results, strict=True):
        news = [_new_value(body.importer, variable, latest[variable]) for variable in written]
        set_outputs(body.importer.graph, [*tensors, *news])
    captures = _unite_captures([body.importer for body in bodies])
    op = node.importer.graph.add_op(
        "If",
        [flat_scalar(node, node.input(0)), *(latest.get(capture, capture) for capture in captures)],
        [*types, *(variable.type for variable in written)],
        settings=OpSettings(origin=node.name),
        subgraphs={
            "then_branch": bodies[0].importer.graph,
            "else_branch": bodies[1].importer.graph,
        },
    )
    for (variable, follows), value in zip(written.items(), op.outputs[len(types) :], strict=True):
        node.importer.updates.write(variable, value, follows=follows)
    return alike.values(node, op.outputs[: len(types)])


def _new_value(body: OpenGraph, variable: Tensor, latest: Tensor) -> Tensor:
    """The value of a variable after a branch: a branch that does not write it leaves it alone."""
    inner = body.captures.get(variable)
    if inner in body.updates.values:
        return body.updates.values[inner]
    kept = body.capture(latest)
    assert isinstance(kept, Tensor)
    return kept


def _unite_captures(bodies: Sequence[OpenGraph]) -> list[Tensor]:
    """The captures of all bodies; each body gets an input for every one, in the same order.

    A weight that stopped being a variable meanwhile may be a constant of the later body.
    """
    union = list(dict.fromkeys(t for body in bodies for t in body.runtime_captures))
    for body in bodies:
        inputs = {outer: body.captures[outer] for outer in body.runtime_captures}
        body.graph.inputs = [
            inputs.get(outer) or body.graph.add_input(outer.name, outer.type) for outer in union
        ]
    return union


RULES: Final = default_domain({"If": _if})
