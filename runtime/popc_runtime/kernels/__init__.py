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


def _merge() -> Mapping[str, Kernel]:
    table: dict[str, Kernel] = {}
    owner: dict[str, str] = {}
    for family in _FAMILIES:
        for opcode, kernel in family.KERNELS.items():
            if opcode in table:
                raise ValueError(f"{opcode} is in {owner[opcode]} and in {family.__name__}")
            table[opcode] = kernel
            owner[opcode] = family.__name__
    return table


KERNELS: Final = _merge()
