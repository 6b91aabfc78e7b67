"""The operators, attributes and element types of a model that popc does not know.

This looks at every graph and function, without shapes and without building anything, so it says
everything at once, also about a model whose inputs are still open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from popc.frontend import messages as onnx
from popc.frontend.custom import custom_operator
from popc.frontend.functions import FunctionTable, find_schema
from popc.frontend.known_attributes import attribute_problems
from popc.frontend.load import LoadedModel
from popc.frontend.names import default_domain_name, did_you_mean, operator_name, shown
from popc.frontend.narrow_weights import with_narrow_weights_as_bytes
from popc.frontend.rules import RULES
from popc.frontend.tensors import dtype_name, is_supported
from popc.frontend.walk import all_nodes, nested_graphs, node_name
from popc.frontend.words import takes_strings
from popc_runtime.ground.frozen import frozen

__all__ = ["REFUSED", "UnsupportedOp", "find_unsupported", "is_importable"]

_A = onnx.AttributeProto

# Operators that onnxruntime has and popc does not, and why.
REFUSED: Final = {
    **dict.fromkeys(
        ("BifurcationDetector", "DynamicTimeWarping"),
        "data decides the size of its result, step by step: compute it on the host",
    ),
    "AttnLSTM": "popc has no recurrent layer with attention inside",
    "MatMulFpQ4": "its weights are in an order that onnxruntime keeps to itself",
    "MaxpoolWithMask": "onnxruntime says of it that it is for internal use",
    "Sampling": "it draws tokens at random: search in the program that runs the decoder",
    "SparseAttention": "popc has no attention of which data decides the blocks",
    "SparseToDenseMatMul": "popc has no sparse tensors",
    "Tokenizer": "it takes strings apart: give the model tokens",
    "VarlenNGramHashMapping": "sequences of several lengths that lie side by side are not known",
    "WordConvEmbedding": "popc has no embedding of words by their letters",
}
_ELEMENT_TYPE = "element type"
_STRING = dtype_name(onnx.TensorProto.STRING)
_ATTRIBUTE = "attribute"


@frozen
class UnsupportedOp:
    """Nodes that popc cannot import for the same reason."""

    op_type: str
    domain: str
    opset: int
    reason: str
    nodes: tuple[str, ...]

    @property
    def operator(self) -> str:
        """The operator with domain and opset, for messages."""
        return operator_name(self.op_type, self.domain, self.opset)

    @property
    def concerns_type(self) -> bool:
        """True if popc knows the operator, but not the type of its elements."""
        return self.reason.startswith(_ELEMENT_TYPE)

    @property
    def problem(self) -> str:
        """The operator, and what is wrong with its nodes if popc knows it."""
        if self.reason.startswith(_ATTRIBUTE) or self.reason == REFUSED.get(self.op_type):
            return f"{self.operator}: {self.reason}"
        return self.operator


def is_importable(domain: str, op_type: str, version: int) -> bool:
    """True if nodes of an operator, at an opset of its domain, can be imported."""
    return not _why_unknown(domain, op_type, version)


def find_unsupported(model: LoadedModel) -> list[UnsupportedOp]:
    """Every operator without an import rule or function body, unknown attribute and type."""
    model = with_narrow_weights_as_bytes(model)
    proto = model.proto
    found: dict[tuple[str, str, int, str], list[str]] = {}
    table = FunctionTable(proto.functions)
    untyped = _unsupported_values(proto)
    for nodes, opsets in _node_lists(model):
        for node in all_nodes(nodes):
            domain = default_domain_name(node.domain)
            version = opsets.get(domain, 1)
            for reason in _reasons(node, domain, version, table, untyped):
                key = (domain, node.op_type, version, reason)
                found.setdefault(key, []).append(shown(node_name(node)))
    return [
        UnsupportedOp(op_type, domain, version, reason, tuple(nodes))
        for (domain, op_type, version, reason), nodes in sorted(found.items())
    ]


def _node_lists(
    model: LoadedModel,
) -> Iterator[tuple[Sequence[onnx.NodeProto], Mapping[str, int]]]:
    """The nodes of the graph and of each function, with the opsets that they are written in."""
    opsets = model.opsets
    yield model.proto.graph.node, opsets
    for function in model.proto.functions:
        own = {default_domain_name(item.domain): item.version for item in function.opset_import}
        yield function.node, {**opsets, **own}


def _reasons(
    node: onnx.NodeProto,
    domain: str,
    version: int,
    table: FunctionTable,
    untyped: Mapping[str, str],
) -> Iterator[str]:
    """The reasons why popc cannot import one node."""
    local = table.local(domain, node.op_type, node.overload)
    if local is None and custom_operator(node, domain, version) is None:
        missing = _why_unknown(domain, node.op_type, version)
        if missing:
            yield missing
    yield from attribute_problems(node, version, table)
    types = dict.fromkeys(untyped[name] for name in node.input if name in untyped)
    if local is not None or takes_strings(domain, node.op_type):
        types.pop(_STRING, None)
    types.update(dict.fromkeys(_attribute_types(node)))
    yield from (f"{_ELEMENT_TYPE} {name} is not supported" for name in types)


# -- operators -------------------------------------------------------------------------------------


@cache
def _why_unknown(domain: str, op_type: str, version: int) -> str:
    """The reason why an operator cannot be imported; "" if it can."""
    if (domain, op_type) in RULES:
        return ""
    schema = find_schema(op_type, domain, version)
    if schema is None:
        return _why_missing(domain, op_type)
    if schema.has_function:
        return _why_body(schema.function_body, domain, version)
    return "" if schema.has_context_dependent_function else "popc has no rule for it"


def _why_missing(domain: str, op_type: str) -> str:
    """The reason why there is no definition of an operator."""
    schemas = [schema for schema in _all_schemas() if schema.domain == domain]
    since = [schema.since_version for schema in schemas if schema.name == op_type]
    if since:
        return f"the operator exists from opset {min(since)} on"
    if not schemas and not any(known == domain for known, _ in RULES):
        return "popc does not support this domain"
    if domain == "com.microsoft" and op_type in REFUSED:
        return REFUSED[op_type]
    names = {schema.name for schema in schemas} | {op for known, op in RULES if known == domain}
    return f"there is no such operator{did_you_mean(op_type, sorted(names))}"


@cache
def _all_schemas() -> tuple[Any, ...]:
    from onnx import defs

    return tuple(defs.get_all_schemas_with_history())


def _why_body(body: onnx.FunctionProto, domain: str, version: int) -> str:
    opsets = {default_domain_name(item.domain): item.version for item in body.opset_import}
    for node in all_nodes(body.node):
        inner = default_domain_name(node.domain)
        if _why_unknown(inner, node.op_type, opsets.get(inner, version if inner == domain else 1)):
            return f"it is defined by {node.op_type}, which popc has no rule for"
    return ""


# -- element types ---------------------------------------------------------------------------------


def _unsupported_values(proto: onnx.ModelProto) -> dict[str, str]:
    """Element types of the inputs and weights that popc has no type for, by name."""
    types: dict[str, int] = {}
    graphs = [
        proto.graph,
        *(g for node in all_nodes(proto.graph.node) for g in nested_graphs(node)),
    ]
    for graph in graphs:
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
        types |= {
            sparse.values.name: sparse.values.data_type for sparse in graph.sparse_initializer
        }
        for info in (*graph.input, *graph.value_info):
            if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
                types[info.name] = info.type.tensor_type.elem_type
    return {name: dtype_name(number) for name, number in types.items() if not is_supported(number)}


def _attribute_types(node: onnx.NodeProto) -> Iterator[str]:
    """Unsupported element types that a node's attributes name, or hold; strings may be held."""
    for attribute in node.attribute:
        held = dtype_name(attribute.t.data_type) if attribute.type == _A.TENSOR else _STRING
        if held != _STRING and not is_supported(attribute.t.data_type):
            yield held
        is_type = attribute.name in ("to", "dtype", "output_dtype") and not node.domain
        if is_type and attribute.type == _A.INT and attribute.i and not is_supported(attribute.i):
            yield dtype_name(attribute.i)
