"""An independent, naive check of schedules: no cleverness shared with what builds them."""

from __future__ import annotations

from collections.abc import Sequence

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ops import OPS
from popc.ops.constraints import stream_of
from popc.ops.rows import is_row_of_operands
from popc.schedule.schedule import Schedule

__all__ = ["check_schedule"]


def check_schedule(graph: Graph, schedule: Schedule) -> list[str]:
    """The problems of ``schedule``, a sentence each; empty if it is legal."""
    problems: list[str] = []
    graphs = list(graph.walk())
    if set(schedule.orders) != set(graphs):
        problems.append("the scheduled graphs are not those that the graph holds")
    for nested in graphs:
        order = list(schedule.orders.get(nested, ()))
        problems += _check_pairs(nested, order)
        problems += _check_bins(nested, order)
        if nested is graph:
            order = [*schedule.load, *order]
        problems += _check_complete(nested, order)
        problems += _check_data(nested, order)
        problems += _check_streams(nested, order)
        problems += _check_variables(nested, order)
    problems += _check_load(graph, schedule)
    return problems


def _check_complete(graph: Graph, order: Sequence[Op]) -> list[str]:
    if len(order) == len(set(order)) and set(order) == set(graph.ops):
        return []
    return [f"{graph.name}: the order does not hold every op once"]


def _check_data(graph: Graph, order: Sequence[Op]) -> list[str]:
    problems: list[str] = []
    done: set[Op] = set()
    for op in order:
        problems += [
            f"{graph.name}: {op!r} runs before {tensor.producer!r}"
            for tensor in op.present_inputs
            if tensor.producer is not None and tensor.producer not in done
        ]
        done.add(op)
    return problems


def _check_streams(graph: Graph, order: Sequence[Op]) -> list[str]:
    problems: list[str] = []
    for stream in sorted({found for op in graph.ops if (found := stream_of(op)) is not None}):
        inserted = [op for op in graph.ops if stream_of(op) == stream]
        if inserted != [op for op in order if stream_of(op) == stream]:
            problems.append(f"{graph.name}: I/O on stream {stream[0]!r} is out of order")
    return problems


def _check_pairs(graph: Graph, order: Sequence[Op]) -> list[str]:
    """Check the pairs; results of load time are there anyway."""
    places = {op: place for place, op in enumerate(order)}
    return [
        f"{graph.name}: {pair.first!r} runs after {pair.second!r}, which it has to precede"
        for pair in graph.ordering
        if pair.first in places
        and pair.second in places
        and places[pair.first] > places[pair.second]
    ]


def _check_bins(graph: Graph, order: Sequence[Op]) -> list[str]:
    problems: list[str] = []
    reached: dict[str, int] = {}
    for op in order:
        for name, number in op.settings.bins:
            if number < reached.get(name, number):
                problems.append(f"{graph.name}: {op!r} runs after a later bin of {name}")
            reached[name] = max(number, reached.get(name, number))
    return problems


def _check_variables(graph: Graph, order: Sequence[Op]) -> list[str]:
    """Nobody reads a variable, or what may be a view of it, once it has been overwritten."""
    problems: list[str] = []
    shown: dict[Tensor, frozenset[Tensor]] = {}
    written: set[Tensor] = set()
    for op in order:
        operands = [shown.get(tensor, frozenset([tensor])) for tensor in op.present_inputs]
        reads = frozenset[Tensor]().union(*operands)
        if op.op_type == "CopyVarUpdate":
            reads -= operands[0]
            written.add(op.operand(0))
        elif (spec := OPS.get(op.op_type)) is not None and spec.view is not None:
            shown.update(dict.fromkeys(op.outputs, operands[0]))
        elif op.op_type == "Concat" and is_row_of_operands(op):  # variables may lie in a row
            shown[op.output] = reads
        problems += [
            f"{graph.name}: {op!r} reads {tensor!r} after it has been overwritten"
            for tensor in reads & written
            if op.op_type != "CopyVarUpdate"
        ]
    return problems


def _check_load(graph: Graph, schedule: Schedule) -> list[str]:
    varying: set[Op] = set()
    for op in (*schedule.load, *schedule.orders.get(graph, ())):
        if _is_volatile(op) or any(
            tensor.kind in (TensorKind.INPUT, TensorKind.VARIABLE) or tensor.producer in varying
            for tensor in op.present_inputs
        ):
            varying.add(op)
    misplaced = set(schedule.load) ^ (set(graph.ops) - varying)
    if not misplaced:
        return []
    names = ", ".join(sorted(map(repr, misplaced)))
    return [f"{graph.name}: at load time and on every run are mixed up: {names}"]


def _is_volatile(op: Op) -> bool:
    """True if equal operands may give different results, or the op does more than compute."""
    inner = [nested for graph in op.subgraphs.values() for nested in graph.ops]
    if op.subgraphs:
        return any(map(_is_volatile, inner))
    spec = OPS.get(op.op_type)
    if spec is None or (spec.transfer and not op.attributes.get("at_load")):
        return True
    return spec.random or spec.side_effect or spec.collective
