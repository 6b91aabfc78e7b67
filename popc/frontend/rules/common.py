"""Building blocks that import rules of several families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, TypeAlias

from popc.frontend import messages as onnx
from popc.frontend.node import ImportRule, Node
from popc.frontend.values import Value
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import from_bfloat16

__all__ = [
    "ONNX",
    "Given",
    "along_axis",
    "converted",
    "default_domain",
    "graph_attribute",
    "integers_of",
    "known_scalar",
    "known_values",
    "required_integers",
    "reshaped",
    "same_op",
    "standard_op",
    "standard_ops",
    "standard_values",
]

ONNX: Final = ""
# What attributes of an operator that takes the place of another may be; graphs are bodies.
Given: TypeAlias = "int | float | str | Sequence[int] | onnx.GraphProto"

_NEWEST: Final = 24  # opset that operators of other domains are expressed in


def same_op(node: Node) -> Tensor:
    """An IR op of the same name over the same tensors, without attributes."""
    return node.emit(node.op_type, [node.optional(index) for index in range(len(node.inputs))])


def along_axis(node: Node) -> Tensor:
    """An IR op of the same name with attribute ``axis``, for Softmax and its kin.

    Before opset 13 these worked on everything from ``axis`` (default 1) on, as one dimension.
    """
    x = node.input(0)
    shape, rank = x.type.shape, x.type.rank
    axis = node.integer("axis", 1 if node.version < 13 else -1)
    if node.version >= 13 or axis in (-1, rank - 1):
        return node.emit(node.op_type, [x], {"axis": normal_axis(axis, rank)})
    axis = rank if axis == rank else normal_axis(axis, rank)
    flat = reshaped(node, x, (prod(shape[:axis]), prod(shape[axis:])))
    return reshaped(node, node.emit(node.op_type, [flat], {"axis": 1}), shape)


def reshaped(node: Node, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``x`` with another shape of the same size."""
    return x if x.type.shape == shape else node.emit("Reshape", [x], {"shape": shape})


def converted(node: Node, x: Tensor, dtype: DType, *, saturates: bool = True) -> Tensor:
    """``x`` with another element type; ``saturates``: in eight bits, what is too large."""
    to = {"to": dtype.value}
    if x.type.dtype is dtype:
        return x
    if x.type.dtype.is_float8:
        if dtype.is_float:
            return node.emit("CastThenPow2Scale", [x], {**to})
        x = node.emit("CastThenPow2Scale", [x], {"to": DType.FLOAT32.value})
    if dtype.is_float8:
        wide = x if x.type.dtype.is_float else converted(node, x, DType.FLOAT32)
        return node.emit("Pow2ScaleThenCast", [wide], {**to, "saturate": int(saturates)})
    return node.emit("Cast", [x], {**to})


def integers_of(node: Node, index: int, name: str, what: str) -> tuple[int, ...] | None:
    """Integers that an operand holds, or attribute ``name`` in older opsets; ``None`` if neither.

    Raises:
        DataDependent: the operand is a run-time value; ``what`` is what it decides.
    """
    if node.optional(index) is not None:
        return tuple(int(item) for item in node.require_known(index, what).reshape(-1))
    return node.integers(name) if node.has(name) else None


def required_integers(node: Node, index: int, name: str, what: str) -> tuple[int, ...]:
    """Like `integers_of`, for what must be there in one form or the other."""
    found = integers_of(node, index, name, what)
    if found is None:
        raise ModelError(f"{name} is required but missing")
    return found


def known_values(node: Node, index: int) -> Array | None:
    """The values of a tensor operand if known; bfloat16 as float32."""
    stored = node.known(index)
    if stored is not None and node.input(index).type.dtype is DType.BFLOAT16:
        return from_bfloat16(stored)
    return stored


def known_scalar(node: Node, index: int) -> int | float | None:
    """The one value of a tensor operand if known, exactly; bool as 0 or 1."""
    values = known_values(node, index)
    if values is None:
        return None
    if values.size != 1:
        raise ModelError(f"input {index} must be one value, not {node.input(index).type}")
    value = values.item()
    return value if isinstance(value, float) else int(value)


def graph_attribute(node: Node, name: str) -> onnx.GraphProto:
    """A graph attribute."""
    value = node.attributes.get(name)
    if not isinstance(value, onnx.GraphProto):
        raise ModelError(f"attribute {name!r} must be a graph")
    return value


def standard_op(
    node: Node,
    op_type: str,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, Given] | None = None,
) -> Tensor:
    """The first result of an operator of ai.onnx, imported in place of (a part of) ``node``."""
    return standard_ops(node, op_type, inputs, attributes, outputs=1)[0]


def standard_ops(
    node: Node,
    op_type: str,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, Given] | None = None,
    *,
    outputs: int,
) -> list[Tensor]:
    """All ``outputs`` results of an operator of ai.onnx, by its own import rule."""
    names = [f"y{index}" for index in range(outputs)]
    results = standard_values(node, op_type, inputs, names, attributes)
    return [result for result in results if isinstance(result, Tensor)]


def standard_values(
    node: Node,
    op_type: str,
    inputs: Sequence[Value | None],
    names: Sequence[str],
    attributes: Mapping[str, Given] | None = None,
) -> Sequence[Value | None]:
    """The results ``names`` of an operator of ai.onnx; data may decide their sizes."""
    from onnx import helper

    operands = ["" if value is None else "x" for value in inputs]
    given: dict[str, Any] = dict(attributes or {})
    proto = helper.make_node(op_type, operands, names, **given)
    importer = node.importer
    opsets = importer.opsets
    importer.opsets = {**opsets, ONNX: _NEWEST}
    try:
        return importer.apply(proto, node.name, inputs)
    finally:
        importer.opsets = opsets


def default_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of ai.onnx by op type, keyed as the rule table wants them."""
    return {(ONNX, op_type): rule for op_type, rule in rules.items()}
