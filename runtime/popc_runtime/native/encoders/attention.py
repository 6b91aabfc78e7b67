"""Attention."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_plain, packed, tensors
from popc_runtime.native.record import Encoder, Record, float_word, is_float32, tensor_words
from popc_runtime.native.views import broadcast_to

__all__ = ["ENCODERS"]


def _attention(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operands: q, k, v, mask, lengths, sinks; results: the attention, and scores if wanted."""
    del numbers
    if not _computable(binding):
        return None
    q, k, v = (binding.input(index) for index in range(3))
    mask, lengths = binding.optional(3), binding.optional(4)
    before: tuple[Record, ...] = ()
    if lengths is not None:
        lengths, before = packed(binding, 4)  # one for all samples may be spread over them
    out, stage = binding.output(), binding.integer("scores", -1)
    heads_first = out.transpose(0, 2, 1, 3) if binding.integer("heads_last", 0) else out
    if mask is not None:
        mask = broadcast_to(mask, (*q.shape[:3], k.shape[2]))
    sinks = binding.optional(5)
    if sinks is not None:
        sinks, more = packed(binding, 5)
        before = (*before, *more)
    scores = None if stage < 0 else binding.output(1)
    operands = (q, k, v, heads_first, mask, scores, lengths, sinks)
    words = [word for operand in operands for word in tensor_words(operand)]
    words += [float_word(binding.number("scale")), float_word(binding.number("softcap", 0.0))]
    words += [stage, binding.integer("offset", 0), *_visible(binding)]
    return Record("Attention_f32", tuple(words), before=before)


def _computable(binding: NativeBinding) -> bool:
    """True if the kernel knows the types, and there is something to compute."""
    floats = (*binding.input_dtypes[:3], *binding.output_dtypes)
    masks = (None, DType.FLOAT32, DType.BOOL)
    masked = all(dtype in masks for dtype in binding.input_dtypes[3:4])
    arrays = (*(binding.input(index) for index in range(3)), binding.output())
    return (
        masked
        and all(dtype is DType.FLOAT32 for dtype in floats)
        and all(array.size for array in arrays)
    )


def _visible(binding: NativeBinding) -> tuple[int, int, int]:
    """The bound of keys after a query's position, if any (1 or 0 first), and of those before."""
    right = binding.integer("right_window", -1)
    bounds = [0] * bool(binding.integer("causal", 0)) + [right] * (right >= 0)
    return int(bool(bounds)), min(bounds, default=0), binding.integer("left_window", -1)


def _rotary(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, cosines and sines that broadcast to half of what is rotated {interleaved}."""
    del numbers
    out = binding.output()
    if not is_float32(binding) or not is_plain(binding) or out.size == 0:
        return None
    x, before = packed(binding, 0)
    cosine, sine = binding.input(1), binding.input(2)
    shape = (*x.shape[:-1], cosine.shape[-1])
    tables = [broadcast_to(table, shape) for table in (cosine, sine)]
    words = (*tensors(x, out, *tables), binding.integer("interleaved", 0))
    return Record("Rotary_f32", words, (x, out, *tables), before=before)


ENCODERS: Final[dict[str, Encoder]] = {"Attention": _attention, "RotaryEmbedding": _rotary}
