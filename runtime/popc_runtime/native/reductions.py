"""Reductions along any axes, and the words of operations on rows."""

from __future__ import annotations

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, tensors
from popc_runtime.native.record import Record, is_float32, tensor_words

__all__ = ["REDUCTIONS", "general_reduction", "row_words"]

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
_THROUGH_FLOATS: Final = ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")


def general_reduction(opcode: str, binding: NativeBinding) -> Record | None:
    """X {axes}; integers are not taken where results are computed as floats, nor uint64."""
    x, out = binding.input(0), binding.output()
    if not is_plain(binding) or x.size == 0 or not out.is_contiguous or x.dtype != out.dtype:
        return None
    if x.dtype == DType.UINT64 or (not x.dtype.is_float and opcode in _THROUGH_FLOATS):
        return None
    if x.dtype is DType.BOOL and opcode not in ("ReduceMax", "ReduceMin"):
        return None
    axes = binding.integers("axes")
    joined = out.reshape(tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))
    return Record("Reduce", (*tensors(x, joined), REDUCTIONS.index(opcode)), (x, joined))


def row_words(
    binding: NativeBinding, rows: int, length: int, inner: int = 1
) -> tuple[int, ...] | None:
    """The words of an operation on [rows, length, inner]; ``None`` if memory is not like that."""
    x, out = binding.input(0), binding.output()
    if not is_float32(binding) or x.size == 0 or not x.is_contiguous:
        return None
    return (*tensor_words(x), *tensor_words(out), rows, length, inner)
