"""Steps of optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.record import Encoder, Record, tensor_words
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_TENSORS: Final = 3  # operands of the kernel that are not scalars; missing ones have no elements
_SCALARS: Final = 6  # scalars that the kernel takes at most
# How factors follow from scalars; the order is that of Derivation in optimizer.c.
_DERIVATIONS: Final = (
    "given",
    "step",
    "nesterov",
    "average",
    "decay",
    "average of squares",
    "decay of squares",
    "adam",
    "adam direction",
    "lamb",
    "scaled",
)
_CORRECTING: Final = ("adam", "adamax", "lamb")


def _record(
    kernel: str, derivation: str, binding: NativeBinding, operands: Sequence[int], scalars: int
) -> Record | None:
    """A pass over the operands with the numbers ``operands``; from ``scalars`` on are scalars."""
    out, tensors = binding.output(), [binding.input(index) for index in operands]
    numbers = binding.inputs[scalars:]
    if not _is_plain(out, tensors, numbers, (*binding.input_dtypes, binding.output_dtypes[0])):
        return None
    mode = binding.text("mode", "")
    words = [*tensor_words(out)]
    for tensor in (*tensors, *(None,) * (_TENSORS - len(tensors))):
        words += tensor_words(tensor)
    words += (_DERIVATIONS.index(derivation), int(mode in _CORRECTING), int(mode != "adamax"))
    for scalar in (*numbers, *(None,) * (_SCALARS - len(numbers))):
        words += tensor_words(scalar)
    return Record(f"Step{kernel}_f32", tuple(words))


def _is_plain(
    out: View,
    tensors: Sequence[View],
    scalars: Sequence[View | None],
    dtypes: Sequence[DType | None],
) -> bool:
    floats = all(dtype in (None, DType.FLOAT32, DType.FLOAT64) for dtype in dtypes)
    same = all(
        array.dtype is DType.FLOAT32 and array.shape == out.shape and array.is_contiguous
        for array in (out, *tensors)
    )
    single = all(scalar is None or scalar.size == 1 for scalar in scalars)
    return floats and same and single and len(scalars) <= _SCALARS and out.size > 0


def _is_final(binding: NativeBinding, index: int, value: float) -> bool:
    """True if scalar ``index`` is final and has the given value."""
    scalar = binding.optional(index)
    return scalar is not None and binding.is_constant(index) and scalar.item() == value


def _sum(
    kernel: str, derivation: str, binding: NativeBinding, numbers: Mapping[str, int]
) -> Record | None:
    del numbers
    terms = 3 if kernel == "SumOfThree" else 2
    if any(_is_final(binding, index, 0) for index in range(terms, len(binding.inputs))):
        return None  # what is multiplied by 0 for good is left out, even if it is infinite
    return _record(kernel, derivation, binding, range(terms), terms)


_MOMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "decay_add": ("SumOfTwo", "decay"),
    "decay_add_square": ("Squares", "decay of squares"),
    "infinity": ("Largest", "decay"),
    "moving_average": ("SumOfTwo", "average"),
    "moving_average_square": ("Squares", "average of squares"),
}


def _moment(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    kernel, derivation = _MOMENTS[binding.text("kind")]
    if kernel == "SumOfTwo":
        keeps_all = derivation == "average" and _is_final(binding, 2, 1)
        return None if keeps_all else _sum(kernel, derivation, binding, numbers)
    return _record(kernel, derivation, binding, range(2), 2)


def _adam(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    kernel = "Adamax" if binding.text("mode") == "adamax" else "Adam"
    return _record(kernel, "adam", binding, range(3), 3)


def _adam_direction(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    kernel = "AdamaxDirection" if binding.text("mode") == "adamax" else "AdamDirection"
    alone = "Alone" if _is_final(binding, 3, 0) else ""
    return _record(kernel + alone, "adam direction", binding, range(3), 3)


def _rms_prop(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    centred = binding.optional(2) is not None
    kernel = "OverDeviation" if centred else "OverRoot"
    inside = "OfSum" if binding.integer("tf_variant") else ""
    return _record(kernel + inside, "scaled", binding, range(3 if centred else 2), 3)


def _ada_delta(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return _record("RatioOfRoots", "scaled", binding, range(3), 3)


_SUMS: Final[Mapping[str, tuple[str, str]]] = {
    "LambVarUpdate": ("SumOfTwo", "lamb"),
    "SGD0VarUpdate": ("SumOfTwo", "step"),
    "SGD1AcclUpdate": ("SumOfTwo", "given"),
    "SGD1VarUpdate": ("SumOfTwo", "step"),
    "SGD2AcclUpdate": ("SumOfThree", "given"),
    "SGDNesterovVarUpdate": ("SumOfThree", "nesterov"),
    "ScaledGradient": ("SumOfTwo", "given"),
    "ScaledVarUpdate": ("SumOfTwo", "step"),
}

ENCODERS: Final[dict[str, Encoder]] = {
    "AccumulateMoment": _moment,
    "AdaDeltaUpdater": _ada_delta,
    "AdamUpdater": _adam_direction,
    "AdamVarUpdate": _adam,
    "RMSPropUpdater": _rms_prop,
    **{name: partial(_sum, *how) for name, how in _SUMS.items()},
}
