"""Recurrent layers, with ONNX's operands in time-major layout.

Operands: X [S, B, I], W [D, G*H, I], R [D, G*H, H], optional bias [D, 2*G*H], optional lengths [B],
optional initial_h [D, B, H]; LSTM also: optional initial_c [D, B, H], optional peepholes [D, 3*H].
Results: Y [S, D, B, H], Y_h [D, B, H]; LSTM also: Y_c [D, B, H].

Attributes: direction; activations, alphas, betas: one per function and direction; clip (0: none);
GRU: linear_before_reset; LSTM: input_forget.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ops.infer import operand, text
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _recurrent(gates: int, states: int) -> InferRule:
    """The type rule of a layer with that many gates and state vectors."""

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        x, w, r = (operand(inputs, index) for index in range(3))
        if x.rank != 3 or r.rank != 3:
            raise ModelError(f"X and R must have 3 dimensions, not {x.rank} and {r.rank}")
        steps, batch, width = x.shape
        directions = 2 if text(attributes, "direction") == "bidirectional" else 1
        hidden = r.shape[2]
        rows = gates * hidden
        expected: list[tuple[str, int, Shape]] = [
            ("W", 1, (directions, rows, width)),
            ("R", 2, (directions, rows, hidden)),
            ("B", 3, (directions, 2 * rows)),
            ("sequence_lens", 4, (batch,)),
            ("initial_h", 5, (directions, batch, hidden)),
            ("initial_c", 6, (directions, batch, hidden)),
            ("P", 7, (directions, 3 * hidden)),
        ]
        for name, index, shape in expected:
            _check(inputs, index, name, shape)
        y = w.with_shape((steps, directions, batch, hidden)).with_dtype(x.dtype)
        return (y, *(y.with_shape(y.shape[1:]),) * states)

    return infer


def _check(inputs: OperandTypes, index: int, name: str, shape: Shape) -> None:
    type_ = inputs[index] if index < len(inputs) else None
    if type_ is not None and type_.shape != shape:
        raise ModelError(f"{name} must have shape {list(shape)}, not {list(type_.shape)}")


OPS: Final[dict[str, OpSpec]] = {
    "GRU": OpSpec(_recurrent(gates=3, states=1)),
    "LSTM": OpSpec(_recurrent(gates=4, states=2)),
    "RNN": OpSpec(_recurrent(gates=1, states=1)),
}
