"""The messages that ONNX models are made of, without the package around them.

What `import onnx` imports before them, such as checkers, JSON and what is known of installed
distributions, takes half as long again as a small model does.  What needs more of the package
imports that part where it needs it.  The classes are those of the package, which has them from the
same place: protobuf makes one class for each message that it knows.
"""

from __future__ import annotations

from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.inner import inner_module

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
    _module = inner_module("onnx", "onnx_ml_pb2")
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
