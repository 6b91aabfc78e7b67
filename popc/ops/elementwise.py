"""Elementwise ops: one output of the broadcast shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from popc.ir import TensorType
from popc.ops.infer import (
    BOOLS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    broadcast_shapes,
    check_choice,
    elementwise,
    like_gradient,
    one_dtype,
    operand,
    optional_operand,
)
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_ANY: Final = frozenset(DType)


def _unary(infer: InferRule) -> OpSpec:
    return OpSpec(infer, inplace=(0,), elementwise=True, strided_output=True)


def _binary(infer: InferRule, *, commutative: bool = False) -> OpSpec:
    return OpSpec(
        infer, inplace=(0, 1), elementwise=True, commutative=commutative, strided_output=True
    )


def _shift(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    check_choice(attributes, "direction", ("LEFT", "RIGHT"))
    return elementwise(frozenset(d for d in INTEGERS if d.is_unsigned))(inputs, attributes)


def _power(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Base and exponent may have different element types; the result has that of the base."""
    del attributes
    base, exponent = operand(inputs, 0), operand(inputs, 1)
    one_dtype([base], NUMBERS)
    one_dtype([exponent], NUMBERS)
    return (TensorType(base.dtype, broadcast_shapes([base.shape, exponent.shape])),)


def _where(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del attributes
    condition, x, y = (operand(inputs, index) for index in range(3))
    one_dtype([condition], BOOLS)
    shape = broadcast_shapes([condition.shape, x.shape, y.shape])
    return (TensorType(one_dtype([x, y], _ANY), shape),)


def _scaled_add(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands x, y and optionally their factors, which else are ``scale0`` and ``scale1``."""
    del attributes
    x, y = operand(inputs, 0), operand(inputs, 1)
    dtype = one_dtype([x, y], FLOATS)
    for index in (2, 3):
        scale = optional_operand(inputs, index)
        if scale is not None and (scale.size != 1 or not scale.dtype.is_float):
            raise ModelError(f"a scale must be one floating-point number, not {scale}")
    return (TensorType(dtype, broadcast_shapes([x.shape, y.shape])),)


def _rows(names: Iterable[str], spec: OpSpec) -> dict[str, OpSpec]:
    return dict.fromkeys(names, spec)


_FLOAT_FUNCTIONS: Final = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Exp", "Expm1"),
    *("Floor", "Log", "Log1p", "Reciprocal", "Round", "Sin", "Sinh", "Sqrt", "Tan"),
)

OPS: Final[dict[str, OpSpec]] = {
    **_rows(_FLOAT_FUNCTIONS, _unary(elementwise(FLOATS))),
    **_rows(("Abs", "Neg", "Sign", "Square"), _unary(elementwise(NUMBERS))),
    **_rows(("IsInf", "IsNaN"), _unary(elementwise(FLOATS, DType.BOOL))),
    **_rows(("Not",), _unary(elementwise(BOOLS))),
    **_rows(("BitwiseNot",), _unary(elementwise(INTEGERS))),
    **_rows(("Add", "Max", "Min", "Mul"), _binary(elementwise(NUMBERS), commutative=True)),
    **_rows(("Div", "Mod", "Sub"), _binary(elementwise(NUMBERS))),
    **_rows(("And", "Or", "Xor"), _binary(elementwise(BOOLS), commutative=True)),
    **_rows(
        ("BitwiseAnd", "BitwiseOr", "BitwiseXor"),
        _binary(elementwise(INTEGERS), commutative=True),
    ),
    **_rows(("Equal",), _binary(elementwise(_ANY, DType.BOOL), commutative=True)),
    **_rows(
        ("Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        _binary(elementwise(NUMBERS, DType.BOOL)),
    ),
    "Atan2": _binary(elementwise(FLOATS)),
    "BitShift": _binary(_shift),
    # From the gradient of the extremum of two operands that of the first, which the second follows.
    **_rows(("MaxArgGrad", "MinArgGrad"), OpSpec(like_gradient, inplace=(0,), elementwise=True)),
    "Pow": OpSpec(_power, inplace=(0,), elementwise=True),
    "ScaledAdd": _binary(_scaled_add),
    # Any number of operands: what gradients of several uses are added by.
    "Sum": OpSpec(elementwise(FLOATS), inplace=(0,), elementwise=True),
    "Where": OpSpec(_where, inplace=(1, 2), elementwise=True),
}
