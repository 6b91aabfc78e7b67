"""The messages that ONNX models are made of, without the package around them.

What `import onnx` imports before them, such as checkers, JSON and what is known of installed
distributions, takes half as long again as a small model does.  What needs more of the package
imports that part where it needs it.  The classes are those of the package, which has them from the
same place: protobuf makes one class for each message that it knows.

Nor is protobuf's other implementation, in Python, imported where messages are those of its library
in C (upb), as they are nearly everywhere.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.ground.inner import inner_module
from popc_runtime.ground.omitted import omitting

# Releases of protobuf of which it is known that upb needs nothing of the other implementation.
_KNOWN: Final = ("7.",)
_POOL: Final = "google.protobuf.descriptor_pool"
_IN_PYTHON: Final = "google.protobuf.internal.python_message"


def _messages() -> ModuleType:
    """The module of onnx that protobuf has written."""
    chosen = import_module("google.protobuf.internal.api_implementation").Type()
    with omitting(_POOL, "protobuf", _KNOWN if chosen == "upb" else (), (_IN_PYTHON,)):
        return inner_module("onnx", "onnx_ml_pb2")


if TYPE_CHECKING:
    from onnx import (
        IR_VERSION,
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        OperatorSetIdProto,
        SparseTensorProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )
else:
    _module = _messages()
    IR_VERSION = _module.IR_VERSION
    AttributeProto = _module.AttributeProto
    FunctionProto = _module.FunctionProto
    GraphProto = _module.GraphProto
    ModelProto = _module.ModelProto
    NodeProto = _module.NodeProto
    OperatorSetIdProto = _module.OperatorSetIdProto
    SparseTensorProto = _module.SparseTensorProto
    TensorProto = _module.TensorProto
    TensorShapeProto = _module.TensorShapeProto
    TypeProto = _module.TypeProto
    ValueInfoProto = _module.ValueInfoProto

__all__ = [
    "IR_VERSION",
    "AttributeProto",
    "FunctionProto",
    "GraphProto",
    "ModelProto",
    "NodeProto",
    "OperatorSetIdProto",
    "SparseTensorProto",
    "TensorProto",
    "TensorShapeProto",
    "TypeProto",
    "ValueInfoProto",
]
