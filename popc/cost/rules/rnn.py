"""Recurrent layers: popnn's sequence of primitives in a loop over time."""

from __future__ import annotations

from typing import Final

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
            _cell(work, kind, batch * hidden)
            work.matmul(1, batch, _GATES[kind] * hidden, inputs + hidden, x.dtype)
        work.repeat(start, steps * directions)
        if backward:
            columns = _GATES[kind] * hidden
            lie = (ROWS, ROWS)
            work.matmul(directions, inputs + hidden, steps * batch, columns, x.dtype, lie=lie)

    return rule


def _step(work: Work, kind: str, batch: int, inputs: int, hidden: int) -> None:
    dtype = work.input().dtype
    vector = 4 if lanes_of(dtype) == "half" else 2
    share = work.machine.share(batch * (inputs + hidden), dtype)
    work.compute("slice", dynamic_slice(share, 2, vector), "DynamicSlice")
    if kind == "GRU":
        work.matmul(1, batch, inputs + hidden, 2 * hidden, dtype)
        work.unary("sigmoid", size=2 * batch * hidden, dtype=dtype)
        work.binary("add", size=batch * hidden, dtype=dtype)
        work.matmul(1, batch, inputs + hidden, hidden, dtype)
    else:
        work.matmul(1, batch, inputs + hidden, _GATES[kind] * hidden, dtype)
    _cell(work, kind, batch * hidden)


def _cell(work: Work, kind: str, size: int) -> None:
    """Bias and gates; LSTM's sigmoids and tanh are one compute set."""
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
        work.binary("mul", size=weights.size, dtype=x.dtype)
    for size in (x.size, x.shape[0] * x.shape[1] * r.shape[0] * r.shape[2]):
        work.binary("mul", "add", size=size, dtype=x.dtype)
        work.unary("round", size=size, dtype=x.dtype)
    _layer("LSTM", backward=False)(work)


RULES: Final[dict[str, CostRule]] = {
    "DynamicQuantizeLSTM": _quantized_lstm,
    "GRU": _layer("GRU", backward=False),
    "GRUGrad": _layer("GRU", backward=True),
    "LSTM": _layer("LSTM", backward=False),
    "LSTMGrad": _layer("LSTM", backward=True),
    "RNN": _layer("RNN", backward=False),
    "RNNGrad": _layer("RNN", backward=True),
}
