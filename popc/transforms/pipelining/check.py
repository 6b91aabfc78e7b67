"""The problems of a pipeline: followed naively, cycle by cycle, with numbers for values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer, text
from popc.ops.control import first_capture, loop_states
from popc.ops.main_loops import is_pipeline, step_of_pipeline

__all__ = ["find_mixtures"]

_LIMIT: Final = 200_000  # ops that are followed; longer loops are not


class _Seen(NamedTuple):
    """The last micro-batch that a value depends on, and what has computed it.

    ``turn`` tells the times apart that ``stage`` runs.
    """

    number: int
    stage: int | None
    turn: tuple[int, int]


# Of a row of values, what each place holds.
_Row: TypeAlias = "dict[int, _Seen | None]"
_Value: TypeAlias = "_Seen | _Row | int | None"


def find_mixtures(graph: Graph) -> list[str]:
    """Ops of a pipeline that work on values of different micro-batches.

    The n-th transfer on a stream is of micro-batch n.  What is computed from values of one
    micro-batch is of that micro-batch.  Only what the stage itself has computed may be of the one
    before, and is the state that this one finds: sums and running statistics.
    """
    for nested in graph.walk():
        for op in nested.ops:
            if is_pipeline(op):
                return list(_Walk(nested, op).problems())
    return []


class _Walk:
    """Follows the ops of a graph that holds a pipeline."""

    def __init__(self, graph: Graph, loop: Op) -> None:
        self._graph = graph
        self._loop = loop
        self._transfers: dict[tuple[str, str], int] = defaultdict(int)
        self._found: dict[str, None] = {}
        self._turn = 0

    def problems(self) -> Iterator[str]:
        """Everything that is wrong."""
        body = self._loop.subgraphs["body"]
        if len(body) * integer(self._loop.attributes, "trip_count") > _LIMIT:
            return
        self._run(self._graph, {})
        total = integer(self._loop.attributes, "micro_batches")
        for (_, stream), count in self._transfers.items():
            if count != total:
                self._found[f"{count} of {total} micro-batches go through {stream}"] = None
        yield from self._found

    def _run(self, graph: Graph, values: dict[Tensor, _Value]) -> dict[Tensor, _Value]:
        for op in _in_steps(graph):
            results = self._op(op, values)
            values.update(zip(op.outputs, results, strict=True))
        return values

    def _op(self, op: Op, values: dict[Tensor, _Value]) -> list[_Value]:
        if op is self._loop:
            return self._turns(op, values)
        in_pipeline = step_of_pipeline(op) is not None
        if op.op_type == "Stash":
            return [self._stash(op, values)]
        if op.op_type == "Restore":
            return [self._restore(op, values)]
        if not in_pipeline:
            return [self._outside(op, values)] * len(op.outputs)
        found = [values.get(tensor) for tensor in op.present_inputs]
        seen = self._joined(
            op, [self._as_now(op, value) for value in found if isinstance(value, _Seen)]
        )
        if op.op_type in ("HostLoad", "HostStore"):
            seen = self._transfer(op, seen)
        return [seen] * len(op.outputs)

    def _outside(self, op: Op, values: dict[Tensor, _Value]) -> _Value:
        """Numbers of micro-batches are counted beside the stages; nothing else matters there."""
        if op.op_type in ("Add", "Copy") and all(
            tensor.is_constant or isinstance(values.get(tensor), int)
            for tensor in op.present_inputs
        ):
            return sum(_number(tensor, values) for tensor in op.present_inputs)
        first = op.optional(0)
        return values.get(first) if op.op_type == "Copy" and first is not None else None

    def _joined(self, op: Op, seen: list[_Seen]) -> _Seen | None:
        if not seen:
            return None
        numbers = sorted({value.number for value in seen})
        if len(numbers) > 1:
            self._found[f"{op!r} works on micro-batches {numbers} at once"] = None
        return _Seen(numbers[-1], op.settings.pipeline_stage, self._turn_of(op))

    def _turn_of(self, op: Op) -> tuple[int, int]:
        """The turn in which the stage of ``op`` runs; its copies run right after it."""
        step = step_of_pipeline(op)
        assert step is not None, f"{op!r} is outside of the pipeline"
        return self._turn, step // 2

    def _as_now(self, op: Op, seen: _Seen) -> _Seen:
        """The state of the time before, as a stage finds it: this micro-batch begins with it."""
        turn = self._turn_of(op)
        if seen.stage != op.settings.pipeline_stage or seen.turn == turn:
            return seen
        return _Seen(seen.number + 1, seen.stage, turn)

    def _transfer(self, op: Op, seen: _Seen | None) -> _Seen | None:
        stream = op.op_type, text(op.attributes, "stream")
        number = self._transfers[stream]
        self._transfers[stream] += 1
        if seen is not None and seen.number != number:
            self._found[f"{op!r} transfers micro-batch {seen.number} as number {number}"] = None
        if op.op_type != "HostLoad":
            return None
        return _Seen(number, op.settings.pipeline_stage, self._turn_of(op))

    def _stash(self, op: Op, values: dict[Tensor, _Value]) -> _Value:
        row, value = values.get(op.operand(0)), values.get(op.operand(1))
        number, size = _number(op.operand(2), values), op.operand(0).type.shape[0]
        held = dict(row) if isinstance(row, dict) else {}
        held[number % size] = value if isinstance(value, _Seen) else None
        return held

    def _restore(self, op: Op, values: dict[Tensor, _Value]) -> _Value:
        row, number = values.get(op.operand(0)), _number(op.operand(1), values)
        size = op.operand(0).type.shape[0]
        if not isinstance(row, dict) or number % size not in row:
            self._found[f"{op!r} finds nothing"] = None
            return None
        found = row[number % size]
        if found is not None and found.number != number:
            self._found[f"{op!r} finds micro-batch {found.number} in place of {number}"] = None
        if found is None:
            return None
        return _Seen(found.number, op.settings.pipeline_stage, self._turn_of(op))

    def _turns(self, op: Op, values: dict[Tensor, _Value]) -> list[_Value]:
        body, states = op.subgraphs["body"], loop_states(op)
        kept = [values.get(op.operand(state.operand)) for state in states]
        captured: dict[Tensor, _Value] = {
            body.inputs[index]: values.get(op.operand(index))
            for index in range(first_capture(op), len(op.inputs))
        }
        for turn in range(integer(op.attributes, "trip_count")):
            self._turn += 1
            inside = {**captured, body.inputs[0]: turn}
            inside.update(zip((state.inner for state in states), kept, strict=True))
            inside = self._run(body, inside)
            kept = [inside.get(tensor) for tensor in body.outputs[1:]]
        self._turn += 1
        return kept


def _in_steps(graph: Graph) -> list[Op]:
    """The ops in an order that keeps steps apart."""
    step: dict[Op, int] = {}
    for op in graph.topological():
        own = step_of_pipeline(op)
        before = (step[t.producer] for t in op.present_inputs if t.producer is not None)
        step[op] = max(-1 if own is None else own, max(before, default=-1))
    return sorted(step, key=step.__getitem__)


def _number(tensor: Tensor, values: dict[Tensor, _Value]) -> int:
    if tensor.data is not None:
        return int(tensor.data)
    value = values.get(tensor)
    assert isinstance(value, int), f"{tensor!r} counts no micro-batches"
    return value
