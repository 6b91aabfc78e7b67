"""From bound instructions to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.native.binding import Binding
from popc_runtime.native.families import FAMILIES
from popc_runtime.native.halves import through_float32
from popc_runtime.native.record import Encoder, Record
from popc_runtime.tables import LazyTable

__all__ = ["encode", "native_opcodes"]

_ENCODERS: Final[Mapping[str, Encoder]] = LazyTable("popc_runtime.native", "ENCODERS", FAMILIES)


def encode(opcode: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """The record of an instruction; ``None`` if numpy has to compute it.

    Args:
        opcode: The instruction's.
        binding: Its operands.
        numbers: Of the library's kernels, by name.
    """
    if opcode not in _ENCODERS:
        return None
    encoder = _ENCODERS[opcode]
    record = encoder(binding, numbers)
    return through_float32(opcode, encoder, binding, numbers) if record is None else record


def native_opcodes() -> frozenset[str]:
    """Opcodes that have a native form, for some operands at least."""
    return frozenset(_ENCODERS)
