"""Reductions along any axes, and the words of operations on rows."""

from __future__ import annotations

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain
from popc_runtime.native.record import MAX_RANK, Record, is_float32, tensor_words

__all__ = ["REDUCTIONS", "extreme_of_halves", "general_reduction", "row_words"]

# The order is known to csrc/kernels/reduce/reduce.c.
REDUCTIONS: Final = (
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
)
_EXTREMES: Final = ("ReduceMax", "ReduceMin")
_THROUGH_FLOATS: Final = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def general_reduction(opcode: str, binding: NativeBinding) -> Record | None:
    """X {axes}; integers are not taken where results are computed as floats, nor uint64."""
    x, out = binding.input(0), binding.output()
    if not is_plain(binding) or x.dtype != out.dtype:
        return None
    if x.dtype == DType.UINT64 or (not x.dtype.is_float and opcode in _THROUGH_FLOATS):
        return None
    if x.dtype is DType.BOOL and opcode not in _EXTREMES:
        return None
    return _reduction(opcode, binding)


def extreme_of_halves(opcode: str, binding: NativeBinding) -> Record | None:
    """The same for halves, which stay what they are."""
    return _reduction(opcode, binding) if opcode in _EXTREMES else None


def _reduction(opcode: str, binding: NativeBinding) -> Record | None:
    x, out, dtype = binding.input(0), binding.output(), binding.input_dtypes[0]
    if x.size == 0 or x.ndim >= MAX_RANK or not out.is_contiguous:
        return None
    axes = binding.integers("axes")
    joined = out.reshape(tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))
    words = (*tensor_words(x, dtype=dtype), *tensor_words(joined, dtype=dtype))
    return Record("Reduce", (*words, REDUCTIONS.index(opcode)), (x, joined))


def row_words(
    binding: NativeBinding, rows: int, length: int, inner: int = 1
) -> tuple[int, ...] | None:
    """The words of an operation on [rows, length, inner]; ``None`` if memory is not like that."""
    x, out = binding.input(0), binding.output()
    if not is_float32(binding) or x.size == 0 or not x.is_contiguous:
        return None
    return (*tensor_words(x), *tensor_words(out), rows, length, inner)
