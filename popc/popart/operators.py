"""The operators that a model may use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx

from popc.frontend import is_importable
from popc.ops import OPS
from popc.popart.opsets import GRAPHCORE_ROWS, ONNX_ROWS
from popc_runtime.custom import registered
from popc_runtime.ground.frozen import frozen

__all__ = [
    "OpDefinition",
    "OperatorIdentifier",
    "getSupportedOperations",
    "getSupportedOperationsDefinition",
    "getUnsupportedOperations",
]

_ONNX: Final = "ai.onnx"
_GRAPHCORE: Final = "ai.graphcore"
# Operators of ai.graphcore that no method of the builder makes.
_FURTHER: Final = (
    *("AddLhsInplace", "AllReduce", "AutoLossScaleProxy", "BinaryConstScalar"),
    *("CastThenPow2Scale", "ConvFlipWeights", "Histogram", "HostLoad", "HostStore"),
    *("LossScaleUpdate", "Pow2ScaleThenCast", "RemoteCodeLoad", "RemoteLoad"),
    *("RemoteLoadInplace", "RemoteStore", "ReplicatedAllGather", "Resize", "Square"),
    *("Zeros", "ZerosLike"),
)


class OperatorIdentifier:
    """An operator: domain, type and version; no domain means ai.onnx."""

    __slots__ = ("_key",)

    def __init__(self, domain: str, type: str, version: int) -> None:  # noqa: A002
        self._key = (domain or _ONNX, type, version)

    @property
    def domain(self) -> str:
        """The domain."""
        return self._key[0]

    @property
    def type(self) -> str:
        """The name."""
        return self._key[1]

    @property
    def version(self) -> int:
        """The opset in which this form of it appeared."""
        return self._key[2]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OperatorIdentifier):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"{self.domain}.{self.type}:{self.version}"


@frozen
class Operand:
    """An input or output of an operator: its name and the element types that it may have."""

    name: str
    supportedTensors: tuple[str, ...]
    constant: bool = False


@frozen
class AttributeDefinition:
    """An attribute of an operator: a pattern of the values that it may have; "*" is any."""

    supportedValuesRegex: str


@frozen
class OpDefinition:
    """The operands and results of an operator."""

    inputs: list[Operand]
    outputs: list[Operand]
    attributes: dict[str, AttributeDefinition]


def _supported() -> Iterator[OperatorIdentifier]:
    for row in ONNX_ROWS:
        if is_importable("", row.op_type, row.version):
            yield OperatorIdentifier(_ONNX, row.op_type, row.version)
    names = {*(row.op_type for row in GRAPHCORE_ROWS), "MultiConv", *_FURTHER}
    for name in sorted(names):
        if is_importable(_GRAPHCORE, name, 1):
            yield OperatorIdentifier(_GRAPHCORE, name, 1)


def getSupportedOperations(includeInternal: bool) -> list[OperatorIdentifier]:
    """All operators, in each version, that a model may use.

    Args:
        includeInternal: Add popc's own ops, which no model names; their domain is "popc".
    """
    found = list(dict.fromkeys(_supported()))
    found += [OperatorIdentifier(own.domain, own.name, own.version) for own in registered()]
    if includeInternal:
        found += [OperatorIdentifier("popc", name, 1) for name in sorted(OPS)]
    return found


def getUnsupportedOperations(opsetVersion: int) -> list[OperatorIdentifier]:
    """The operators of an opset of ai.onnx that a model may not use."""
    known = set(_supported())
    latest: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= opsetVersion:
            latest[schema.name] = max(latest.get(schema.name, 0), schema.since_version)
    asked = (OperatorIdentifier(_ONNX, name, version) for name, version in sorted(latest.items()))
    return [operator for operator in asked if operator not in known]


def getSupportedOperationsDefinition(
    includeInternal: bool,
) -> dict[OperatorIdentifier, OpDefinition]:
    """The definition of each operator; of those of ai.graphcore only the attributes."""
    return {operator: _definition(operator) for operator in getSupportedOperations(includeInternal)}


def _definition(identifier: OperatorIdentifier) -> OpDefinition:
    if identifier.domain == _ONNX:
        schema = onnx.defs.get_schema(identifier.type, identifier.version, "")
        return OpDefinition(
            [Operand(item.name, tuple(sorted(item.types))) for item in schema.inputs],
            [Operand(item.name, tuple(sorted(item.types))) for item in schema.outputs],
            {name: AttributeDefinition("*") for name in sorted(schema.attributes)},
        )
    rows = (row for row in GRAPHCORE_ROWS if row.op_type == identifier.type)
    names = {attribute.name for row in rows for attribute in row.attributes.values()}
    return OpDefinition([], [], {name: AttributeDefinition("*") for name in sorted(names)})
