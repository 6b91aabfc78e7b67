"""The ONNX model that a builder writes: its names, its nodes, and what is known of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

import numpy as np
import onnx

from popc.frontend import GrowingModel, InferredType
from popc.popart.arrays import fill_tensor, onnx_number_of
from popc.popart.build_types import reported_type, supposed_types
from popc.popart.errors import popart_exception
from popc.popart.node_attributes import AttributeValue, write_attribute

__all__ = ["GraphModel", "scalar_losses"]

_IR_VERSION: Final = 4  # PopART's
_GRAPHS: Final = count()
_SHOWN_PREFIX: Final = {"": "ai.onnx"}


class GraphModel:
    """A graph of a model, and the graph around it, if it is a subgraph.

    Args:
        parent: The graph around this one.
        proto: A model to go on from.  It is not copied.
        base_dir: The folder that external data of ``proto`` are relative to.

    Attributes:
        proto: The model; of a subgraph, a model that holds it alone.
        opsets: Opset versions by domain ("" for ai.onnx) of the nodes of this graph.
    """

    types: GrowingModel

    def __init__(
        self,
        parent: GraphModel | None = None,
        proto: onnx.ModelProto | None = None,
        base_dir: str = "",
    ) -> None:
        self.parent = parent
        self.opsets: dict[str, int] = {}
        self.types = GrowingModel(self.opsets, None if parent is None else parent.types)
        self.proto = _empty_model() if proto is None else proto
        self._issued: set[str] = set()
        self._issued_below: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._nodes: dict[str, onnx.NodeProto] = {}
        self._tensors: dict[str, None] = {}
        self._weights: dict[str, onnx.TensorProto] = {}
        self._reported: dict[str, InferredType] = {}
        self._unread = proto is not None
        self._base_dir = base_dir
        self._index()

    def _index(self) -> None:
        """Note what the model holds already."""
        graph = self.proto.graph
        for item in self.proto.opset_import:
            self.opsets["" if item.domain == "ai.onnx" else item.domain] = item.version
        self._weights.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            self._nodes.update(dict.fromkeys(node.output, node))
        known = [*(info.name for info in graph.input), *self._weights, *self._nodes]
        self._tensors.update(dict.fromkeys(name for name in known if name))

    def _read(self) -> None:
        """Learn the types of a model to go on from, when somebody asks for one."""
        if self._unread:
            self._unread = False
            self.types.add_graph(self.proto.graph, self._base_dir)

    # -- names -----------------------------------------------------------------------------------

    def new_name(self, proposed: str) -> str:
        """``proposed``, with a number behind it if it is taken, as the name of a new tensor."""
        number = self._next_number.get(proposed, 0)
        name = f"{proposed}/{number}" if number else proposed
        while self._is_taken(name):
            number += 1
            name = f"{proposed}/{number}"
        self._next_number[proposed] = number
        self._issued.add(name)
        above = self.parent
        while above is not None:
            above._issued_below.add(name)
            above = above.parent
        return name

    def _is_taken(self, name: str) -> bool:
        if name in self._issued_below:
            return True
        graph: GraphModel | None = self
        while graph is not None:
            if name in graph._issued:
                return True
            graph = graph.parent
        return False

    def has_tensor(self, name: str) -> bool:
        """True if this graph or one around it has a tensor of that name."""
        graph: GraphModel | None = self
        while graph is not None:
            if name in graph._tensors:
                return True
            graph = graph.parent
        return False

    def tensors(self) -> list[str]:
        """The names of all tensors that nodes may read."""
        above = [] if self.parent is None else self.parent.tensors()
        return [*self._tensors, *above]

    # -- inputs, weights, outputs ------------------------------------------------------------------

    def add_input(self, name: str, type_: InferredType | None) -> None:
        """An input, with a type or without."""
        self._read()
        info = self.proto.graph.input.add(name=name)
        if type_ is not None:
            _write_type(info, type_)
        self._tensors[name] = None
        self.types.add_input(name, type_)

    def add_parent_tensor(self, name: str) -> None:
        """A tensor of a graph around this one as an input; it has its type, which is not stored."""
        self._read()
        self.proto.graph.input.add(name=name)
        self._tensors[name] = None
        above = self.parent
        self.types.add_input(name, None if above is None else above.type_of(name))

    def add_weight(self, name: str, data: np.ndarray[Any, Any]) -> None:
        """An initializer, which is listed among the inputs too.

        Raises:
            popart_exception: data of that type are not taken.
        """
        self._read()
        graph = self.proto.graph
        element = onnx_number_of(data.dtype)
        stored = graph.initializer.add(name=name)
        fill_tensor(stored, data)
        _write_type(graph.input.add(name=name), InferredType(element, data.shape))
        self._tensors[name] = None
        self._weights[name] = stored
        self.types.add_weight(name, element, data)

    def add_output(self, name: str) -> None:
        """An output; its type is stored, if it is known."""
        info = self.proto.graph.output.add(name=name)
        type_ = self.type_of(name)
        if type_ is not None:
            _write_type(info, type_)

    def weight(self, name: str) -> onnx.TensorProto | None:
        """The initializer of a name; ``None`` if there is none."""
        return self._weights.get(name)

    def add_metadata(self, key: str, value: str) -> None:
        """An entry of the model's metadata."""
        self.proto.metadata_props.add(key=key, value=value)

    # -- nodes -------------------------------------------------------------------------------------

    def require_opset(self, domain: str, version: int) -> None:
        """Let nodes of ``domain`` be of ``version``.

        Raises:
            popart_exception: they are of another one.
        """
        known = self.opsets.setdefault(domain, version)
        if known != version:
            raise popart_exception(
                f"Invalid opset {version} used to add an operation. Opset for domain "
                f"{_SHOWN_PREFIX.get(domain, domain)} already defined as {known}"
            )

    def adopt(self, subgraph: GraphModel) -> None:
        """Take over the opsets of a subgraph of a node, for domains that have none here."""
        for domain, version in subgraph.opsets.items():
            self.opsets.setdefault(domain, version)

    def add_node(
        self,
        operator: tuple[str, str],
        inputs: Sequence[str],
        outputs: Sequence[str],
        attributes: Mapping[str, AttributeValue],
        name: str = "",
    ) -> onnx.NodeProto:
        """A node of an operator (domain, type); its results get types.

        Raises:
            popart_exception: a result has a negative dimension.
        """
        self._read()
        domain, op_type = operator
        node = onnx.NodeProto(op_type=op_type, domain=domain, name=name)
        node.input.extend(inputs)
        node.output.extend(outputs)
        for key, value in attributes.items():
            write_attribute(node, key, value)
        types = self._result_types(node)
        self._require_sizes(node, types)
        graph = self.proto.graph
        stored: onnx.NodeProto = graph.node.add()
        stored.CopyFrom(node)
        for output, type_ in zip(outputs, types, strict=True):
            info = graph.value_info.add(name=output)
            if type_ is not None:
                _write_type(info, type_)
            self._tensors[output] = None
            self._nodes[output] = stored
        return stored

    def _result_types(self, node: onnx.NodeProto) -> list[InferredType | None]:
        """The types of a node's results, as they are reported."""
        types = self.types.add_node(node)
        inputs = [self.types.type_of(name) for name in node.input if name]
        if None in types:
            supposed = supposed_types(node, inputs)
            for index, name in enumerate(node.output):
                if types[index] is None and supposed[index] is not None:
                    types[index] = supposed[index]
                    self.types.add_input(name, supposed[index])
        first = inputs[0] if inputs else None
        reported = [reported_type(node, first, type_) for type_ in types]
        for name, type_, said in zip(node.output, types, reported, strict=True):
            if type_ != said and said is not None:
                self._reported[name] = said
        return reported

    @staticmethod
    def _require_sizes(node: onnx.NodeProto, types: Iterable[InferredType | None]) -> None:
        for output, type_ in zip(node.output, types, strict=True):
            if type_ is not None and any(dim < 0 for dim in type_.shape):
                raise popart_exception(
                    f"Output '{output}' of node '{node.name or node.op_type}' has invalid shape, "
                    f"{_spaced(type_.shape)}: dimensions cannot be negative."
                )

    def node_with(self, outputs: Iterable[str]) -> onnx.NodeProto:
        """The node that has exactly these outputs.

        Raises:
            popart_exception: there is none.
        """
        names = list(outputs)
        node = self._nodes.get(names[0]) if names else None
        if node is None or set(node.output) != set(names):
            raise popart_exception(
                f"Could not find a node with outputs {', '.join(sorted(names))}. Must "
                f"specify all outputs of a node"
            )
        return node

    def type_of(self, name: str) -> InferredType | None:
        """The type of a tensor of this graph or one around it; ``None`` if it is not known."""
        self._read()
        return self._reported.get(name) or self.types.type_of(name)

    # -- the whole ---------------------------------------------------------------------------------

    def named_tensors(self) -> tuple[list[str], list[str], list[str]]:
        """The names of inputs, of outputs, and of results of nodes, in the model's order."""
        graph = self.proto.graph
        return (
            [info.name for info in graph.input],
            [info.name for info in graph.output],
            [info.name for info in graph.value_info],
        )

    def weights(self) -> list[str]:
        """The names of the initializers."""
        return [tensor.name for tensor in self.proto.graph.initializer]

    def finished(self) -> onnx.ModelProto:
        """The model, with the opsets that its nodes are of."""
        known = {item.domain: item for item in self.proto.opset_import}
        for domain, version in self.opsets.items():
            if domain not in known and not (domain == "" and "ai.onnx" in known):
                self.proto.opset_import.add(domain=domain, version=version)
        return self.proto


def _empty_model() -> onnx.ModelProto:
    model = onnx.ModelProto(ir_version=_IR_VERSION)
    model.graph.name = f"BuilderGraph_{next(_GRAPHS)}"
    return model


def _write_type(info: onnx.ValueInfoProto, type_: InferredType) -> None:
    tensor = info.type.tensor_type
    tensor.elem_type = type_.element
    tensor.shape.SetInParent()
    for size in type_.shape:
        tensor.shape.dim.add(dim_value=size)


def _spaced(sizes: Iterable[int]) -> str:
    """Sizes as PopART prints them: ``[2 3]``."""
    return f"[{' '.join(map(str, sizes))}]"


def scalar_losses(model: onnx.ModelProto, base: str) -> dict[str, str]:
    """Names of losses that are scalars already, and what they are."""
    types = GraphModel(None, model, base)
    nodes = (node for node in model.graph.node if node.op_type == "IdentityLoss")
    return {
        node.output[0]: node.input[0]
        for node in nodes
        if (type_ := types.type_of(node.input[0])) is not None and not type_.shape
    }
