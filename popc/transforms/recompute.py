"""Compute results of the forward pass once more in the backward pass, instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Self

from popc.ir import Graph, Op, Recompute, StepPart, Tensor
from popc.ops import OPS
from popc.ops.load import find_load_ops
from popc.options import AutoRecomputation
from popc.transforms.base import Pass, PassOutcome
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc.transforms.round_results import rounds_at_random
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer

__all__ = ["Recomputation"]


def _never(op: Op) -> bool:
    del op
    return False


@frozen
class Recomputation(Pass):
    """Ops of the backward pass read repetitions of forward ops in place of what those have given.

    Before::

        %y = Relu(%x)
        %z = MatMul(%y, $w)
        ...
        %Gradient___w = MatMul(%yT, %Gradient___z)       with yT = Transpose(%y)

    After, with ``method`` RECOMPUTE_ALL::

        %y = Relu(%x)
        %z = MatMul(%y, $w)
        ...
        %y_recomputed = Relu(%x)
        %Gradient___w = MatMul(%yT, %Gradient___z)       with yT = Transpose(%y_recomputed)

    Forward ops that are not repeated are checkpoints: their results are kept.  So are random
    numbers, what ops with effects and exchanges between replicas have given, and whatever depends
    on constants alone.  Of a dropout the seed is kept.  Results stay the same bit for bit.

    Repetitions are marked, so that they are not merged with what they repeat, and come after the op
    of the backward pass that comes before their first reader, if they can: see `_Repetition`.

    Attributes:
        method: How to choose, beside what ops are marked with: see `METHODS`.
        orders: Tells in which order ops are going to run.
        is_random: Whether an op that is none of the random ones draws random numbers nevertheless.
    """

    name: ClassVar[str] = "recomputation"
    optional: ClassVar[bool] = False
    method: AutoRecomputation = AutoRecomputation.NONE
    orders: Orders = insertion_orders
    is_random: Callable[[Op], bool] = _never

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        by_default = options.enable_stochastic_rounding
        is_random = partial(rounds_at_random, by_default=by_default)
        return cls(options.auto_recomputation, context.orders, is_random)

    def run(self, graph: Graph) -> PassOutcome:
        """Repeat ops in every graph with a forward and a backward pass; how many."""
        total = PassOutcome(0, {})
        from popc.ops.sequencer import Sequencer

        for nested in graph.walk():
            moved = _put_into_parts(nested)
            wanted = self._wanted(graph, nested)
            total += PassOutcome(moved + _keep_others(nested, wanted))
            if wanted:
                repetition = _Repetition(nested, wanted)
                total += repetition.run()
                repetition.put_off(Sequencer(nested, graph))
        return total

    def problems(self, graph: Graph) -> list[str]:
        """The tensors that the backward pass reads although it should not."""
        from popc.transforms.check_recompute import find_unrecomputed

        return find_unrecomputed(graph)

    def _wanted(self, top: Graph, graph: Graph) -> frozenset[Op]:
        """The forward ops of ``graph`` to repeat."""
        if not any(op.settings.part is StepPart.BACKWARD for op in graph.ops):
            return frozenset()
        settled = frozenset(find_load_ops(graph))
        forward = frozenset(
            op
            for op in graph.ops
            if op.settings.part is StepPart.FORWARD and op.present_inputs and op not in settled
        )
        asked = [op for op in forward if op.settings.recompute is Recompute.RECOMPUTE]
        if self.method is not AutoRecomputation.NONE:
            in_time = self.method is AutoRecomputation.STANDARD
            order = self.orders(top)[graph] if in_time else graph.topological()
            from popc.transforms.checkpoints import METHODS

            asked = [*asked, *METHODS[self.method]([op for op in order if op in forward])]
        from popc.autodiff.copying import is_repeatable

        return frozenset(
            op
            for op in asked
            if op.settings.recompute is not Recompute.CHECKPOINT
            and is_repeatable(op)
            and not any(map(self._has_to_be_kept, _with_nested(op)))
        )

    def _has_to_be_kept(self, op: Op) -> bool:
        """True if ``op``, though repeatable, gives something else, or is an exchange."""
        spec = OPS.get(op.op_type)
        exchanges = op.op_type == "IpuCopy" or (spec is not None and spec.collective)
        return self.is_random(op) or exchanges


def _with_nested(op: Op) -> Iterator[Op]:
    yield op
    for graph in op.subgraphs.values():
        yield from (inner for nested in graph.walk() for inner in nested.ops)


def _put_into_parts(graph: Graph) -> int:
    """An op belongs to the part that the last of its operands belongs to, if not to a later one.

    Passes add ops without knowing what their operands are: transfers, sums.
    """
    moved = 0
    if all(op.settings.part is StepPart.FORWARD for op in graph.ops):
        return 0
    for op in graph.topological():
        producers = (tensor.producer for tensor in op.present_inputs)
        part = max(
            (producer.settings.part for producer in producers if producer), default=StepPart.FORWARD
        )
        if part > op.settings.part:
            op.settings = replace(op.settings, part=part)
            moved += 1
    return moved


def _keep_others(graph: Graph, wanted: Collection[Op]) -> int:
    """Make checkpoints of ops that cannot be repeated although they are asked to be."""
    others = [
        op for op in graph.ops if op.settings.recompute is Recompute.RECOMPUTE and op not in wanted
    ]
    for op in others:
        op.settings = replace(op.settings, recompute=Recompute.CHECKPOINT)
    return len(others)


class _Repetition:
    """Repeats ops of one graph, as far as the backward pass needs them."""

    def __init__(self, graph: Graph, wanted: frozenset[Op]) -> None:
        self.graph = graph
        self.order = graph.topological()
        self.readers = [op for op in self.order if op.settings.part is StepPart.BACKWARD]
        self.needed = _needed(self.order, wanted)
        self.repeated: dict[Tensor, Tensor] = {}
        self._waits: list[tuple[Op, Op]] = []  # a repetition, behind what it is better off

    def run(self) -> PassOutcome:
        """Do it; what has been changed."""
        before = _kept_bytes(self.graph)
        in_order, late = self._readers_in_order(), self._late()
        clones = [self._repeat(op) for op in self.order if op in self.needed]
        for op in self.readers:
            for index, tensor in enumerate(op.inputs):
                if tensor in self.repeated:
                    self.graph.set_input(op, index, self.repeated[tensor])
        for op in self.needed:
            op.settings = replace(op.settings, recompute=Recompute.RECOMPUTE)
        self._waits = list(self._find_waits(clones, in_order, late))
        after = _kept_bytes(self.graph)
        counts = {"ops recomputed": len(clones), "bytes kept": after, "bytes saved": before - after}
        return PassOutcome(len(clones), counts)

    def _repeat(self, op: Op) -> Op:
        """A new op that gives the results of ``op`` once more."""
        from popc.autodiff.copying import copy_graph

        repetition = self.graph.add_op(
            op.op_type,
            [self.repeated.get(tensor, tensor) if tensor else None for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[f"{tensor.name}_recomputed" for tensor in op.outputs],
            settings=replace(
                op.settings, bins=(), part=StepPart.BACKWARD, recompute=Recompute.RECOMPUTED
            ),
            subgraphs={name: copy_graph(inner).graph for name, inner in op.subgraphs.items()},
        )
        self.repeated.update(zip(op.outputs, repetition.outputs, strict=True))
        return repetition

    # Without an order a repetition could run as soon as its operands are there, which is when the
    # op itself runs, and what it gives would be kept as what the op gives would have been.

    def _readers_in_order(self) -> list[Op]:
        """The work of the backward pass on results of the forward pass, in the order it should run.

        It goes through the forward pass from its end to its beginning: what is used there for the
        last time near the end is read first.
        """
        forward = [op for op in self.order if op.settings.part < StepPart.BACKWARD and op.outputs]
        last_use: dict[Tensor, int] = {}
        for index, op in enumerate(forward):
            last_use.update(dict.fromkeys([*op.present_inputs, *op.outputs], index))
        ranks: dict[Op, int] = {}
        for op in self.readers:
            results = [tensor for tensor in op.present_inputs if tensor.producer is not None]
            earlier = [ranks[result.producer] for result in results if result.producer in ranks]
            uses = [len(forward) - last_use[result] for result in results if result in last_use]
            if earlier or uses:
                ranks[op] = max([*earlier, *uses])
        # No op has a lower rank than what it reads, and sorting is stable.
        return sorted(ranks, key=ranks.__getitem__)

    def _late(self) -> set[Op]:
        """The ops of the backward pass that cannot run before the end of the forward pass.

        They need what comes last of all that is read, or a repetition.  Other ops, such as the
        derivative of an activation, need no gradient.
        """
        read = {tensor.producer for op in self.readers for tensor in op.present_inputs}
        last = [op for op in self.order if op in read and op.settings.part < StepPart.BACKWARD]
        late = {*last[-1:], *self.needed}
        for op in self.readers:
            if any(tensor.producer in late for tensor in op.present_inputs):
                late.add(op)
        return late

    def put_off(self, sequencer: Sequencer) -> None:
        """Let each repetition come late."""
        for first, second in self._waits:
            sequencer.wish(first, second)

    def _find_waits(
        self, clones: Sequence[Op], in_order: Sequence[Op], late: Collection[Op]
    ) -> Iterator[tuple[Op, Op]]:
        """Each repetition, behind the op that comes before the first reader.

        What the first of all needs waits for the end of the forward pass.
        """
        place = {op: index for index, op in enumerate(in_order)}
        ends = [op for op in self.order if op.outputs and _is_forward(op) and not _leads_on(op)]
        before: list[Sequence[Op]] = []
        waits: Sequence[Op] = ends
        for op in in_order:
            before.append(waits)
            waits = [op] if op in late else waits
        for op in reversed(clones):
            users = [user for tensor in op.outputs for user in tensor.uses]
            place[op] = min(place[user] for user in users)
            yield from ((earlier, op) for earlier in before[place[op]])


def _is_forward(op: Op) -> bool:
    return op.settings.part is StepPart.FORWARD


def _leads_on(op: Op) -> bool:
    return any(_is_forward(user) and user.outputs for t in op.outputs for user in t.uses)


def _needed(order: Sequence[Op], wanted: frozenset[Op]) -> frozenset[Op]:
    """Ops of ``wanted`` that the backward pass reads, or that are needed to repeat others."""
    needed: set[Op] = set()
    for op in reversed(order):
        users = (user for tensor in op.outputs for user in tensor.uses)
        if op in wanted and any(
            user in needed or user.settings.part is StepPart.BACKWARD for user in users
        ):
            needed.add(op)
    return frozenset(needed)


def _kept_bytes(graph: Graph) -> int:
    """The size of what forward ops have given, and the backward pass reads."""
    settled = frozenset(find_load_ops(graph))
    kept = dict.fromkeys(
        _source(tensor)
        for op in graph.ops
        if op.settings.part is StepPart.BACKWARD
        for tensor in op.present_inputs
    )
    return sum(tensor.type.nbytes for tensor in kept if _is_kept(tensor, settled))


def _is_kept(tensor: Tensor, settled: Iterable[Op]) -> bool:
    op = tensor.producer
    return op is not None and op.settings.part < StepPart.BACKWARD and op not in settled


def _source(tensor: Tensor) -> Tensor:
    """The tensor that ``tensor`` is, or may be, a view of."""
    while (op := tensor.producer) is not None:
        spec = OPS.get(op.op_type)
        if spec is None or spec.view is None:
            break
        tensor = op.operand(0)
    return tensor
