"""Copies of parts of operands to parts of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.record import MAX_RANK, Record
from popc_runtime.native.views import View, is_same_memory

__all__ = ["copy_operands", "moves"]


def moves(pairs: Iterable[tuple[View, View]]) -> Record | None:
    """Copies of the second of each pair to the first, in this order; ``None`` if there are none."""
    wanted = [(to, source) for to, source in pairs if to.size > 0]
    if not wanted or any(to.ndim >= MAX_RANK for to, _ in wanted):
        return None
    *before, last = (move_record(to, source) for to, source in wanted)
    return Record(last.kernel, last.words, last.keeps_alive, before=tuple(before))


def copy_operands(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Each operand to the result of its number, unless that has taken over its memory."""
    del numbers
    pairs = ((binding.output(i), binding.input(i)) for i in range(len(binding.outputs)))
    return moves((to, source) for to, source in pairs if not is_same_memory(to, source))
