"""Normalisation of channels: over groups of them, by given statistics, and by their neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record, float_word, is_float32

__all__ = ["ENCODERS"]


def _record(
    kernel: str, binding: NativeBinding, operands: int, width: int, numbers: tuple[float, ...]
) -> Record | None:
    """X [N, C, ...] and vectors of its channels."""
    x, out = binding.input(0), binding.output()
    vectors = [binding.input(index) for index in range(1, operands)]
    plain = is_float32(binding) and is_plain(binding) and out.is_contiguous
    if not plain or x.size == 0 or any(not vector.is_contiguous for vector in vectors):
        return None
    x, before = packed(binding, 0)
    words = (*tensors(x, *vectors, out), *x.shape[:2], prod(x.shape[2:]), width)
    floats = tuple(float_word(number) for number in numbers)
    return Record(kernel, (*words, *floats), (x,), before=before)


def _group(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias {num_groups, epsilon}; without a number of groups each channel is one."""
    del numbers
    channels = binding.input(0).shape[1]
    groups = binding.integer("num_groups", channels)
    if groups == 0:
        return None
    return _record("GroupNorm_f32", binding, 3, channels // groups, (binding.number("epsilon"),))


def _batch(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, scale, bias, mean, variance {epsilon}."""
    del numbers
    return _record("BatchNorm_f32", binding, 5, 1, (binding.number("epsilon"),))


def _neighbours(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X {size, alpha, beta, bias}."""
    del numbers
    parameters = tuple(binding.number(name) for name in ("alpha", "beta", "bias"))
    return _record("Lrn_f32", binding, 1, binding.integer("size"), parameters)


ENCODERS: Final[dict[str, Encoder]] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _group,
    "LRN": _neighbours,
}
