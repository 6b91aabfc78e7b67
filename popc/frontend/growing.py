"""The types of a model's tensors while the model is being built, node by node.

Each node is imported as in a whole model, once, when it is added; so a model of n nodes costs n
imports.  What the importer refuses is no error here, as the model may still be changed: ONNX's own
inference is asked for that node, and if it does not know either, the results have no type.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from popc.frontend.budget import NO_LIMITS, ImportBudget
from popc.frontend.context import ImportContext
from popc.frontend.functions import FunctionTable
from popc.frontend.importer import GraphImporter
from popc.frontend.known import KnownValues
from popc.frontend.problems import Problems
from popc.frontend.sizes import SizeTable
from popc.frontend.tensors import dtype_from_onnx, is_supported, onnx_type_of
from popc.frontend.values import Unknown
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["GrowingModel", "InferredType", "type_of_message"]

# Weights up to this many bytes may decide shapes: their values are kept, not only their types.
_MOST_VALUES: Final = 1 << 20
# What ONNX's inference raises about a node that it refuses.
_REFUSALS: Final = (
    *(onnx.shape_inference.InferenceError, onnx.checker.ValidationError),
    *(RuntimeError, TypeError, ValueError),
)


@frozen
class InferredType:
    """An ONNX element type number, and the size of each dimension."""

    element: int
    shape: tuple[int, ...]


class GrowingModel:
    """The tensors of a graph that grows, and of the graph around it, if it is a subgraph.

    Args:
        opsets: Opset versions by domain; versions may be added while the model grows.
        parent: The graph around this one.
    """

    def __init__(self, opsets: Mapping[str, int], parent: GrowingModel | None = None) -> None:
        self._opsets = opsets
        if parent is None:
            budget = ImportBudget(NO_LIMITS)
            known = KnownValues(budget)
            context = ImportContext(FunctionTable(()), budget, known, SizeTable(known))
            self.importer = GraphImporter(context, Graph("main"), opsets)
        else:
            context = replace(parent.importer.context, problems=Problems())
            self.importer = GraphImporter(context, Graph("body"), opsets, parent.importer)
        self._parent = parent
        # Of tensors that only ONNX's inference knows: their element types are none of popc's.
        self._foreign: dict[str, InferredType] = {}

    def type_of(self, name: str) -> InferredType | None:
        """The type of a tensor of this graph or one around it; ``None`` if it is not known."""
        value = self.importer.scope.find(name)
        if isinstance(value, Tensor):
            return InferredType(onnx_type_of(value.type.dtype), tuple(value.type.shape))
        if name in self._foreign:
            return self._foreign[name]
        known = value is None and self._parent is not None
        return self._parent.type_of(name) if known and self._parent else None

    def add_input(self, name: str, type_: InferredType | None = None) -> None:
        """An input, or any tensor whose value is not known; it may have no type."""
        if type_ is None or any(dim < 0 for dim in type_.shape):
            self.importer.define(name, Unknown())
        elif not is_supported(type_.element):
            self.importer.define(name, Unknown())
            self._foreign[name] = type_
        else:
            graph = self.importer.graph
            known = TensorType(dtype_from_onnx(type_.element), type_.shape)
            self.importer.define(name, graph.add_input(graph.fresh_name(name), known))

    def add_weight(self, name: str, element: int, data: Array) -> None:
        """A weight; its value is copied, if it can decide a shape."""
        if data.nbytes > _MOST_VALUES or not is_supported(element):
            self.add_input(name, InferredType(element, data.shape))
            return
        value = self.importer.constant(np.array(data), dtype_from_onnx(element), name)
        self.importer.define(name, value)

    def add_node(self, node: onnx.NodeProto) -> list[InferredType | None]:
        """The types of a node's results; ``None`` where one is not known."""
        context = self.importer.context
        self.importer.import_nodes([node])
        context.problems = Problems()
        untyped = [name for name in node.output if name and self.type_of(name) is None]
        if untyped:
            inferred = self._by_onnx(node)
            for name in untyped:
                if name in inferred:
                    self.add_input(name, inferred[name])
        return [self.type_of(name) if name else None for name in node.output]

    def add_graph(self, graph: onnx.GraphProto, base_dir: str = "") -> None:
        """Everything that is in ``graph``: inputs, weights, nodes."""
        weights = {tensor.name for tensor in graph.initializer}
        for info in graph.input:
            if info.name not in weights:
                self.add_input(info.name, type_of_message(info.type))
        self.importer.context.base_dir = base_dir
        for tensor in graph.initializer:
            try:
                array = numpy_helper.to_array(tensor, base_dir)
            except (OSError, TypeError, ValueError, onnx.checker.ValidationError):
                self.add_input(tensor.name, InferredType(tensor.data_type, tuple(tensor.dims)))
            else:
                self.add_weight(tensor.name, tensor.data_type, array)
        self.add_nodes(graph.node)

    def add_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Several nodes, in order."""
        for node in nodes:
            self.add_node(node)

    def _by_onnx(self, node: onnx.NodeProto) -> dict[str, InferredType]:
        """The types that ONNX's own inference gives to the results of one node."""
        names = list(dict.fromkeys(name for name in node.input if name))
        types = {name: self.type_of(name) for name in names}
        known = [
            helper.make_tensor_value_info(name, type_.element, type_.shape)
            for name, type_ in types.items()
            if type_ is not None
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        opsets = [helper.make_opsetid(*opset) for opset in self._opsets.items()]
        graph = helper.make_graph([node], "node", known, results, self._values(names))
        try:
            model = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets))
        except _REFUSALS:
            return {}
        found = {info.name: type_of_message(info.type) for info in model.graph.output}
        return {name: type_ for name, type_ in found.items() if type_ is not None}

    def _values(self, names: Sequence[str]) -> list[onnx.TensorProto]:
        """Small values that follow from constants."""
        found: list[onnx.TensorProto] = []
        for name in names:
            try:
                tensor = self.importer.lookup(name)
            except ModelError:
                continue
            small = isinstance(tensor, Tensor) and tensor.type.nbytes <= _MOST_VALUES
            value = self.importer.known_value(tensor) if isinstance(tensor, Tensor) else None
            if small and value is not None:
                found.append(numpy_helper.from_array(np.asarray(value), name))
        return found


def type_of_message(message: onnx.TypeProto) -> InferredType | None:
    """The type that a message describes; ``None`` if it leaves anything open."""
    tensor = message.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    return InferredType(tensor.elem_type, tuple(dim.dim_value for dim in tensor.shape.dim))
