"""The contents of a model, without compiling it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import Any

from popc.frontend import messages as onnx
from popc.frontend.load import LoadedModel
from popc.frontend.names import shown
from popc.frontend.tensors import dtype_name
from popc.frontend.walk import all_nodes, nested_graphs

__all__ = ["describe_model"]


def describe_model(model: LoadedModel) -> dict[str, Any]:
    """Counts, types and versions, JSON-ready."""
    proto = model.proto
    weights = list(_weights(proto.graph))
    return {
        "producer": model.provenance.get("producer", ""),
        "ir_version": proto.ir_version,
        "opsets": sorted([domain, version] for domain, version in model.opsets.items()),
        "inputs": [_value_text(info) for info in model.inputs],
        "outputs": [_value_text(info) for info in proto.graph.output],
        "weight_count": len(weights),
        "weight_bytes": sum(map(_nbytes, weights)),
        "op_counts": dict(sorted(Counter(n.op_type for n in all_nodes(proto.graph.node)).items())),
        "weights": [
            f"{shown(t.name)}: {dtype_name(t.data_type)}[{','.join(map(str, t.dims))}]"
            for t in proto.graph.initializer
        ],
        "nodes": [_node_text(node) for node in proto.graph.node],
    }


def _weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and the tensors of Constant nodes, also those in subgraphs."""
    yield from graph.initializer
    yield from (sparse.values for sparse in graph.sparse_initializer)
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
        for inner in nested_graphs(node):
            yield from _weights(inner)


def _value_text(info: onnx.ValueInfoProto) -> str:
    return f"{shown(info.name)}: {_type_text(info.type)}"


def _type_text(type_: onnx.TypeProto) -> str:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return f"sequence({_type_text(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(type_.optional_type.elem_type)})"
    if kind != "tensor_type":
        return (kind or "unknown").removesuffix("_type")
    tensor = type_.tensor_type
    if not tensor.HasField("shape"):
        return dtype_name(tensor.elem_type)
    dims = [
        str(dim.dim_value) if dim.HasField("dim_value") else shown(dim.dim_param) or "?"
        for dim in tensor.shape.dim
    ]
    return f"{dtype_name(tensor.elem_type)}[{','.join(dims)}]"


def _nbytes(tensor: onnx.TensorProto) -> int:
    """Bytes of a weight as a file holds it; 0 if that cannot be told (strings)."""
    bits: int = prod(tensor.dims) * _BITS.get(dtype_name(tensor.data_type), 0)
    return (bits + 7) // 8


_BITS = {
    "float32": 32,
    "float64": 64,
    "float16": 16,
    "bfloat16": 16,
    "bool": 8,
    "complex64": 64,
    "complex128": 128,
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4e2m1": 4,
    "float8e4m3fn": 8,
    "float8e4m3fnuz": 8,
    "float8e5m2": 8,
    "float8e5m2fnuz": 8,
    "float8e8m0": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def _node_text(node: onnx.NodeProto) -> str:
    outputs, inputs = (", ".join(map(shown, names)) for names in (node.output, node.input))
    comment = f"  # {shown(node.name)}" if node.name else ""
    return f"{outputs} = {node.op_type}({inputs}){comment}"
