"""Recurrent layers: popnn's sequence of primitives in a loop over time."""

from __future__ import annotations

from typing import Final

from popc.cost.formulas.elementwise import non_linear
from popc.cost.formulas.movement import dynamic_slice
from popc.cost.mapping import lanes_of
from popc.cost.planner import ROWS
from popc.cost.rules.common import CostRule
from popc.cost.work import Work
from popc_runtime.format import DType

__all__ = ["RULES"]

_GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _layer(kind: str, *, backward: bool) -> CostRule:
    def rule(work: Work) -> None:
        x, r = work.input(0), work.input(2)
        steps, batch, inputs = x.shape
        directions, hidden = r.shape[0], r.shape[2]
        start = len(work.phases)
        _step(work, kind, batch, inputs, hidden)
        if backward:  # gradients of the gates, then by input and by weights
            _cell_gradient(work, kind, batch * hidden)
            work.matmul(1, batch, _GATES[kind] * hidden, inputs + hidden, x.dtype)
        work.repeat(start, steps * directions)
        if backward:
            columns = _GATES[kind] * hidden
            lie = (ROWS, ROWS)
            work.matmul(directions, inputs + hidden, steps * batch, columns, x.dtype, lie=lie)

    return rule


def _step(work: Work, kind: str, batch: int, inputs: int, hidden: int) -> None:
    """A cell in place, as popnn's for inference: state and gates lie alike.

    A step takes its rows out of the input, puts its state into the result and counts itself.
    """
    dtype, size = work.input().dtype, batch * hidden
    _piece_of_sequence(work, "slice", batch * inputs)
    gates = 2 if kind == "GRU" else _GATES[kind]
    work.matmul(1, batch, inputs + hidden, gates * hidden, dtype)
    _gates(work, kind, gates, size, hidden)
    if kind == "LSTM":  # both summands of the new state at once
        work.binary("add", size=2 * size, dtype=dtype)
        work.binary("add", size=size, dtype=dtype)
        work.unary("tanh", size=size, dtype=dtype)
        work.binary("add", size=size, dtype=dtype)
    elif kind == "GRU":
        work.binary("add", size=size, dtype=dtype)
        work.matmul(1, batch, inputs + hidden, hidden, dtype)
        _gates(work, "RNN", 1, size, hidden)
        work.binary("add", "add", "add", size=size, dtype=dtype)
    _piece_of_sequence(work, "update", size)
    work.binary("add", size=1, dtype=DType.INT32)


def _piece_of_sequence(work: Work, name: str, size: int) -> None:
    dtype = work.input().dtype
    vector = 4 if lanes_of(dtype) == "half" else 2
    share = work.machine.share(size, dtype)
    work.compute(name, dynamic_slice(share, 1, vector), "DynamicSlice")


def _gates(work: Work, kind: str, gates: int, size: int, hidden: int) -> None:
    """A product's results, which come to where the state is; bias and non-linearities in place."""
    dtype = work.input().dtype
    work.reorder(gates * size, hidden, dtype, "gates", 16)
    work.binary("add", size=gates * size, dtype=dtype)
    squashed = {"LSTM": 3, "GRU": 2, "RNN": 0}[kind]  # by a sigmoid, others by tanh
    cycles = sum(
        non_linear(name, lanes_of(dtype), work.share(count * size, dtype))
        for name, count in (("sigmoid", squashed), ("tanh", gates - squashed))
        if count
    )
    work.compute("non_linear", int(cycles), "NonLinearity")


def _cell_gradient(work: Work, kind: str, size: int) -> None:
    """Gradients of bias, gates and state."""
    dtype = work.input().dtype
    work.binary("add", size=_GATES[kind] * size, dtype=dtype)
    if kind == "LSTM":
        work.unary("sigmoid", size=4 * size, dtype=dtype)
        work.binary("add", "add", "add", size=size, dtype=dtype)
    work.unary("tanh", size=size, dtype=dtype)
    if kind != "RNN":
        work.binary("add", size=size, dtype=dtype)


def _quantized_lstm(work: Work) -> None:
    """Weights become floats, and rows that they are multiplied by are rounded."""
    x, r = work.input(0), work.input(2)
    for weights in (work.input(1), r):
        work.cast(DType.INT8, x.dtype, weights.size)
        work.binary("add", size=weights.size, dtype=x.dtype)
    for size in (x.size, x.shape[0] * x.shape[1] * r.shape[0] * r.shape[2]):
        work.binary("add", "add", size=size, dtype=x.dtype)
        work.unary("round", size=size, dtype=x.dtype)
    _layer("LSTM", backward=False)(work)


def _linear_attention(passes: int) -> CostRule:
    def rule(work: Work) -> None:
        """Each token fades the state, which is multiplied by its key, learns it and answers.

        Products of elements take the time of sums.
        """
        state, q = work.input(0), work.input(1)
        batch, heads, keys, values = state.shape
        start = len(work.phases)
        work.binary("add", "add", "add", size=state.size, dtype=state.dtype)
        work.matmul(batch * heads, 1, keys, values, state.dtype)
        work.binary("add", "add", size=batch * heads * values, dtype=state.dtype)
        work.matmul(batch * heads, q.shape[3], keys, values, state.dtype)
        work.repeat(start, passes * q.shape[0])

    return rule


RULES: Final[dict[str, CostRule]] = {
    "DynamicQuantizeLSTM": _quantized_lstm,
    "GRU": _layer("GRU", backward=False),
    "GRUGrad": _layer("GRU", backward=True),
    "LSTM": _layer("LSTM", backward=False),
    "LinearAttention": _linear_attention(1),
    "LinearAttentionGrad": _linear_attention(3),
    "LSTMGrad": _layer("LSTM", backward=True),
    "RNN": _layer("RNN", backward=False),
    "RNNGrad": _layer("RNN", backward=True),
}
