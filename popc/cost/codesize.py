"""Bytes for code, vertex state and exchange instructions of a program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from popc.cost.formulas.numbers import WORKERS
from popc.cost.phases import Phase
from popc.target import Target

__all__ = [
    "control_bytes",
    "exchange_bytes",
    "host_bytes",
    "vertex_code_bytes",
    "vertex_state_bytes",
]

# Code of a kind of vertex: one copy on each tile that uses it.
_CODE: Final = {
    "AddBias": 700,
    "BinaryOp": 900,
    "BroadcastOp": 1_100,
    "Cast": 600,
    "Conv amp": 3_000,  # one for single kernel positions, and one for others
    "Conv hmac": 1_200,
    "Conv outer_product": 600,
    "Conv slic": 2_500,
    "Conv vmac": 1_800,
    "Copy": 400,
    "DynamicSlice": 600,
    "Loss": 500,
    "MultiSlice": 700,
    "MultiUpdate": 900,
    "NonLinearity": 1_650,
    "Pooling": 1_100,
    "Reduce": 2_400,
    "ReduceAdd": 1_500,
    "ScaledAdd": 1_900,
    "UnaryOp": 900,
}
_OTHER_CODE: Final = 600  # bytes of a kind that is not listed

# State of one vertex, work lists included.
_STATE: Final = {
    "AddBias": 20,
    "BinaryOp": 16,
    "BroadcastOp": 16,
    "Cast": 12,
    "Conv amp": 28 + 3 * 2 * WORKERS,
    "Conv hmac": 40,
    "Conv slic": 32,
    "Conv vmac": 38,
    "Loss": 28,
    "MultiSlice": 20,
    "MultiUpdate": 20,
    "NonLinearity": 8,
    "Pooling": 36,
    "Reduce": 28,
    "ReduceAdd": 16,
    "UnaryOp": 12,
}
_OTHER_STATE: Final = 16  # bytes of a kind that is not listed
_LIBRARY: Final = 4_000  # run-time library, supervisor loops, exchange tables
_CONTROL_PER_STEP: Final = 16  # bytes that launch a compute set
_CONTROL_PER_EXCHANGE: Final = 12  # bytes that launch an exchange


def vertex_code_bytes(phases: Iterable[Phase]) -> int:
    """Code of all kinds of vertices among ``phases``, each once."""
    kinds = {phase.vertex for phase in phases if phase.vertex}
    return _LIBRARY + sum(_CODE.get(kind, _OTHER_CODE) for kind in kinds)


def vertex_state_bytes(phases: Iterable[Phase]) -> int:
    """State of the vertices of ``phases``, one for each launch of each."""
    used = (phase for phase in phases if phase.vertex)
    return sum(_STATE.get(use.vertex, _OTHER_STATE) * min(use.launches, 8) for use in used)


def exchange_bytes(phases: Iterable[Phase], target: Target) -> int:
    """Exchange code of a tile: an instruction for each source, some for its own sends."""
    size = target.exchange.instruction_bytes
    total = 0
    for phase in phases:
        if phase.exchanges:
            total += size * (4 + phase.sources + min(phase.sources, 8))
    return total


def control_bytes(phases: Iterable[Phase]) -> int:
    """Control code: a call for each compute set, a sync and a jump for each exchange."""
    return sum(
        _CONTROL_PER_STEP * bool(phase.launches) + _CONTROL_PER_EXCHANGE * bool(phase.exchanges)
        for phase in phases
    )


def host_bytes(transfers: Iterable[int], target: Target) -> int:
    """Headers and code of host exchanges, of ``transfers`` bytes on a tile each."""
    packet = target.host.packet_bytes
    return sum(24 + 8 * -(-bytes_ // packet) for bytes_ in transfers)
