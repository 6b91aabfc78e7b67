"""Between floats and small integers."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule, steps
from popc.cost.work import Work
from popc_runtime.format import DType

__all__ = ["RULES", "round_to_bytes"]


def _quantize(work: Work) -> None:
    size = work.input().size
    work.binary("divide", dtype=DType.FLOAT32, size=size)
    round_to_bytes(work, size)


def round_to_bytes(work: Work, size: int) -> None:
    """Quotients, floats, become what the result consists of."""
    work.unary("round", dtype=DType.FLOAT32, size=size)
    work.binary("maximum", "maximum", dtype=DType.FLOAT32, size=size)
    work.cast(DType.FLOAT32, work.result().dtype, size)


def _dequantize(work: Work) -> None:
    y = work.result()
    work.cast(work.input().dtype, y.dtype, y.size)
    work.binary("add", "add", dtype=y.dtype)


def _dynamic(work: Work) -> None:
    x = work.input()
    work.reduce(((x.size, True),), x.dtype, maximum=True, kinds=2)
    work.on_one_tile(2, 30)
    work.spread(1, x.size, x.dtype)
    _quantize(work)


RULES: Final[dict[str, CostRule]] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "QuantizeLinear": _quantize,
    "Requantize": steps("add", "round", "maximum", "maximum"),
}
