"""Transfers between host streams and the device."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ops.infer import attribute_dtype, integers
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _loaded(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del inputs
    return (TensorType(attribute_dtype(attributes, "dtype"), integers(attributes, "shape")),)


def _stored(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    del inputs, attributes
    return ()


OPS: Final[dict[str, OpSpec]] = {
    "HostLoad": OpSpec(_loaded, side_effect=True),
    "HostStore": OpSpec(_stored, side_effect=True),
}
