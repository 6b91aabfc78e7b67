"""From bound instructions to records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.ground.tables import LazyTable
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.encoders.families import FAMILIES
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View

__all__ = ["encode", "native_opcodes", "strided_results"]

# Kernels of these write results of any strides; of the others results have to be contiguous, as the
# compiler makes them.  An archive may say anything, and must not make a kernel write beside them.
_STRIDED: Final = (
    *("activation", "cast", "conv", "effects", "elementwise", "fused", "host", "integer"),
    *("movement", "pad", "pool", "quantize", "resize", "streaming"),
)
_STRIDED_RESULTS: Final = frozenset(
    {opcode for family in _STRIDED for opcode in FAMILIES[family]} | {"Boundary", "IpuCopy"}
) - {"RemoteGather", "ReverseSequence", "Trilu"}
_HALVES: Final = frozenset({DType.BFLOAT16, DType.FLOAT16})
_ENCODERS: Final[Mapping[str, Encoder]] = LazyTable(
    "popc_runtime.native.encoders", "ENCODERS", FAMILIES
)


def encode(opcode: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The record of an instruction; ``None`` if numpy has to compute it.

    Args:
        opcode: The instruction's.
        binding: Its operands.
        numbers: Of the library's kernels, by name.
    """
    if opcode not in _ENCODERS:
        return None
    if not _have_native_ranks((*binding.inputs, *binding.outputs)):
        return None
    if opcode not in _STRIDED_RESULTS and not _are_contiguous(binding.outputs):
        return None
    encoder = _ENCODERS[opcode]
    record = encoder(binding, numbers)
    if record is not None or _HALVES.isdisjoint((*binding.input_dtypes, *binding.output_dtypes)):
        return record
    from popc_runtime.native.halves import through_float32

    return through_float32(opcode, encoder, binding, numbers)


def _have_native_ranks(views: Iterable[View | None]) -> bool:
    return all(view is None or view.ndim <= MAX_RANK for view in views)


def _are_contiguous(views: Iterable[View | None]) -> bool:
    return all(view is None or view.is_contiguous for view in views)


def native_opcodes() -> frozenset[str]:
    """Opcodes that have a native form, for some operands at least."""
    return frozenset(_ENCODERS)


def strided_results() -> frozenset[str]:
    """Opcodes whose native kernels write results of any strides."""
    return _STRIDED_RESULTS
