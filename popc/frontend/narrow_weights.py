"""Constants of two or four bits, which onnxruntime's quantisation writes, as bytes.

What dequantises them, or moves them to where that is done, does the same with bytes of the same
values.  An operator that rounds or saturates would not: constants that one reads stay as they are,
and are refused with the rest of what has no type here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.load import LoadedModel
from popc.frontend.names import default_domain_name
from popc.frontend.walk import all_nodes, graphs_inside
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

__all__ = ["with_narrow_weights_as_bytes"]

_BITS: Final[dict[int, int]] = {
    onnx.TensorProto.INT2: 2,
    onnx.TensorProto.UINT2: 2,
    onnx.TensorProto.INT4: 4,
    onnx.TensorProto.UINT4: 4,
}
_SIGNED: Final[frozenset[int]] = frozenset({onnx.TensorProto.INT2, onnx.TensorProto.INT4})

# Places of operands that may as well be bytes, by operator.
_READ: Final = {
    ("", "DequantizeLinear"): (0, 2),
    ("com.microsoft", "DequantizeLinear"): (0, 2),
    ("com.microsoft", "GatherBlockQuantized"): (0, 3),
}
_MOVING: Final = frozenset(
    {"Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)


def with_narrow_weights_as_bytes(model: LoadedModel) -> LoadedModel:
    """``model``, or a copy whose constants of two or four bits are signed bytes, where they may be.

    Raises:
        ModelError: a constant cannot be decoded.
    """
    proto = model.proto
    found = {
        name
        for graph in (proto.graph, *graphs_inside(proto.graph.node))
        for name, _ in _narrow_tensors(graph)
    }
    if not found:
        return model
    from onnx import numpy_helper

    chosen = _readable_as_bytes(proto.graph, found)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for graph in (copy.graph, *graphs_inside(copy.graph.node)):
        for name, tensor in _narrow_tensors(graph):
            if name in chosen:
                tensor.CopyFrom(numpy_helper.from_array(_bytes_of(tensor, model), tensor.name))
        for info in graph.value_info:
            if info.name in chosen and info.type.tensor_type.elem_type in _BITS:
                info.type.tensor_type.elem_type = onnx.TensorProto.INT8
    return replace(model, proto=copy)


def _narrow_tensors(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """The constants of a graph that are narrower than a byte, by the names they are read by."""
    inputs = {info.name for info in graph.input}
    for tensor in graph.initializer:
        if tensor.data_type in _BITS and tensor.name not in inputs:
            yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.t.data_type in _BITS:
                    yield node.output[0], attribute.t


def _readable_as_bytes(graph: onnx.GraphProto, found: set[str]) -> set[str]:
    """The constants of ``found``, and what they become, that only such nodes read."""
    origin = {name: name for name in found}
    outputs = [graph, *graphs_inside(graph.node)]
    refused = {info.name for inner in outputs for info in inner.output}
    for node in all_nodes(graph.node):
        allowed = _places(node)
        for place, name in enumerate(node.input):
            if name not in origin:
                continue
            if place not in allowed:
                refused.add(name)
            elif _moves(node):
                origin[node.output[0]] = origin[name]
    spoiled = {origin[name] for name in refused if name in origin}
    return {name for name, source in origin.items() if source not in spoiled}


def _moves(node: onnx.NodeProto) -> bool:
    return not default_domain_name(node.domain) and node.op_type in _MOVING


def _places(node: onnx.NodeProto) -> tuple[int, ...]:
    return (0,) if _moves(node) else _READ.get((default_domain_name(node.domain), node.op_type), ())


def _bytes_of(tensor: onnx.TensorProto, model: LoadedModel) -> Array:
    """The elements of a constant, of which a byte holds several, the lowest bits first."""
    bits = _BITS[tensor.data_type]
    shape = tuple(tensor.dims)
    count = prod(shape)
    each = 8 // bits
    size = -(-count // each)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        flat = onnx.TensorProto()
        flat.CopyFrom(tensor)
        flat.dims[:] = [size]
        from popc.frontend.external import external_array

        packed = external_array(flat, np.dtype(np.uint8), model.base_dir)
    elif tensor.HasField("raw_data"):
        packed = np.frombuffer(tensor.raw_data, np.uint8)
    else:
        packed = np.asarray(tensor.int32_data, np.int64).astype(np.uint8)
    if packed.size != size:
        raise ModelError(
            f"tensor {tensor.name!r} of shape {list(shape)} needs {size:,} bytes, "
            f"but has {packed.size:,}"
        )
    fields = packed[:, None] >> (bits * np.arange(each, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    values = fields.reshape(-1)[:count].astype(np.int8).reshape(shape)
    if tensor.data_type in _SIGNED:
        half = np.int8(1 << (bits - 1))
        values = (values ^ half) - half
    return np.ascontiguousarray(values)
