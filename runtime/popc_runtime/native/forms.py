"""Records of kernels that several instructions, or calls of numpy functions, come to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Record, activation_words, tensor_words
from popc_runtime.native.views import View, broadcast_to

__all__ = ["NO_ACTIVATION", "is_channels_last", "map_record", "product_record", "stays_half"]

NO_ACTIVATION: Final = activation_words(0, ())


def is_channels_last(array: View) -> bool:
    """True if the channels of a pixel lie side by side in an array [N, C, *sizes]."""
    return array.shape[1] == 1 or array.strides[1] == array.itemsize


def map_record(
    kernel: str,
    out: View,
    operands: Sequence[View],
    parameters: Iterable[float] = (),
    dtypes: Sequence[DType | None] | None = None,
) -> Record:
    """A function of single elements; operands broadcast to ``out``.

    ``dtypes`` are the types of ``out`` and of the operands, where storage does not tell.
    """
    arrays = (out, *(broadcast_to(operand, out.shape) for operand in operands))
    types = [None] * len(arrays) if dtypes is None else dtypes
    pairs = zip(arrays, types, strict=True)
    words = [word for array, dtype in pairs for word in tensor_words(array, dtype=dtype)]
    return Record(kernel, (*words, *activation_words(0, parameters)[1:]), (out, *operands))


def product_record(
    left: View,
    right: View,
    out: View,
    *,
    bias: View | None = None,
    residual: View | None = None,
    constant: bool = False,
    packed: bool = False,
    right_dtype: DType | None = None,
    activation: tuple[int, ...] = NO_ACTIVATION,
) -> Record:
    """Products of matrices [..., m, k] and [..., k, n], whose batches broadcast to that of ``out``.

    Args:
        left, right, out: The matrices.
        bias: Of each column.
        residual: Of the shape of ``out``.
        constant: Whether the contents of ``right`` are final.
        packed: Whether they are, and lie in panels of columns; it has two dimensions then.
        right_dtype: The type of its elements, if they are final and halves.
        activation: Its words.
    """
    first, second = (
        broadcast_to(matrix, (*out.shape[:-2], *matrix.shape[-2:])) for matrix in (left, right)
    )
    operands = (
        tensor_words(first),
        tensor_words(second, constant=constant, packed=packed, dtype=right_dtype),
        *(tensor_words(view) for view in (out, bias, residual)),
    )
    words = tuple(word for part in (*operands, activation) for word in part)
    views = tuple(view for view in (left, right, out, bias, residual) if view is not None)
    return Record("Product_f32", words, views)


def stays_half(binding: NativeBinding, index: int) -> bool:
    """True if an operand is a matrix of halves that a product can read as it is."""
    matrix = binding.input(index)
    half = binding.input_dtypes[index] in (DType.FLOAT16, DType.BFLOAT16)
    return half and binding.is_constant(index) and matrix.ndim == 2


def plain_product_record(left: View, right: View, out: View) -> Record:
    """Products of matrices of float64, or of integers of 32 or 64 bits; see `product_record`."""
    batch = out.shape[:-2]
    first, second = (broadcast_to(matrix, (*batch, *matrix.shape[-2:])) for matrix in (left, right))
    words = (*tensor_words(first), *tensor_words(second), *tensor_words(out))
    return Record("Product_plain", words, (left, right, out))
