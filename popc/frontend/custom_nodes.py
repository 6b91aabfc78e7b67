"""Nodes of operators that users have registered, in any domain but that of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from popc.frontend.node import Node
from popc.frontend.values import OnnxAttribute
from popc.ir import AttributeMap, Tensor
from popc_runtime.custom import CustomOperator
from popc_runtime.errors import ModelError
from popc_runtime.kernels.custom import GIVEN, OPERATOR

__all__ = ["import_custom"]

_HIDDEN: Final = "__"  # in front of annotations


def import_custom(
    operator: CustomOperator, node: Node, attributes: Mapping[str, OnnxAttribute]
) -> Sequence[Tensor]:
    """The results of a node with these attributes.

    Raises:
        ModelError: the operator does not have all results that the model names, an operand is no
            tensor, or an attribute is one.
    """
    operands = [node.optional(index) for index in range(len(node.inputs))]
    results = node.emit_all("Custom", operands, _attributes(operator, attributes))
    if len(results) < len(node.output_names):
        raise ModelError(
            f"{operator.identifier} has {len(results)} results, but the model names "
            f"{len(node.output_names)}"
        )
    return results


def _attributes(operator: CustomOperator, attributes: Mapping[str, OnnxAttribute]) -> AttributeMap:
    found: AttributeMap = {OPERATOR: operator.identifier}
    for name, value in sorted(attributes.items()):
        if name.startswith(_HIDDEN):
            continue
        items = value if isinstance(value, tuple) else (value,)
        plain: Any = tuple(item for item in items if isinstance(item, int | float | str))
        if len(plain) != len(items):
            raise ModelError(
                f"attribute {name!r} of {operator.identifier} is no number, text or list of them: "
                "make it an operand"
            )
        found[GIVEN + name] = plain if isinstance(value, tuple) else plain[0]
    return found
