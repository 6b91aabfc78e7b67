"""The values that an ONNX name can stand for while a model is imported."""

from __future__ import annotations

from typing import Final, TypeAlias

from popc.ir import Tensor
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = [
    "STRINGS",
    "ConstantText",
    "OnnxAttribute",
    "OptionalValue",
    "SequenceValue",
    "SizedValue",
    "TableValue",
    "TextValue",
    "Unavailable",
    "Unknown",
    "Value",
]

# What may be done with strings, for messages.
STRINGS: Final = (
    "strings may be moved, looked up and encoded (LabelEncoder, CategoryMapper, OneHotEncoder), "
    "and be labels"
)
# Decoded ONNX attributes: tensors come as (type, data), graphs as their protobuf message.
OnnxAttribute: TypeAlias = object


@frozen
class SequenceValue:
    """A sequence whose length is known at compile time.  ``dtype`` is that of its elements."""

    items: tuple[Value, ...]
    dtype: DType | None = None


@frozen
class OptionalValue:
    """An optional that holds ``value``, or nothing."""

    value: Value | None


@frozen
class Unknown:
    """The result of a node that has been reported as a problem; its users stay silent."""


@frozen
class Unavailable:
    """A result that popc cannot compute, which is no problem as long as nobody reads it."""

    reason: str


@frozen
class ConstantText:
    """A tensor of strings that an attribute holds."""

    words: tuple[str, ...]
    shape: tuple[int, ...]


@frozen
class TextValue:
    """A tensor of strings, as the places of its elements in a list of words.

    Attributes:
        numbers: The places, int64; -1 for a word that is not in the list.  Data may decide
            how many there are.
        words: The list, without repetitions.
        is_open: Whether words may occur that are not in the list.
    """

    numbers: Tensor | SizedValue
    words: tuple[str, ...]
    is_open: bool = False


@frozen
class SizedValue:
    """A tensor of which data decides sizes, in the corner of a larger one.

    Attributes:
        padded: A tensor as large as it can be; what lies outside of the corner is anything.
        counts: For each axis its size, one int64, or ``None`` if it is that of ``padded``.
    """

    padded: Tensor
    counts: tuple[Tensor | None, ...]


@frozen
class TableValue:
    """A list of maps: rows of a tensor [N, K], of which ``columns`` are the keys."""

    rows: Tensor
    columns: tuple[str, ...] | tuple[int, ...]


Value: TypeAlias = (
    "Tensor | SequenceValue | OptionalValue | SizedValue | TextValue | TableValue | Unknown"
    " | Unavailable"
)
