"""What each op is: one table row per op, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.ops import (
    activation,
    attention,
    cast,
    conv,
    elementwise,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    norm,
    pad,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    signal,
    softmax,
    sort,
    text,
    training,
)
from popc.ops.spec import InferRule, OperandTypes, OpSpec, View, ViewRule

__all__ = ["OPS", "InferRule", "OpSpec", "OperandTypes", "View", "ViewRule"]

_FAMILIES: Final = (
    activation,
    attention,
    cast,
    conv,
    elementwise,
    host,
    image,
    indexing,
    integer,
    loss,
    matmul,
    movement,
    norm,
    pad,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    signal,
    softmax,
    sort,
    text,
    training,
)


def _merge() -> Mapping[str, OpSpec]:
    table: dict[str, OpSpec] = {}
    owner: dict[str, str] = {}
    for family in _FAMILIES:
        for op_type, spec in family.OPS.items():
            if op_type in table:
                raise ValueError(f"{op_type} is in {owner[op_type]} and in {family.__name__}")
            table[op_type] = spec
            owner[op_type] = family.__name__
    return table


OPS: Final = _merge()
