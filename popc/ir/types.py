"""Types of IR values: element type and static shape, attribute values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from popc_runtime.format import Attribute, DType

__all__ = ["AttributeMap", "Shape", "TensorType"]

Shape: TypeAlias = tuple[int, ...]
AttributeMap: TypeAlias = dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; prints as ``float32[1,3,224,224]``."""

    dtype: DType
    shape: Shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a C-contiguous tensor of this type."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def with_shape(self, shape: Shape) -> TensorType:
        """The same element type with another shape."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape with another element type."""
        return TensorType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"
