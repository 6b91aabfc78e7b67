"""Linear attention, see `popc_runtime.kernels.rnn_linear`."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, made_contiguous, tensors
from popc_runtime.native.record import Encoder, Record, is_float32
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

_OPERANDS: Final = 6


def _attention(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """State, q, k, v, decay?, beta? -> answers, state."""
    del numbers
    results = binding.outputs
    whole = all(result is not None and result.is_contiguous for result in results)
    if not is_float32(binding) or not has_elements(binding) or len(results) != 2 or not whole:
        return None
    operands: list[View | None] = []
    before: tuple[Record, ...] = ()
    for index in range(_OPERANDS):
        operand = binding.optional(index) if index < len(binding.inputs) else None
        if operand is not None:
            operand, moves = made_contiguous(binding, operand)
            before += moves
        operands.append(operand)
    views = (*operands, *results)
    return Record("LinearAttention_f32", tensors(*views), views, before=before)


ENCODERS: Final[dict[str, Encoder]] = {"LinearAttention": _attention}
