"""Types of IR values: element type and static shape, attribute values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Final, TypeAlias

from popc_runtime.errors import ModelError
from popc_runtime.format import MAX_RANK, Attribute, DType

__all__ = ["AttributeMap", "Shape", "TensorKind", "TensorType", "require_possible"]

Shape: TypeAlias = tuple[int, ...]
AttributeMap: TypeAlias = dict[str, Attribute]

# Of one tensor.  No machine has that much, and two million of such sizes still add up in an int64,
# in which scheduler and planner count.
_MOST_BYTES: Final = 1 << 42


class TensorKind(StrEnum):
    """The origin of a tensor's value."""

    ACTIVATION = "activation"  # the output of an op
    INPUT = "input"  # an input of the graph
    CONSTANT = "constant"  # data known at compile time
    VARIABLE = "variable"  # lives on the device from run to run

    @property
    def outlasts_runs(self) -> bool:
        """True for what is there before a run and after it."""
        return self in (TensorKind.CONSTANT, TensorKind.VARIABLE)


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; prints as ``float32[1,3,224,224]``."""

    dtype: DType
    shape: Shape
    # Bytes of a C-contiguous tensor of this type.
    nbytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", prod(self.shape) * self.dtype.itemsize)

    def __eq__(self, other: object) -> bool:
        if self is other:  # as it is for the most part
            return True
        if not isinstance(other, TensorType):
            return NotImplemented
        return self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

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

    def size_problem(self) -> str:
        """The reason, as a clause, why no program can hold such a tensor; "" if one can."""
        if self.rank > MAX_RANK:
            return f"has {self.rank} dimensions, more than {MAX_RANK}"
        # A dimension of zero hides the others from the size, not from what is computed of them.
        nbytes = prod(dim for dim in self.shape if dim) * self.dtype.itemsize
        if nbytes > _MOST_BYTES:
            return f"of type {self} has {nbytes:,} bytes, more than {_MOST_BYTES:,}"
        return ""

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def require_possible(
    op_type: str, operands: Sequence[TensorType | None], results: Sequence[TensorType]
) -> None:
    """Refuse an op with a result that no program can hold.

    Raises:
        ModelError: there is one; the message names op and operands.
    """
    for result in results:
        problem = "" if result in operands else result.size_problem()
        if problem:
            listed = ", ".join("-" if type_ is None else str(type_) for type_ in operands)
            raise ModelError(f"{op_type}({listed}): the result {problem}")
