"""From bound instructions to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.kernels.binding import Binding
from popc_runtime.native import convolutions, maps, products
from popc_runtime.native.record import Record

__all__ = ["encode", "native_opcodes"]

_PLAIN: Final = {**maps.ENCODERS}
_WITH_EPILOGUES: Final = {**convolutions.ENCODERS, **products.ENCODERS}


def encode(opcode: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """The record of an instruction; ``None`` if numpy has to compute it.

    Args:
        opcode: The instruction's.
        binding: Its operands.
        numbers: Of the library's kernels, by name.
    """
    if opcode in _PLAIN:
        return _PLAIN[opcode](binding)
    if opcode in _WITH_EPILOGUES:
        return _WITH_EPILOGUES[opcode](binding, numbers)
    return None


def native_opcodes() -> frozenset[str]:
    """Opcodes that have a native form, for some operands at least."""
    return frozenset({*_PLAIN, *_WITH_EPILOGUES})
