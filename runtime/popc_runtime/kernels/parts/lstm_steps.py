"""All steps of an LSTM back through time as one call, which has a native form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Call

__all__ = ["USUAL_FUNCTIONS", "LstmSteps", "lstm_steps"]

USUAL_FUNCTIONS: Final = ("sigmoid", "tanh", "tanh")  # of a direction


@dataclass(frozen=True, slots=True)
class LstmSteps:
    """Operands of the steps of a layer with the standard's functions; all are contiguous.

    Attributes:
        r: [D, 4 * H, H].
        gates: What the forward pass has kept, [5, D, S, B, H].
        cells: The cell states, in the order of time, [D, S + 1, B, H].
        given: The gradient of the result, [S, D, B, H], or ``None``.
        rows: Result: the gradients of the gates' arguments, [D, S * B, 4 * H].
        dh, dc: The gradients of the last states, and then of the first, [D, B, H].
        backward: For each direction, whether it starts at the last step.
        first: Whether the gradient of the first h is wanted: else ``dh`` may be anything.
    """

    r: Array
    gates: Array
    cells: Array
    given: Array | None
    rows: Array
    dh: Array
    dc: Array
    backward: tuple[bool, ...]
    first: bool


def lstm_steps(calls: Sequence[Call], operands: LstmSteps) -> None:
    """Run the calls of all steps, which work on ``operands``."""
    del operands
    for call in calls:
        call()
