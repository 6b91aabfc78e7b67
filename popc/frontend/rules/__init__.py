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
    loop,
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
    scan,
    scatter,
    sequence,
    signal,
    softmax,
    sort,
    text,
    training,
)
from popc_runtime.tables import merge_families

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
    loop,
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
    scan,
    scatter,
    sequence,
    signal,
    softmax,
    sort,
    text,
    training,
)

RULES: Final[Mapping[tuple[str, str], ImportRule]] = merge_families(
    (family, family.RULES) for family in _FAMILIES
)
