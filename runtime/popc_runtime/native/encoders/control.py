"""Instructions that lowering adds around control flow."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import fill_record
from popc_runtime.native.places import FROM_THE_END, row_record
from popc_runtime.native.record import Encoder, Record
from popc_runtime.native.views import filled

__all__ = ["ENCODERS"]


def _fill(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """All elements of the result {value}."""
    del numbers
    out, dtype, value = binding.output(), binding.output_dtypes[0], binding.number("value")
    if out.size == 0 or not out.is_contiguous or dtype is None or dtype is DType.BFLOAT16:
        return None
    one = filled((), dtype, value if dtype.is_float else int(value))
    return fill_record(out, one.memory().tobytes())


def _store_row(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Value, number of the row of the result."""
    del numbers
    rows, value = binding.output(), binding.input(0)
    return row_record(binding, rows, value, 1, stores=True, wrapping=FROM_THE_END)


ENCODERS: Final[dict[str, Encoder]] = {
    "Fill": _fill,
    "StackStore": _store_row,
}
