"""Import a whole ONNX model: its inputs with static shapes, its initializers, its nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import onnx

from popc.frontend.bindings import Bindings, BoundValue, ResolvedInputs, resolve
from popc.frontend.functions import FunctionTable
from popc.frontend.importer import GraphImporter, ImportContext
from popc.frontend.load import LoadedModel
from popc.frontend.names import shown
from popc.frontend.rules import RULES
from popc.frontend.tensors import decode_sparse_tensor, decode_tensor, dtype_from_onnx, dtype_name
from popc.frontend.values import OptionalValue, SequenceValue, Unknown, Value
from popc.frontend.walk import needed_nodes
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import ModelError

__all__ = ["Bindings", "ImportedModel", "import_model"]


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """The graph of a model, and how its tensors are seen from outside.

    Attributes:
        graph: The graph; passes edit it in place.
        inputs, outputs: Names and types, as they were when the model was imported.
        sequences: The names of the element tensors of each output that is a sequence.
    """

    graph: Graph
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    sequences: Mapping[str, tuple[str, ...]]


def import_model(loaded: LoadedModel, bindings: Bindings | None = None) -> ImportedModel:
    """The graph of a model with every shape static.

    Nodes that no wanted output depends on are not looked at.

    Raises:
        UnsupportedOpError, DataDependentShapeError, ModelError: the model cannot be compiled.
        UsageError: ``bindings`` do not fit the model.
    """
    bindings = bindings or Bindings()
    model = loaded.proto
    inputs = resolve(loaded, bindings)
    wanted = bindings.outputs or tuple(info.name for info in model.graph.output)
    wanted = (*wanted, *(name for name in bindings.anchors if name not in wanted))
    nodes, names = needed_nodes(model.graph.node, wanted)
    context = ImportContext(RULES, FunctionTable(model.functions), loaded.base_dir)
    importer = GraphImporter(context, Graph(model.graph.name or "main"), loaded.opsets)
    _define_inputs(importer, model.graph, inputs)
    _define_initializers(importer, model.graph, names.difference(importer.scope.values))
    importer.import_nodes(nodes)
    results = [(name, importer.lookup(name)) for name in wanted if _is_defined(importer, name)]
    context.problems.raise_if_any()
    sequences = _add_outputs(importer.graph, results)
    return _imported(importer.graph, sequences)


def _imported(graph: Graph, sequences: Mapping[str, tuple[str, ...]]) -> ImportedModel:
    named = zip(graph.output_names, graph.outputs, strict=True)
    return ImportedModel(
        graph=graph,
        inputs=tuple((tensor.name, tensor.type) for tensor in graph.inputs),
        outputs=tuple((name, tensor.type) for name, tensor in named),
        sequences=sequences,
    )


# -- inputs and weights ----------------------------------------------------------------------------


def _define_inputs(
    importer: GraphImporter, graph: onnx.GraphProto, inputs: ResolvedInputs
) -> None:
    """Inputs come first, so that they keep their names in the graph."""
    types = {info.name: info.type for info in graph.input}
    for name, type_ in inputs.types.items():
        importer.define(name, importer.graph.add_input(name, type_))
    for name, value in inputs.values.items():
        importer.define(name, _constant_value(importer, name, types[name], value))


def _constant_value(
    importer: GraphImporter, name: str, type_: onnx.TypeProto, value: BoundValue
) -> Value:
    if type_.HasField("optional_type"):
        inner = type_.optional_type.elem_type
        return OptionalValue(
            None if value is None else _constant_value(importer, name, inner, value)
        )
    if isinstance(value, list):
        element = type_.sequence_type.elem_type
        items = [
            _constant_value(importer, f"{name}.{index}", element, item)
            for index, item in enumerate(value)
        ]
        return SequenceValue(tuple(items), _sequence_dtype(element))
    assert value is not None, name
    return importer.constant(value, dtype_from_onnx(type_.tensor_type.elem_type), name)


def _sequence_dtype(element: onnx.TypeProto) -> DType | None:
    is_tensor = element.HasField("tensor_type")
    return dtype_from_onnx(element.tensor_type.elem_type) if is_tensor else None


def _define_initializers(
    importer: GraphImporter, graph: onnx.GraphProto, names: Iterable[str]
) -> None:
    """The weights that are needed, as constants; those of unsupported types are problems."""
    wanted = set(names)
    base_dir = importer.context.base_dir
    for proto in graph.initializer:
        if proto.name in wanted:
            _define_weight(importer, proto.name, proto.data_type, lambda: decode_tensor(proto, base_dir))
    for sparse in graph.sparse_initializer:
        if sparse.values.name in wanted:
            _define_weight(importer, sparse.values.name, sparse.values.data_type, lambda: decode_sparse_tensor(sparse, base_dir))
