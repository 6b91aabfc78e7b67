"""Changes of the element type."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.forms import map_record
from popc_runtime.native.maps import copy_of
from popc_runtime.native.moves import moves
from popc_runtime.native.record import MAX_RANK, Encoder, Record

__all__ = ["ENCODERS"]

_SUFFIXES: Final[Mapping[DType | None, str]] = {
    DType.FLOAT32: "f32",
    DType.FLOAT64: "f64",
    DType.INT8: "i8",
    DType.INT16: "i16",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.UINT8: "u8",
    DType.UINT16: "u16",
    DType.UINT32: "u32",
    DType.UINT64: "u64",
    DType.BOOL: "b8",
}


_NARROW: Final = (DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
_HALVES: Final = (DType.FLOAT16, DType.BFLOAT16)


def _direct(source: DType | None, target: DType | None) -> str:
    """The loop for a pair of types, if there is one; integers become those of any sign."""
    to = _SUFFIXES.get(target, "")
    whole = source is not None and not source.is_float and to.startswith("u")
    return f"Cast_{_SUFFIXES.get(source)}_{to.replace('u', 'i') if whole else to}"


def _cast(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """By way of the type that maps compute with; a few pairs have loops of their own."""
    source, target = binding.input_dtypes[0], binding.output_dtypes[0]
    direct = _direct(source, target)
    # Narrow integers are exact in float32, whose conversion to halves is one of vectors.
    by_floats = source in _NARROW and target in _HALVES
    copy = "Copy_f32" if by_floats else copy_of(source)
    name = direct if direct in numbers else copy
    out = binding.output()
    if Rounding.of(binding.attributes) or out.ndim > MAX_RANK or out.size == 0:
        return None
    return map_record(name, out, [binding.input(0)], (), (target, source))


def _bit_cast(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, out = binding.input(0), binding.output()
    if x.itemsize != out.itemsize:
        return None
    return moves([(out, x.of_memory(x.shape, x.strides, dtype=out.dtype))])


ENCODERS: Final[dict[str, Encoder]] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
}
