"""ai.graphcore, operators that stand in a model for what they do: print, stop, write."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node, RuleResult
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.values import Value
from popc.frontend.written import is_variable
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

# I/O of one stream keeps its order; these are no streams of the host, but are ordered like one.
_CONSOLE: Final = "console"


def _abort(node: Node) -> RuleResult:
    """Always, or where the operand is not zero.  It has no result."""
    attributes: AttributeMap = {"title": node.name, "stream": _CONSOLE}
    known = node.known(0)
    if known is not None and known.size == 1 and not known.reshape(())[()]:
        return []
    condition = None if known is not None else node.optional(0)
    return node.emit_all("Abort", [] if condition is None else [condition], attributes)


def _print_tensor(node: Node) -> Tensor:
    """Print; later ops read the op's result, unless it is known: shapes may depend on it."""
    x = node.input(0)
    title = node.text("title", "")
    attributes: AttributeMap = {
        "gradient": int(bool(node.integer("print_gradient", 1))),
        "title": title or x.name,
        "own_title": int(bool(title)),
        "stream": _CONSOLE,
        **_layout(node),
    }
    printed = node.emit("PrintTensor", [x], attributes)
    return printed if node.known(0) is None else x


def _layout(node: Node) -> AttributeMap:
    """The form in which the node wants arrays to be written, as far as it says so."""
    numbers = {
        "threshold": node.integer("summariseThreshold", 1000),
        "edge_items": node.integer("edgeItems", 3),
        "line_width": node.integer("maxLineWidth", 75),
        "digits": node.integer("digits", 8),
        "float_format": node.integer("floatFormat", 0),
    }
    brackets = node.text("openBracket", "[")[:1] + node.text("closeBracket", "]")[:1]
    layout: AttributeMap = {**numbers, "separator": node.text("separator", " ")}
    return {**layout, "brackets": brackets} if len(brackets) == 2 else layout


def _detach(node: Node) -> Tensor:
    x = node.input(0)
    return x if node.known(0) is not None else node.emit("Detach", [x])


def _copy_var_update(node: Node) -> Value:
    """Inputs are the variable and its new value, which is also the result."""
    variable, value = node.input(0), node.input(1)
    if not is_variable(node.importer, variable):
        raise ModelError(_no_variable(variable))
    node.importer.updates.write(variable, value)
    return value


def _no_variable(tensor: Tensor) -> str:
    if tensor.is_constant:
        return (
            f"CopyVarUpdate writes {tensor.name!r}, which is a constant here: compile with "
            "constant_weights = false, or train the model"
        )
    return f"CopyVarUpdate writes {tensor.name!r}, which is an input or computed, not a weight"


RULES: Final = graphcore_domain(
    {
        "Abort": takes(0, 1, _abort),
        "CopyVarUpdate": takes(2, 2, _copy_var_update),
        "Detach": takes(1, 1, _detach),
        "PrintTensor": takes(1, 1, _print_tensor),
    }
)
