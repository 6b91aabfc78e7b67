"""Gradients of recurrent layers: one op, given the states and gates that the forward pass keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["GRADIENTS"]

_OPERANDS: Final = 8  # X, W, R, B, lengths, initial h, initial c, peepholes
# Operands that the gradient op reads: X, W, R, lengths, attention of GRU, peepholes.
_READ: Final = {
    "GRU": (0, 1, 2, 4, 6),
    "LSTM": (0, 1, 2, 4, 7),
    "RNN": (0, 1, 2, 4),
}
_STATES: Final = {"GRU": 1, "LSTM": 2, "RNN": 1}


def _recurrent(b: Backward) -> Sequence[Tensor | None]:
    _check_functions(b)
    kind = b.op.op_type
    wanted = [index for index in range(len(b.op.inputs)) if b.wants(index)]
    states, *gates = b.demand_all("keep")
    operands = [b.optional(index) if index in _READ[kind] else None for index in range(_OPERANDS)]
    grads = [b.optional_grad(index) for index in range(1 + _STATES[kind])]
    found = b.emit_all(
        f"{kind}Grad",
        [*operands, states, gates[0] if gates else None, *grads],
        {**b.attributes, "wanted": tuple(wanted)},
    )
    by_index = dict(zip(wanted, found, strict=True))
    return [by_index.get(index) for index in range(len(b.op.inputs))]


def _check_functions(b: Backward) -> None:
    """Derivatives come from the functions' values, which must therefore tell them."""
    names, alphas = b.attributes["activations"], b.attributes["alphas"]
    assert isinstance(names, tuple)
    assert isinstance(alphas, tuple)
    for name, alpha in zip(names, alphas, strict=True):
        if name in ("elu", "leakyrelu") and isinstance(alpha, float) and alpha < 0:
            raise ModelError(f"{name} with alpha = {alpha:g} < 0 cannot be differentiated here")
    if "softmax" in names and b.attributes.get("clip"):
        raise ModelError("softmax of clipped arguments cannot be differentiated here")


def _linear_attention(b: Backward) -> Sequence[Tensor | None]:
    """One op, which goes through the tokens forward and back."""
    count = 6
    wanted = [index for index in range(len(b.op.inputs)) if b.wants(index)]
    operands = [b.optional(index) for index in range(count)]
    grads = [b.optional_grad(index) for index in range(2)]
    filled = [
        b.filled(0.0, b.op.outputs[index].type) if grad is None else grad
        for index, grad in enumerate(grads)
    ]
    found = b.emit_all("LinearAttentionGrad", [*operands, *filled], {"wanted": tuple(wanted)})
    by_index = dict(zip(wanted, found, strict=True))
    return [by_index.get(index) for index in range(len(b.op.inputs))]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "LinearAttention": _linear_attention,
    "RNN": _recurrent,
}
