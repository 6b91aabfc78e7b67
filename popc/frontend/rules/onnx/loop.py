"""Loop: a run-time loop if its body allows, else unrolled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from math import inf
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.node import Node, RuleResult
from popc.frontend.open_graph import Body, OpenGraph
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.common import default_domain, graph_attribute
from popc.frontend.rules.sized.loops import (
    CollectedRows,
    Joined,
    as_rows,
    joined_states,
    joined_to,
    without_joins,
)
from popc.frontend.rules.sized.states import LoopStates
from popc.frontend.rules.subgraphs import as_tensors, flat_scalar, set_outputs
from popc.frontend.trip_count import count_iterations
from popc.frontend.values import OptionalValue, SequenceValue, Unknown, Value
from popc.frontend.written import writes_variables, written_outside
from popc.ir import AttributeMap, Op, OpSettings, Tensor, TensorType
from popc_runtime.errors import ModelError, TooMuchWorkError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import mutable

__all__ = ["RULES", "LoopForm", "import_loop", "stack_rows"]

_SCALAR_BOOL: Final = TensorType(DType.BOOL, ())
_SCALAR_INT64: Final = TensorType(DType.INT64, ())
_MAX_COUNTED: Final = 2**31  # exporters write a larger trip count for a loop without one
_MAX_UNROLLED: Final = 10_000  # iterations of a loop whose end only its condition tells


@mutable
class LoopForm:
    """A loop in the terms that Loop and Scan share."""

    body: onnx.GraphProto
    trip_count: int  # -1: given by ``trip_operand``, or unbounded
    trip_operand: Tensor | None
    condition: Tensor | None  # the initial condition; None: true
    states: list[Value]
    scanned: list[tuple[Tensor, int, bool]] = field(
        default_factory=list["tuple[Tensor, int, bool]"]
    )  # tensor, axis, reversed
    has_header: bool = True  # the body takes (iteration, condition) and returns a condition
    joined: tuple[Joined, ...] = ()  # the last stacked results are rows behind these states,
    likes: tuple[Value, ...] = ()  # which begin as these

    @property
    def is_counted(self) -> bool:
        """True if the number of iterations is known, unless the condition ends it early."""
        return self.trip_count >= 0


def _loop(node: Node) -> RuleResult:
    trip = node.optional(0)
    known_trip = node.known(0)
    condition = node.optional(1)
    known_condition = node.known(1)
    states = [node.value(index) for index in range(2, len(node.inputs))]
    if known_condition is not None:
        if not bool(known_condition.reshape(())[()]):
            known_trip = np.zeros((), np.int64)
        condition = None
    form = LoopForm(
        body=graph_attribute(node, "body"),
        trip_count=-1 if known_trip is None else max(0, int(known_trip.reshape(())[()])),
        trip_operand=None if trip is None or known_trip is not None else flat_scalar(node, trip),
        condition=None if condition is None else flat_scalar(node, condition),
        states=states,
    )
    return import_loop(node, form) if form.is_counted else _with_joined_rows(node, form)


def _with_joined_rows(node: Node, form: LoopForm) -> list[Value]:
    """The results of a loop, of which states that only grow are stacked results until its end."""
    found = joined_states(form.body)
    if not found:
        return import_loop(node, form)
    places = [state.place for state in found]
    initial = tuple(form.states[place] for place in places)
    kept = [value for place, value in enumerate(form.states) if place not in places]
    body = without_joins(form.body, found)
    own = replace(form, body=body, states=kept, joined=tuple(found), likes=initial)
    results = import_loop(node, own)
    stacked = [results.pop() for _ in found][::-1]
    for state, first, rows in zip(found, initial, stacked, strict=True):
        results.insert(state.place, joined_to(node, state, first, rows))
    return results


def import_loop(node: Node, form: LoopForm) -> list[Value]:
    """Import a run-time loop if the body allows it, else unroll it."""
    may_unroll = _may_unroll(node, form)
    if may_unroll and form.is_counted and _all_known(node, form.states):
        with suppress(DataDependent):  # what is read from outside may decide when it ends
            return _unroll(node, form)
    try:
        return _runtime_loop(node, form, isolated=may_unroll, sizes=not may_unroll)
    except (DataDependent, ModelError) as error:
        if not may_unroll or isinstance(error, TooMuchWorkError):
            raise
    try:
        return _unroll(node, form)
    except DataDependent:
        if any(isinstance(value, SequenceValue | OptionalValue) for value in form.states):
            raise
    return _runtime_loop(node, form, isolated=False, sizes=True)


def _may_unroll(node: Node, form: LoopForm) -> bool:
    """True if constants may decide the number of iterations.

    Variables that are written are states, for the names of a body always stand for the same.
    """
    if writes_variables(node.importer, form.body):
        return False
    return form.is_counted or _starts_known(form)


def _all_known(node: Node, values: Sequence[Value]) -> bool:
    return all(
        isinstance(value, Tensor) and node.importer.known_value(value) is not None
        for value in values
    )


def _runtime_loop(node: Node, form: LoopForm, *, isolated: bool, sizes: bool) -> list[Value]:
    """A loop at run time; ``sizes`` of its results may be those that data decides."""
    own = LoopStates(node, form.states)
    if not sizes:
        as_tensors(form.states, "Loop")
    body = _settled_body(node, form, own, isolated=isolated, grows=sizes)
    states = own.initial()
    graph = body.importer.graph
    first = int(form.has_header)
    count = first + len(form.states)
    carried = own.carried(body.importer, body.results[first:count])
    scans = _stacked(node, body, form)
    iteration_condition = as_tensors(body.results[:1], "Loop")[0] if form.has_header else None
    form, conditional = _counted(node, form, body.importer, iteration_condition, (states, carried))
    rows: CollectedRows | None = None
    after = len(states)
    if scans and (conditional or not form.is_counted):
        if not sizes:
            raise DataDependent("Loop: the number of stacked results depends on a run-time value")
        rows = _collect(node, body.importer, form, len(scans))
        carried, scans = [*carried, *rows.collected(scans, 2 + len(states))], []
        states = [*states, *rows.initial]
    if not conditional or iteration_condition is None:
        iteration_condition = _always(body.importer, conditional=conditional)
    iteration_condition = flat_scalar(node, iteration_condition, graph)
    written = written_outside([body.importer])
    news = _as_states(body.importer, written, 2 + len(states))
    set_outputs(graph, [iteration_condition, *carried, *news, *scans])
    captures = [outer for outer in body.importer.runtime_captures if outer not in written]
    latest = map(node.importer.updates.latest, written)
    op = node.importer.graph.add_op(
        "Loop",
        [form.trip_operand, form.condition, *states, *latest, *captures],
        _result_types(form, [*carried, *news], scans),
        _attributes(form, len(states) + len(news), conditional=conditional),
        settings=OpSettings(origin=node.name),
        subgraphs={"body": graph},
    )
    left = _without_variables(node, op, len(states), written)
    stacked = left[after:]
    return [*own.values(left[:after]), *(stacked if rows is None else rows.values(stacked))]


def _settled_body(
    node: Node, form: LoopForm, states: LoopStates, *, isolated: bool, grows: bool
) -> Body:
    """The body, imported with states as large as they become."""
    first = int(form.has_header)
    most = _most_iterations(node, form)
    while True:
        body = _imported(node, form, states, isolated=isolated)
        results = body.results[first : first + len(form.states)]
        if states.settle(results, most, grows=grows):
            return body


def _imported(node: Node, form: LoopForm, states: LoopStates, *, isolated: bool) -> Body:
    types = [_SCALAR_INT64, _SCALAR_BOOL, *(tensor.type for tensor in states.initial())]

    def arguments(inner: OpenGraph, inputs: Sequence[Tensor]) -> list[Value]:
        header = list(inputs[:2]) if form.has_header else []
        scanned = _scan_elements(node, inner, inputs[0], form)
        return [*header, *states.arguments(inner, inputs[2:]), *scanned]

    try:
        return node.importer.import_body(form.body, types, arguments, isolated=True)
    except ModelError:
        if isolated:
            raise
    return node.importer.import_body(form.body, types, arguments)


def _always(body: OpenGraph, *, conditional: bool) -> Tensor:
    """A condition that is true, which the body sees too unless the first one may be false."""
    true = body.constant(np.asarray(1, np.bool_), DType.BOOL)
    if not conditional:
        body.graph.replace_uses(body.graph.inputs[1], true)
    return true


def _counted(
    node: Node,
    form: LoopForm,
    body: OpenGraph,
    condition: Tensor | None,
    states: tuple[Sequence[Tensor], Sequence[Tensor]],
) -> tuple[LoopForm, bool]:
    """The loop, with its number of iterations if constants decide it; whether it may stop early."""
    conditional = form.condition is not None or _can_stop(body, condition, body.graph.inputs[1])
    if not conditional or condition is None or not _starts_known(form):
        return form, conditional
    initial, carried = states
    known = [node.importer.known_value(tensor) for tensor in initial]
    count = count_iterations(body.graph, condition, carried, known, form.trip_count)
    return (form, True) if count is None else (replace(form, trip_count=count), False)


def _result_types(
    form: LoopForm, carried: Sequence[Tensor], scans: Sequence[Tensor]
) -> list[TensorType]:
    stacked = [scan.type.with_shape((form.trip_count, *scan.type.shape)) for scan in scans]
    return [*(tensor.type for tensor in carried), *stacked]


def _without_variables(
    node: Node, op: Op, first: int, written: Mapping[Tensor, bool]
) -> list[Tensor]:
    """The results of a loop but for variables, from ``first`` on, which it has written."""
    after = first + len(written)
    for (variable, follows), value in zip(written.items(), op.outputs[first:after], strict=True):
        node.importer.updates.write(variable, value, follows=follows)
    return [*op.outputs[:first], *op.outputs[after:]]


def _as_states(body: OpenGraph, written: Collection[Tensor], position: int) -> list[Tensor]:
    """Let ``body`` have variables as states, from input ``position`` on; their new values."""
    formals = [body.captures[variable] for variable in written]
    inputs = [input_ for input_ in body.graph.inputs if input_ not in formals]
    body.graph.inputs = [*inputs[:position], *formals, *inputs[position:]]
    return [body.updates.values[formal] for formal in formals]


def _attributes(form: LoopForm, states: int, *, conditional: bool) -> AttributeMap:
    return {"trip_count": form.trip_count, "conditional": int(conditional), "states": states}


def _starts_known(form: LoopForm) -> bool:
    """True if the loop surely begins, and nothing at run time limits its iterations."""
    return form.condition is None and form.trip_operand is None


def _scan_elements(
    node: Node, importer: OpenGraph, iteration: Tensor, form: LoopForm
) -> list[Tensor]:
    """The element of every scan input that belongs to ``iteration``."""
    inside = node.within(importer)
    elements: list[Tensor] = []
    for tensor, axis, is_reversed in form.scanned:
        index = iteration
        if is_reversed:
            last = inside.constant(np.int64(tensor.type.shape[axis] - 1))
            index = inside.emit("Sub", [last, iteration])
        source = tensor if importer is node.importer else importer.capture(tensor)
        assert isinstance(source, Tensor)
        elements.append(inside.emit("Gather", [source, index], {"axis": axis}))
    return elements


def _can_stop(importer: OpenGraph, condition: Tensor | None, formal: Tensor) -> bool:
    """True if the body's condition may become false."""
    if condition is None or condition is formal:
        return False
    known = importer.known_value(condition)
    return known is None or not bool(known.reshape(())[()])


