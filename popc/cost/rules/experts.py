"""Products with matrices that rows choose: those that are chosen come to where the rows are."""

from __future__ import annotations

from typing import Final

from popc.cost.rules.common import CostRule
from popc.cost.work import Work
from popc_runtime.format import DType

__all__ = ["RULES"]


def _product(work: Work) -> None:
    x, weights, y = work.input(), work.input(2), work.result()
    experts, width, depth = weights.shape
    chosen = min(x.shape[0], experts)
    work.gather(chosen, width * depth, experts, weights.dtype)
    _multiply(work, x.shape[0], depth, chosen, y.dtype)
    if work.has(3):
        work.gather(x.shape[0], width, experts, y.dtype)
        work.binary("add")


def _few_bits(work: Work) -> None:
    """Matrices that are chosen become floats before they are multiplied."""
    x, packed, scale, y = work.input(), work.input(2), work.input(3), work.result()
    experts, width, depth = packed.shape[0], packed.shape[1], x.shape[1]
    chosen = min(x.shape[0], experts)
    work.gather(chosen, packed.size // max(experts, 1), experts, DType.UINT8)
    work.gather(chosen, scale.size // max(experts, 1), experts, scale.dtype)
    size = chosen * width * depth
    work.binary("add", "add", dtype=DType.UINT8, size=size)
    work.cast(DType.UINT8, y.dtype, size)
    work.binary("add", "add", dtype=y.dtype, size=size)
    _multiply(work, x.shape[0], depth, chosen, y.dtype)
    if work.has(5):
        work.gather(x.shape[0], width, experts, y.dtype)
        work.binary("add")


def _multiply(work: Work, rows: int, depth: int, chosen: int, dtype: DType) -> None:
    """Each of the chosen matrices meets its share of the rows."""
    share = -(-rows // max(chosen, 1))
    work.matmul(chosen, share, depth, work.result().shape[1], dtype)


RULES: Final[dict[str, CostRule]] = {
    "ExpertMatMul": _product,
    "ExpertMatMulNBits": _few_bits,
}
