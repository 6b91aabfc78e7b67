"""Function bodies: those of the model, and those by which ONNX defines some of its operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from popc.frontend import messages as onnx
from popc.frontend.names import default_domain_name, did_you_mean, listed, shown
from popc.frontend.tensors import onnx_type_of
from popc.frontend.values import SequenceValue, Value
from popc.frontend.walk import nested_graphs
from popc.ir import Tensor
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["FunctionBody", "FunctionTable", "find_schema"]


@frozen
class FunctionBody:
    """A function to import in place of a node."""

    proto: onnx.FunctionProto

    @property
    def full_name(self) -> str:
        """The name with its domain: "local.decay"."""
        return f"{self.proto.domain}.{self.proto.name}"

    def is_called(self, pattern: str) -> bool:
        """True if ``pattern`` is for this function, with its domain or without."""
        names = (self.full_name, self.proto.name)
        return any(name == pattern or fnmatchcase(name, pattern) for name in names)

    @property
    def inputs(self) -> Sequence[str]:
        """Formal parameter names."""
        return list(self.proto.input)

    @property
    def outputs(self) -> Sequence[str]:
        """Result names."""
        return list(self.proto.output)

    @property
    def attributes(self) -> Sequence[str]:
        """Names of the attributes that a call may give."""
        return [
            *self.proto.attribute,
            *(attribute.name for attribute in self.proto.attribute_proto),
        ]

    @property
    def opsets(self) -> dict[str, int]:
        """Opset versions that the body's nodes are written in."""
        return {default_domain_name(item.domain): item.version for item in self.proto.opset_import}

    def nodes(self, call: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """The body's nodes, with references to the function's attributes resolved for ``call``."""
        given = {attribute.name: attribute for attribute in self.proto.attribute_proto}
        given.update({attribute.name: attribute for attribute in call.attribute})
        for node in self.proto.node:
            yield _resolve(node, given) if _has_references(node) else node


class FunctionTable:
    """Finds the body of a function by the node that calls it."""

    def __init__(self, functions: Iterable[onnx.FunctionProto]) -> None:
        self._local = {
            (default_domain_name(function.domain), function.name, function.overload): FunctionBody(
                function
            )
            for function in functions
        }

    @property
    def bodies(self) -> tuple[FunctionBody, ...]:
        """The functions of the model."""
        return tuple(self._local.values())

    def require(self, patterns: Iterable[str]) -> None:
        """Refuse patterns that are for no function of the model.

        Raises:
            OptionError: there are some.
        """
        names = [body.proto.name for body in self.bodies]
        details = [
            f"there is no function {shown(pattern)!r}{did_you_mean(pattern, names)}"
            for pattern in patterns
            if not any(body.is_called(pattern) for body in self.bodies)
        ]
        if details:
            raise OptionError(
                "outlined_functions names functions that the model does not have",
                subject="outlined_functions",
                details=tuple(details),
                hint=f"its functions are {listed(names)}" if names else "it has none",
            )

    def add(self, body: FunctionBody) -> None:
        """Let nodes call a function that an import rule has written."""
        key = (default_domain_name(body.proto.domain), body.proto.name, body.proto.overload)
        self._local[key] = body

    def local(self, domain: str, name: str, overload: str) -> FunctionBody | None:
        """A function that the model or an import rule defines."""
        return self._local.get((domain, name, overload))

    def standard(
        self, node: onnx.NodeProto, domain: str, version: int, inputs: Sequence[Value | None]
    ) -> FunctionBody | None:
        """The body by which ONNX defines an operator, if it does."""
        schema = find_schema(node.op_type, domain, version)
        if schema is None:
            return None
        if schema.has_context_dependent_function:
            body = _context_dependent(schema, node, version, inputs)
            return None if body is None else FunctionBody(body)
        if schema.has_function:
            return FunctionBody(_with_defaults(schema))
        return None


def find_schema(op_type: str, domain: str, version: int) -> Any:
    """ONNX's definition of an operator (an ``onnx.defs.OpSchema``), ``None`` if there is none.

    Its type stubs lack what is needed of it, hence Any.
    """
    from onnx import defs

    try:
        return defs.get_schema(op_type, version, domain)
    except defs.SchemaError:
        return None


def _with_defaults(schema: Any) -> onnx.FunctionProto:
    """The schema's body, with its attribute defaults, which the body refers to but lacks."""
    function = onnx.FunctionProto()
    function.CopyFrom(schema.function_body)
    present = {attribute.name for attribute in function.attribute_proto}
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        if default.type != onnx.AttributeProto.UNDEFINED and name not in present:
            function.attribute_proto.add().CopyFrom(default)
    return function


def _context_dependent(
    schema: Any,
    node: onnx.NodeProto,
    version: int,
    inputs: Sequence[Value | None],
) -> onnx.FunctionProto | None:
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    if not versions:
        versions = list(schema.context_dependent_function_opset_versions)
    types = [_type_proto(value).SerializeToString() for value in inputs]
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            max(versions), node.SerializeToString(), types
        )
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"ONNX cannot expand {node.op_type} here: {error}") from error
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    return function if function.node else None


def _type_proto(value: Value | None) -> onnx.TypeProto:
    from onnx import helper

    if isinstance(value, Tensor):
        number = onnx_type_of(value.type.dtype)
        return helper.make_tensor_type_proto(number, value.type.shape)
    if isinstance(value, SequenceValue) and value.items:
        return helper.make_sequence_type_proto(_type_proto(value.items[0]))
    return onnx.TypeProto()


def _has_references(node: onnx.NodeProto) -> bool:
    return any(
        attribute.ref_attr_name
        or attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        for attribute in node.attribute
    )


def _resolve(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A copy of ``node`` whose attribute references have the caller's values (or are dropped)."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.add().CopyFrom(attribute)
        elif attribute.ref_attr_name in given:
            resolved = copy.attribute.add()
            resolved.CopyFrom(given[attribute.ref_attr_name])
            resolved.name = attribute.name
    for graph in nested_graphs(copy):
        inner = [_resolve(item, given) for item in graph.node]
        del graph.node[:]
        graph.node.extend(inner)
    return copy
