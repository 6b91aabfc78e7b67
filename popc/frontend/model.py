"""Import a whole ONNX model: its inputs with static shapes, its initializers, its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from popc.frontend.annotations import useless_annotations
from popc.frontend.bindings import (
    Bindings,
    ResolvedInputs,
    TrainingBindings,
    resolve,
)
from popc.frontend.bound_values import BoundValue
from popc.frontend.functions import FunctionTable
from popc.frontend.importer import GraphImporter, ImportContext, never
from popc.frontend.load import LoadedModel
from popc.frontend.rules import RULES
from popc.frontend.rules.graphcore import DOMAIN as GRAPHCORE
from popc.frontend.tensors import dtype_from_onnx, is_supported
from popc.frontend.unsupported import find_unsupported
from popc.frontend.values import OptionalValue, SequenceValue, Value
from popc.frontend.walk import all_nodes, differentiated_names, needed_nodes
from popc.ir import Graph, Tensor, TensorKind, TensorType
from popc_runtime.format import DType

__all__ = ["Bindings", "ImportedModel", "import_model"]


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """The graph of a model, and how its tensors are seen from outside.

    Attributes:
        graph: The graph; passes edit it in place.
        inputs, outputs: Names and types, as they were when the model was imported.
        sequences: The names of the element tensors of each output that is a sequence.
        values: Tensors by their names in the model; those of `TrainingBindings.keep`.
        updates: Variables that the model itself gives new values: running statistics.
        notes: What the user should know, although the model can be compiled.
    """

    graph: Graph
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    sequences: Mapping[str, tuple[str, ...]]
    values: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    updates: tuple[tuple[Tensor, Tensor], ...] = ()
    notes: tuple[str, ...] = ()


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
    wanted = list(dict.fromkeys(bindings.outputs))
    if not wanted and bindings.model_outputs:
        wanted = [info.name for info in model.graph.output]
    wanted += [name for name in dict.fromkeys(bindings.anchors) if name not in wanted]
    nodes, names = needed_nodes(model.graph.node, [*wanted, *bindings.kept])
    nodes = bindings.annotations.applied(nodes)
    context = ImportContext(RULES, FunctionTable(model.functions), loaded.base_dir)
    context.replicas = bindings.replicas
    is_variable: Callable[[str, TensorType], bool] = never
    if bindings.training is not None:
        context.training = True
        wishes = bindings.training.recompute
        context.recompute = wishes and wishes.checked(model.graph, nodes)
        is_variable = _variable_policy(bindings.training, model.graph, nodes, loaded.opsets)
    context.is_variable = _or_differentiated(is_variable, nodes)
    importer = GraphImporter(context, Graph(model.graph.name or "main"), loaded.opsets)
    _define_inputs(importer, model.graph, inputs)
    importer.define_initializers(model.graph, names.difference(importer.scope.values))
    importer.import_nodes(nodes)
    _freeze(importer, is_variable)
    if context.problems.unsupported:
        # What follows an unknown node has not been looked at: name everything at once.
        for row in find_unsupported(loaded):
            if not row.concerns_type:
                context.problems.unsupported[row.operator] = list(row.nodes)
    context.problems.raise_if_any()
    sequences = _add_outputs(importer.graph, [(name, importer.lookup(name)) for name in wanted])
    notes = useless_annotations(nodes, bindings.annotations.ignored)
    imported = _imported(importer.graph, sequences, notes)
    if bindings.training is None:
        return imported
    values = {name: importer.lookup(name) for name in bindings.kept}
    return replace(
        imported,
        values={name: value for name, value in values.items() if isinstance(value, Tensor)},
        updates=tuple(_variable_updates(importer, nodes)),
    )


def _imported(
    graph: Graph, sequences: Mapping[str, tuple[str, ...]], notes: Sequence[str]
) -> ImportedModel:
    named = zip(graph.output_names, graph.outputs, strict=True)
    return ImportedModel(
        graph=graph,
        inputs=tuple((tensor.name, tensor.type) for tensor in graph.inputs),
        outputs=tuple((name, tensor.type) for name, tensor in named),
        sequences=sequences,
        notes=tuple(notes),
    )


# -- training --------------------------------------------------------------------------------------


def _variable_policy(
    training: TrainingBindings,
    graph: onnx.GraphProto,
    nodes: Sequence[onnx.NodeProto],
    opsets: Mapping[str, int],
) -> Callable[[str, TensorType], bool]:
    """Which weights become variables: trainable floats, and what the model itself updates.

    Some exporters keep weights in Constant nodes; others keep there what is no weight.  So the
    tensors of Constant nodes count if weights are named, or if there are no others.
    """
    constants: frozenset[str] = frozenset()
    if not training.named and any(_is_weight(tensor) for tensor in graph.initializer):
        constants = frozenset(
            node.output[0] for node in all_nodes(nodes) if node.op_type == "Constant"
        )
    written: set[str] = set()
    statistics: set[str] = set()
    for node in nodes:
        written.update(name for name, _ in _updates(node, opsets))
        if node.op_type == "BatchNormalization":
            statistics.update(node.input[3:5])

    def is_variable(name: str, type_: TensorType) -> bool:
        if name in written or name in statistics:
            return name in written
        if name in constants:
            return False
        return type_.dtype.is_float and training.is_trainable(name, type_)

    return is_variable


def _is_weight(tensor: onnx.TensorProto) -> bool:
    return (
        is_supported(tensor.data_type)
        and bool(tensor.dims)
        and dtype_from_onnx(tensor.data_type).is_float
    )


def _or_differentiated(
    is_variable: Callable[[str, TensorType], bool], nodes: Iterable[onnx.NodeProto]
) -> Callable[[str, TensorType], bool]:
    """Until Gradient nodes are imported, the weights that they name must not be constants.

    What depends on constants alone is computed at once, and no op is left to differentiate.
    """
    names = differentiated_names(nodes)

    def is_variable_meanwhile(name: str, type_: TensorType) -> bool:
        return is_variable(name, type_) or (name in names and type_.dtype.is_float)

    return is_variable_meanwhile if names else is_variable


def _freeze(importer: GraphImporter, is_variable: Callable[[str, TensorType], bool]) -> None:
    """Make constants of the weights that were variables for Gradient nodes only."""
    names = {weight: proto.name for proto, weight in importer.context.variables.values()}
    for weight in importer.graph.variables:
        if not is_variable(names.get(weight, weight.name), weight.type):
            importer.graph.freeze(weight)


def _updates(node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[tuple[str, str]]:
    """The weights that a node gives new values, and the names of those values."""
    if node.op_type == "CopyVarUpdate" and node.domain == GRAPHCORE:
        return [(node.input[0], node.input[1])]
    if node.op_type == "BatchNormalization" and _updates_statistics(node, opsets.get("", 1)):
        return list(zip(node.input[3:5], node.output[1:3], strict=False))
    return []


def _updates_statistics(node: onnx.NodeProto, opset: int) -> bool:
    """Whether a BatchNormalization node computes new running statistics."""
    trains = any(one.name == "training_mode" and one.i for one in node.attribute)
    return len(node.output) >= 3 and (bool(node.domain) or opset < 14 or trains)


def _variable_updates(
    importer: GraphImporter, nodes: Iterable[onnx.NodeProto]
) -> Iterator[tuple[Tensor, Tensor]]:
    for node in nodes:
        for source, result in _updates(node, importer.opsets):
            old = importer.lookup(source)
            new = importer.scope.find(result) if result else None
            is_variable = isinstance(old, Tensor) and old.kind is TensorKind.VARIABLE
            if is_variable and isinstance(old, Tensor) and isinstance(new, Tensor):
                yield old, new


# -- inputs and weights ----------------------------------------------------------------------------


def _define_inputs(importer: GraphImporter, graph: onnx.GraphProto, inputs: ResolvedInputs) -> None:
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


# -- outputs ---------------------------------------------------------------------------------------


def _add_outputs(graph: Graph, results: Iterable[tuple[str, Value]]) -> dict[str, tuple[str, ...]]:
    """Add the wanted outputs; the element names of those that are sequences.

    Public names are unique, among inputs too: an output that is an input gets a number.
    """
    taken = {tensor.name for tensor in graph.inputs}
    sequences: dict[str, tuple[str, ...]] = {}
    for name, value in results:
        parts = [(_unique(part, taken), tensor) for part, tensor in _flatten(name, value)]
        for part, tensor in parts:
            graph.add_output(part, tensor)
        if isinstance(value, SequenceValue):
            sequences[name] = tuple(part for part, _ in parts)
    return sequences


def _unique(name: str, taken: set[str]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique = f"{name}.{number}"
        number += 1
    taken.add(unique)
    return unique


def _flatten(name: str, value: Value) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [(name, value)]
    if isinstance(value, SequenceValue):
        parts = [_flatten(f"{name}.{i}", item) for i, item in enumerate(value.items)]
        return [pair for part in parts for pair in part]
    if isinstance(value, OptionalValue):
        return [] if value.value is None else _flatten(name, value.value)
    raise AssertionError(value)  # an Unknown would have been reported
