"""The operator that a user has registered for a node."""

from __future__ import annotations

from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.walk import number_of
from popc_runtime.custom import CustomOperator, find_operator

__all__ = ["custom_operator"]

# The version of the operator, where a model says it of the node; otherwise its opset is that.
_VERSION: Final = "__op_version"


def custom_operator(proto: onnx.NodeProto, domain: str, opset: int) -> CustomOperator | None:
    """The operator that is registered for a node; ``None`` if there is none."""
    said = number_of(proto, _VERSION) if proto.attribute else None
    return find_operator(domain, proto.op_type, opset if said is None else said)
