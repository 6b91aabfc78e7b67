"""Normalisation of rows, and of channels by groups, given statistics or neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record, are_all, float_word, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

# The ends of the names of kernels.
_SUFFIXES: Final = {DType.FLOAT32: "_f32", DType.FLOAT64: "_f64"}


def _record(
    kernel: str, binding: NativeBinding, operands: int, width: int, numbers: tuple[float, ...]
) -> Record | None:
    """X [N, C, ...] and vectors of its channels."""
    x, out = binding.input(0), binding.output()
    vectors = [binding.input(index) for index in range(1, operands)]
    plain = _is_known(binding) and is_plain(binding) and out.is_contiguous
    if not plain or x.size == 0 or any(not vector.is_contiguous for vector in vectors):
        return None
    x, before = packed(binding, 0)
    words = (*tensors(x, *vectors, out), *x.shape[:2], prod(x.shape[2:]), width)
    floats = tuple(float_word(number) for number in numbers)
    return Record(kernel + _SUFFIXES[x.dtype], (*words, *floats), (x,), before=before)


def _is_known(binding: NativeBinding) -> bool:
    dtype = binding.input(0).dtype
    return dtype in _SUFFIXES and are_all(binding, dtype)


def _group(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias {num_groups, epsilon}; without a number of groups each channel is one."""
    del numbers
    channels = binding.input(0).shape[1]
    groups = binding.integer("num_groups", channels)
    if groups == 0:
        return None
    return _record("GroupNorm", binding, 3, channels // groups, (binding.number("epsilon"),))


def _batch(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias, mean, variance {epsilon}."""
    del numbers
    return _record("BatchNorm", binding, 5, 1, (binding.number("epsilon"),))


def _neighbours(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {size, alpha, beta, bias}."""
    del numbers
    if not is_float32(binding):
        return None
    parameters = tuple(binding.number(name) for name in ("alpha", "beta", "bias"))
    return _record("Lrn", binding, 1, binding.integer("size"), parameters)


def _normalization(
    kernel: str, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    """X, scale?, bias? to Y, mean?, inverse deviation? {axis, epsilon}."""
    del numbers
    x, out = binding.input(0), binding.output()
    plain = x.is_contiguous and x.size > 0 and out.is_contiguous
    if not plain or not _are_rows_of_one_type(binding):
        return None
    axis = binding.integer("axis") % x.ndim
    length = prod(x.shape[axis:])
    scale, bias = (_vector(binding.optional(index), x.shape[axis:]) for index in (1, 2))
    wanted = [binding.optional(index) is not None for index in (1, 2)]
    if wanted != [scale is not None, bias is not None]:
        return None
    vectors = (scale, bias, binding.optional_output(1), binding.optional_output(2))
    words = (*tensors(x, out), x.size // length, length, 1, *tensors(*vectors))
    return Record(kernel + _SUFFIXES[x.dtype], (*words, float_word(binding.number("epsilon"))))


def _are_rows_of_one_type(binding: NativeBinding) -> bool:
    """True of all but statistics, which are float32 for float64, too, if the model says so."""
    first, *statistics = binding.output_dtypes
    kinds = {*binding.input_dtypes, first} - {None}
    known = kinds == {binding.input(0).dtype} and kinds <= set(_SUFFIXES)
    return known and {*statistics} - {None} <= {*kinds, DType.FLOAT32}


def _vector(array: View | None, shape: tuple[int, ...]) -> View | None:
    """``array`` if it has one element for each of a row."""
    if array is None or not array.is_contiguous:
        return None
    return array if array.size == prod(shape) and array.shape[-len(shape) :] == shape else None


ENCODERS: Final[dict[str, Encoder]] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _group,
    "LRN": _neighbours,
    "LayerNormalization": partial(_normalization, "LayerNorm"),
    "RMSNormalization": partial(_normalization, "RmsNorm"),
}
