"""Copies between chips, and values that wait for a later stage."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied
from popc_runtime.native.moves import copy_operands
from popc_runtime.native.places import MODULO, row_record
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]


def _stash(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Rows, value, number of the row, which goes round."""
    del numbers
    rows, value = binding.output(), binding.input(1)
    if value.size == 0:
        return None
    before = copied(binding, 0)
    return row_record(binding, rows, value, 2, stores=True, wrapping=MODULO, before=before)


def _restore(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Rows, number of the row, which goes round."""
    del numbers
    return row_record(binding, binding.input(0), binding.output(), 1, stores=False, wrapping=MODULO)


ENCODERS: Final[dict[str, Encoder]] = {
    "Boundary": copy_operands,
    "IpuCopy": copy_operands,
    "Restore": _restore,
    "Stash": _stash,
}
