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
    "R",
    "W",
    "X",
]

X, W, R, BIAS, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = range(8)
ATTENTION: Final = 6  # of an AUGRU, which has no initial c
