"""If, Loop and Scan.

A condition or trip count that is known at compile time disappears: the branch is imported in
place, the loop is unrolled if its iterations need different shapes.  Everything else becomes an
``If`` or ``Loop`` op with subgraphs.  Scan becomes Loop: scan inputs are gathered by the iteration
number inside the body.

IR forms (shared with the scheduler, the planner and lowering):

    If(condition, *captures)  subgraphs then_branch, else_branch: captures -> results
    Loop(trip_count?, condition?, *states, *captures)  attributes trip_count (-1: see operand),
        conditional, states; subgraph body: (iteration, condition, *states, *captures)
        -> (condition, *states, *scans)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import onnx

from popc.frontend.importer import GraphImporter
from popc.frontend.node import Node, RuleResult
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.common import default_domain
from popc.frontend.trip_count import count_iterations
from popc.frontend.values import Unknown, Value
from popc.ir import Graph, OpSettings, Shape, Tensor, TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_SCALAR_BOOL: Final = TensorType(DType.BOOL, ())
_SCALAR_INT64: Final = TensorType(DType.INT64, ())


def _graph_attribute(node: Node, name: str) -> onnx.GraphProto:
    value = node.attributes.get(name)
    if not isinstance(value, onnx.GraphProto):
        raise ModelError(f"attribute {name!r} must be a graph")
    return value


def _tensors(values: Sequence[Value | None], what: str) -> list[Tensor]:
    """``values`` as tensors; anything else cannot cross a run-time subgraph."""
    if any(isinstance(value, Unknown) for value in values):
        raise AlreadyReported
    tensors = [value for value in values if isinstance(value, Tensor)]
    if len(tensors) != len(values):
        raise DataDependent(f"{what}: sequences and optionals must be resolved at compile time")
    return tensors


# -- If --------------------------------------------------------------------------------------------


def _if(node: Node) -> RuleResult:
    branches = [_graph_attribute(node, name) for name in ("then_branch", "else_branch")]
    known = node.known(0)
    if known is not None:
        return node.importer.inline(branches[0 if bool(known.reshape(())[()]) else 1], [])
    bodies = [node.importer.import_body(branch, []) for branch in branches]
    results = [_tensors(body.results, "If") for body in bodies]
    types = [tensor.type for tensor in results[0]]
    if types != [tensor.type for tensor in results[1]]:
        raise DataDependent("If: the branches give different shapes and the condition is dynamic")
    captures = _unite_captures([body.importer for body in bodies])
    for body, tensors in zip(bodies, results, strict=True):
        _set_outputs(body.importer.graph, tensors)
    op = node.importer.graph.add_op(
        "If",
        [_flat_scalar(node, node.input(0)), *captures],
        types,
        settings=OpSettings(origin=node.name),
        subgraphs={
            "then_branch": bodies[0].importer.graph,
            "else_branch": bodies[1].importer.graph,
        },
    )
    return list(op.outputs)


def _flat_scalar(node: Node, tensor: Tensor) -> Tensor:
    """Exporters write conditions and trip counts with shape [1] as well as []."""
    if tensor.type.shape == ():
        return tensor
    if tensor.type.size != 1:
        raise ModelError(f"a condition or trip count must be one value, not {tensor.type}")
    return node.emit("Reshape", [tensor], {"shape": ()})


def _unite_captures(bodies: Sequence[GraphImporter]) -> list[Tensor]:
    """The captures of all bodies; each body gets an input for every one, in the same order."""
    union = list(dict.fromkeys(t for body in bodies for t in body.runtime_captures))
    for body in bodies:
        inner = [body.captures.get(outer) for outer in union]
        body.graph.inputs = [
            tensor or body.graph.add_input(outer.name, outer.type)
            for outer, tensor in zip(union, inner, strict=True)
        ]
    return union


def _set_outputs(graph: Graph, tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        graph.add_output(tensor.name, tensor)


# -- Loop ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _LoopForm:
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

    @property
    def is_counted(self) -> bool:
        """Whether the number of iterations is known, unless the condition ends it early."""
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
    form = _LoopForm(
        body=_graph_attribute(node, "body"),
        trip_count=-1 if known_trip is None else max(0, int(known_trip.reshape(())[()])),
        trip_operand=None if trip is None or known_trip is not None else _flat_scalar(node, trip),
        condition=None if condition is None else _flat_scalar(node, condition),
        states=states,
    )
    return _import_loop(node, form)


def _import_loop(node: Node, form: _LoopForm) -> list[Value]:
    """As a run-time loop if its body allows, else unrolled."""
    if form.is_counted and _all_known(node, form.states):
        return _unroll(node, form)
    try:
        return list(_runtime_loop(node, form))
    except (DataDependent, ModelError):
        if not form.is_counted:
            raise
    return _unroll(node, form)


def _all_known(node: Node, values: Sequence[Value]) -> bool:
    return all(
        isinstance(value, Tensor) and node.importer.known_value(value) is not None
        for value in values
    )


def _runtime_loop(node: Node, form: _LoopForm) -> list[Tensor]:
    states = _tensors(form.states, "Loop")
    types = [_SCALAR_INT64, _SCALAR_BOOL, *(tensor.type for tensor in states)]
    body = node.importer.import_body(
        form.body,
        types,
        lambda inner, inputs: _body_arguments(node, inner, inputs, form),
        isolated=form.is_counted,
    )
    results = _tensors(body.results, "Loop")
    graph = body.importer.graph
    iteration_condition = results.pop(0) if form.has_header else None
    conditional = form.condition is not None or _can_stop(
        body.importer, iteration_condition, graph.inputs[1]
    )
    carried, scans = results[: len(states)], results[len(states) :]
    if conditional and iteration_condition is not None and _starts_known(form):
        known = [node.importer.known_value(tensor) for tensor in states]
        count = count_iterations(graph, iteration_condition, carried, known, form.trip_count)
        if count is not None:
            form, conditional = replace(form, trip_count=count), False
    _check_loop(states, carried, scans, conditional=conditional, form=form)
    always = body.importer.constant(np.asarray(True), DType.BOOL)  # noqa: FBT003 - an array value
    if not conditional:
        graph.replace_uses(graph.inputs[1], always)
    _set_outputs(graph, [iteration_condition if conditional and iteration_condition else always])
    _set_outputs(graph, [*carried, *scans])
    captures = body.importer.runtime_captures
    op = node.importer.graph.add_op(
        "Loop",
        [form.trip_operand, form.condition, *states, *captures],
        [
            *(tensor.type for tensor in carried),
            *(t.type.with_shape((form.trip_count, *t.type.shape)) for t in scans),
        ],
        {
            "trip_count": form.trip_count,
            "conditional": int(conditional),
            "states": len(states),
        },
        settings=OpSettings(origin=node.name),
        subgraphs={"body": graph},
    )
    return list(op.outputs)


def _starts_known(form: _LoopForm) -> bool:
    """Whether the loop surely begins, and nothing at run time limits its iterations."""
    return form.condition is None and form.trip_operand is None


def _body_arguments(
    node: Node, inner: GraphImporter, inputs: Sequence[Tensor], form: _LoopForm
) -> list[Value]:
    """What the ONNX body's formal inputs stand for, given the IR body's inputs."""
    header = list(inputs[:2]) if form.has_header else []
    return [*header, *inputs[2:], *_scan_elements(node, inner, inputs[0], form)]


def _scan_elements(
    node: Node, importer: GraphImporter, iteration: Tensor, form: _LoopForm
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


def _can_stop(importer: GraphImporter, condition: Tensor | None, formal: Tensor) -> bool:
    """Whether the body's condition may become false."""
    if condition is None or condition is formal:
        return False
    known = importer.known_value(condition)
    return known is None or not bool(known.reshape(())[()])


