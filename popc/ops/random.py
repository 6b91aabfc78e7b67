"""Ops that draw random numbers; with attribute ``seed`` from a sequence of their own."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers
from popc.ops.infer import BOOLS, FLOATS, attribute_dtype, check_rank, one_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _draw(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Attributes ``shape`` and ``to``, and the parameters of the distribution."""
    del inputs
    dtype, shape = attribute_dtype(attributes, "to"), integers(attributes, "shape")
    if not dtype.is_float:
        raise ModelError(f"random numbers cannot have element type {dtype}")
    if any(dim < 0 for dim in shape):
        raise ModelError(f"shape {list(shape)} has a negative dimension")
    return (TensorType(dtype, shape),)


def _multinomial(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """``sample_size`` class numbers for each row of unnormalised log-probabilities."""
    logits = operand(inputs, 0)
    one_dtype([logits], FLOATS)
    check_rank(logits, 2, "the input")
    size, dtype = integer(attributes, "sample_size"), attribute_dtype(attributes, "to")
    if dtype not in (DType.INT32, DType.INT64):
        raise ModelError(f"samples cannot have element type {dtype}")
    if size < 0 or logits.shape[1] == 0:
        raise ModelError(f"{size} samples of {logits.shape[1]} classes cannot be drawn")
    return (TensorType(dtype, (logits.shape[0], size)),)


def _dropout(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands data, ratio and training mode; results data and the mask of what was kept."""
    del attributes
    x = operand(inputs, 0)
    one_dtype([x], FLOATS)
    one_dtype([operand(inputs, 1)], FLOATS)
    one_dtype([operand(inputs, 2)], BOOLS)
    return x, x.with_dtype(DType.BOOL)


def _random_seed(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """64 random bits, which the random numbers of an op follow from."""
    del inputs, attributes
    return (_SEED,)


def _seeded_dropout(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands as those of `_dropout`, and the seed: the same one drops the same elements."""
    seed = operand(inputs, 3)
    if seed != _SEED:
        raise ModelError(f"the seed must be {_SEED}, not {seed}")
    return _dropout(inputs[:3], attributes)


def _dropout_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The gradient of the data that were left, the mask, and ratio and training mode."""
    del attributes
    grad, mask = operand(inputs, 0), operand(inputs, 1)
    if mask != grad.with_dtype(DType.BOOL):
        raise ModelError(f"the mask {mask} does not fit the gradient {grad}")
    return _dropout([grad, *inputs[2:]], {})[:1]


_SEED: Final = TensorType(DType.UINT32, (2,))

OPS: Final[dict[str, OpSpec]] = {
    "Dropout": OpSpec(_dropout, inplace=(0,), random=True),
    "DropoutGrad": OpSpec(_dropout_grad, inplace=(0,)),
    "Multinomial": OpSpec(_multinomial, random=True),
    "RandomNormal": OpSpec(_draw, random=True),
    "RandomSeed": OpSpec(_random_seed, random=True),
    "RandomUniform": OpSpec(_draw, random=True),
    "SeededDropout": OpSpec(_seeded_dropout, inplace=(0,)),
}
