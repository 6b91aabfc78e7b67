"""Element types of tensors, and how numpy stores them."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from struct import calcsize

from popc_runtime.ground.hints import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Array", "DType"]

# An array of any element type: kernels choose by the DType of the slot, not by static typing.
Array: TypeAlias = "npt.NDArray[Any]"


class DType(StrEnum):
    """Element type of a tensor, by its ONNX name in lower case.

    numpy has no bfloat16 and no floats of eight bits, and the runtime depends on nothing that adds
    them: such a tensor is stored as the uint16 or uint8 array of its bit patterns.  Every other
    type is stored as itself.
    """

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT8E4M3FN = "float8e4m3fn"
    FLOAT8E4M3FNUZ = "float8e4m3fnuz"
    FLOAT8E5M2 = "float8e5m2"
    FLOAT8E5M2FNUZ = "float8e5m2fnuz"

    @property
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype that holds the elements."""
        return _storage()[self]

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return _ITEMSIZES[self]

    @property
    def stored(self) -> DType:
        """The type that the elements are stored as."""
        return _STORED.get(self, self)

    @property
    def code(self) -> str:
        """The name of a stored element in Python's module ``struct``."""
        return _CODES[self]

    @property
    def typestr(self) -> str:
        """The name of the stored elements in numpy's array interface."""
        kind = "b" if self is DType.BOOL else "f" if self.stored.is_float else "i"
        return f"<{'u' if self.stored.is_unsigned else kind}{self.itemsize}"

    @property
    def is_float(self) -> bool:
        """True if this is a floating-point type that is computed with."""
        return self in _FLOATS

    @property
    def is_float8(self) -> bool:
        """True if this is a float of eight bits: stored, moved and converted."""
        return self in _FLOATS8

    @property
    def is_signed(self) -> bool:
        """True if this is a signed integer type."""
        return self.value.startswith("int")

    @property
    def is_unsigned(self) -> bool:
        """True if this is an unsigned integer type."""
        return self.value.startswith("uint")

    @property
    def is_integer(self) -> bool:
        """True if this is a signed or unsigned integer type (bool is neither)."""
        return self.is_signed or self.is_unsigned

    def is_number_type(self, dtype: np.dtype[Any]) -> bool:
        """True if ``dtype`` is ml_dtypes' for this type, of which numpy knows codes alone."""
        return self is not self.stored and _name_of(dtype) == self

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> DType:
        """The DType that numpy's ``dtype`` stands for (those of ml_dtypes included, by name).

        Raises:
            ValueError: numpy's ``dtype`` has no counterpart (complex, object, datetime, ...).
        """
        import numpy as np

        return cls(_name_of(np.dtype(dtype)))


def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name.replace("float8_", "float8")  # as ml_dtypes spells it


# As `struct` calls the elements; bfloat16 and floats of eight bits as they are stored.
_CODES: Final = dict(zip(DType, "?bhiqBHIQeHfdBBBB", strict=True))
_ITEMSIZES: Final = {dtype: calcsize(code) for dtype, code in _CODES.items()}
_FLOATS8: Final = frozenset(
    {DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ}
)
_STORED: Final = {DType.BFLOAT16: DType.UINT16} | dict.fromkeys(_FLOATS8, DType.UINT8)
_FLOATS: Final = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})


@cache
def _storage() -> dict[DType, np.dtype[Any]]:
    import numpy as np  # programs that need none of its arrays go without

    return {dtype: np.dtype(dtype.stored.value) for dtype in DType}
