"""Ops to instructions.  Lowering decides nothing: order and memory are given.

Most ops become the instruction of the same name.  The exceptions are in `_RULES`: control flow
becomes blocks, with the copies that carry values into, around and out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from popc.ir import Graph, Op, Tensor, names_of_graphs
from popc.ir.attributes import integer
from popc.lowering.slots import SlotTable
from popc.memory import MemoryPlan
from popc.ops.collectives import group_of_places
from popc.ops.control import called_graphs
from popc.ops.rows import step_of_concat
from popc.schedule import Schedule
from popc_runtime.format import (
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    RepeatBlock,
)

__all__ = ["lower"]

_LOAD: Final = "weights_from_host"
_MAIN: Final = "main"


def lower(graph: Graph, schedule: Schedule, plan: MemoryPlan) -> ProgramImage:
    """The program image: ``weights_from_host`` (if needed), ``main``, and what they call."""
    lowering = _Lowering(schedule, plan, called_graphs(graph))
    programs: dict[str, Block] = {}
    load = (*lowering.initialise(graph.variables), *lowering.block(schedule.load))
    if load:
        programs[_LOAD] = load
    programs[_MAIN] = lowering.block(schedule.orders[graph])
    for callee, name in lowering.names.items():
        programs[name] = lowering.block(schedule.orders[callee])
    return ProgramImage(
        slots=lowering.slots.slots,
        programs=programs,
        arena_bytes=plan.arena_bytes,
        constant_bytes=plan.constant_bytes,
        state_bytes=plan.state_bytes,
        remote_bytes=plan.remote_bytes,
    )


class _Lowering:
    """Walks the schedule; holds the slot table."""

    def __init__(self, schedule: Schedule, plan: MemoryPlan, callees: Iterable[Graph]) -> None:
        self.names = names_of_graphs(callees, (_LOAD, _MAIN))
        self.schedule = schedule
        self.plan = plan
        self.slots = SlotTable(plan)

    def block(self, ops: Iterable[Op]) -> Block:
        """The items of ``ops`` in order."""
        items: list[Item] = []
        for op in ops:
            if op not in self.plan.views:
                items.extend(_RULES.get(op.op_type, _instruction)(self, op))
        return tuple(items)

    def initialise(self, variables: Iterable[Tensor]) -> Block:
        """Give every variable its initial value."""
        return tuple(self._initialise(variable) for variable in variables if variable.type.size)

    def _initialise(self, variable: Tensor) -> Instruction:
        target = (self.slots.of(variable),)
        if variable.initial is None:
            return Instruction("Fill", (), target, {"value": 0}, variable.name)
        source = (self.slots.initial(variable),)
        if not variable.whole:
            return Instruction("Copy", source, target, {}, variable.name)
        size, stride = group_of_places(variable.rows)
        group = {"size": size, "stride": stride}
        return Instruction("ReplicaPart", source, target, group, variable.name)

    def copy(self, source: Tensor, target: Tensor, name: str) -> list[Item]:
        """A Copy instruction, unless both tensors are the same memory."""
        if self.plan.placements[source] == self.plan.placements[target]:
            return []
        return [Instruction("Copy", (self.slots.of(source),), (self.slots.of(target),), {}, name)]


def _call(lowering: _Lowering, op: Op) -> list[Item]:
    callee = op.subgraphs["callee"]
    slots = lowering.slots
    operands = [slots.of(tensor) for tensor in (*op.inputs, *op.outputs)]
    frame = slots.frame(op, lowering.plan.frame_bytes[callee])
    labels = op.attributes.get("labels", ())
    assert isinstance(labels, tuple), labels
    return [
        CallBlock(
            lowering.names[callee],
            (*operands, frame),
            tuple(map(str, labels)),
            op.settings.origin,
        )
    ]


def _instruction(lowering: _Lowering, op: Op) -> list[Item]:
    return [
        Instruction(
            op.op_type,
            tuple(map(lowering.slots.of, op.inputs)),
            tuple(map(lowering.slots.of, op.outputs)),
            op.attributes,
            op.settings.origin,
        )
    ]


def _copy(lowering: _Lowering, op: Op) -> list[Item]:
    return lowering.copy(op.operand(0), op.output, op.settings.origin)


def _copy_var_update(lowering: _Lowering, op: Op) -> list[Item]:
    """Nothing, if the new value has been computed in the variable's memory."""
    variable, value = op.operand(0), op.operand(1)
    if "start" not in op.attributes:
        return lowering.copy(value, variable, op.settings.origin)
    offset = integer(op.attributes, "start") * variable.type.dtype.itemsize
    place = lowering.plan.placements[variable]
    if lowering.plan.placements[value] == replace(place, offset=place.offset + offset):
        return []
    source, target = lowering.slots.of(value), lowering.slots.within(variable, value, offset)
    return [Instruction("Copy", (source,), (target,), {}, op.settings.origin)]


