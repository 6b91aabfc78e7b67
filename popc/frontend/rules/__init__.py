"""How each ONNX operator becomes IR ops: (domain, op type) -> rule, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.frontend.node import ImportRule
from popc.frontend.rules import (
    activation,
    attention,
    cast,
    control,
    conv,
    elementwise,
    generate,
    image,
    indexing,
    integer,
    loss,
    matmul,
    microsoft,
    microsoft_attention,
    microsoft_crop,
    microsoft_group_query,
    microsoft_nbits,
    microsoft_norm,
    microsoft_quantize,
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
    sequence,
    signal,
    softmax,
    sort,
    text,
    training,
)

__all__ = ["RULES"]

_FAMILIES: Final = (
    activation,
    attention,
    cast,
    control,
    conv,
    elementwise,
    generate,
    image,
    indexing,
    integer,
    loss,
    matmul,
    microsoft,
    microsoft_attention,
    microsoft_crop,
    microsoft_group_query,
    microsoft_nbits,
    microsoft_norm,
    microsoft_quantize,
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
    sequence,
    signal,
    softmax,
    sort,
    text,
    training,
)


def _merge() -> Mapping[tuple[str, str], ImportRule]:
    table: dict[tuple[str, str], ImportRule] = {}
    owner: dict[tuple[str, str], str] = {}
    for family in _FAMILIES:
        for key, rule in family.RULES.items():
            if key in table:
                raise ValueError(f"{key} is in {owner[key]} and in {family.__name__}")
            table[key] = rule
            owner[key] = family.__name__
    return table


RULES: Final = _merge()
