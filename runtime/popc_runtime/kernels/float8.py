"""Between floats of eight bits and others, with a power of two as scale.

The scale is multiplied in float32, and what results is rounded once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import split
from popc_runtime.kernels.parts.float8 import codes_of, encode_table, value_table

__all__ = ["KERNELS"]

_BLOCK: Final = 1 << 16  # elements whose temporary arrays fit a second-level cache


def _decode(binding: Binding) -> Calls:
    """``x * 2 ** operand 1``."""
    dtype = binding.input_dtypes[0]
    assert dtype is not None, "an operand has a type"
    table = value_table(dtype)
    scale = binding.optional(1)

    def call(out: Array, x: Array) -> Call:
        def run() -> None:
            values = table[x]
            scaled = values if scale is None else np.ldexp(values, scale.reshape(()))
            np.copyto(out, scaled, casting="unsafe")

        return run

    return tuple(call(*piece) for piece in split(binding.output(), [binding.input(0)], _BLOCK))


def _encode(binding: Binding) -> Calls:
    """``x * 2 ** operand 1``, rounded to the format."""
    dtype = binding.output_dtypes[0]
    assert dtype is not None, "an output has a type"
    table = encode_table(dtype, saturates=bool(binding.integer("saturate", 1)))
    scale = binding.optional(1)

    def call(out: Array, x: Array) -> Call:
        def run() -> None:
            wide = x.astype(np.float32)
            scaled = wide if scale is None else np.ldexp(wide, scale.reshape(()))
            np.copyto(out, codes_of(scaled, table))

        return run

    return tuple(call(*piece) for piece in split(binding.output(), [binding.input(0)], _BLOCK))


KERNELS: Final[dict[str, Kernel]] = {
    "CastThenPow2Scale": _decode,
    "Pow2ScaleThenCast": _encode,
}
