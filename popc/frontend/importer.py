"""Walks the nodes of an ONNX graph and builds the IR, resolving shapes on the way.

Every shape is static, so the importer can interpret: output types are known as soon as a node is
built, arithmetic on constants becomes constants at once, and a node that needs the value of an
operand asks for it.  No separate shape inference or constant propagation is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from popc.frontend import messages as onnx
from popc.frontend.annotations import annotate_ops, is_annotated
from popc.frontend.attributes import decode_attributes
from popc.frontend.custom import custom_operator
from popc.frontend.functions import FunctionBody
from popc.frontend.known_attributes import record_attributes
from popc.frontend.names import abbreviated, default_domain_name, operator_name
from popc.frontend.node import Node, RuleResult
from popc.frontend.open_graph import ArgumentMaker, Body, OpenGraph, Scope
from popc.frontend.problems import AlreadyReported, DataDependent, Problems
from popc.frontend.rules import RULES
from popc.frontend.signature import check_signature
from popc.frontend.values import SizedValue, TableValue, TextValue, Unknown, Value
from popc.frontend.walk import node_name
from popc.frontend.words import moved_words
from popc.ir import Graph, Tensor, TensorType
from popc_runtime.errors import ModelError, TooMuchWorkError

__all__ = ["GraphImporter"]


class GraphImporter(OpenGraph):
    """Imports nodes into one graph."""

    def import_nodes(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Import ``nodes`` in order; problems are collected, not raised."""
        for proto in nodes:
            results = self._results(proto, node_name(proto))
            if results is None:
                results = [Unknown()] * len(proto.output)
            for output, value in zip(proto.output, results, strict=False):
                if value is not None:
                    self._name_result(output, value)

    def _results(self, proto: onnx.NodeProto, name: str) -> Sequence[Value | None] | None:
        """The results of a node; ``None`` if a problem has been recorded instead."""
        problems, budget = self.context.problems, self.context.budget
        budget.enter(name)
        try:
            inputs = [self.lookup(item) if item else None for item in proto.input]
            if Unknown in map(type, inputs):
                return None
            ops = len(self.graph)
            results = self._as_wanted(proto, name, inputs)
            if self.context.recompute is not None:
                self.context.recompute.mark(proto, results, self.graph, len(self.graph) - ops)
        except AlreadyReported:
            pass
        except DataDependent as problem:
            problems.data_dependent[problem.what].append(name)
        except TooMuchWorkError:
            raise
        except ModelError as error:
            problems.invalid[error.message].append(name)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # Attributes of the wrong length and the like: rules check what goes wrong in practice.
            what = f"{proto.op_type}: its inputs or attributes do not fit the operator ({error})"
            problems.invalid[what].append(name)
        else:
            return results
        finally:
            budget.leave()
        return None

    def _as_wanted(
        self, proto: onnx.NodeProto, name: str, inputs: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """The results of a node on its operands, with all that its attributes ask for."""
        if not proto.attribute:
            return self.apply(proto, name, inputs)
        ops = len(self.graph)
        record_attributes(proto, self.opsets, self.context.functions, self.context.problems)
        from popc.frontend.output_type import in_wanted_type

        results = in_wanted_type(self.graph, proto, inputs, partial(self.apply, proto, name))
        if is_annotated(proto):
            annotate_ops(proto, self.graph.newest(max(len(self.graph) - ops, 0)))
        return results

    def apply(
        self, proto: onnx.NodeProto, name: str, inputs: Sequence[Value | None]
    ) -> Sequence[Value | None]:
        """The results of one node on given operands: by import rule, or by expanding its body."""
        domain, op_type = default_domain_name(proto.domain), proto.op_type
        version = self.opsets.get(domain, 1)
        attributes = decode_attributes(proto, domain, version, self.context.base_dir)
        local = self.context.functions.local(domain, op_type, proto.overload)
        if local is not None:
            return self._call(local, inputs, proto, name)
        operator = custom_operator(proto, domain, version)
        if operator is not None:
            own = Node(self, op_type, domain, version, name, inputs, proto.output, {})
            from popc.frontend.custom_nodes import import_custom

            return import_custom(operator, own, attributes)
        kinds = list(map(type, inputs))
        if TextValue in kinds:
            moved = moved_words(self, proto, name, inputs)
            if moved is not None:
                return moved
        largest = inputs
        if SizedValue in kinds:
            largest = [value.padded if isinstance(value, SizedValue) else value for value in inputs]
        check_signature(op_type, domain, version, largest)
        if (domain, op_type) not in RULES:
            body = self.context.functions.standard(proto, domain, version, largest)
            if body is None:
                what = operator_name(op_type, domain, version)
                self.context.problems.unsupported[what].append(name)
                return [Unknown()] * len(proto.output)
            return self.expand(body, inputs, proto)
        node = Node(self, op_type, domain, version, name, inputs, proto.output, attributes)
        result = self._by_rule(proto, node)
        results = list(result) if isinstance(result, Sequence) else [result]
        return list(map(self._if_known, results)) if self.context.sizes.is_used else results

    def _by_rule(self, proto: onnx.NodeProto, node: Node) -> RuleResult:
        """The results of a node by its rule, or by that for sizes that data decides."""
        if SizedValue in map(type, node.inputs):
            return self._by_sized_rule(proto, node)
        try:
            return RULES[node.domain, node.op_type](node)
        except DataDependent as error:
            return self._by_sized_rule(proto, node, error)

    def _by_sized_rule(
        self, proto: onnx.NodeProto, node: Node, refusal: DataDependent | None = None
    ) -> RuleResult:
        """The results of a node with a size that data decides, its rule having refused it, or not.

        Raises:
            DataDependent: that is not supported.
        """
        from popc.frontend.rules.sized import MAKES_SIZES, SIZED_RULES, TAKES_ANY, SizedNode

        key = (node.domain, node.op_type)
        if refusal is None and key in TAKES_ANY:
            try:
                return RULES[key](node)
            except DataDependent as error:
                refusal = error
        if refusal is not None and key not in MAKES_SIZES:
            raise refusal
        sized = SIZED_RULES.get(key)
        if sized is None:
            raise DataDependent(f"{node.op_type}: an operand has a size that data decides")
        return sized(SizedNode(node, partial(self.apply, proto, node.name)))

    def _if_known(self, value: Value | None) -> Value | None:
        """A tensor of sizes that turn out to be known, although others beside them are not."""
        if not isinstance(value, Tensor) or value.data is not None or value.producer is None:
            return value
        known = self.context.sizes.known_elements(value)
        return value if known is None else self.constant(known, value.type.dtype)

    def _call(
        self,
        body: FunctionBody,
        inputs: Sequence[Value | None],
        proto: onnx.NodeProto,
        name: str,
    ) -> Sequence[Value | None]:
        """The results of a function of the model, whose ops stay together if that is wanted."""
        if not any(body.is_called(pattern) for pattern in self.context.outlined):
            return self.expand(body, inputs, proto)
        from popc.frontend.calls import ops_of_call

        with ops_of_call(self.graph, body.proto.name, name):
            return self.expand(body, inputs, proto)

    def expand(
        self, body: FunctionBody, inputs: Sequence[Value | None], proto: onnx.NodeProto
    ) -> list[Value | None]:
        """Import a function body in place of the node that calls it."""
        if len(inputs) > len(body.inputs):
            raise ModelError(f"{len(inputs)} inputs are given, but it has {len(body.inputs)}")
        outer_scope, outer_opsets = self.scope, self.opsets
        self.scope, self.opsets = Scope(), {**outer_opsets, **body.opsets}
        try:
            for name, value in zip(body.inputs, inputs, strict=False):
                if value is not None:
                    self.define(name, value)
            self.import_nodes(body.nodes(proto))
            return [self.scope.values.get(name) for name in body.outputs]
        finally:
            self.scope, self.opsets = outer_scope, outer_opsets

    def inline(self, proto: onnx.GraphProto, arguments: Sequence[Value]) -> list[Value | None]:
        """Import ``proto``'s nodes in place, its formal inputs standing for ``arguments``."""
        outer_scope = self.scope
        self.scope = Scope(outer_scope)
        try:
            self.define_initializers(proto)
            for info, value in zip(proto.input, arguments, strict=False):
                self.define(info.name, value)
            self.import_nodes(proto.node)
            return [self.lookup(info.name) for info in proto.output]
        finally:
            self.scope = outer_scope

    def import_body(
        self,
        proto: onnx.GraphProto,
        input_types: Sequence[TensorType],
        make_arguments: ArgumentMaker | None = None,
        *,
        isolated: bool = False,
    ) -> Body:
        """See `OpenGraph.import_body`."""
        problems = Problems() if isolated else self.context.problems
        graph = Graph(abbreviated(proto.name) or "body")
        inner = GraphImporter(replace(self.context, problems=problems), graph, self.opsets, self)
        formal = [info.name for info in proto.input]
        for index, type_ in enumerate(input_types):
            graph.add_input(formal[index] if index < len(formal) else "iteration", type_)
        inputs = tuple(graph.inputs)
        arguments = make_arguments(inner, inputs) if make_arguments else inputs
        results = inner.inline(proto, arguments)
        if isolated:
            problems.raise_if_any()
        return Body(inner, results)

    def _name_result(self, name: str, value: Value) -> None:
        self.define(name, value)
        if isinstance(value, TextValue):
            value = value.numbers
        if isinstance(value, SizedValue):
            value = value.padded
        elif isinstance(value, TableValue):
            value = value.rows
        if isinstance(value, Tensor) and value.producer is not None and name:
            self.graph.rename(value, abbreviated(name))
