"""What a model contains, and which of its operators popc does not know."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx

from popc.frontend.functions import FunctionTable
from popc.frontend.load import LoadedModel
from popc.frontend.rules import RULES
from popc.frontend.tensors import dtype_name
from popc.frontend.walk import node_name

__all__ = ["UnsupportedOp", "describe_model", "find_unsupported"]


@dataclass(frozen=True, slots=True)
class UnsupportedOp:
    """Nodes that popc cannot import for the same reason."""

    op_type: str
    domain: str
    opset: int
    reason: str
    nodes: tuple[str, ...]


def describe_model(model: LoadedModel) -> dict[str, Any]:
    """Counts, types and versions, JSON-ready."""
    proto = model.proto
    weights = {tensor.name for tensor in proto.graph.initializer}
    return {
        "producer": model.provenance.get("producer", ""),
        "ir_version": proto.ir_version,
        "opsets": sorted([item.domain, item.version] for item in proto.opset_import),
        "inputs": [_value_text(info) for info in proto.graph.input if info.name not in weights],
        "outputs": [_value_text(info) for info in proto.graph.output],
        "weight_count": len(weights),
        "weight_bytes": sum(_nbytes(tensor) for tensor in proto.graph.initializer),
        "op_counts": dict(sorted(Counter(node.op_type for node in _nodes(proto.graph)).items())),
        "nodes": [_node_text(node) for node in proto.graph.node],
    }


def _value_text(info: onnx.ValueInfoProto) -> str:
    if not info.type.HasField("tensor_type"):
        return f"{info.name}: {info.type.WhichOneof('value')}"
    tensor = info.type.tensor_type
    dims = [dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim]
    return f"{info.name}: {dtype_name(tensor.elem_type)}[{','.join(dims)}]"


def _nbytes(tensor: onnx.TensorProto) -> int:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _node_text(node: onnx.NodeProto) -> str:
    return f"{', '.join(node.output)} = {node.op_type}({', '.join(node.input)})  # {node.name}"


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def find_unsupported(model: LoadedModel) -> list[UnsupportedOp]:
    """Every operator without an import rule or function body, in all graphs and functions."""
    proto = model.proto
    opsets = {_domain(item.domain): item.version for item in proto.opset_import}
    table = FunctionTable(proto.functions)
    found: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for node in _nodes(proto.graph):
        _check(node, opsets, table, found)
    for function in proto.functions:
        inner = {_domain(item.domain): item.version for item in function.opset_import}
        for node in function.node:
            _check(node, {**opsets, **inner}, table, found)
    return [
        UnsupportedOp(op_type, domain, version, "no such operator in popc", tuple(nodes))
        for (domain, op_type, version), nodes in sorted(found.items())
    ]


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _check(
    node: onnx.NodeProto,
    opsets: dict[str, int],
    table: FunctionTable,
    found: dict[tuple[str, str, int], list[str]],
) -> None:
    domain = _domain(node.domain)
    version = opsets.get(domain, 1)
    if (domain, node.op_type) in RULES or table.local(domain, node.op_type, node.overload):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
    except onnx.defs.SchemaError:
        schema = None
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        found[domain, node.op_type, version].append(node_name(node))
