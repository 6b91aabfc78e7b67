"""Make one transfer of several between which nothing is computed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op
from popc.ops.build import build
from popc.ops.streaming import LOAD, STORE
from popc.placement import is_placed
from popc.transforms.base import Pass
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc.transforms.streaming.views import is_view
from popc_runtime.ground.frozen import frozen

__all__ = ["MergeExchange"]

_TRANSFERS: Final = frozenset({LOAD, STORE})


@frozen
class MergeExchange(Pass):
    """Neighbouring transfers from streaming memory, or to it, become one.

    Before::

        %a = RemoteLoad($v)
        %b = RemoteLoad($w)

    After::

        %a, %b = RemoteLoad($v, $w)

    Chips wait for each other once instead of twice.  Nothing is in memory for longer, for nothing
    is computed between the two.

    Attributes:
        wanted: Whether the user wants that.
        most: How many bytes one transfer may have; 0: any number.
        orders: Tells in which order ops are going to run.
    """

    name: ClassVar[str] = "merge_exchange"
    wanted: bool = True
    most: int = 0
    orders: Orders = insertion_orders

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        return cls(options.enable_merge_exchange, options.merge_exchange_bytes, context.orders)

    def run(self, graph: Graph) -> int:
        """Merge in each graph; how many transfers there are less."""
        if not self.wanted or not any(inner.may_have(_TRANSFERS) for inner in graph.walk()):
            return 0
        transfers = [op for inner in graph.walk() for op in inner.ops if _key(op) is not None]
        if len(transfers) < 2:
            return 0
        orders, merged, placed = self.orders(graph), 0, is_placed(graph)
        for nested in graph.walk():
            for group in [*_neighbours(orders[nested], self.most, placed=placed)]:
                _merge(nested, group)
                merged += len(group) - 1
        return merged


def _key(op: Op, *, placed: bool = False) -> Hashable:
    """Equal for transfers that may be merged; ``None`` for other ops.

    Where others are ``placed``, one that is not may turn out to be of any chip.
    """
    if op.op_type not in _TRANSFERS or op.attributes.get("at_load"):
        return None
    own = op.settings
    if placed and own.virtual_graph is None:
        return None
    return op.op_type, own.place, own.bins, own.part


def _neighbours(order: Sequence[Op], most: int, *, placed: bool) -> Iterator[list[Op]]:
    """Runs of transfers with equal keys; views between them do not count.

    No run of several has more than ``most`` bytes, unless that is 0.
    """
    group: list[Op] = []
    for op in order:
        if is_view(op):
            continue
        fits = not most or sum(map(_bytes, (*group, op))) <= most
        key = _key(op, placed=placed)
        if group and key == _key(group[0]) and fits:
            group.append(op)
            continue
        if len(group) > 1:
            yield group
        group = [op] if key is not None else []
    if len(group) > 1:
        yield group


def _bytes(op: Op) -> int:
    return sum(tensor.type.nbytes for tensor in op.outputs)


def _merge(graph: Graph, group: Sequence[Op]) -> None:
    names = [tensor.name for op in group for tensor in op.outputs]
    origin = f"{group[0].settings.origin} and {len(group) - 1} more"
    merged = build(
        graph,
        group[0].op_type,
        [tensor for op in group for tensor in op.inputs],
        settings=replace(group[0].settings, origin=origin),
    )
    results = iter(merged.outputs)
    for op in group:
        for tensor in op.outputs:
            graph.replace_uses(tensor, next(results))
        if op in graph.ordering:
            graph.ordering.replace(op, merged)
        graph.remove_op(op)
    for tensor, name in zip(merged.outputs, names, strict=True):
        graph.rename(tensor, name)
