"""Matrix products, by the planner; small dense algebra."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.cost.mapping import Layout
from popc.cost.planner import TRANSPOSED
from popc.cost.rules.common import CostRule, batch_of, epilogue
from popc.cost.work import Work
from popc.ir import Shape

__all__ = ["RULES", "product_sizes"]


def product_sizes(a: Shape, b: Shape, size: int) -> tuple[int, int, int, int]:
    """Groups, rows, depth and columns of numpy's ``a @ b``, whose result has ``size`` elements.

    A matrix that all matrices of ``a`` meet makes one product of many rows.
    """
    depth = a[-1] if a else 1
    columns = b[-1] if len(b) > 1 else 1
    groups = prod(b[:-2]) if len(b) > 2 else 1
    rows = size // max(groups * columns, 1)
    return groups, max(rows, 1), depth, columns


def _product(work: Work, sizes: tuple[int, int, int, int]) -> None:
    a, b = work.op.operand(0), work.op.operand(1)
    lie = work.lying(a, last=True), work.lying(b, last=False)
    if work.backward and lie[1].turned and not lie[0].turned:
        lie = lie[0], TRANSPOSED
    plan = work.matmul(*sizes, work.result().dtype, lie=lie)
    tiles = -(-work.result().size // max(plan.outputs_per_tile, 1))
    tiles = min(max(tiles, 1), work.machine.target.compute_tiles)
    parts = plan.row_parts(sizes[3])
    rows = plan.outputs_per_tile // max(plan.channels_per_tile, 1)
    work.layout = Layout(
        f"{plan}", tiles, plan.block, turned=plan.swapped, row_parts=parts, rows=rows
    )
    epilogue(work, 2, sizes[3])


def _matmul(work: Work) -> None:
    sizes = product_sizes(work.input(0).shape, work.input(1).shape, work.result().size)
    _product(work, sizes)


def _gemm(work: Work) -> None:
    a, y = work.input(0), work.result()
    depth = a.shape[0] if work.integer("transA") else a.shape[1]
    _product(work, (1, y.shape[0], depth, y.shape[1]))


def _elimination(work: Work) -> None:
    """n steps for each matrix; each updates what is left of it."""
    x = next(t.type for t in reversed(work.op.present_inputs))
    n = x.shape[-1]
    start = len(work.phases)
    work.receive("pivot", 4 * n)
    work.binary("divide", size=batch_of(x.shape) * n, dtype=x.dtype)
    work.binary("add", size=x.size, dtype=x.dtype)
    work.repeat(start, n)


RULES: Final[dict[str, CostRule]] = {
    "Det": _elimination,
    "DetGrad": _elimination,
    "Gemm": _gemm,
    "Inverse": _elimination,
    "MatMul": _matmul,
}