def _stacked(node: Node, body: Body, form: LoopForm) -> list[Tensor]:
    """The rows that a body stacks as tensors; they may have a size that a check gives them."""
    first = int(form.has_header) + len(form.states)
    scans = [value for value in body.results[first:] if value is not None]
    likes = [*(None for _ in scans), *form.likes][len(form.likes) :]
    return [
        as_rows(node, body.importer, value, like) for value, like in zip(scans, likes, strict=True)
    ]


def _collect(node: Node, body: OpenGraph, form: LoopForm, scans: int) -> CollectedRows:
    """Room for what iterations stack, of which data decides the number."""
    most = _most_iterations(node, form)
    joined = [state.place for state in form.joined]
    first = len(form.states) + len(joined)
    return CollectedRows(node, body, most, [*range(first, first + scans - len(joined)), *joined])


def _most_iterations(node: Node, form: LoopForm) -> float:
    most: float = form.trip_count if form.is_counted else inf
    if form.trip_operand is not None:
        table = node.importer.context.sizes
        most = max(table.range(table.scalar(form.trip_operand))[1], 0)
    return inf if most > _MAX_COUNTED else most


def _unroll(node: Node, form: LoopForm) -> list[Value]:
    """Import the body once per iteration, in place."""
    importer = node.importer
    states = list(form.states)
    count = len(states)
    stacks: list[list[Tensor]] = []
    condition: Value = node.constant(np.asarray(True))  # noqa: FBT003 - an array value
    for number in range(form.trip_count if form.is_counted else _MAX_UNROLLED + 1):
        if number == _MAX_UNROLLED and not form.is_counted:
            raise DataDependent(f"Loop: must be unrolled, but has more than {number:,} iterations")
        iteration = node.constant(np.int64(number))
        header = [iteration, condition] if form.has_header else []
        elements = _scan_elements(node, importer, iteration, form)
        results = [
            value
            for value in importer.inline(form.body, [*header, *states, *elements])
            if value is not None
        ]
        if form.has_header:
            condition = results.pop(0)
        states, scans = results[:count], as_tensors(results[count:], "Loop")
        stacks = stacks or [[] for _ in scans]
        for stack, tensor in zip(stacks, scans, strict=True):
            stack.append(tensor)
        if not _continues(node, condition):
            break
    return [*states, *(stack_rows(node, stack) for stack in _or_empty(stacks, node, count))]


def _or_empty(stacks: list[list[Tensor]], node: Node, states: int) -> list[list[Tensor]]:
    if not stacks and any(node.wants_output(i) for i in range(states, len(node.output_names))):
        raise DataDependent(
            "Loop: no iteration runs, so the shape of its stacked results is unknown"
        )
    return stacks


def _continues(node: Node, condition: Value) -> bool:
    if isinstance(condition, Unknown):
        raise AlreadyReported
    if not isinstance(condition, Tensor):
        raise ModelError("the body's first output must be a bool tensor")
    known = node.importer.known_value(condition)
    if known is None:
        raise DataDependent("Loop: must be unrolled, but its condition is a run-time value")
    return bool(known.reshape(())[()])


def stack_rows(node: Node, tensors: Sequence[Tensor]) -> Tensor:
    """Join equal-shaped tensors along a new first axis."""
    rows = [
        node.emit("Reshape", [tensor], {"shape": (1, *tensor.type.shape)}) for tensor in tensors
    ]
    return node.emit("Concat", list(rows), {"axis": 0})


RULES: Final = default_domain({"Loop": _loop})