def _check_loop(
    states: Sequence[Tensor],
    carried: Sequence[Tensor],
    scans: Sequence[Tensor],
    *,
    conditional: bool,
    form: _LoopForm,
) -> None:
    for before, after in zip(states, carried, strict=True):
        if before.type != after.type:
            raise DataDependent(
                f"Loop: a carried value changes from {before.type} to {after.type}"
            )
    if scans and (conditional or not form.is_counted):
        raise DataDependent("Loop: the number of stacked results depends on a run-time value")


def _unroll(node: Node, form: _LoopForm) -> list[Value]:
    """Import the body once per iteration, in place."""
    importer = node.importer
    states = list(form.states)
    count = len(states)
    stacks: list[list[Tensor]] = []
    condition: Value = node.constant(np.asarray(True))  # noqa: FBT003 - an array value
    for number in range(form.trip_count):
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
        states, scans = results[:count], _tensors(results[count:], "Loop")
        stacks = stacks or [[] for _ in scans]
        for stack, tensor in zip(stacks, scans, strict=True):
            stack.append(tensor)
        if not _continues(node, condition):
            break
    return [*states, *(_stack(node, stack) for stack in _or_empty(stacks, node, count))]


def _or_empty(stacks: list[list[Tensor]], node: Node, states: int) -> list[list[Tensor]]:
    if not stacks and any(node.wants_output(i) for i in range(states, len(node.output_names))):
        raise DataDependent("Loop: no iteration runs, so the shape of its stacked results is open")
    return stacks


