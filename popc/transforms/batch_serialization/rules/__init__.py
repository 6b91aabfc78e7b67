"""The cut of each op along the batch; an op that is in no table stays whole."""

from __future__ import annotations

from typing import Final

from popc.ops import OPS
from popc.transforms.batch_serialization.cut import Case, Cut, Rule, elementwise
from popc.transforms.batch_serialization.rules import (
    attention,
    cast,
    conv,
    ctc,
    dynamic,
    effects,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    norm,
    norm_grad,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    resize,
    rnn,
    scatter,
    signal,
    softmax,
    sort,
    trees,
)

__all__ = ["RULES", "cut_op"]

_FAMILIES: Final = (
    attention,
    cast,
    conv,
    ctc,
    dynamic,
    effects,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    norm,
    norm_grad,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    resize,
    rnn,
    scatter,
    signal,
    softmax,
    sort,
    trees,
)

RULES: Final[dict[str, Rule]] = {
    name: rule for family in _FAMILIES for name, rule in family.RULES.items()
}


def cut_op(case: Case) -> Cut | str:
    """The cut of ``case.op``, or the reason why it stays whole."""
    op = case.op
    spec = OPS.get(op.op_type)
    if op.subgraphs:
        return "it holds a graph of its own"
    if spec is not None and spec.random:
        return "parts would draw other random numbers"
    if spec is not None and (spec.side_effect or spec.collective or spec.per_replica):
        return "it acts on the whole"
    if spec is not None and spec.elementwise:
        return elementwise(case)
    rule = RULES.get(op.op_type)
    return rule(case) if rule is not None else "nothing is known about its batch"
