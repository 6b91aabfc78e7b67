"""ONNX attributes as Python values, with the standard's defaults filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.definitions import find_definition
from popc.frontend.tensors import decode_sparse_tensor, decode_tensor
from popc.frontend.values import ConstantText, OnnxAttribute
from popc_runtime.errors import ModelError

__all__ = ["decode_attributes"]

_A: Final = onnx.AttributeProto


def decode_attributes(
    proto: onnx.NodeProto, domain: str, version: int, base_dir: str
) -> Mapping[str, OnnxAttribute]:
    """The attributes of a node by name; absent ones have the default that the standard gives."""
    definition = find_definition(proto.op_type, domain, version)
    defaults = {} if definition is None else definition.defaults
    if not proto.attribute:
        return defaults
    attributes = dict(defaults)
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            attributes[attribute.name] = _decode(attribute, base_dir)
    return attributes


def _decode(attribute: onnx.AttributeProto, base_dir: str) -> OnnxAttribute:
    """The value of an attribute; graphs stay messages, tensors become (type, data)."""
    kind = attribute.type or _kind_of(attribute)
    if kind in (_A.TENSOR, _A.TENSORS, _A.SPARSE_TENSOR, _A.SPARSE_TENSORS):
        return _decode_tensors(attribute, kind, base_dir)
    read = _READERS.get(kind)
    if read is None:
        raise ModelError(
            f"attribute {attribute.name!r} has the type {kind}, which popc does not know"
        )
    return read(attribute)


def _kind_of(attribute: onnx.AttributeProto) -> int:
    """The type of an attribute that does not say it (before IR version 2 none did)."""
    for descriptor, _ in attribute.ListFields():
        if descriptor.name in _KINDS:
            return _KINDS[descriptor.name]
    return int(_A.INTS)  # an empty list


def _decode_tensors(attribute: onnx.AttributeProto, kind: int, base_dir: str) -> OnnxAttribute:
    try:
        if kind == _A.TENSOR and attribute.t.data_type == onnx.TensorProto.STRING:
            return ConstantText(tuple(map(_text, attribute.t.string_data)), tuple(attribute.t.dims))
        if kind == _A.TENSOR:
            return decode_tensor(attribute.t, base_dir)
        if kind == _A.SPARSE_TENSOR:
            return decode_sparse_tensor(attribute.sparse_tensor, base_dir)
        if kind == _A.TENSORS:
            return tuple(decode_tensor(item, base_dir) for item in attribute.tensors)
        return tuple(decode_sparse_tensor(item, base_dir) for item in attribute.sparse_tensors)
    except ModelError as error:
        raise ModelError(
            f"attribute {attribute.name!r}: {error.message}", hint=error.hint
        ) from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


_READERS: Final[Mapping[int, Callable[[onnx.AttributeProto], OnnxAttribute]]] = {
    _A.INT: lambda attribute: int(attribute.i),
    _A.FLOAT: lambda attribute: float(attribute.f),
    _A.STRING: lambda attribute: _text(attribute.s),
    _A.INTS: lambda attribute: tuple(attribute.ints),
    _A.FLOATS: lambda attribute: tuple(attribute.floats),
    _A.STRINGS: lambda attribute: tuple(map(_text, attribute.strings)),
    _A.GRAPH: lambda attribute: attribute.g,
    _A.GRAPHS: lambda attribute: tuple(attribute.graphs),
    _A.TYPE_PROTO: lambda attribute: attribute.tp,
    _A.TYPE_PROTOS: lambda attribute: tuple(attribute.type_protos),
}
# Field of the message -> type of an attribute in which that field is set.
_KINDS: Final[Mapping[str, int]] = {
    "i": _A.INT,
    "f": _A.FLOAT,
    "s": _A.STRING,
    "t": _A.TENSOR,
    "g": _A.GRAPH,
    "sparse_tensor": _A.SPARSE_TENSOR,
    "tp": _A.TYPE_PROTO,
    "ints": _A.INTS,
    "floats": _A.FLOATS,
    "strings": _A.STRINGS,
    "tensors": _A.TENSORS,
    "graphs": _A.GRAPHS,
    "sparse_tensors": _A.SPARSE_TENSORS,
    "type_protos": _A.TYPE_PROTOS,
}
