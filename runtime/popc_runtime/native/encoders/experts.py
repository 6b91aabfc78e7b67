"""Products with matrices of which each row chooses one."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.record import Encoder, Record, tensor_words
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_WORD: Final = 4  # bytes: as which numbers are read


def _floats(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Matrices, rows, what each chooses, [bias], result."""
    del numbers
    if not _is_computable(binding, (0, 2, 3)):
        return None
    weights, before = packed(binding, 2)
    rows, more = _rows(binding, 3)
    views = tuple(view for view in (weights, *rows) if view is not None)
    return Record("Experts_f32", tensors(weights, *rows), views, before=(*before, *more))


def _few_bits(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Numbers, scales, rows, what each chooses, [bias], result, [zero points], bits, block."""
    del numbers
    packed_numbers, scales, zero = binding.input(2), binding.input(3), binding.optional(4)
    stored = (packed_numbers, scales, zero)
    if (
        not _is_computable(binding, (0, 3, 5))
        or any(view is not None and not view.is_contiguous for view in stored)
        or packed_numbers.address % _WORD
        or (zero is not None and not binding.is_constant(4))
    ):
        return None
    rows, before = _rows(binding, 5)
    points = tensors(None) if zero is None else tensor_words(zero, constant=True)
    sizes = (binding.integer("bits"), binding.integer("block_size"))
    words = (*tensors(packed_numbers, scales, *rows), *points, *sizes)
    views = tuple(view for view in (*stored, *rows) if view is not None)
    return Record("ExpertBits_f32", words, views, before=before)


def _rows(binding: NativeBinding, bias: int) -> tuple[list[View | None], tuple[Record, ...]]:
    """Rows, choices, the bias if there is one, and the result; and what runs before."""
    listed: list[View | None] = []
    before: tuple[Record, ...] = ()
    for index in (0, 1, bias):
        view = binding.optional(index)
        if view is not None:
            view, more = packed(binding, index)
            before = (*before, *more)
        listed.append(view)
    return [*listed, binding.output()], before


def _is_computable(binding: NativeBinding, floats: tuple[int, ...]) -> bool:
    """True if the operands are float32 that have to be, and there is something to compute."""
    types = binding.input_dtypes
    wide = [types[index] for index in floats if index < len(types)]
    sizes = (binding.input(0).size, binding.input(2).size, binding.output().size)
    return (
        all(dtype in (None, DType.FLOAT32) for dtype in (*wide, *binding.output_dtypes))
        and 0 not in sizes
        and binding.output().is_contiguous
    )


ENCODERS: Final[dict[str, Encoder]] = {"ExpertMatMul": _floats, "ExpertMatMulNBits": _few_bits}
