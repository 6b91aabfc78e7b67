"""Bytes for code, vertex state and exchange instructions of one op on a tile that runs it.

Figures are those of published profiles: a BERT-Large of PopART (graphcore/popliner, tests), in
which every row is an op, and the smallest program in the user guide of TensorFlow for the IPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from popc.cost.formulas.numbers import WORKERS, ceil_div
from popc.cost.phases import Phase
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["BASE", "CodeUse", "code_bytes", "host_bytes", "kinds_of", "sizes_of"]

# Code of a kind of vertex: one copy on each tile that uses it.  Of a profile: products 1,752 to
# 1,760 bytes where they run, multiplying by a scalar 287, comparing and adding 262, casting 540,
# relu 172 to 198, adding a bias or a mask 160, gathering 741; a softmax 2,242 in all, a
# normalisation 2,020.  The others are counted in poplibs' sources.
_CODE: Final = {
    "AddBias": 160,
    "BinaryOp": 262,
    "BroadcastOp": 287,
    "Cast": 540,
    "Conv amp": 1_760,
    "Conv amp nx1": 2_000,
    "Conv hmac": 1_200,
    "Conv outer_product": 600,
    "Conv slic": 2_500,
    "Conv vmac": 1_800,
    "Copy": 400,
    "DynamicSlice": 600,
    "Loss": 500,
    "MultiSlice": 741,
    "MultiUpdate": 900,
    "NonLinearity": 198,
    "Pooling": 1_100,
    "Reduce": 1_100,
    "ReduceAdd": 670,
    "ScaledAdd": 1_900,
    "UnaryOp": 200,
}
_OTHER_CODE: Final = 600  # bytes of a kind that is not listed
_TRANSCENDENTAL: Final = 400  # more for non-linearities that are not relu
# Kinds of which each operator is a vertex of its own, with code of its own.
_BY_NAME: Final = frozenset({"BinaryOp", "BroadcastOp", "NonLinearity", "UnaryOp"})

# State of one vertex; elementwise ones work in place.
_STATE: Final = {
    "AddBias": 16,
    "BinaryOp": 12,
    "BroadcastOp": 16,
    "Cast": 12,
    "Conv amp": 28,
    "Conv amp nx1": 50,
    "Conv hmac": 40,
    "Conv slic": 32,
    "Conv vmac": 38,
    "Copy": 24,
    "Loss": 28,
    "MultiSlice": 20,
    "MultiUpdate": 36,
    "NonLinearity": 8,
    "Pooling": 56,
    "Reduce": 28,
    "ReduceAdd": 16,
    "UnaryOp": 8,
}
_OTHER_STATE: Final = 16  # bytes of a kind that is not listed
# Offsets and elements for each worker, three numbers of 16 bits: poplin connects them as constants.
_WORK_LIST: Final = 3 * 2 * WORKERS
_WITH_WORK_LISTS: Final = frozenset({"Conv amp", "Conv amp nx1"})
_POINTER: Final = 4  # to one of the operands that a vertex adds up
_VECTOR_LIST: Final = 8  # header of the list of those
_COPY_DESCRIPTOR: Final = 4
# Of two instructions of an exchange that moves weights, one is about activations: layers after the
# first take 690 bytes for such exchanges in the profile, the first 1,370.
_OF_ACTIVATIONS: Final = 2
# Words that are sent carry no destination: whoever needs them listens then (Hot Chips 33, 2021).
# What a tile has of a product's operands is needed by many tiles, and is sent once.  What other
# exchanges move goes to a receiver of its own, piece by piece: the bound of pieces is assumed.
_SENT_TO_PRODUCTS: Final = 1
_SENT_AT_MOST: Final = 8
_CONTROL_PER_STEP: Final = 20  # bytes that launch a compute set
_CONTROL_PER_EXCHANGE: Final = 4  # bytes that sync and jump to an exchange
_HOST_CODE: Final = 96  # of a transfer, on every tile, for its syncs and routes
_HOST_HEADER: Final = 8  # of a packet

# What the smallest program has on each tile: code that sets seeds, and that loads, saves and
# starts programs.
BASE: Final = {"vertex_code": 140, "control_code": 600, "exchange_code": 50}


@frozen
class CodeUse:
    """The steps of an op, and the tiles that need code for them.

    Attributes:
        phases: In order.
        tiles: How many tiles take part.
        known: Whether an op that takes the same steps has come before.  Exchanges between
            activations, which lie where they did then, are stored once.
        weights: Numbers of the phases whose exchange moves weights.
    """

    phases: tuple[Phase, ...]
    tiles: int
    known: bool = False
    weights: frozenset[int] = frozenset()


def kinds_of(use: CodeUse) -> Iterator[tuple[str, str]]:
    """Kinds of vertices: by type, and where each operator has code of its own, by name."""
    for phase in use.phases:
        if phase.vertex:
            yield phase.vertex, phase.name if phase.vertex in _BY_NAME else ""


def code_bytes(kind: tuple[str, str]) -> int:
    """Code of a kind of vertex."""
    vertex, name = kind
    more = _TRANSCENDENTAL if vertex == "NonLinearity" and name != "relu" else 0
    return _CODE.get(vertex, _OTHER_CODE) + more


def sizes_of(use: CodeUse, target: Target) -> dict[str, int]:
    """Bytes on each tile that takes part, by category, but for the code of vertices."""
    phases = use.phases
    lists = [phase.sources for phase in _adding(phases)]
    copies = [phase for phase in phases if phase.vertex == "Copy"]
    return {
        "vertex_state": sum(_state(phase) for phase in phases if phase.vertex),
        "vertex_fields": _POINTER * sum(lists) + sum(map(_work_list, phases)),
        "vector_descriptors": _VECTOR_LIST * len(lists),
        "copy_descriptors": _COPY_DESCRIPTOR * len(copies),
        "exchange_code": _exchange_bytes(use, target.exchange.instruction_bytes),
        "control_code": _control_bytes(phases),
    }


def _adding(phases: tuple[Phase, ...]) -> Iterator[Phase]:
    """Reductions of what several tiles have sent."""
    return (phase for phase in phases if phase.vertex == "ReduceAdd" and phase.sources)


def _state(phase: Phase) -> int:
    """State of the vertices of a phase; what it repeats has it once."""
    return _STATE.get(phase.vertex, _OTHER_STATE)


def _work_list(phase: Phase) -> int:
    """Bytes that tell each worker of a product's vertex what to do."""
    return _WORK_LIST * (phase.vertex in _WITH_WORK_LISTS)


def _exchange_bytes(use: CodeUse, size: int) -> int:
    """An instruction for each source, and for what the tile sends itself."""
    total = 0
    for number, phase in enumerate(use.phases):
        sources = phase.sources // _OF_ACTIVATIONS if use.known else phase.sources
        product = phase.vertex.startswith("Conv ")
        sent = min(sources, _SENT_TO_PRODUCTS if product else _SENT_AT_MOST)
        if phase.exchanges and (not use.known or number in use.weights):
            total += size * (4 + sources + sent)
    return total


def _control_bytes(phases: tuple[Phase, ...]) -> int:
    """A call for each compute set, a sync and a jump for each exchange."""
    return sum(
        _CONTROL_PER_STEP * bool(phase.launches) + _CONTROL_PER_EXCHANGE * bool(phase.exchanges)
        for phase in phases
    )


def host_bytes(transfers: Iterable[int], target: Target) -> int:
    """Headers and code of transfers beyond the chip, of so many bytes on a tile each."""
    packet = target.host.packet_bytes
    return sum(_HOST_CODE + _HOST_HEADER * ceil_div(bytes_, packet) for bytes_ in transfers)
