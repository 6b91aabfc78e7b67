"""Attention as its parts: two products around a softmax."""

from __future__ import annotations

from typing import Final

from popc.cost.mapping import Layout, device_bytes
from popc.cost.planner import PLACED, ROWS, OperandLayout, Plan
from popc.cost.rules.common import CostRule, row_dims, softmax_steps, steps
from popc.cost.work import Work

__all__ = ["RULES"]


def _attention(work: Work) -> None:
    q, k, v = (work.input(index) for index in range(3))
    batch, heads, rows, depth = q.shape
    groups, keys = batch * heads, k.shape[2]
    queries, kept, values = (work.op.operand(index) for index in range(3))
    lie = work.lying(queries, last=True), work.lying(kept, last=True)
    product = work.matmul(groups, rows, depth, keys, q.dtype, lie=lie)
    scores = groups * rows * keys
    work.held = work.machine.share(scores, q.dtype) * device_bytes(q.dtype)
    work.scaled("add", size=scores)
    if work.has(3) or work.integer("causal"):
        work.receive("mask", work.machine.share(scores, q.dtype) * device_bytes(q.dtype), sources=4)
        work.binary("add", size=scores, dtype=q.dtype)
    parts = _bring_rows_together(work, scores, product)
    softmax_steps(work, scores, groups * rows)
    if work.has(5):  # one more exponential of each row
        work.non_linear("exp", size=groups * rows)
        work.binary("add", size=groups * rows, dtype=q.dtype)
    # Values come with their channels side by side; as second operand they are wanted by key.
    weights = ROWS if parts > 1 else OperandLayout(product.block)
    lie = weights, work.lying(values, last=False)
    plan = work.matmul(groups, rows, keys, v.shape[3], q.dtype, lie=lie)
    work.layout = Layout(f"{plan}", 0, plan.block, turned=plan.swapped)


def _bring_rows_together(work: Work, size: int, product: Plan) -> int:
    """Whole rows of ``size`` scores go where softmax takes them; the tiles that shared one."""
    q, keys = work.input(), work.input(1).shape[2]
    parts = product.row_parts(keys)
    if parts > 1:
        work.bring_rows_together(size, keys, q.dtype, parts)
    return parts


def _attention_grad(work: Work) -> None:
    q, k, v = (work.input(index) for index in range(3))
    batch, heads, rows, depth = q.shape
    groups, keys, width = batch * heads, k.shape[2], v.shape[3]
    scores = groups * rows * keys
    again = work.matmul(groups, rows, depth, keys, q.dtype)  # the scores
    work.held = 3 * work.machine.share(scores, q.dtype) * device_bytes(q.dtype)
    work.scaled("add", size=scores)
    _bring_rows_together(work, scores, again)
    softmax_steps(work, scores, groups * rows)
    gradient = work.matmul(groups, rows, width, keys, q.dtype)  # of the scores
    _bring_rows_together(work, scores, gradient)
    work.binary("add", size=scores, dtype=q.dtype)
    work.reduce(row_dims(scores, groups * rows), q.dtype, whole=True)
    work.spread(groups * rows, scores, q.dtype)
    work.scaled("add", rows=groups * rows, size=scores)
    work.binary("add", size=scores, dtype=q.dtype)
    work.matmul(groups, rows, keys, depth, q.dtype, lie=(PLACED, ROWS))
    work.matmul(groups, keys, rows, depth, q.dtype, lie=(ROWS, ROWS))
    work.matmul(groups, keys, rows, width, q.dtype, lie=(ROWS, ROWS))


RULES: Final[dict[str, CostRule]] = {
    "Attention": _attention,
    "AttentionGrad": _attention_grad,
    "RotaryEmbedding": steps("add", "add", "add"),
}
