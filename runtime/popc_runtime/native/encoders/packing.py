"""Runs of rows that move from one tensor to another."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import copied, packed, tensors
from popc_runtime.native.places import are_numbers, is_movable
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]


def _copy_runs(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Source, destination, counts, rows that are read, rows that are written {zero_unused}."""
    del numbers
    out, runs = binding.output(), [binding.input(index) for index in range(2, 5)]
    movable = is_movable(binding.input(0), out) and out.is_contiguous
    if not movable or not are_numbers(*runs):
        return None
    source, before = packed(binding, 0)
    if binding.integer("zero_unused"):
        start: tuple[Record, ...] = (Record("Fill", (*tensors(out), 0), (out,)),)
    else:
        start = copied(binding, 1)
    words = tensors(source, out, *runs)
    return Record("CopyRuns", words, (source, out, *runs), before=(*before, *start))


ENCODERS: Final[dict[str, Encoder]] = {
    "SequenceSlice": _copy_runs,
}
