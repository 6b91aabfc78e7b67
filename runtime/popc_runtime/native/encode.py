"""From bound instructions to records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc_runtime.kernels.binding import Binding
from popc_runtime.native import (
    attention_gradients,
    conv_gradients,
    convolutions,
    gathers,
    losses,
    maps,
    norm_gradients,
    optimizers,
    pool_gradients,
    pools,
    products,
    recurrent,
    rows,
    slopes,
)
from popc_runtime.native.record import Encoder, Record

__all__ = ["encode", "native_opcodes"]

_ENCODERS: Final[dict[str, Encoder]] = {
    **attention_gradients.ENCODERS,
    **conv_gradients.ENCODERS,
    **convolutions.ENCODERS,
    **gathers.ENCODERS,
    **losses.ENCODERS,
    **maps.ENCODERS,
    **norm_gradients.ENCODERS,
    **optimizers.ENCODERS,
    **pool_gradients.ENCODERS,
    **pools.ENCODERS,
    **products.ENCODERS,
    **recurrent.ENCODERS,
    **rows.ENCODERS,
    **slopes.ENCODERS,
}


def encode(opcode: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    """The record of an instruction; ``None`` if numpy has to compute it.

    Args:
        opcode: The instruction's.
        binding: Its operands.
        numbers: Of the library's kernels, by name.
    """
    encoder = _ENCODERS.get(opcode)
    return None if encoder is None else encoder(binding, numbers)


def native_opcodes() -> frozenset[str]:
    """Opcodes that have a native form, for some operands at least."""
    return frozenset(_ENCODERS)
