"""The operands of recurrent layers, by number."""

from __future__ import annotations

from popc_runtime.ground.hints import Final

__all__ = [
    "ATTENTION",
    "BIAS",
    "INITIAL_C",
    "INITIAL_H",
    "LENGTHS",
    "PEEPHOLES",
    "R_SCALE",
    "R_ZERO",
    "W_SCALE",
    "W_ZERO",
    "R",
    "W",
    "X",
]

X, W, R, BIAS, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = range(8)
W_SCALE, W_ZERO, R_SCALE, R_ZERO = range(8, 12)  # of weights that are bytes
ATTENTION: Final = 6  # of an AUGRU, which has no initial c
