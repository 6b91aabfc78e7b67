"""Random numbers, drawn from numpy's generators in numpy's order, and what drops elements by them.

A sequence is asked for once an instruction is known to have a record: those that have their own
are told apart by the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.kernels.core.random_state import LegacySequence, RandomState, state_of
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Encoder, Record, tensor_words
from popc_runtime.native.views import View, as_view, filled

__all__ = ["ENCODERS"]

_SUFFIXES: Final = {DType.FLOAT16: "f32", DType.FLOAT32: "f32", DType.FLOAT64: "f64"}


def _is_plain(array: View | None, dtype: DType) -> bool:
    if array is None:
        return True
    fits = array.size > 0 and array.ndim <= MAX_RANK
    return fits and array.dtype is dtype and array.is_contiguous


def _has_scalars(ratio: View, training: View) -> bool:
    if ratio.size != 1 or training.size != 1 or training.dtype is not DType.BOOL:
        return False
    return (
        ratio.dtype in (DType.FLOAT32, DType.FLOAT64) and max(ratio.ndim, training.ndim) <= MAX_RANK
    )


def _drops_float32(
    binding: NativeBinding, given: View, mask: View | None, ratio: View, training: View
) -> bool:
    """True if the kernels know the operands of a dropout, or of its gradient."""
    plain = (
        _is_plain(given, DType.FLOAT32)
        and _is_plain(binding.output(), DType.FLOAT32)
        and _is_plain(mask, DType.BOOL)
    )
    return plain and _has_scalars(ratio, training) and DType.BFLOAT16 not in binding.input_dtypes


def _dropout(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, ratio, training = (binding.input(index) for index in range(3))
    out, mask = binding.output(), binding.optional_output(1)
    if not _drops_float32(binding, x, mask, ratio, training):
        return None
    legacy = "seed" in binding.attributes
    if legacy:
        seed = abs(binding.integer("seed"))
        sequence: RandomState | LegacySequence = binding.random.legacy_sequence(seed)
    else:
        sequence = binding.random
    words = [word for view in (x, ratio, training, out, mask) for word in tensor_words(view)]
    views = tuple(view for view in (x, ratio, training, out, mask, sequence) if view is not None)
    return Record("Dropout_f32", (as_view(sequence.source).address, int(legacy), *words), views)


def _seeded_dropout(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    x, ratio, training, seed = (binding.input(index) for index in range(4))
    out, mask = binding.output(), binding.optional_output(1)
    if not _drops_float32(binding, x, mask, ratio, training) or not seed.is_contiguous:
        return None
    words = tuple(word for v in (seed, x, ratio, training, out, mask) for word in tensor_words(v))
    views = tuple(v for v in (seed, x, ratio, training, out, mask) if v is not None)
    return Record("SeededDropout_f32", words, views)


def _random_seed(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    out, sequence = binding.output(), binding.random
    if not out.is_contiguous:
        return None
    return Record(
        "RandomSeed", (as_view(sequence.source).address, *tensor_words(out)), (sequence, out)
    )


def _dropout_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    g, mask, ratio, training = (binding.input(index) for index in range(4))
    out = binding.output()
    if not _drops_float32(binding, g, mask, ratio, training):
        return None
    arrays = (g, ratio, training, out, mask)
    words = tuple(word for view in arrays for word in tensor_words(view))
    return Record("DropoutGrad_f32", words, arrays)


def _uniform(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    low, high = binding.number("low"), binding.number("high")
    return _filled("RandomUniform", binding, numbers, high - low, low)


def _normal(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    scale, mean = binding.number("scale"), binding.number("mean")
    wide = binding.output_dtypes[0] is DType.FLOAT64
    fill = _numpy_function(f"random_standard_normal_fill{'' if wide else '_f'}")
    return _filled("RandomNormal", binding, numbers, scale, mean, fill, int(wide)) if fill else None


def _filled(
    kernel: str,
    binding: NativeBinding,
    numbers: Mapping[str, int],
    scale: float,
    offset: float,
    *functions: int,
) -> Record | None:
    """Standard numbers times a scale plus an offset, each rounded; float16 by way of float32."""
    out, dtype = binding.output(), binding.output_dtypes[0]
    suffix = None if dtype is None else _SUFFIXES.get(dtype)
    maps = [f"Mul_{suffix}", f"Add_{suffix}"]
    if suffix is None or out.size == 0 or out.ndim > MAX_RANK or not out.is_contiguous:
        return None
    if any(name not in numbers for name in maps):
        return None
    narrow = dtype is DType.FLOAT16
    target = binding.scratch.take(out.shape, DType.FLOAT32) if narrow else out
    after = [
        map_record(name, target, [target, filled((), target.dtype, value)])
        for name, value, neutral in zip(maps, (scale, offset), (1, 0), strict=True)
        if value != neutral
    ]
    if narrow:
        types = (DType.FLOAT16, DType.FLOAT32)
        after.append(map_record("Copy_f32", out, [target], (), types))
    sequence = state_of(binding, binding.random)
    words = (as_view(sequence.source).address, *functions, *tensor_words(target))
    return Record(kernel, words, (sequence, target), after=tuple(after))


def _numpy_function(name: str) -> int:
    """The address of a function of numpy's interface for random numbers in C; 0 if not exported."""
    from ctypes import CDLL, c_void_p, cast

    from numpy.random import _generator

    try:
        return cast(getattr(CDLL(_generator.__file__), name), c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


def _choices(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Logarithms of shares [N, C] to numbers of classes [N, samples]."""
    del numbers
    out, kind = binding.output(), binding.output_dtypes[0]
    if binding.input_dtypes[0] is not DType.FLOAT32 or kind not in (DType.INT32, DType.INT64):
        return None
    if binding.input(0).size == 0 or out.size == 0 or not out.is_contiguous:
        return None
    logits, before = packed(binding, 0)
    sequence = state_of(binding, binding.random)
    words = (as_view(sequence.source).address, *tensors(logits, out))
    return Record("Multinomial_f32", words, (sequence, logits, out), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "Dropout": _dropout,
    "DropoutGrad": _dropout_grad,
    "Multinomial": _choices,
    "RandomNormal": _normal,
    "RandomSeed": _random_seed,
    "RandomUniform": _uniform,
    "SeededDropout": _seeded_dropout,
}
