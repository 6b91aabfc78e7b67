"""Products and convolutions of small integers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final, TypeAlias
from popc_runtime.kernels.parts.byte_operands import INTEGER_BIAS, RESIDUAL
from popc_runtime.kernels.parts.windows import window_axes
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.byte_epilogues import byte_epilogue
from popc_runtime.native.forms import is_channels_last
from popc_runtime.native.record import MAX_RANK, MOST_AXES, Encoder, Record, tensor_words
from popc_runtime.native.views import View, broadcast_to, merged_view

__all__ = ["ENCODERS", "ByteForm", "byte_conv_record", "byte_product_record"]

_BYTES: Final = (DType.INT8, DType.UINT8)
_EXACT_TAPS: Final = 2**24 // 255**2  # whose sums floats hold

# Both factors, the result, and the residual
_Operands: TypeAlias = "tuple[View, View, View, View | None]"


class ByteForm(IntEnum):
    """The way the library multiplies bytes.

    ``csrc/kernels/integer/products_i8.h`` is the other side.

    All forms give the same results.  A kernel refuses a form that the processor does not have.
    """

    FASTEST = 0
    PORTABLE = 1
    WIDE = 2
    VNNI = 3
    PAIRS = 4
    WORDS = 5


def _matmul_integer(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A, B, [zero point of A], [zero point of B], and what follows; shapes as numpy's ``@``."""
    return byte_product_record(binding, ByteForm.FASTEST, numbers)


