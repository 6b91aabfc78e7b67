"""Make one exchange of several."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Self

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.ops import OPS
from popc.ops.build import build
from popc.ops.constraints import Barrier, Node
from popc.options import FrozenTable
from popc.transforms.base import Pass
from popc.transforms.context import Orders, PassContext
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer

__all__ = ["MergeCollectives"]


@frozen
class MergeCollectives(Pass):
    """Neighbouring exchanges of one kind, over the same groups, become one.

    Before::

        %a: float32[2,3] = ReplicatedAllReduce(%x) op='add' size=2 stride=1
        %b: float32[4] = ReplicatedAllReduce(%y) op='add' size=2 stride=1

    After::

        %x1: float32[6] = Reshape(%x) shape=[6]
        %y1: float32[4] = Reshape(%y) shape=[4]
        %xy: float32[10] = Concat(%x1, %y1) axis=0
        %ab: float32[10] = ReplicatedAllReduce(%xy) op='add' size=2 stride=1
        %a1: float32[6], %b1: float32[4] = Split(%ab) axis=0 split=[6, 4]
        %a: float32[2,3] = Reshape(%a1) shape=[2, 3]
        %b: float32[4] = Reshape(%b1) shape=[4]

    Neighbours are exchanges between which nothing else is computed.  With ``anywhere``, all that do
    not depend on each other are merged, the first of which then waits for the last.

    Attributes:
        op_types: The collectives to merge, with the most bytes of operands of one; 0: no bound.
        anywhere: Whether they are brought together.
        orders: Tells in which order ops are going to run.
    """

    name: ClassVar[str] = "merge_collectives"
    op_types: Mapping[str, int]
    anywhere: bool
    orders: Orders

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        wanted = {
            "ReplicatedAllGather": (
                options.merge_all_gather_collectives,
                options.merge_all_gather_bytes,
            ),
            "ReplicatedAllReduce": (
                options.merge_all_reduce_collectives,
                options.merge_all_reduce_bytes,
            ),
            "ReplicatedReduceScatter": (
                options.merge_reduce_scatter_collectives,
                options.merge_reduce_scatter_bytes,
            ),
        }
        chosen = FrozenTable(
            {name: most for name, (is_wanted, most) in wanted.items() if is_wanted}
        )
        return cls(chosen, options.prepare_schedule_for_merging_collectives, context.orders)

    def run(self, graph: Graph) -> int:
        """Merge in each graph; the number of exchanges that there are less, and of wishes."""
        if not self.op_types:
            return 0
        orders = self.orders(graph)
        from popc.ops.sequencer import Sequencer, give_up_wishes

        changes = give_up_wishes(graph)
        for nested in graph.walk():
            order = orders[nested]
            groups = (
                self._levels(Sequencer(nested, graph)) if self.anywhere else self._neighbours(order)
            )
            for part in [part for group in groups for part in self._bounded(group)]:
                if len(part) > 1:
                    _merge(nested, part)
                    changes += len(part) - 1
        return changes + give_up_wishes(graph)

    def _key(self, op: Op) -> Hashable:
        """Equal keys: can be merged; ``None``: can never be."""
        if op.op_type not in self.op_types or not op.operand(0).type.size:
            return None
        own, dtype = op.settings, op.operand(0).type.dtype
        return op.op_type, dtype, own.place, own.bins, tuple(sorted(op.attributes.items()))

    def _neighbours(self, order: Sequence[Op]) -> Iterator[list[Op]]:
        """Runs of collectives with equal keys; views between them do not count."""
        group: list[Op] = []
        recent: set[Op] = set()  # the group, and views of its results
        for op in order:
            follows = any(tensor.producer in recent for tensor in op.present_inputs)
            key = self._key(op)
            if key is None and OPS.get(op.op_type) is not None and OPS[op.op_type].view is not None:
                recent.update([op] if follows else [])
                continue
            if group and (key is None or follows or key != self._key(group[0])):
                yield group
                group, recent = [], set()
            if key is not None:
                group.append(op)
                recent.add(op)
        yield group

    def _bounded(self, group: Sequence[Op]) -> Iterator[list[Op]]:
        """A group in parts that are no larger than allowed, but for single exchanges."""
        most = self.op_types[group[0].op_type] if group else 0
        part: list[Op] = []
        for op in group:
            total = sum(other.operand(0).type.nbytes for other in (*part, op))
            if part and most and total > most:
                yield part
                part = []
            part.append(op)
        yield part

    def _levels(self, sequencer: Sequencer) -> Iterator[list[Op]]:
        """Collectives with equal keys that as many others come before: none waits for another.

        No way leads from one of them by way of other ops to another, so that they can be one.
        """
        levels: dict[Node, int] = {}
        groups: dict[tuple[Hashable, int], list[Op]] = {}
        for node, others in sequencer.before().items():
            level = max((levels[other_op] for other_op in others), default=0)
            key = None if isinstance(node, Barrier) else self._key(node)
            if key is not None and not isinstance(node, Barrier):
                groups.setdefault((key, level), []).append(node)
            levels[node] = level + (key is not None)
        yield from groups.values()


@frozen
class _Emitter:
    """Adds ops that belong where ``lead`` does."""

    graph: Graph
    lead: Op

    def emit(
        self, op_type: str, inputs: Iterable[Tensor], attributes: AttributeMap
    ) -> list[Tensor]:
        settings = self.lead.settings
        return build(self.graph, op_type, [*inputs], attributes, settings=settings).outputs

    def shaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if x.type.shape == shape:
            return x
        return self.emit("Reshape", [x], {"shape": shape})[0]

    def collective(self, operand: Tensor) -> Tensor:
        return self.emit(self.lead.op_type, [operand], dict(self.lead.attributes))[0]

    def split(self, x: Tensor, axis: int, sizes: Sequence[int]) -> list[Tensor]:
        return self.emit("Split", [x], {"axis": axis, "split": tuple(sizes)})


def _merge(graph: Graph, group: Sequence[Op]) -> None:
    emitter = _Emitter(graph, group[0])
    results = _MERGERS[group[0].op_type](emitter, group)
    for op, result in zip(group, results, strict=True):
        name = op.output.name
        shaped = emitter.shaped(result, op.output.type.shape)
        graph.replace_op(op, [shaped])
        graph.rename(shaped, name)


def _all_reduces(emitter: _Emitter, group: Sequence[Op]) -> list[Tensor]:
    sizes = [op.output.type.size for op in group]
    flat = [emitter.shaped(op.operand(0), (op.output.type.size,)) for op in group]
    whole = emitter.collective(emitter.emit("Concat", flat, {"axis": 0})[0])
    return emitter.split(whole, 0, sizes)


def _all_gathers(emitter: _Emitter, group: Sequence[Op]) -> list[Tensor]:
    sizes = [op.operand(0).type.size for op in group]
    flat = [emitter.shaped(op.operand(0), (op.operand(0).type.size,)) for op in group]
    whole = emitter.collective(emitter.emit("Concat", flat, {"axis": 0})[0])
    return emitter.split(whole, 1, sizes)


def _reduce_scatters(emitter: _Emitter, group: Sequence[Op]) -> list[Tensor]:
    """Each operand gives every replica a row; rows of all operands stand side by side."""
    rows: list[Tensor] = []
    for op in group:
        x, size = op.operand(0), op.output.type.size
        replicas = integer(op.attributes, "size")
        flat, missing = emitter.shaped(x, (x.type.size,)), replicas * size - x.type.size
        if missing:
            padding: AttributeMap = {"pads": (0, missing), "mode": "constant", "value": 0}
            flat = emitter.emit("Pad", [flat], padding)[0]
        rows.append(emitter.shaped(flat, (replicas, size)))
    joined = emitter.emit("Concat", rows, {"axis": 1})[0]
    part = emitter.collective(emitter.shaped(joined, (joined.type.size,)))
    return emitter.split(part, 0, [op.output.type.size for op in group])


_MERGERS: Final[Mapping[str, Callable[[_Emitter, Sequence[Op]], list[Tensor]]]] = {
    "ReplicatedAllGather": _all_gathers,
    "ReplicatedAllReduce": _all_reduces,
    "ReplicatedReduceScatter": _reduce_scatters,
}
