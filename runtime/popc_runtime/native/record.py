"""The record of an instruction for the native library: the name of a kernel and numbers.

The numbers are 64-bit words: addresses of operands with their element types, shapes and strides,
then whatever the kernel asks for.  `csrc/tensor.h` is the other side.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import field, frozen, replace
from popc_runtime.ground.hints import Any, Final, TypeAlias
from popc_runtime.kernels.core.operands import Operands
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.views import View

__all__ = [
    "MAX_RANK",
    "MOST_AXES",
    "Encoder",
    "Record",
    "activation_words",
    "are_all",
    "float_word",
    "is_float32",
    "tensor_words",
]

MAX_RANK: Final = 8  # as in csrc/tensor.h
MOST_AXES: Final = 3  # that windows move along: AXES in csrc/kernels/conv/conv.h
_DTYPES: Final = (
    DType.FLOAT32,
    DType.FLOAT64,
    DType.FLOAT16,
    DType.BFLOAT16,
    DType.INT8,
    DType.UINT8,
    DType.INT16,
    DType.UINT16,
    DType.INT32,
    DType.UINT32,
    DType.INT64,
    DType.UINT64,
    DType.BOOL,
)
_NUMBERS: Final = {dtype: number for number, dtype in enumerate(_DTYPES)}
_ABSENT: Final = (0, 0, 0, 0)  # no address, and a scalar of type 0


@frozen
class Record:
    """One instruction for the native library.

    Attributes:
        kernel: Its name.
        words: Its parameters.
        keeps_alive: Arrays made for it, and whatever else must live as long as the program.
        explain: Tells more, once the kernel has failed; an empty text if there is no more.
        before: Records that run before it, as part of the same instruction.
        after: Records that run after it, likewise.
        owner: Whatever a failure of the kernel is to tell.
    """

    kernel: str
    words: tuple[int, ...]
    keeps_alive: tuple[object, ...] = field(default=(), compare=False)
    owner: Any = None
    before: tuple[Record, ...] = ()
    after: tuple[Record, ...] = ()
    explain: Callable[[], str] | None = None

    def owned(self, owner: object) -> Record:
        """The same record of ``owner``."""
        return replace(self, owner=owner)


# The record of an instruction; ``None`` if no native kernel does exactly that.  It is given the
# numbers of the library's kernels by name.
Encoder: TypeAlias = Callable[[NativeBinding, Mapping[str, int]], "Record | None"]


def are_all(binding: Operands[View], dtype: DType) -> bool:
    """True if all operands and results are of ``dtype``."""
    return all(kind in (None, dtype) for kind in (*binding.input_dtypes, *binding.output_dtypes))


def is_float32(binding: Operands[View]) -> bool:
    """True if all operands and results are float32."""
    return are_all(binding, DType.FLOAT32)


def tensor_words(
    array: View | None,
    *,
    constant: bool = False,
    packed: bool = False,
    dtype: DType | None = None,
) -> tuple[int, ...]:
    """An operand; ``None`` if it is absent.

    ``constant``: its contents are final.  ``packed``: they are, and lie in panels.  ``dtype``: its
    type; by default that of its storage, which for bfloat16 is uint16: kernels that care are told
    by the instruction.
    """
    if array is None:
        return _ABSENT
    head = (array.address, _NUMBERS[dtype or array.dtype], 2 if packed else int(constant))
    return (*head, array.ndim, *array.shape, *array.strides)


def float_word(value: float) -> int:
    """A double by its bits."""
    word: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return word


def activation_words(number: int, parameters: Iterable[float], count: int = 3) -> tuple[int, ...]:
    """An activation: its number and parameters, as many as maps have."""
    values = [*parameters, *(0.0 for _ in range(count))][:count]
    return (number, *(float_word(float(value)) for value in values))
