"""Recurrent layers: RNN, LSTM, GRU.

What does not depend on the previous step is done for all steps at once: one matrix product of the
whole input with W.  A step is then one product of the state with R and a few calls on fixed
buffers; only the step's share of the first product and its result lie elsewhere in each step.

Both directions of a bidirectional layer run in the same calls, the backward one at the time it has
come to: for each step, one strided view covers the two places that it reads (or writes).

sigmoid(x) = (1 + tanh(x / 2)) / 2 costs numpy three calls instead of four, and none for x / 2 if
the rows of W, R and bias that lead to it are halved beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.rnn_cells import CELLS, Cell, CellOptions

__all__ = ["KERNELS"]


@dataclass(frozen=True, slots=True)
class _Layer:
    """The directions of a layer that run together (those with the same activation functions).

    Attributes:
        directions: Their indices in the operands.
        backward: For each, whether it starts at the last step.
        steps, batch, hidden: Sizes.
        dtype: Of the computation.
    """

    directions: tuple[int, ...]
    backward: tuple[bool, ...]
    steps: int
    batch: int
    hidden: int
    dtype: np.dtype[Any]

    @property
    def state_shape(self) -> tuple[int, int, int]:
        return (len(self.directions), self.batch, self.hidden)

    def times(self, step: int) -> list[int]:
        """The time that each direction has come to."""
        return [self.steps - 1 - step if back else step for back in self.backward]


def _pick(x: Array, places: Sequence[int]) -> Array:
    """A view of the one or two given elements of the first axis of ``x``, in this order."""
    first, last = places[0], places[-1]
    step = last - first if last != first else 1
    stop: int | None = last + (1 if step > 0 else -1)
    return x[first : None if stop == -1 else stop : step]
