"""Operators of ai.graphcore, PopART's and TensorFlow's."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.graphcore import (
    call,
    collectives,
    conv,
    custom,
    dynamic,
    effects,
    float8,
    loss,
    norm,
    operators,
    resize,
    rnn,
    scatter,
    statistics,
)

__all__ = ["FAMILIES"]

FAMILIES: Final = (
    call,
    collectives,
    conv,
    custom,
    dynamic,
    effects,
    float8,
    loss,
    norm,
    operators,
    resize,
    rnn,
    scatter,
    statistics,
)
