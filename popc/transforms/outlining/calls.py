"""Calls of the model become ops: what the ops of a call do becomes a graph that is called.

Calls are written out when a model is imported, and their ops know which they belong to
(`OpSettings.call`).  Here, when nothing edits the ops any more, those of a call are put together
again, from the innermost calls to the outermost.  Calls of one graph whose ops still do the same
share one; what differentiation has made of a call is a call as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from popc.ir import CallSite, Graph, Op, Recompute, StepPart, Tensor, free_name
from popc.ops import OPS
from popc.ops.constraints import Node, Precedence
from popc.ops.control import callee_of
from popc.transforms.outlining.emission import outline
from popc.transforms.outlining.instances import Instance
from popc.transforms.outlining.sequence import BOUND_TO_PLACE, Program, calls_around, digest_of
from popc.transforms.outlining.together import together

__all__ = ["gathered", "restore_calls"]

_Path: TypeAlias = tuple[CallSite, ...]
_GRADIENT: Final = "_bwd"


# -- one behind the other --------------------------------------------------------------------------


def gathered(graph: Graph, order: Sequence[Op]) -> list[Op]:
    """``order`` with the ops of each call one behind the other, as far as they can be."""
    if not any(map(calls_around, order)):
        return list(order)
    pairs = [pair for pair in graph.ordering if not pair.wished]
    return _arranged(order, Precedence.required(order, pairs).successors, 0)


def _arranged(ops: Sequence[Op], later: Mapping[Node, Iterable[Node]], depth: int) -> list[Op]:
    """``ops`` of the same ``depth`` calls, with those of deeper ones together."""
    if not any(len(calls_around(op)) > depth for op in ops):
        return list(ops)
    units: dict[Op, Hashable] = {}
    for op in ops:
        path = calls_around(op)
        units[op] = (path[depth], _belonging(op)) if len(path) > depth else op
    found: list[Op] = []
    for unit, inner in together(ops, later, units).items():
        found += inner if unit is inner[0] else _arranged(inner, later, depth + 1)
    return found


def _belonging(op: Op) -> Hashable:
    """The key that the ops of one call in a program have in common, beside the call."""
    settings = op.settings
    place = (settings.pipeline_stage, settings.execution_phase, settings.batch_phase)
    again = settings.recompute is Recompute.RECOMPUTED
    return place, settings.part, settings.bins, again


# -- calls -----------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """Ops of one call, one behind the other."""

    site: CallSite
    part: StepPart
    instance: Instance

    def key(self, program: Program) -> Hashable:
        """Equal for calls that can share a graph."""
        kinds = tuple(_kind(program, op) for op in self.instance.ops)
        return self.site.callee, self.part, kinds, self.instance.wiring


def _kind(program: Program, op: Op) -> Hashable:
    """Equal for ops that do the same, with all that is in their graphs."""
    nested = op.subgraphs.values() if callee_of(op) is None else ()
    return program.kind(op), tuple(_graph_kind(program, graph) for graph in nested)


def _graph_kind(program: Program, graph: Graph) -> Hashable:
    numbers: dict[Tensor, int] = {tensor: number for number, tensor in enumerate(graph.inputs)}
    types = tuple(str(tensor.type) for tensor in graph.inputs)
    ops: list[Hashable] = []
    for op in graph.topological():
        operands = tuple(tensor and _source(tensor, numbers) for tensor in op.inputs)
        ops.append((_kind(program, op), operands))
        for tensor in op.outputs:
            numbers[tensor] = len(numbers)
    return types, tuple(ops), tuple(_source(tensor, numbers) for tensor in graph.outputs)


def _source(tensor: Tensor, numbers: Mapping[Tensor, int]) -> Hashable:
    """The place where a tensor comes from, or its data."""
    if tensor in numbers:
        return numbers[tensor]
    return tensor if tensor.data is None else (str(tensor.type), digest_of(tensor))


def restore_calls(program: Program, top: Graph) -> Iterator[tuple[int, int]]:
    """Make calls of the ops of calls; for each graph made, its ops and calls, by their numbers."""
    while runs := list(_innermost(program)):
        groups: dict[Hashable, list[_Run]] = {}
        for run in runs:
            groups.setdefault(run.key(program), []).append(run)
        taken = {nested.name for nested in top.walk()}
        for group in groups.values():
            instances = [run.instance for run in group]
            name = free_name(_callee_name(group[0]), taken, first=2)
            taken.add(name)
            outline(program, instances, name, [run.site for run in group])
            yield len(instances[0].ops), len(instances)
        program.renew()


def _callee_name(run: _Run) -> str:
    return run.site.callee + (_GRADIENT if run.part is StepPart.BACKWARD else "")


def _innermost(program: Program) -> Iterator[_Run]:
    """The runs of ops of calls that hold no calls that are still written out."""
    pending = {graph: _pending(program, order) for graph, order in program.orders.items()}
    for graph, own in pending.items():
        outer = {path[:length] for path in own.values() for length in range(1, len(path))}
        for path, ops in _runs(program.orders[graph], own):
            nested = (
                inner for op in ops for part in op.subgraphs.values() for inner in part.walk()
            )
            if path not in outer and not any(pending.get(inner) for inner in nested):
                yield _Run(path[-1], ops[0].settings.part, Instance.of(program, graph, ops))


def _pending(program: Program, order: Sequence[Op]) -> dict[Op, _Path]:
    return {op: path for op in order if (path := calls_around(op)) and _may_be_called(program, op)}


def _runs(order: Sequence[Op], own: Mapping[Op, _Path]) -> Iterator[tuple[_Path, list[Op]]]:
    for (path, _), ops in groupby(order, lambda op: (own.get(op, ()), _belonging(op))):
        if path:
            yield path, list(ops)


def _may_be_called(program: Program, op: Op) -> bool:
    """True if ``op`` does the same in a graph that is called.

    Transfers happen at times of their own, and callees may not overwrite what they are given.
    """
    if op.op_type in BOUND_TO_PLACE or op.settings.part is StepPart.UPDATE or op.settings.inplace:
        return False
    spec = OPS.get(op.op_type)
    if callee_of(op) is None and spec is not None and (spec.transfer or spec.collective):
        return False
    return not program.reads_strided(op)
