"""A graph that is being imported: names of values, captures, constants, new values of variables.

What import rules may ask of the import stands here; `popc.frontend.importer` does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.context import ImportContext
from popc.frontend.functions import FunctionBody
from popc.frontend.tensors import decode_sparse_tensor, decode_tensor, dtype_name, is_supported
from popc.frontend.updates import VariableUpdates
from popc.frontend.values import (
    OptionalValue,
    SequenceValue,
    SizedValue,
    TableValue,
    TextValue,
    Unavailable,
    Unknown,
    Value,
)
from popc.ir import Graph, Op, Tensor, TensorKind, TensorType, VariableRole
from popc.ops.build import can_evaluate, evaluate
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.stored import as_stored

__all__ = ["ArgumentMaker", "Body", "OpenGraph", "Scope"]

# Results of constants up to this many bytes are computed while importing; folding weighs larger.
_FOLD_BYTES: Final = 4096


class Scope:
    """ONNX value names of one graph (or function body) and the scope around it.

    A graph imported in place sees the names around it (``parent``); a function body does not.
    """

    def __init__(self, parent: Scope | None = None) -> None:
        self.parent = parent
        self.values: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """The value of ``name`` in this scope or the ones around it."""
        scope: Scope | None = self
        while scope is not None:
            value = scope.values.get(name)
            if value is not None:
                return value
            scope = scope.parent
        return None


@frozen
class Body:
    """A subgraph imported on its own, with its captures, and its results."""

    importer: OpenGraph
    results: list[Value | None]


# Gives the values of an ONNX graph's formal inputs, from the importer and inputs of its IR graph.
ArgumentMaker: TypeAlias = "Callable[[OpenGraph, Sequence[Tensor]], Sequence[Value]]"


class OpenGraph(ABC):
    """A graph that nodes are imported into.

    A nested importer (for a branch or loop body) has a ``parent``; what its nodes read from the
    parent's scope becomes a capture: a graph input of the body, and an operand of the op.
    """

    def __init__(
        self,
        context: ImportContext,
        graph: Graph,
        opsets: Mapping[str, int],
        parent: OpenGraph | None = None,
    ) -> None:
        self.context = context
        self.graph = graph
        self.opsets = opsets
        self.parent = parent
        self.scope = Scope()
        # (tensor of the parent's graph, input of this graph), in order of first use
        self.captures: dict[Tensor, Tensor] = {}
        self.updates = VariableUpdates()

    # -- names -----------------------------------------------------------------------------------

    def lookup(self, name: str) -> Value:
        """The value of an ONNX name, captured from the enclosing graph if need be.

        Raises:
            ModelError: nothing of that name has been defined, or it cannot be computed.
        """
        found = self.scope.values.get(name)
        if type(found) is Tensor:  # as it is for the most part
            return found
        found = self.scope.find(name)
        if isinstance(found, Unavailable):
            raise ModelError(found.reason)
        if found is not None:
            return found
        if self.parent is None:
            raise ModelError(f"value {name!r} is read but never defined")
        value = self.capture(self.parent.lookup(name))
        self.scope.values[name] = value
        return value

    def define(self, name: str, value: Value) -> None:
        """Give ``value`` an ONNX name in this scope."""
        if name:
            self.scope.values[name] = value

    def capture(self, value: Value) -> Value:
        """``value`` of the parent graph, as seen from this graph."""
        if isinstance(value, Tensor):
            return self._capture_tensor(value)
        if isinstance(value, SequenceValue):
            return SequenceValue(tuple(self.capture(item) for item in value.items), value.dtype)
        if isinstance(value, OptionalValue) and value.value is not None:
            return OptionalValue(self.capture(value.value))
        if isinstance(value, TextValue):
            numbers = self.capture(value.numbers)
            assert isinstance(numbers, Tensor | SizedValue)
            return replace(value, numbers=numbers)
        if isinstance(value, TableValue):
            return replace(value, rows=self._capture_tensor(value.rows))
        return self._capture_sized(value) if isinstance(value, SizedValue) else value

    def _capture_sized(self, value: SizedValue) -> SizedValue:
        counts = (c if c is None else self._capture_tensor(c) for c in value.counts)
        return SizedValue(self._capture_tensor(value.padded), tuple(counts))

    def _capture_tensor(self, tensor: Tensor) -> Tensor:
        if tensor in self.captures:
            return self.captures[tensor]
        cheap = tensor.type.nbytes <= _FOLD_BYTES
        known = self.known_value(tensor) if cheap else tensor.data
        if known is not None:
            inner = self.graph.add_constant(tensor.name, tensor.type, known)
        else:
            inner = self.graph.add_input(tensor.name, tensor.type)
            self.context.known.note_capture(inner, tensor)
        self.captures[tensor] = inner
        return inner

    @property
    def runtime_captures(self) -> list[Tensor]:
        """Tensors of the parent graph that the body needs as operands, in order of its inputs."""
        return [outer for outer, inner in self.captures.items() if inner.kind is TensorKind.INPUT]

    # -- constants -------------------------------------------------------------------------------

    def constant(self, array: Array, dtype: DType, name: str = "constant") -> Tensor:
        """A constant of ``dtype``; bfloat16 is given as float32 values."""
        data = as_stored(array, dtype) if array.dtype != dtype.storage else np.asarray(array)
        return self.graph.add_constant(name, TensorType(dtype, data.shape), data)

    def define_initializers(
        self, proto: onnx.GraphProto, names: Container[str] | None = None
    ) -> None:
        """Define a graph's weights (those in ``names``); sparse ones are made dense.

        They are constants or variables.  Unsupported element types are recorded as problems.

        Raises:
            ModelError: a weight is damaged, or its external file is missing.
        """
        dense = [(weights, partial(decode_tensor, weights)) for weights in proto.initializer]
        sparse = [
            (sparse_.values, partial(decode_sparse_tensor, sparse_))
            for sparse_ in proto.sparse_initializer
        ]
        for tensor, decode in (*dense, *sparse):
            if names is not None and tensor.name not in names:
                continue
            if tensor.data_type == onnx.TensorProto.STRING:
                words = [item.decode("utf-8", errors="replace") for item in tensor.string_data]
                self.define(tensor.name, self.text_constant(words, tuple(tensor.dims)))
                continue
            if not is_supported(tensor.data_type):
                what = f"element type {dtype_name(tensor.data_type)}"
                self.context.problems.unsupported[what].append(tensor.name)
                self.define(tensor.name, Unknown())
                continue
            type_, data = decode(self.context.base_dir)
            if self.context.is_variable(tensor.name, type_):
                weight = self.variable(tensor, type_, data)
            else:
                weight = self.graph.add_constant(tensor.name, type_, data)
            self.define(tensor.name, weight)

    def text_constant(self, words: Sequence[str], shape: tuple[int, ...]) -> TextValue:
        """Strings that are known.

        Raises:
            ModelError: they are not as many as the shape has elements.
        """
        known = tuple(dict.fromkeys(words))
        places = {word: place for place, word in enumerate(known)}
        numbers = np.array([places[word] for word in words], np.int64)
        if numbers.size != prod(shape):
            raise ModelError(f"{numbers.size} strings do not fill a tensor of shape {list(shape)}")
        return TextValue(self.constant(numbers.reshape(shape), DType.INT64), known)

    def variable(self, proto: onnx.TensorProto, type_: TensorType, data: Array) -> Tensor:
        """The variable of an initializer: one, in the top graph, however often it is imported."""
        if self.parent is not None:
            return self._capture_tensor(self.parent.variable(proto, type_, data))
        known = self.context.variables
        if id(proto) not in known:
            weight = self.graph.add_variable(proto.name, type_, VariableRole.WEIGHT, data)
            known[id(proto)] = (proto, weight)  # keeps the message: no other gets its identity
        return known[id(proto)][1]

    def constant_node(self, name: str, type_: TensorType, data: Array) -> Tensor:
        """The tensor of a Constant node: a constant, or a variable of the top graph."""
        if not self.context.is_variable(name, type_):
            return self.graph.add_constant("constant", type_, data)
        if self.parent is not None:
            return self._capture_tensor(self.parent.constant_node(name, type_, data))
        known = self.graph.tensors.get(name)
        if known is None:
            return self.graph.add_variable(name, type_, VariableRole.WEIGHT, data)
        # A body may be imported twice; another tensor of the same name stays what it is.
        if known.initial is not None and np.array_equal(known.initial, data):
            return known
        return self.graph.add_constant("constant", type_, data)

    def known_value(self, tensor: Tensor) -> Array | None:
        """The value of ``tensor`` if it follows from constants alone."""
        return self.context.known.value(tensor)

    def required_value(self, tensor: Tensor) -> Array | None:
        """Like `known_value`, but weights that decide it stop being variables."""
        if self.parent is not None:  # variables are the top graph's
            return self.parent.required_value(tensor)
        return self.context.known.required(tensor)

    def fold_if_small(self, op: Op) -> list[Tensor]:
        """``op``'s outputs; replaced by constants if all operands are known and results small."""
        for operand in op.inputs:
            if operand is not None and operand.data is None:
                return op.outputs.copy()
        small = sum(t.type.nbytes for t in op.outputs) <= _FOLD_BYTES
        if not small or not can_evaluate(op):
            return op.outputs.copy()
        self.context.budget.compute(sum(t.type.nbytes for t in op.outputs))
        values = evaluate(op, [None if t is None else t.data for t in op.inputs])
        types = [(t.name, t.type) for t in op.outputs]
        self.graph.remove_op(op)
        return [
            self.graph.add_constant(name, type_, value)
            for (name, type_), value in zip(types, values, strict=True)
        ]

    # -- nodes -----------------------------------------------------------------------------------

    @abstractmethod
    def apply(
        self, proto: onnx.NodeProto, name: str, inputs: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """The results of one node on given operands: by import rule, or by expanding its body."""

    @abstractmethod
    def expand(
        self, body: FunctionBody, inputs: Sequence[Value | None], proto: onnx.NodeProto
    ) -> list[Value | None]:
        """Import a function body in place of the node that calls it."""

    @abstractmethod
    def inline(self, proto: onnx.GraphProto, arguments: Sequence[Value]) -> list[Value | None]:
        """Import ``proto``'s nodes in place, its formal inputs standing for ``arguments``."""

    @abstractmethod
    def import_body(
        self,
        proto: onnx.GraphProto,
        input_types: Sequence[TensorType],
        make_arguments: ArgumentMaker | None = None,
        *,
        isolated: bool = False,
    ) -> Body:
        """Import ``proto`` as a graph of its own, with inputs of the given types.

        With ``isolated``, problems inside the body are raised instead of collected, so that the
        caller can try another way.

        Raises:
            ModelError: only if ``isolated``: what kept the body from being imported.
        """
