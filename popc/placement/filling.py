"""Places of ops that nobody has placed: those that passes, losses and optimizers add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from popc.ir import Graph, Op, OpSettings, StepPart, Tensor, TensorKind
from popc.ir.attributes import integer
from popc.placement.chips import MAIN_LOOPS, ChipsOfValues, is_main_loop, main_graphs

__all__ = ["fill_places", "is_placed"]


def is_placed(graph: Graph) -> bool:
    """True if any op is on a chip."""
    return any(
        op.settings.virtual_graph is not None for nested in graph.walk() for op in nested.ops
    )


def fill_places(graph: Graph) -> int:
    """Place every op that has no place beside those that it works with; how many.

    An op goes where its operands are: in a step's forward and backward pass where the last of them
    is computed, else where the largest is.  An op on constants alone, or a transfer from the host,
    goes where its first reader is.  What a control-flow op holds goes with it.
    """
    return sum(_fill(nested, ChipsOfValues(graph)) for nested in main_graphs(graph))


def _fill(graph: Graph, value_chips: ChipsOfValues) -> int:
    changes = 0
    inside = graph.name in MAIN_LOOPS
    order = graph.topological()
    for op in order:
        changes += _take(op, _from_operands(op, value_chips, inside=inside))
    for op in reversed(order):
        changes += _take(op, _from_users(op))
    has_stages = any(op.settings.pipeline_stage is not None for op in order)
    default = OpSettings(virtual_graph=0, pipeline_stage=0 if has_stages else None)
    for op in order:
        if op.settings.virtual_graph is None:
            changes += _take(op, default)
        if not is_main_loop(op):
            changes += _fill_nested(op)
    return changes


def _fill_nested(op: Op) -> int:
    changes = 0
    for nested in op.subgraphs.values():
        for inner in nested.ops:
            settings = _at(inner.settings, op.settings)
            changes += settings != inner.settings
            inner.settings = settings
            changes += _fill_nested(inner)
    return changes


def _at(settings: OpSettings, place: OpSettings) -> OpSettings:
    return replace(
        settings,
        virtual_graph=place.virtual_graph,
        pipeline_stage=place.pipeline_stage,
        execution_phase=place.execution_phase,
    )


def _take(op: Op, place: OpSettings | None) -> int:
    """Take over what ``op`` does not know about its own place."""
    if place is None or is_main_loop(op):
        return 0
    own = op.settings
    known = (own.virtual_graph, own.pipeline_stage, own.execution_phase)
    given = (place.virtual_graph, place.pipeline_stage, place.execution_phase)
    pairs = zip(known, given, strict=True)
    taken = tuple(theirs if ours is None else ours for ours, theirs in pairs)
    if taken == known:
        return 0
    op.settings = replace(
        own, virtual_graph=taken[0], pipeline_stage=taken[1], execution_phase=taken[2]
    )
    return 1


def _from_operands(op: Op, value_chips: ChipsOfValues, *, inside: bool) -> OpSettings | None:
    """The place of the operand that decides; ``inside``: what runs for each micro-batch."""
    places = [(tensor, _place_of(tensor, value_chips)) for tensor in op.present_inputs]
    known = [(tensor, place) for tensor, place in places if place is not None]
    if not known:
        return None
    by_stage = inside or op.settings.part is not StepPart.UPDATE or op.op_type == "Accumulate"

    def weight(item: tuple[Tensor, OpSettings]) -> tuple[int, bool, int]:
        tensor, place = item
        stage = place.pipeline_stage if by_stage else None
        is_variable = tensor.kind is TensorKind.VARIABLE
        return -1 if stage is None else stage, is_variable and not by_stage, tensor.type.nbytes

    stages = [place.pipeline_stage for _, place in known if place.pipeline_stage is not None]
    found = replace(max(known, key=weight)[1], pipeline_stage=max(stages, default=None))
    chip = value_chips.of(op.operand(0)) if op.op_type == "CopyVarUpdate" else None
    return found if chip is None else replace(found, virtual_graph=chip)


def _place_of(tensor: Tensor, value_chips: ChipsOfValues) -> OpSettings | None:
    op = tensor.producer
    if value_chips.is_fixed(tensor):
        return None
    if op is not None and op.settings.virtual_graph is not None:
        # Asked for while places change: what is known about results of ops may be out of date.
        if op.op_type == "IpuCopy":
            return replace(op.settings, virtual_graph=integer(op.attributes, "destination"))
        return op.settings
    chip = value_chips.of(tensor) if op is None or is_main_loop(op) else None
    return None if chip is None else OpSettings(virtual_graph=chip)


def _from_users(op: Op) -> OpSettings | None:
    """The place of the first op that reads a result."""
    users = [user.settings for user in _readers(op) if user.settings.virtual_graph is not None]
    return min(users, key=lambda user: user.pipeline_stage or 0, default=None)


def _readers(op: Op) -> Iterable[Op]:
    for tensor in op.outputs:
        yield from tensor.uses
