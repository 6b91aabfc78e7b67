"""Import a whole ONNX model: its inputs with static shapes, its initializers, its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

from popc.frontend.functions import FunctionTable
from popc.frontend.importer import GraphImporter, ImportContext
from popc.frontend.load import LoadedModel
from popc.frontend.rules import RULES
from popc.frontend.tensors import decode_tensor, dtype_from_onnx
from popc.frontend.values import OptionalValue, SequenceValue, Unknown, Value
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import ModelError, UsageError
from popc_runtime.format import Array

__all__ = ["Bindings", "ImportedModel", "import_model"]


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the user fixes about a model before it is compiled.

    Attributes:
        shapes: Shape of an input, by input name.
        dims: Value of a symbolic dimension, by its name in the model.
        values: Inputs that become constants: an array, or a list of arrays for a sequence input.
        outputs: The tensors wanted as outputs, by ONNX name; empty: those of the model.
        anchors: Further tensors wanted as outputs.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    values: Mapping[str, Array | list[Array] | None] = field(
        default_factory=dict[str, "Array | list[Array] | None"]
    )
    outputs: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()


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

    Raises:
        UnsupportedOpError, DataDependentShapeError, ModelError: the model cannot be compiled.
        UsageError: ``bindings`` name inputs, dimensions or outputs that do not exist.
    """
    bindings = bindings or Bindings()
    model, base_dir = loaded.proto, loaded.base_dir
    opsets = {
        "" if item.domain == "ai.onnx" else item.domain: item.version
        for item in model.opset_import
    }
    context = ImportContext(RULES, FunctionTable(model.functions), base_dir)
    importer = GraphImporter(context, Graph(model.graph.name or "main"), opsets)
    _define_initializers(importer, model.graph, base_dir)
    _define_inputs(importer, model.graph, bindings)
    importer.import_nodes(model.graph.node)
    context.problems.raise_if_any()
    sequences = _define_outputs(importer, model.graph, bindings)
    result = importer.graph
    return ImportedModel(
        graph=result,
        inputs=tuple((tensor.name, tensor.type) for tensor in result.inputs),
        outputs=tuple(
            (name, tensor.type)
            for name, tensor in zip(result.output_names, result.outputs, strict=True)
        ),
        sequences=sequences,
    )


def _define_initializers(importer: GraphImporter, graph: onnx.GraphProto, base_dir: str) -> None:
    for proto in graph.initializer:
        type_, data = decode_tensor(proto, base_dir)
        importer.define(proto.name, importer.graph.add_constant(proto.name, type_, data))


def _define_inputs(
    importer: GraphImporter, graph: onnx.GraphProto, bindings: Bindings
) -> None:
    for info in graph.input:
        if info.name in importer.scope.values and info.name not in bindings.values:
            continue  # an initializer listed as input: a weight
        importer.define(info.name, _input_value(importer, info, bindings))


def _input_value(
    importer: GraphImporter, info: onnx.ValueInfoProto, bindings: Bindings
) -> Value:
    if info.name in bindings.values:
        return _bound(importer, info.name, info.type, bindings.values[info.name])
    if not info.type.HasField("tensor_type"):
        raise ModelError(
            f"input {info.name!r} is not a tensor: bind its value at compile time",
            hint=f"--bind {info.name}=FILE.npz",
        )
    return importer.graph.add_input(info.name, _input_type(info, bindings))


def _bound(
    importer: GraphImporter,
    name: str,
    type_: onnx.TypeProto,
    value: Array | list[Array] | None,
) -> Value:
    if type_.HasField("optional_type"):
        inner = None if value is None else _bound(
            importer, name, type_.optional_type.elem_type, value
        )
        return OptionalValue(inner)
    if type_.HasField("sequence_type"):
        items = value if isinstance(value, list) else []
        element = type_.sequence_type.elem_type
        parts = tuple(_bound(importer, f"{name}.{i}", element, v) for i, v in enumerate(items))
        return SequenceValue(parts)
    dtype = dtype_from_onnx(type_.tensor_type.elem_type)
    return importer.constant(np.asarray(value), dtype, name)


def _input_type(info: onnx.ValueInfoProto, bindings: Bindings) -> TensorType:
    tensor_type = info.type.tensor_type
    dtype = dtype_from_onnx(tensor_type.elem_type)
    if info.name in bindings.shapes:
        return TensorType(dtype, bindings.shapes[info.name])
    shape: list[int] = []
    for dim in tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
        elif dim.dim_param in bindings.dims:
            shape.append(bindings.dims[dim.dim_param])
        else:
            raise UsageError(
                f"input {info.name!r} has an open dimension {dim.dim_param or '?'!r}",
                hint=f"give its shape: --shape {info.name}=1,...",
            )
    return TensorType(dtype, tuple(shape))


def _define_outputs(
    importer: GraphImporter, graph: onnx.GraphProto, bindings: Bindings
) -> dict[str, tuple[str, ...]]:
    """Add the wanted outputs; the element names of those that are sequences."""
    wanted = bindings.outputs or tuple(info.name for info in graph.output)
    sequences: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys((*wanted, *bindings.anchors)):
        value = importer.lookup(name)
        parts = _flatten(name, value)
        for part, tensor in parts:
            importer.graph.add_output(part, tensor)
        if isinstance(value, SequenceValue):
            sequences[name] = tuple(part for part, _ in parts)
    return sequences


def _flatten(name: str, value: Value) -> list[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        return [(name, value)]
    if isinstance(value, SequenceValue):
        parts = [_flatten(f"{name}.{i}", item) for i, item in enumerate(value.items)]
        return [pair for part in parts for pair in part]
    if isinstance(value, OptionalValue):
        return [] if value.value is None else _flatten(name, value.value)
    assert not isinstance(value, Unknown)
    raise AssertionError(value)