def _continues(node: Node, condition: Value) -> bool:
    if not isinstance(condition, Tensor):
        raise ModelError("the body's first output must be a bool tensor")
    known = node.importer.known_value(condition)
    if known is None:
        raise DataDependent("Loop: must be unrolled, but its condition is a run-time value")
    return bool(known.reshape(())[()])


def _stack(node: Node, tensors: Sequence[Tensor]) -> Tensor:
    """Join equal-shaped tensors along a new first axis."""
    rows = [
        node.emit("Reshape", [tensor], {"shape": (1, *tensor.type.shape)}) for tensor in tensors
    ]
    return node.emit("Concat", list(rows), {"axis": 0})


# -- Scan ------------------------------------------------------------------------------------------


def _scan(node: Node) -> RuleResult:
    return _scan_8(node) if node.version < 9 else _scan_9(node, node.tensors())


def _scan_9(node: Node, operands: Sequence[Tensor]) -> list[Value]:
    body = _graph_attribute(node, "body")
    scan_inputs = node.integer("num_scan_inputs")
    states = list(operands[: len(operands) - scan_inputs])
    sources = list(operands[len(operands) - scan_inputs :])
    outputs = len(body.output) - len(states)
    axes = node.integers("scan_input_axes", (0,) * scan_inputs)
    directions = node.integers("scan_input_directions", (0,) * scan_inputs)
    if "directions" in node.attributes:  # opset 8
        directions = node.integers("directions")
    scanned = [
        (tensor, axis % tensor.type.rank, bool(direction))
        for tensor, axis, direction in zip(sources, axes, directions, strict=True)
    ]
    lengths = {tensor.type.shape[axis] for tensor, axis, _ in scanned}
    if len(lengths) != 1:
        raise ModelError(f"scan inputs have different lengths: {sorted(lengths)}")
    form = _LoopForm(
        body=body,
        trip_count=lengths.pop(),
        trip_operand=None,
        condition=None,
        states=list(states),
        scanned=scanned,
        has_header=False,
    )
    results = _import_loop(node, form)
    out_axes = node.integers("scan_output_axes", (0,) * outputs)
    out_directions = node.integers("scan_output_directions", (0,) * outputs)
    stacked = [
        _place_scan(node, tensor, axis, is_reversed=bool(direction))
        for tensor, axis, direction in zip(
            _tensors(results[len(states) :], "Scan"), out_axes, out_directions, strict=True
        )
    ]
    return [*results[: len(states)], *stacked]


def _place_scan(node: Node, tensor: Tensor, axis: int, *, is_reversed: bool) -> Tensor:
    """Put the stacked axis where the node wants it, in the direction that it wants."""
    shape = tensor.type.shape
    if is_reversed:
        tensor = _reverse_first_axis(node, tensor, shape)
    axis %= len(shape)
    if axis == 0:
        return tensor
    perm = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    return node.emit("Transpose", [tensor], {"perm": perm})


def _reverse_first_axis(node: Node, tensor: Tensor, shape: Shape) -> Tensor:
    return node.emit(
        "Slice",
        [tensor],
        {
            "starts": (shape[0] - 1, *(0 for _ in shape[1:])),
            "sizes": shape,
            "steps": (-1, *(1 for _ in shape[1:])),
        },
    )


def _scan_8(node: Node) -> list[Value]:
    """Opset 8: everything has a leading batch dimension, and each sample is scanned on its own."""
    if node.optional_value(0) is not None:
        raise DataDependent("Scan-8: sequence lengths per sample are not supported")
    operands = [node.input(index) for index in range(1, len(node.inputs))]
    batch = operands[0].type.shape[0]
    rows: list[list[Tensor]] = []
    for number in range(batch):
        index = node.constant(np.int64(number))
        sample = [node.emit("Gather", [tensor, index], {"axis": 0}) for tensor in operands]
        rows.append(_tensors(_scan_9(node, sample), "Scan"))
    return [_stack(node, list(column)) for column in zip(*rows, strict=True)]


RULES: Final = default_domain({"If": _if, "Loop": _loop, "Scan": _scan})
