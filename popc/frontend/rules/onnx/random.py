"""Operators that draw random numbers.

A node with a ``seed`` has a sequence of its own, the same in every session; the others share the
device's.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import default_domain
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import Value
from popc.ir import AttributeMap, Shape, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


def _seed(node: Node) -> AttributeMap:
    """The ``seed`` attribute, if any, as an integer (ONNX has it as a float in most operators)."""
    if not node.has("seed"):
        return {}
    seed = node.number("seed")
    return {"seed": int(seed) if seed.is_integer() else int(np.float32(seed).view(np.uint32))}


def _dtype(node: Node, default: DType) -> DType:
    return dtype_from_onnx(node.integer("dtype")) if node.has("dtype") else default


def _draw(*parameters: str) -> ImportRule:
    """RandomNormal and RandomUniform: the shape is an attribute."""

    def rule(node: Node) -> Tensor:
        dtype = _dtype(node, DType.FLOAT32)
        return _emit(node, node.op_type, node.integers("shape"), dtype, parameters)

    return rule


def _draw_like(op_type: str, *parameters: str) -> ImportRule:
    """RandomNormalLike and RandomUniformLike: the shape is that of an operand."""

    def rule(node: Node) -> Tensor:
        type_ = node.input(0).type
        return _emit(node, op_type, type_.shape, _dtype(node, type_.dtype), parameters)

    return rule


def _emit(
    node: Node, op_type: str, shape: Shape, dtype: DType, parameters: tuple[str, ...]
) -> Tensor:
    attributes: AttributeMap = {"shape": shape, "to": dtype.value, **_seed(node)}
    attributes.update({name: node.number(name) for name in parameters})
    return node.emit(op_type, [], attributes)


def _bernoulli(node: Node) -> Tensor:
    """1 where a uniform number is below the probability."""
    probability = node.input(0)
    dtype = _dtype(node, probability.type.dtype)
    work = DType.FLOAT64 if probability.type.dtype is DType.FLOAT64 else DType.FLOAT32
    if probability.type.dtype is not work:
        probability = node.emit("Cast", [probability], {"to": work.value})
    uniform: AttributeMap = {"shape": probability.type.shape, "to": work.value, **_seed(node)}
    draw = node.emit("RandomUniform", [], {**uniform, "low": 0.0, "high": 1.0})
    hit = node.emit("Less", [draw, probability])
    return hit if dtype is DType.BOOL else node.emit("Cast", [hit], {"to": dtype.value})


def _multinomial(node: Node) -> Tensor:
    dtype = dtype_from_onnx(node.integer("dtype"))
    size = node.integer("sample_size")
    attributes: AttributeMap = {"sample_size": size, "to": dtype.value, **_seed(node)}
    return node.emit("Multinomial", [node.input(0)], attributes)


def _dropout(node: Node) -> list[Value | None]:
    """Elements dropped at random where the operator is in training mode, else the identity.

    From opset 12 on ``training_mode`` says so, which need not be known.  Before, the operator
    drops while the model is trained ("Dropout-7": test mode or not is the runtime's to say), but
    where ``is_test`` forbids it ("Dropout-6").

    What is dropped follows from a seed that is drawn anew in each run, so that it can be dropped
    once more.  A node with a ``seed`` draws from its sequence, as the reference of ONNX does.
    """
    x = node.input(0)
    training = _dropout_training(node)
    ratio = _dropout_ratio(node)
    if training is None or _is_known(node, training, 0) or _is_known(node, ratio, 0):
        return [x, _all_kept(node, x)]
    if ratio.type.size != 1:
        raise ModelError(f"the ratio must be one value, not {ratio.type}")
    operands, seed = [x, ratio, training], _seed(node)
    if seed:
        y, kept = node.emit_all("Dropout", operands, seed)
    else:
        drawn = node.emit("RandomSeed", [])
        y, kept = node.emit_all("SeededDropout", [*operands, drawn])
    if node.version < 10 and node.wants_output(1):
        kept = node.emit("Cast", [kept], {"to": x.type.dtype.value})
    return [y, kept]


def _dropout_training(node: Node) -> Tensor | None:
    """A boolean tensor that is true if the operator drops; ``None`` if it never does."""
    if node.version >= 12:
        return node.optional(2)
    tested = node.version < 7 and node.integer("is_test", 0) != 0
    return node.constant(np.True_) if node.importer.context.trains and not tested else None


def _dropout_ratio(node: Node) -> Tensor:
    """The share of elements that are dropped, as a tensor."""
    ratio = node.optional(1) if node.version >= 12 else None
    if ratio is not None:
        return ratio
    share = node.number("ratio", 0.5) if node.version < 12 else 0.5
    return node.constant(share, DType.FLOAT32)


def _is_known(node: Node, tensor: Tensor, value: float) -> bool:
    """True if the tensor is known to be this one value."""
    array = node.importer.known_value(tensor)
    return array is not None and array.size == 1 and bool(array.item() == value)


def _all_kept(node: Node, x: Tensor) -> Tensor | None:
    """The mask of a dropout that drops nothing; before opset 10 of the data's element type."""
    if not node.wants_output(1):
        return None
    kept = node.constant(1, DType.BOOL if node.version >= 10 else x.type.dtype)
    return node.emit("Expand", [kept], {"shape": x.type.shape})


_NORMAL: Final = ("mean", "scale")
_UNIFORM: Final = ("low", "high")

RULES: Final = default_domain(
    {
        "Bernoulli": _bernoulli,
        "Dropout": _dropout,
        "Multinomial": _multinomial,
        "RandomNormal": _draw(*_NORMAL),
        "RandomNormalLike": _draw_like("RandomNormal", *_NORMAL),
        "RandomUniform": _draw(*_UNIFORM),
        "RandomUniformLike": _draw_like("RandomUniform", *_UNIFORM),
    }
)
