"""Kinds of parameters of operators: what they take, and what of it becomes an attribute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import onnx

from popc.popart.arrays import tensor_message
from popc.popart.calls import (
    ARRAY,
    BOOL,
    FLOAT,
    INT,
    INTS,
    STR,
    STRS,
    Kind,
    Mismatch,
    instance_of,
    list_of,
)
from popc.popart.dtypes import data_type_named, element_type
from popc.popart.enums import CollectiveOperator, ReductionType, ScatterReduction
from popc.popart.errors import popart_exception
from popc.popart.graph_model import GraphModel
from popc.popart.groups import CommGroup
from popc.popart.node_attributes import AttributeValue
from popc_runtime.ground.frozen import frozen

__all__ = ["KINDS", "AttributeKind"]


@frozen
class AttributeKind:
    """The type of a parameter, and its stored form; ``default`` reads a table's default.

    Attributes:
        empty: What an empty list is a list of.
    """

    kind: Kind
    stored: Callable[[Any], AttributeValue | None]
    default: Callable[[str], object] = str
    empty: type = int


def _same(value: Any) -> Any:
    return value


def _onnx_type(name: str) -> int:
    """The ONNX number of an upper-case name; 0 for UNDEFINED.

    Raises:
        popart_exception: there is no such type.
    """
    return element_type(data_type_named(name)).onnx


def _loss(reduction: ReductionType) -> str:
    return "None" if reduction is ReductionType.NoReduction else reduction.name


def _scatter(reduction: ScatterReduction) -> str:
    return "none" if reduction is ScatterReduction.NoReduction else reduction.name.lower()


def _character(value: object) -> str:
    text: str = STR.convert(value)
    if len(text) != 1:
        raise Mismatch
    return text


def _array_message(value: np.ndarray[Any, Any]) -> onnx.TensorProto:
    return tensor_message(value)


def _dense(value: bool) -> None:
    """Nothing is stored; there are no sparse values.

    Raises:
        popart_exception: the value is said to be sparse.
    """
    if value:
        raise popart_exception("Constant: sparse values (is_value_sparse) are not supported")


def _group(value: object) -> list[int]:
    """The type and the size of a group; a list of both is taken as well."""
    if isinstance(value, CommGroup):
        return [int(value.type), value.replicaGroupSize]
    numbers: list[int] = INTS.convert(value)
    return [*numbers, 0, 0][:2]


def _graph(value: object) -> GraphModel:
    """The graph of a builder, or of its native part."""
    native = getattr(value, "_impl", value)
    graph = getattr(native, "_graph", None)
    if not isinstance(graph, GraphModel):
        raise Mismatch
    return graph


def _subgraph(graph: GraphModel) -> onnx.GraphProto:
    return graph.proto.graph


_GRAPH: Final = Kind("popart.Builder", _graph)

# By the names that the tables have for them.
KINDS: Final[dict[str, AttributeKind]] = {
    "array": AttributeKind(ARRAY, _array_message),
    "bool": AttributeKind(BOOL, int),
    "char": AttributeKind(Kind("str", _character), _same),
    "collective": AttributeKind(instance_of(CollectiveOperator), int),
    "dense": AttributeKind(BOOL, _dense, lambda text: text == "True"),
    "float": AttributeKind(FLOAT, _same),
    "floats": AttributeKind(list_of(FLOAT), _same, empty=float),
    "graph": AttributeKind(_GRAPH, _subgraph),
    "group": AttributeKind(Kind("popart.CommGroup", _group), _same),
    "int": AttributeKind(INT, _same),
    "ints": AttributeKind(INTS, _same),
    "loss": AttributeKind(instance_of(ReductionType), _loss, lambda text: ReductionType[text]),
    "onnx_type": AttributeKind(STR, _onnx_type),
    "scatter": AttributeKind(
        instance_of(ScatterReduction), _scatter, lambda text: ScatterReduction[text]
    ),
    "str": AttributeKind(STR, _same),
    "strs": AttributeKind(STRS, _same, empty=str),
}
