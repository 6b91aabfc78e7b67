"""Copies between chips, and boundaries between stages and phases of one chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from popc.ir import Graph, Op, OpSettings, Tensor
from popc.ir.attributes import integer
from popc.ops.build import build
from popc.ops.control import first_capture, loop_body
from popc.placement.chips import ChipsOfValues, is_main_loop, main_graphs
from popc.placement.updates import settle_chips

__all__ = ["find_crossings", "insert_copies", "remove_boundaries"]

_PASSING: Final = frozenset({"Boundary", "IpuCopy"})


def insert_copies(graph: Graph, *, boundaries: bool) -> int:
    """Let every value that another chip reads pass through an IpuCopy; how many changes.

    A value is copied once to each chip that reads it, from the chip that computes it; copies that
    are there already stay if they do just that, and go if they do not.  With ``boundaries``,
    values that pass from one stage or phase of a chip to another go through a Boundary, so that no
    pass takes ops of two stages for one.
    """
    value_chips = ChipsOfValues(graph)
    changes = settle_chips(graph, value_chips)
    for nested in main_graphs(graph):
        changes += _Inserter(nested, value_chips, boundaries=boundaries).run()
        changes += _remove_unused(nested)
    return changes


def remove_boundaries(graph: Graph) -> int:
    """Let ops read through all boundaries; how many there were."""
    changes = 0
    for nested in graph.walk():
        for op in [op for op in nested.ops if op.op_type == "Boundary"]:
            nested.replace_op(op, [op.operand(0)])
            changes += 1
    return changes


class _Inserter:
    """Works on one graph."""

    def __init__(self, graph: Graph, value_chips: ChipsOfValues, *, boundaries: bool) -> None:
        self.graph = graph
        self.value_chips = value_chips
        self.boundaries = boundaries
        self.changes = 0
        self.copies: dict[tuple[Tensor, int], Tensor] = {}
        self.bounds: dict[tuple[Tensor, object], Tensor] = {}
        for op in graph.ops:
            if op.op_type == "IpuCopy" and op.operand(0) is _origin(op.output):
                self._keep(op)

    def _keep(self, op: Op) -> None:
        source = self.value_chips.of(op.operand(0))
        if source is not None and source == op.attributes["source"]:
            key = (op.operand(0), integer(op.attributes, "destination"))
            self.copies.setdefault(key, op.output)
            settings = _settings_of_copy(op.operand(0), source)
            self.changes += settings != op.settings
            op.settings = settings

    def run(self) -> int:
        """Connect all operands; how many were connected anew."""
        for op in self.graph.topological():
            if op.op_type in _PASSING:
                continue
            for index, tensor in enumerate(op.inputs):
                if tensor is None:
                    continue
                wanted = self._wanted(op, index, _origin(tensor))
                if wanted is not tensor:
                    self.graph.set_input(op, index, wanted)
                    self.changes += 1
        for index, tensor in enumerate(self.graph.outputs):
            self.graph.outputs[index] = _origin(tensor)
            self.changes += self.graph.outputs[index] is not tensor
        return self.changes

    def _wanted(self, op: Op, index: int, origin: Tensor) -> Tensor:
        """``origin`` as operand ``index`` of ``op`` is to read it."""
        source, here = self.value_chips.of(origin), _reads_on(op, index, self.value_chips)
        if source is not None and here is not None and source != here:
            return self._copied(origin, source, here)
        if self.boundaries and _changes_stage(origin, op):
            return self._bounded(origin, op)
        return origin

    def _copied(self, origin: Tensor, source: int, here: int) -> Tensor:
        if (origin, here) not in self.copies:
            self.copies[origin, here] = build(
                self.graph,
                "IpuCopy",
                [origin],
                {"source": source, "destination": here},
                output_names=[f"{origin.name}_c{here}"],
                settings=_settings_of_copy(origin, source),
            ).output
        return self.copies[origin, here]

    def _bounded(self, origin: Tensor, op: Op) -> Tensor:
        place = op.settings.place
        if (origin, place) not in self.bounds:
            settings = replace(
                op.settings.inherited(), origin="boundary", schedule_priority=0.0, call=()
            )
            bounded = build(self.graph, "Boundary", [origin], settings=settings)
            self.bounds[origin, place] = bounded.output
        return self.bounds[origin, place]


def _settings_of_copy(origin: Tensor, source: int) -> OpSettings:
    """A copy belongs to the stage that computes what is copied."""
    settings = OpSettings() if origin.producer is None else origin.producer.settings.inherited()
    return replace(
        settings, origin="interIpuCopy", virtual_graph=source, schedule_priority=0.0, call=()
    )


def _origin(tensor: Tensor) -> Tensor:
    """The original of ``tensor``, which is a copy."""
    while tensor.producer is not None and tensor.producer.op_type in _PASSING:
        tensor = tensor.producer.operand(0)
    return tensor


def _reads_on(op: Op, index: int, value_chips: ChipsOfValues) -> int | None:
    """The chip on which ``op`` reads operand ``index``; ``None`` if that does not matter."""
    body = loop_body(op)
    if body is None or not is_main_loop(op):
        return op.settings.virtual_graph
    if 2 <= index < first_capture(op):
        return value_chips.of(body.outputs[index - 1])
    return None


def _changes_stage(origin: Tensor, op: Op) -> bool:
    if origin.producer is None or is_main_loop(op):
        return False
    ours, theirs = op.settings, origin.producer.settings
    return any(
        one is not None and other is not None and one != other
        for one, other in (
            (ours.pipeline_stage, theirs.pipeline_stage),
            (ours.execution_phase, theirs.execution_phase),
        )
    )


def _remove_unused(graph: Graph) -> int:
    removed = 0
    for op in reversed(graph.topological()):
        if op.op_type in _PASSING and not op.output.uses and not graph.is_output(op.output):
            graph.remove_op(op)
            removed += 1
    return removed


def find_crossings(graph: Graph, shown: Callable[[Op], str] = repr) -> Iterator[str]:
    """The problems with the places of ops: looked for naively, op by op.

    Every op has a chip; an IpuCopy starts where its operand lies; and no other op reads what lies
    on another chip.
    """
    value_chips = ChipsOfValues(graph)
    for nested in main_graphs(graph):
        for op in nested.ops:
            here = op.settings.virtual_graph
            if is_main_loop(op):
                continue
            if here is None:
                yield f"{shown(op)} is on no chip"
                continue
            if op.op_type == "IpuCopy" and op.attributes["source"] != here:
                yield f"{shown(op)} copies from chip {op.attributes['source']}, but is on {here}"
            for tensor in op.present_inputs:
                chip = value_chips.of(tensor)
                if chip is not None and chip != here:
                    yield f"{shown(op)} on chip {here} reads {tensor.name}, which is on {chip}"
