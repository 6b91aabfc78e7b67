"""Opcode -> kernel: the definition of every instruction, in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.kernels import (
    activation,
    attention,
    cast,
    control,
    conv,
    conv_transpose,
    deform_conv,
    elementwise,
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
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel, RandomState, Scratch, pure
from popc_runtime.kernels.prepare import prepare
from popc_runtime.tables import merge_families

__all__ = [
    "KERNELS",
    "Binding",
    "Call",
    "Calls",
    "Kernel",
    "RandomState",
    "Scratch",
    "prepare",
    "pure",
]

_FAMILIES: Final = (
    activation,
    attention,
    cast,
    control,
    conv,
    conv_transpose,
    deform_conv,
    elementwise,
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

KERNELS: Final[Mapping[str, Kernel]] = merge_families(
    (family, family.KERNELS) for family in _FAMILIES
)
