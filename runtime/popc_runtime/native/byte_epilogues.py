"""Epilogues of products of bytes, as the native kernels take them."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.byte_operands import BIAS, SCALE, quotient_limits
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.epilogues import epilogue_activation
from popc_runtime.native.record import float_word, tensor_words
from popc_runtime.native.views import View

__all__ = ["ByteEpilogue", "byte_epilogue"]

_NONE: Final = (0.0, 0.0, 0.0)  # scale and limits of a result that is not quantized


@frozen
class ByteEpilogue:
    """The words of an epilogue, but for the residual, and the arrays that they tell of."""

    words: tuple[int, ...]
    keeps_alive: tuple[View, ...]


def byte_epilogue(binding: NativeBinding, numbers: Mapping[str, int]) -> ByteEpilogue | None:
    """Scale, bias, rounding, activation and type of a result; ``None`` if no kernel does that."""
    addends = [binding.optional(index) for index in (SCALE, BIAS)]
    activation = epilogue_activation(binding, numbers)
    if activation is None or any(addend is not None and not _is_row(addend) for addend in addends):
        return None
    words = (
        *(word for addend in addends for word in tensor_words(addend)),
        *map(float_word, _rounding(binding)),
        *activation,
        *map(float_word, _quantizer(binding)),
        float_word(binding.number("quantize_factor", 1.0)),
    )
    return ByteEpilogue(words, tuple(addend for addend in addends if addend is not None))


def _is_row(array: View) -> bool:
    """True if an array is numbers of columns that lie side by side."""
    return array.size == 1 or array.strides[-1] == array.itemsize


def _rounding(binding: NativeBinding) -> tuple[float, ...]:
    """Scale, least and largest quotient of the rounding to multiples; zeros for none."""
    if "rounding_scale" not in binding.attributes:
        return _NONE
    return tuple(binding.number(f"rounding_{name}") for name in ("scale", "low", "high"))


def _quantizer(binding: NativeBinding) -> tuple[float, ...]:
    """The same of a result of bytes."""
    limits = quotient_limits(binding.attributes, binding.output_dtypes[0])
    return _NONE if limits is None else (binding.number("quantize_scale"), *limits)
