"""The type of the results of products and convolutions, if a node says so by ``__output_type``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.values import Value
from popc.frontend.walk import find_attribute
from popc.ir import Graph, Tensor
from popc.ops.build import build
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["SUMS_OF_PRODUCTS", "in_wanted_type"]

_ATTRIBUTE: Final = "__output_type"
SUMS_OF_PRODUCTS: Final = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_TYPES: Final = {"FLOAT": DType.FLOAT32, "HALF": DType.FLOAT16, "FLOAT16": DType.FLOAT16}


def in_wanted_type(
    graph: Graph,
    node: onnx.NodeProto,
    inputs: Sequence[Value | None],
    compute: Callable[[Sequence[Value | None]], Sequence[Value | None]],
) -> Sequence[Value | None]:
    """The results of ``compute`` for ``inputs``, in the type that ``node`` asks for.

    Raises:
        ModelError: it cannot choose one, or not this one.
    """
    wanted = _wanted_type(node)
    if wanted is None:
        return compute(inputs)
    return _narrowed(graph, compute(_widened(graph, inputs, wanted)), wanted)


def _wanted_type(node: onnx.NodeProto) -> DType | None:
    """The type that ``node`` wants its result to have."""
    found = find_attribute(node, _ATTRIBUTE)
    if found is None:
        return None
    name = found.s.decode("utf-8", errors="replace").upper()
    if node.op_type not in SUMS_OF_PRODUCTS:
        listed = ", ".join(SUMS_OF_PRODUCTS)
        raise ModelError(f"{_ATTRIBUTE} is for {listed}, not for {node.op_type}")
    if name not in _TYPES:
        raise ModelError(f"{_ATTRIBUTE} is {name!r}, but must be one of {', '.join(_TYPES)}")
    return _TYPES[name]


def _widened(graph: Graph, inputs: Sequence[Value | None], wanted: DType) -> list[Value | None]:
    """Operands of a result of type ``wanted``: float16 ones as float32, if that is wider.

    Sums of products are float32 anyway; now their rounding is left out.
    """
    if wanted is not DType.FLOAT32:
        return list(inputs)
    return [
        _cast(graph, value, wanted)
        if isinstance(value, Tensor) and value.type.dtype is DType.FLOAT16
        else value
        for value in inputs
    ]


def _narrowed(graph: Graph, results: Sequence[Value | None], wanted: DType) -> list[Value | None]:
    """Results as float16, if that is ``wanted`` of a float32 op."""
    if wanted is not DType.FLOAT16:
        return list(results)
    return [
        _cast(graph, value, wanted)
        if isinstance(value, Tensor) and value.type.dtype is DType.FLOAT32
        else value
        for value in results
    ]


def _cast(graph: Graph, tensor: Tensor, to: DType) -> Tensor:
    return build(graph, "Cast", [tensor], {"to": to.value}).output
