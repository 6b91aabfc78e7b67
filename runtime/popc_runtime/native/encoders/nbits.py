"""Products with matrices that are stored in 2, 4 or 8 bits a number."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.encoders.integer import ByteForm
from popc_runtime.native.record import Encoder, Record, tensor_words

__all__ = ["ENCODERS", "few_bits_record"]

_FLOATS: Final = (0, 2, 5)  # operands
_STORED: Final = (1, 2, 3, 4, 5)  # operands that have to be constant
_WORD: Final = 4  # bytes: as which numbers are read


def _matmul(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return few_bits_record(binding, ByteForm.FASTEST)


def few_bits_record(binding: NativeBinding, form: ByteForm) -> Record | None:
    """a, numbers, scales, [zero points], [groups], [bias]: see `popc_runtime.kernels.nbits`.

    Args:
        binding: What a kernel is given.
        form: How bytes are multiplied, where a is rounded to such; ``PORTABLE``: as floats.
    """
    a, out = binding.input(0), binding.output()
    if 0 in (a.size, out.size) or binding.integer("transposed", 0) or not _are_known(binding):
        return None
    rows, before = packed(binding, 0)
    stored = [binding.optional(index) for index in _STORED]
    operands = (rows.reshape(-1, a.shape[-1]), *stored[:2])
    sizes = (binding.integer("bits"), binding.integer("block_size"))
    rounding = (binding.integer("rounded", 0), int(form))
    zero = tensors(None) if stored[2] is None else tensor_words(stored[2], constant=True)
    result = out.reshape(-1, out.shape[-1])
    words = (*tensors(*operands), *zero, *tensors(*stored[3:], result), *sizes, *rounding)
    views = tuple(view for view in (*operands, *stored, result) if view is not None)
    return Record("ProductBits_f32", words, views, before=before)


def _are_known(binding: NativeBinding) -> bool:
    """True if operands are of types that the kernel reads, without gaps, zero points final."""
    stored = [binding.optional(index) for index in _STORED]
    types = binding.input_dtypes
    floats = [types[index] for index in _FLOATS if index < len(types)]
    zero = types[3] if len(types) > 3 else None
    return (
        all(dtype in (None, DType.FLOAT32) for dtype in (*floats, *binding.output_dtypes))
        and zero in (None, DType.UINT8, DType.FLOAT32)
        and (zero is None or binding.is_constant(3))
        and all(view is None or view.is_contiguous for view in stored)
        and binding.input(1).address % _WORD == 0
    )


ENCODERS: Final[dict[str, Encoder]] = {"MatMulNBits": _matmul}
