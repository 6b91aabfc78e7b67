"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from popc_runtime.format.dtypes import DType
from popc_runtime.kernels.rnn_operands import BIAS, INITIAL_C, INITIAL_H, LENGTHS, R, W, X
from popc_runtime.native.binding import Binding
from popc_runtime.native.record import Encoder, Record, tensor_words

__all__ = ["ENCODERS"]

_GATES: Final = {"GRU": 3, "LSTM": 4}
_USUAL: Final = {"GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_MOST: Final = {"GRU": INITIAL_H, "LSTM": INITIAL_C}  # the last operand that kernels know
_RESULTS: Final = {"GRU": 2, "LSTM": 3}


def _layer(opcode: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    if binding.input_dtypes[X] is not DType.FLOAT32 or not _is_usual(opcode, binding):
        return None
    operands = [binding.optional(i) for i in (X, W, R, BIAS, INITIAL_H)]
    operands.append(binding.optional(INITIAL_C) if opcode == "LSTM" else None)
    operands.append(binding.optional(LENGTHS))
    results = [binding.optional_output(i) for i in range(3)]
    plain = all(one is None or one.is_contiguous for one in operands)
    if not plain or binding.input(X).size == 0:
        return None
    words: list[int] = []
    for index, one in enumerate(operands):
        words += tensor_words(one, constant=binding.is_constant(index))
    for one in results:
        words += tensor_words(one)
    late = opcode == "GRU" and bool(binding.integer("linear_before_reset", 0))
    words += (_GATES[opcode], int(late), int(binding.text("direction", "forward") == "reverse"))
    return Record("Recurrent_f32", tuple(words))


def _is_usual(opcode: str, binding: Binding) -> bool:
    """Whether the layer has the standard's functions, and nothing beyond states and bias."""
    directions = 2 if binding.text("direction", "forward") == "bidirectional" else 1
    functions = binding.attributes.get("activations", _USUAL[opcode] * directions)
    beyond = range(_MOST[opcode] + 1, len(binding.inputs))
    return (
        binding.is_constant(W)
        and binding.is_constant(R)
        and all(binding.optional(index) is None for index in beyond)
        and all(one is None for one in binding.outputs[_RESULTS[opcode] :])
        and functions == _USUAL[opcode] * directions
        and binding.number("clip", 0.0) == 0
        and not binding.integer("input_forget", 0)
    )


ENCODERS: Final[dict[str, Encoder]] = {name: partial(_layer, name) for name in _GATES}