def _conv_integer(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [N, C, *sizes], W [M, C / group, *kernel], [zero points], [int32 B [M]], what follows."""
    return byte_conv_record(binding, ByteForm.FASTEST, numbers)


def byte_product_record(
    binding: NativeBinding, form: ByteForm, numbers: Mapping[str, int]
) -> Record | None:
    """The record of a `MatMulInteger`, computed in a given form.

    Args:
        binding: Its operands: int8 or uint8 matrices, a result of any type.
        form: How bytes are multiplied.
        numbers: Those of the library's kernels.
    """
    a, b, out = binding.input(0), binding.input(1), binding.output()
    residual = binding.optional(RESIDUAL)
    if not _are_bytes(binding) or min(a.ndim, b.ndim) < 2 or out.ndim > MAX_RANK:
        return None
    if any(view is not None and not _has_rows(view) for view in (out, residual)):
        return None
    zeros = _zeros(binding, (-2, -1))
    operands = _one_product(a, b, out, residual)
    if operands is None or zeros is None or (zeros[0] is not None and zeros[0].size > 1):
        left, right = (broadcast_to(view, (*out.shape[:-2], *view.shape[-2:])) for view in (a, b))
        operands = left, right, out, residual
    return _record("Product_i8", binding, operands, (), zeros, form, numbers)


def _one_product(a: View, b: View, out: View, residual: View | None) -> _Operands | None:
    """Products by one right matrix as one with all their rows, if these lie so."""
    if b.ndim > 2 or a.ndim <= 2 or a.shape[:-1] != out.shape[:-1]:
        return None
    rows, results = merged_view(a, (-1, a.shape[-1])), merged_view(out, (-1, out.shape[-1]))
    added = None if residual is None else merged_view(residual, (-1, out.shape[-1]))
    if rows is None or results is None or (added is None and residual is not None):
        return None
    return rows, b, results, added


def byte_conv_record(
    binding: NativeBinding, form: ByteForm, numbers: Mapping[str, int]
) -> Record | None:
    """The record of a `ConvInteger`, computed in a given form.

    Args:
        binding: Its operands: int8 or uint8 images and weights, a result of any type.
        form: How bytes are multiplied.
        numbers: Those of the library's kernels.
    """
    x, w, out = binding.input(0), binding.input(1), binding.output()
    residual, group = binding.optional(RESIDUAL), binding.integer("group", 1)
    if not _are_bytes(binding) or not w.is_contiguous or not 1 <= x.ndim - 2 <= MOST_AXES:
        return None
    zeros = _zeros(binding, (-x.ndim, -w.ndim))
    if zeros is None or (zeros[0] is not None and zeros[0].size > 1):
        return None
    axes = window_axes(binding, x.shape[2:], w.shape[2:], out.shape[2:])
    if group == 1 and all(axis.is_plain for axis in axes):
        matrices = _as_matrices(x, w, out, residual)
        if matrices is not None:
            return _record("Product_i8", binding, matrices, (), zeros, form, numbers)
    if any(merged_view(view[0, 0], (-1,)) is None for view in (out, residual) if view is not None):
        return None
    words = (word for axis in axes for word in (axis.stride, axis.dilation, axis.begin))
    operands = (x, w, out, residual)
    single = group == x.shape[1] == w.shape[0] and prod(w.shape[2:]) <= _EXACT_TAPS
    kernel = "Depthwise_i8" if single else "Conv_i8"
    return _record(kernel, binding, operands, (group, *words), zeros, form, numbers)


def _as_matrices(x: View, w: View, out: View, residual: View | None) -> _Operands | None:
    """A convolution of single elements as a product, if images lie pixel by pixel."""
    left, result = _rows(x), _rows(out)
    added = None if residual is None else _rows(residual)
    if left is None or result is None or (added is None and residual is not None):
        return None
    return left, w.reshape(w.shape[:2]).T, result, added


def _are_bytes(binding: NativeBinding) -> bool:
    """True if both factors are bytes, and none of the operands is empty."""
    factors = (binding.input(0), binding.input(1), binding.output())
    return set(binding.input_dtypes[:2]) <= set(_BYTES) and all(factor.size for factor in factors)


def _has_rows(matrix: View) -> bool:
    """True if the rows of a matrix are contiguous."""
    return matrix.shape[-1] == 1 or matrix.strides[-1] == matrix.itemsize


def _rows(image: View) -> View | None:
    """[pixels, channels] of an image whose channels lie side by side, if that needs no copy."""
    if not is_channels_last(image):
        return None
    order = (0, *range(2, image.ndim), 1)
    return merged_view(image.transpose(*order), (-1, image.shape[1]))


def _zeros(binding: NativeBinding, axes: tuple[int, int]) -> list[View | None] | None:
    """Zero points of both operands, each one or one for each line; ``None`` for others."""
    zeros: list[View | None] = []
    for index, axis in zip((2, 3), axes, strict=True):
        zero = binding.optional(index)
        if (
            zero is not None
            and zero.size > 1
            and (zero.ndim < -axis or zero.shape[axis] < zero.size)
        ):
            return None
        zeros.append(None if zero is None else zero.reshape(-1))
    return zeros


def _record(
    kernel: str,
    binding: NativeBinding,
    operands: _Operands,
    geometry: tuple[int, ...],
    zeros: list[View | None] | None,
    form: ByteForm,
    numbers: Mapping[str, int],
) -> Record | None:
    """A product of the first two of ``operands`` in the third, and what follows."""
    epilogue = byte_epilogue(binding, numbers)
    bias = binding.optional(INTEGER_BIAS)
    if epilogue is None or zeros is None or (bias is not None and not bias.is_contiguous):
        return None
    parameters = (*zeros, bias)
    words = (
        *(
            word
            for index, operand in enumerate(operands)
            for word in tensor_words(operand, constant=index == 1 and binding.is_constant(1))
        ),
        *geometry,
        *(
            word
            for index, parameter in zip((2, 3, INTEGER_BIAS), parameters, strict=True)
            for word in tensor_words(
                parameter, constant=parameter is not None and binding.is_constant(index)
            )
        ),
        int(form),
        *epilogue.words,
    )
    views = (*operands, *parameters, *epilogue.keeps_alive)
    return Record(kernel, words, tuple(operand for operand in views if operand is not None))


ENCODERS: Final[dict[str, Encoder]] = {
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
}
