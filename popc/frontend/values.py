"""The values that an ONNX name can stand for while a model is imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from popc.ir import Tensor
from popc_runtime.format import DType

__all__ = ["OnnxAttribute", "OptionalValue", "SequenceValue", "Unavailable", "Unknown", "Value"]

# Decoded ONNX attributes: tensors come as (type, data), graphs as their protobuf message.
OnnxAttribute: TypeAlias = object


@dataclass(frozen=True, slots=True)
class SequenceValue:
    """A sequence whose length is known at compile time.  ``dtype`` is that of its elements."""

    items: tuple[Value, ...]
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """An optional that holds ``value``, or nothing."""

    value: Value | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The result of a node that has been reported as a problem; its users stay silent."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A result that popc cannot compute, which is no problem as long as nobody reads it."""

    reason: str


Value: TypeAlias = "Tensor | SequenceValue | OptionalValue | Unknown | Unavailable"
