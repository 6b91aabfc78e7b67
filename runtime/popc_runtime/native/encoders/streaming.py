"""Copies from and to streaming memory."""

from __future__ import annotations

from popc_runtime.ground.hints import Final
from popc_runtime.native.encoders.indexing import gather
from popc_runtime.native.moves import copy_operands
from popc_runtime.native.record import Encoder

__all__ = ["ENCODERS"]


ENCODERS: Final[dict[str, Encoder]] = {
    "RemoteGather": gather,
    "RemoteLoad": copy_operands,
    "RemoteStore": copy_operands,
}
