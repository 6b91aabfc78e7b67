"""ai.graphcore Call: the subgraph ``callee`` is imported in place of the node.

Its ops know which calls they belong to, and so they become calls again when all passes have looked
at them (`popc.transforms.outlining.calls`): differentiation and the rest need not know of calls.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.calls import ops_of_call
from popc.frontend.names import abbreviated
from popc.frontend.node import Node, RuleResult
from popc.frontend.rules.common import graph_attribute
from popc.frontend.rules.graphcore.operators import graphcore_domain
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _call(node: Node) -> RuleResult:
    callee = graph_attribute(node, "callee")
    if len(node.inputs) != len(callee.input):
        raise ModelError(
            f"{len(node.inputs)} inputs are given, but the callee takes {len(callee.input)}"
        )
    values = [node.value(index) for index in range(len(node.inputs))]
    name = abbreviated(callee.name) or "callee"
    with ops_of_call(node.importer.graph, name, node.name):
        return node.importer.inline(callee, values)


RULES: Final = graphcore_domain({"Call": _call})
