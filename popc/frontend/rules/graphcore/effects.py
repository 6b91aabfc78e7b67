"""ai.graphcore, operators that stand in a model for what they do: print, stop, write."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node, RuleResult
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.updates import is_variable
from popc.frontend.values import Value
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
    attributes: AttributeMap = {
        "gradient": int(bool(node.integer("print_gradient", 1))),
        "title": node.text("title", "") or x.name,
        "stream": _CONSOLE,
    }
    printed = node.emit("PrintTensor", [x], attributes)
    return printed if node.known(0) is None else x


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
