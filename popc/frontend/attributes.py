"""ONNX attributes as Python values, with the schema's defaults filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import onnx

from popc.frontend.node import OnnxAttribute
from popc.frontend.tensors import decode_tensor
from popc_runtime.errors import ModelError

__all__ = ["decode_attributes"]

_A: Final = onnx.AttributeProto


def decode_attributes(
    proto: onnx.NodeProto, domain: str, version: int, base_dir: str
) -> Mapping[str, OnnxAttribute]:
    """The attributes of a node by name; absent ones have the default of the operator's schema."""
    attributes = dict(_schema_defaults(proto.op_type, domain, version))
    for attribute in proto.attribute:
        attributes[attribute.name] = _decode(attribute, base_dir)
    return attributes


@cache
def _schema_defaults(op_type: str, domain: str, version: int) -> Mapping[str, OnnxAttribute]:
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}
    return {
        name: _decode(attribute.default_value, "")
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != _A.UNDEFINED
    }


def _decode(attribute: onnx.AttributeProto, base_dir: str) -> OnnxAttribute:
    kind = attribute.type
    if kind == _A.INT:
        return int(attribute.i)
    if kind == _A.FLOAT:
        return float(attribute.f)
    if kind == _A.STRING:
        return _text(attribute.s)
    if kind == _A.INTS:
        return tuple(attribute.ints)
    if kind == _A.FLOATS:
        return tuple(attribute.floats)
    if kind == _A.STRINGS:
        return tuple(_text(item) for item in attribute.strings)
    if kind == _A.TENSOR:
        return decode_tensor(attribute.t, base_dir)
    if kind == _A.GRAPH:
        return attribute.g
    if kind == _A.TYPE_PROTO:
        return attribute.tp
    raise ModelError(f"attribute {attribute.name!r} has a type that popc does not support")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")