def _concat(lowering: _Lowering, op: Op) -> list[Item]:
    """Copy the operands that do not lie in place already."""
    joined = lowering.plan.joined.get(op)
    if joined is None:
        return _instruction(lowering, op)
    items: list[Item] = []
    offset = 0
    for index, tensor in enumerate(op.present_inputs):
        if index not in joined and tensor.type.size:
            source, target = (
                lowering.slots.of(tensor),
                lowering.slots.within(op.output, tensor, offset),
            )
            items.append(Instruction("Copy", (source,), (target,), {}, op.settings.origin))
        offset += step_of_concat(op, tensor, lowering.plan.placements[op.output].strides)
    return items


def _if(lowering: _Lowering, op: Op) -> list[Item]:
    return [
        IfBlock(
            condition_slot=lowering.slots.of(op.operand(0)),
            then_body=_branch(lowering, op, op.subgraphs["then_branch"]),
            else_body=_branch(lowering, op, op.subgraphs["else_branch"]),
            name=op.settings.origin,
        )
    ]


def _branch(lowering: _Lowering, op: Op, branch: Graph) -> Block:
    items = list(lowering.block(lowering.schedule.orders[branch]))
    for result, output in zip(branch.outputs, op.outputs, strict=True):
        items.extend(lowering.copy(result, output, op.settings.origin))
    return tuple(items)


def _loop(lowering: _Lowering, op: Op) -> list[Item]:
    body = op.subgraphs["body"]
    states = integer(op.attributes, "states")
    conditional = bool(op.attributes["conditional"])
    iteration, condition = body.inputs[0], body.inputs[1]
    origin = op.settings.origin
    before: list[Item] = []
    initial_condition = op.optional(1)
    if conditional and initial_condition is not None:
        before.extend(lowering.copy(initial_condition, condition, origin))
    elif conditional:
        before.append(_fill_true(lowering, condition, origin))
    formal_states = body.inputs[2 : 2 + states]
    for initial, formal in zip(op.inputs[2 : 2 + states], formal_states, strict=True):
        assert initial is not None
        before.extend(lowering.copy(initial, formal, origin))
    count = integer(op.attributes, "trip_count")
    repeat = RepeatBlock(
        body=_loop_body(lowering, op, body, formal_states, conditional=conditional),
        count=count,
        count_slot=lowering.slots.of(op.optional(0)) if count < 0 else -1,
        condition_slot=lowering.slots.of(condition) if conditional else -1,
        counter_slot=lowering.slots.of(iteration) if _needs_counter(op, body, states) else -1,
        name=origin,
    )
    return [*before, repeat]


def _fill_true(lowering: _Lowering, condition: Tensor, origin: str) -> Item:
    target = lowering.slots.of(condition)
    return Instruction("Fill", (), (target,), {"value": 1}, origin)


def _needs_counter(op: Op, body: Graph, states: int) -> bool:
    return bool(body.inputs[0].uses) or len(op.outputs) > states


def _loop_body(
    lowering: _Lowering, op: Op, body: Graph, formal_states: list[Tensor], *, conditional: bool
) -> Block:
    """The body, then what carries its results: stacked results, states, the condition."""
    origin = op.settings.origin
    states = len(formal_states)
    items: list[Item] = []
    if not conditional and body.inputs[1].uses:  # nobody else writes what the body reads
        items.append(_fill_true(lowering, body.inputs[1], origin))
    items.extend(lowering.block(lowering.schedule.orders[body]))
    carried, scans = body.outputs[1 : 1 + states], body.outputs[1 + states :]
    counter = lowering.slots.of(body.inputs[0]) if scans else -1
    for scan, stacked in zip(scans, op.outputs[states:], strict=True):
        operands = (lowering.slots.of(scan), counter)
        items.append(Instruction("StackStore", operands, (lowering.slots.of(stacked),), {}, origin))
    for value, formal in zip(carried, formal_states, strict=True):
        items.extend(lowering.copy(value, formal, origin))
    if conditional:
        items.extend(lowering.copy(body.outputs[0], body.inputs[1], origin))
    return tuple(items)


_Rule: TypeAlias = Callable[[_Lowering, Op], list[Item]]
_RULES: Final[dict[str, _Rule]] = {
    "Call": _call,
    "Concat": _concat,
    "Copy": _copy,
    "CopyVarUpdate": _copy_var_update,
    "If": _if,
    "Loop": _loop,
}
