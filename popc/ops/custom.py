"""Ops that users compute: operators that they have registered, and functions of the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from popc.ir import TensorType
from popc.ir.attributes import integer, integers, text
from popc.ops.infer import operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.custom import ArrayType, CustomOperator, operator_named
from popc_runtime.errors import ModelError, PopcError
from popc_runtime.format import Attributes, DType
from popc_runtime.kernels.custom import CALL, OPERATOR, given_attributes

__all__ = ["OPS", "operator_of", "result_types"]

_TYPE: Final = re.compile(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]")


def operator_of(attributes: Attributes) -> CustomOperator:
    """The operator that an op stands for.

    Raises:
        UnregisteredOperatorError: it is not registered any more.
    """
    return operator_named(text(attributes, OPERATOR))


def _custom(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Types as the type rule of the user gives them."""
    operator = operator_of(attributes)
    given = [
        None if type_ is None else ArrayType(str(type_.dtype), type_.shape) for type_ in inputs
    ]
    try:
        found: Sequence[Any] = operator.types(given, given_attributes(attributes))
        return tuple(map(_type, found))
    except PopcError:
        raise
    except Exception as error:
        raise ModelError(
            f"the type rule of {operator.identifier} raised {type(error).__name__}: {error}"
        ) from error


def _type(said: Any) -> TensorType:
    """An `ArrayType`, or a pair of an element type and a shape."""
    dtype, shape = (said.dtype, said.shape) if hasattr(said, "dtype") else said
    name = getattr(dtype, "__name__", None) or str(dtype)  # numpy's types, dtypes, and text
    sizes = tuple(map(int, shape))
    if name not in tuple(DType) or min(sizes, default=0) < 0:
        raise ModelError(f"the type rule gives {name}{list(sizes)}, which is no type of an array")
    return TensorType(DType(name), sizes)


def _custom_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: those of the op, its results, and the gradients of these.

    Attributes:
        operands: How many operands the op has.
        wanted: The numbers of those whose gradients are results.
    """
    if integer(attributes, "operands") > len(inputs):
        raise ModelError("operands of the op are missing")
    return tuple(operand(inputs, index) for index in integers(attributes, "wanted"))


def _host_call(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Results of the types that the attribute ``types`` lists."""
    del inputs
    text(attributes, CALL)
    return result_types(attributes)


def result_types(attributes: Attributes) -> tuple[TensorType, ...]:
    """The types in the attribute ``types``: texts such as ``float32[2,3]``.

    Raises:
        ModelError: they are no types.
    """
    said = attributes.get("types", ())
    if not isinstance(said, tuple):
        raise ModelError(f"attribute 'types' must be a list of strings, not {said!r}")
    return tuple(_type_of_text(str(each)) for each in said)


def _type_of_text(said: str) -> TensorType:
    found = _TYPE.fullmatch(said.replace(" ", ""))
    if found is None or found[1] not in tuple(DType):
        raise ModelError(f"attribute 'types': {said!r} is no type such as float32[2,3]")
    return TensorType(DType(found[1]), tuple(map(int, found[2].split(","))) if found[2] else ())


OPS: Final[dict[str, OpSpec]] = {
    "Custom": OpSpec(_custom, foreign=True, strided_input=False),
    "CustomGrad": OpSpec(_custom_grad, foreign=True, strided_input=False),
    # A function may give each replica something else.
    "HostCall": OpSpec(
        _host_call, side_effect=True, per_replica=True, foreign=True, strided_input=False
    ),
}
