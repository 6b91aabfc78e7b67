"""ai.graphcore, functions of the host: what whoever loads the program gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.graphcore.operators import graphcore_domain
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.kernels.custom import CALL

__all__ = ["RULES"]

# Calls keep the order in which the model has them; see `popc.ops.effects`.
_ORDER: Final = "host calls"


def _host_call(node: Node) -> Sequence[Tensor]:
    """``types`` are those of the results; by default, those of the operands in their places."""
    name = node.text("function")
    if not name:
        raise ModelError("attribute 'function' is empty: it names the function that is called")
    operands = [node.optional(index) for index in range(len(node.inputs))]
    count = len(node.output_names)
    types = node.texts("types", ()) or _like_operands(operands, count)
    if len(types) < count:
        raise ModelError(f"'types' has {len(types)} entries for {count} results")
    return node.emit_all(
        "HostCall",
        operands,
        {CALL: name, "gradient": node.text("gradient", ""), "stream": _ORDER, "types": types},
    )


def _like_operands(operands: Sequence[Tensor | None], count: int) -> tuple[str, ...]:
    like = operands[:count]
    if len(like) < count or None in like:
        raise ModelError(
            "attribute 'types' is missing, and results cannot be like operands that there are not: "
            "list their types, such as ['float32[2,3]']"
        )
    return tuple(str(tensor.type) for tensor in like if tensor is not None)


RULES: Final = graphcore_domain({"HostCall": _host_call})
