"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.rnn_operands import (
    ATTENTION,
    BIAS,
    INITIAL_C,
    INITIAL_H,
    LENGTHS,
    PEEPHOLES,
    R_SCALE,
    R_ZERO,
    W_SCALE,
    W_ZERO,
    R,
    W,
    X,
)
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import made_contiguous, move_record
from popc_runtime.native.record import Encoder, Record, activation_words, float_word, tensor_words
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_GATES: Final = {"GRU": 3, "LSTM": 4, "RNN": 1}
_USUAL: Final = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_FUNCTIONS: Final = {"GRU": 2, "LSTM": 3, "RNN": 1}
_MOST: Final = 3  # functions of a kernel's direction
_STATES: Final = {"GRU": 1, "LSTM": 2, "RNN": 1}
_BYTES: Final = (W, R, W_ZERO, R_ZERO)  # operands that may be bytes
# The maps that are the functions, and which of alpha and beta they take.
_MAPS: Final = {
    "elu": ("Elu_f32", 1),
    "hardsigmoid": ("HardSigmoid_f32", 2),
    "leakyrelu": ("LeakyRelu_f32", 1),
    "relu": ("Relu_f32", 0),
    "sigmoid": ("Sigmoid_f32", 0),
    "softplus": ("Softplus_f32", 0),
    "tanh": ("Tanh_f32", 0),
    "thresholdedrelu": ("ThresholdedRelu_f32", 1),
}


def _layer(opcode: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, W, R, bias?, lengths?, states?, more?: all states, the last, and what a gradient needs."""
    functions = _functions(opcode, binding, numbers)
    if functions is None or not _is_plain(binding):
        return None
    given = _operands(opcode, binding)
    operands, before = _contiguous(binding, given)
    constant = [binding.is_constant(index) for index in (X, W, R, BIAS)]
    constant += [False] * (len(given) - len(constant))
    finals = [
        known and operand is source
        for known, operand, source in zip(constant, operands, given, strict=True)
    ]
    wanted = _results(opcode, binding)
    results, _ = _contiguous(binding, wanted)
    after = tuple(
        move_record(view, made)
        for view, made in zip(wanted, results, strict=True)
        if view is not None and made is not None and made is not view
    )
    words: list[int] = []
    for operand, final in zip(operands, finals, strict=True):
        words += tensor_words(operand, constant=final)
    for result in results:
        words += tensor_words(result)
    late = opcode == "GRU" and bool(binding.integer("linear_before_reset", 0))
    words += (_GATES[opcode], int(late), int(binding.text("direction", "forward") == "reverse"))
    words += (int(_is_usual(opcode, binding)), binding.integer("input_forget", 0))
    words += (float_word(binding.number("clip", 0.0)), *functions)
    views = tuple(view for view in (*operands, *results) if view is not None)
    return Record("Recurrent_f32", tuple(words), views, before=before, after=after)


def _layer_of_bytes(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The same of an LSTM with weights of bytes, which have to be final, and so has all of them."""
    stored = (W, R, BIAS, W_SCALE, W_ZERO, R_SCALE, R_ZERO)
    for index in stored:
        view = binding.optional(index)
        if view is not None and not (binding.is_constant(index) and view.is_contiguous):
            return None
    record = _layer("LSTM", binding, numbers)
    if record is None:
        return None
    more = [binding.optional(index) for index in stored[3:]]
    words = [word for view in more for word in tensor_words(view, constant=True)]
    return replace(
        record,
        kernel="Recurrent_i8",
        words=(*record.words, *words),
        keeps_alive=(*record.keeps_alive, *(view for view in more if view is not None)),
    )


def _operands(opcode: str, binding: NativeBinding) -> list[View | None]:
    """X, W, R, bias, h, c, peepholes, attention, lengths."""
    of_lstm = (INITIAL_C, PEEPHOLES) if opcode == "LSTM" else (len(binding.inputs),) * 2
    attention = ATTENTION if opcode == "GRU" else len(binding.inputs)
    places = (X, W, R, BIAS, INITIAL_H, *of_lstm, attention, LENGTHS)
    return [binding.optional(place) for place in places]


def _results(opcode: str, binding: NativeBinding) -> list[View | None]:
    """All states, the last h and c, and the states and gates that are kept."""
    states = _STATES[opcode]
    last_c = binding.optional_output(2) if states == 2 else None
    for_gradient = [binding.optional_output(1 + states + index) for index in range(2)]
    return [binding.optional_output(0), binding.optional_output(1), last_c, *for_gradient]


def _contiguous(
    binding: NativeBinding, views: list[View | None]
) -> tuple[list[View | None], tuple[Record, ...]]:
    """Views as they are, or contiguous ones in place of those that are not, and their copies."""
    made: list[View | None] = []
    copies: tuple[Record, ...] = ()
    for view in views:
        plain, records = (view, ()) if view is None else made_contiguous(binding, view)
        made.append(plain)
        copies += records
    return made, copies


def _is_plain(binding: NativeBinding) -> bool:
    types = [
        *(dtype for index, dtype in enumerate(binding.input_dtypes) if not _is_whole(dtype, index)),
        *binding.output_dtypes,
    ]
    lengths = binding.optional(LENGTHS)
    return (
        all(dtype in (None, DType.FLOAT32) for dtype in types)
        and (lengths is None or lengths.dtype is DType.INT32)
        and binding.input(X).size > 0
        and binding.input(R).size > 0
    )


def _is_whole(dtype: DType | None, index: int) -> bool:
    """True for lengths, and for weights that are bytes."""
    return index == LENGTHS or (dtype is DType.INT8 and index in _BYTES)


def _functions(
    opcode: str, binding: NativeBinding, numbers: Mapping[str, int]
) -> tuple[int, ...] | None:
    """The words of each direction's functions; ``None`` if one of them is no map."""
    names = binding.attributes["activations"]
    assert isinstance(names, tuple)
    parameters = zip(binding.numbers("alphas"), binding.numbers("betas"), strict=True)
    words: list[int] = []
    for place, (name, values) in enumerate(zip(names, parameters, strict=True), start=1):
        if name not in _MAPS:
            return None
        kernel, count = _MAPS[str(name)]
        words += activation_words(numbers[kernel] + 1, values[:count])
        if place % _FUNCTIONS[opcode] == 0:
            words += activation_words(0, ()) * (_MOST - _FUNCTIONS[opcode])
    return tuple(words)


def _is_usual(opcode: str, binding: NativeBinding) -> bool:
    """True if the layer has the standard's functions, and no operands beyond states and bias."""
    directions = 2 if binding.text("direction", "forward") == "bidirectional" else 1
    return (
        opcode in _USUAL
        and binding.optional(PEEPHOLES if opcode == "LSTM" else ATTENTION) is None
        and binding.attributes["activations"] == _USUAL[opcode] * directions
        and binding.number("clip", 0.0) == 0
        and not binding.integer("input_forget", 0)
    )


ENCODERS: Final[dict[str, Encoder]] = {
    "DynamicQuantizeLSTM": _layer_of_bytes,
    **{name: partial(_layer, name) for name in _GATES},
}
