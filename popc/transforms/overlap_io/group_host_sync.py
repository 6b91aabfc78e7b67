"""All loads first, all stores last."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["GroupHostSync"]

_PARTITION: Final = "host sync"
_LOADS, _COMPUTES, _STORES = range(3)


@frozen
class GroupHostSync(Pass):
    """In every graph that loads or stores, loads run before and stores behind everything else.

    The order is said by bins; see `OpSettings.bins`.  Transfers that overlap with computing have a
    place of their own; what has to wait for a store for another reason comes behind it.
    """

    name: ClassVar[str] = "group_host_sync"
    optional: ClassVar[bool] = False
    wanted: bool

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.group_host_sync)

    def run(self, graph: Graph) -> int:
        """Sort ops into bins; how many transfers there are."""
        if not self.wanted:
            return 0
        return sum(_group(nested, graph) for nested in graph.walk())


def _group(graph: Graph, top: Graph) -> int:

    bins = {op: _bin_of(op) for op in graph.ops}
    transfers = sum(number != _COMPUTES for number in bins.values())
    if transfers:
        bound = {op: number for op, number in bins.items() if not _is_overlapped(op)}
        from popc.ops.sequencer import Sequencer

        Sequencer(graph, top).put_into_bins(_PARTITION, bound)
    return transfers


def _bin_of(op: Op) -> int:
    if _is_overlapped(op):
        return _COMPUTES
    if op.op_type == "HostLoad":
        return _LOADS
    stores = op.op_type == "HostStore" or (not op.outputs and _holds(op, _is_store))
    return _STORES if stores else _COMPUTES


def _is_store(op: Op) -> bool:
    return op.op_type == "HostStore"


def _is_overlapped(op: Op) -> bool:
    return op.op_type == "If" and _holds(op, _overlaps)


def _overlaps(op: Op) -> bool:
    return bool(op.attributes.get("overlapped"))


def _holds(op: Op, wanted: Callable[[Op], bool]) -> bool:
    return any(wanted(inner) for nested in op.subgraphs.values() for inner in nested.ops)
