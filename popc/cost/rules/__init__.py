"""The costs of every op: one rule per op, one file per family (as in `popc.ops`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.cost.rules import (
    activation,
    activation_grad,
    attention,
    cast,
    collectives,
    conv,
    ctc,
    dynamic,
    effects,
    elementwise,
    fused,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    nbits,
    norm,
    norm_grad,
    optimizer,
    packing,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    scatter_reduce,
    signal,
    softmax,
    sort,
    spline,
    statistics,
    streaming,
    text,
    variables,
)
from popc.cost.rules.common import CostRule
from popc_runtime.ground.tables import merge_families

__all__ = ["RULES", "CostRule"]

_FAMILIES: Final = (
    activation,
    activation_grad,
    attention,
    cast,
    collectives,
    conv,
    ctc,
    dynamic,
    effects,
    elementwise,
    fused,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    nbits,
    norm,
    norm_grad,
    optimizer,
    packing,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    scatter_reduce,
    signal,
    softmax,
    sort,
    spline,
    statistics,
    streaming,
    text,
    variables,
)

RULES: Final[Mapping[str, CostRule]] = merge_families(
    (family, family.RULES) for family in _FAMILIES
)
