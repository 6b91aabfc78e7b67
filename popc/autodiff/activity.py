"""Dependences of tensors on others, and the ops on the way, through control flow too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from popc.autodiff.backward import no_gradient
from popc.autodiff.loop_parts import FIRST_STATE, LoopParts
from popc.autodiff.rules import GRADIENTS
from popc.autodiff.rules.quantize import is_straight_through
from popc.ir import Op, Tensor

__all__ = ["influenced_by", "live_states", "ops_between"]


def influenced_by(
    sources: Iterable[Tensor], order: Iterable[Op], independent: Collection[Tensor] = ()
) -> set[Tensor]:
    """Floating-point tensors that depend on ``sources`` through floating-point tensors alone.

    Integers that `is_straight_through` lets pass count as floating-point numbers, within a graph.

    Args:
        sources: Tensors of a graph.
        order: Its ops, producers before users.
        independent: Tensors that count as independent of what they are computed from.
    """
    active = {tensor for tensor in sources if tensor.type.dtype.is_float}
    for op in order:
        if any(tensor in active for tensor in op.present_inputs):
            active.update(t for t in _influenced_results(op, active) if t not in independent)
    return active


def _influenced_results(op: Op, active: Collection[Tensor]) -> list[Tensor]:
    if op.op_type == "If":
        return _influenced_by_branches(op, active)
    if op.op_type == "Loop":
        return _influenced_by_body(LoopParts(op), active)
    straight = is_straight_through(op)
    return [tensor for tensor in op.outputs if straight or tensor.type.dtype.is_float]


def _influenced_by_branches(op: Op, active: Collection[Tensor]) -> list[Tensor]:
    found: dict[Tensor, None] = {}
    for name, branch in op.subgraphs.items():
        inner = _in_branch(op, name, active)
        results = zip(op.outputs, branch.outputs, strict=True)
        found.update({result: None for result, value in results if value in inner})
    return [result for result in found if result.type.dtype.is_float]


def _influenced_by_body(loop: LoopParts, active: Collection[Tensor]) -> list[Tensor]:
    inner = _in_body(loop, active)
    seen = [*loop.formals, *loop.scans]  # a state that becomes active does so as a formal too
    results = zip(loop.op.outputs, seen, strict=True)
    return [t for t, value in results if value in inner and t.type.dtype.is_float]


def _in_branch(op: Op, name: str, active: Collection[Tensor]) -> set[Tensor]:
    """The tensors of a branch of an If that depend on active captures."""
    branch = op.subgraphs[name]
    captured = zip(op.inputs[1:], branch.inputs, strict=True)
    return influenced_by(
        [inner for outer, inner in captured if outer in active], branch.topological()
    )


def _in_body(loop: LoopParts, active: Collection[Tensor]) -> set[Tensor]:
    """The tensors of a loop body that depend, in some iteration, on active operands."""
    order = loop.body.topological()
    operands = zip(loop.op.inputs[FIRST_STATE:], loop.body.inputs[FIRST_STATE:], strict=True)
    sources = [inner for outer, inner in operands if outer in active]
    while True:
        inner = influenced_by(sources, order)
        states = zip(loop.formals, loop.carried, strict=True)
        changed = [formal for formal, next_ in states if next_ in inner and formal not in inner]
        further = [formal for formal in changed if formal.type.dtype.is_float]
        if not further:
            return inner
        sources += further


def ops_between(
    active: Collection[Tensor],
    seeds: Iterable[Tensor],
    order: Sequence[Op],
    independent: Collection[Tensor] = (),
) -> list[Op]:
    """Ops through which an active tensor influences a seed, those of subgraphs included."""
    found: dict[Op, None] = {}
    _reaching(active, seeds, order, independent, found)
    return list(found)[::-1]


def _reaching(
    active: Collection[Tensor],
    seeds: Iterable[Tensor],
    order: Sequence[Op],
    independent: Collection[Tensor],
    found: dict[Op, None],
) -> set[Tensor]:
    """The active tensors that influence a seed; the ops on the way are added to ``found``."""
    reached = {tensor for tensor in seeds if tensor in active}
    for op in reversed(order):
        if GRADIENTS.get(op.op_type) is no_gradient:
            continue
        if not any(tensor in reached and tensor not in independent for tensor in op.outputs):
            continue
        sources = [tensor for tensor in op.present_inputs if tensor in active]
        if not sources:
            continue
        found[op] = None
        if op.op_type == "If":
            sources = _reaching_if(op, active, reached, found)
        elif op.op_type == "Loop":
            sources = _reaching_loop(LoopParts(op), active, reached, found)[0]
        reached.update(sources)
    return reached


def _reaching_if(
    op: Op, active: Collection[Tensor], reached: Collection[Tensor], found: dict[Op, None]
) -> list[Tensor]:
    sources: list[Tensor] = []
    for name, branch in op.subgraphs.items():
        seeds = [
            t for t, result in zip(branch.outputs, op.outputs, strict=True) if result in reached
        ]
        inner = _reaching(_in_branch(op, name, active), seeds, branch.topological(), (), found)
        captured = zip(op.present_inputs[1:], branch.inputs, strict=True)
        sources += [outer for outer, formal in captured if formal in inner]
    return sources


def _reaching_loop(
    loop: LoopParts,
    active: Collection[Tensor],
    reached: Collection[Tensor],
    found: dict[Op, None],
) -> tuple[list[Tensor], list[int]]:
    """The operands of a loop that influence what is reached of its results, and `live_states`."""
    op, order, inner = loop.op, loop.body.topological(), _in_body(loop, active)
    scans = [t for t, stack in zip(loop.scans, loop.stacks, strict=True) if stack in reached]
    live = {index for index, final in enumerate(loop.finals) if final in reached}
    while True:
        seeds = [*scans, *(loop.carried[index] for index in live)]
        inside = _reaching(inner, seeds, order, (), found)
        further = {index for index, formal in enumerate(loop.formals) if formal in inside} - live
        if not further:
            break
        live |= further
    states = [index for index in sorted(live) if loop.formals[index] in inner]
    sources = [op.operand(FIRST_STATE + index) for index in states]
    first = loop.first_capture
    captured = zip(op.inputs[first:], loop.body.inputs[first:], strict=True)
    sources += [outer for outer, formal in captured if outer is not None and formal in inside]
    return [tensor for tensor in sources if tensor in active], states


def live_states(
    loop: LoopParts, active: Collection[Tensor], reached: Collection[Tensor]
) -> list[int]:
    """The states of a loop that have a gradient.

    They depend, in some iteration, on active operands, and influence, in a later one, a result
    that is reached.
    """
    return _reaching_loop(loop, active, reached, {})[1]
