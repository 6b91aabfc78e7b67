"""A naive checker: lets the main loops run, and looks at which sample arrives where.

It knows nothing of how transfers were moved.  Values are what it takes to tell samples apart: a
`_Sample` for what is loaded, a `_Made` for what is computed, and numbers for what depends on the
iteration alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from typing import Final, TypeAlias

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer, text
from popc.ops.build import can_evaluate, evaluate
from popc.ops.main_loops import MainLoop, main_loops
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["check_overlap"]

_MOST_ITERATIONS: Final = 4096  # of all loops together; with more, nothing is checked


@frozen
class _Sample:
    """The sample of a stream with this number."""

    stream: str
    number: int


@frozen
class _Made:
    """A value computed in this iteration of the body that it is computed in."""

    iteration: int


_Value: TypeAlias = "_Sample | _Made | Array | None"
_Stream: TypeAlias = tuple[str, str]  # the kind of its transfers, and its name


def check_overlap(graph: Graph) -> list[str]:
    """The problems with the order of samples: empty if there are none."""
    loops = main_loops(graph)
    total = 1
    for loop in loops:
        total *= loop.trips
    overlapped = {
        _stream(op)
        for nested in graph.walk()
        for op in nested.ops
        if op.attributes.get("overlapped")
    }
    if not overlapped or total > _MOST_ITERATIONS:
        return []
    walk = _Walk({loop.op: loop for loop in loops}, overlapped)
    walk.graph(graph, [], None)
    return walk.problems


def _stream(op: Op) -> _Stream:
    return op.op_type, text(op.attributes, "stream")


@mutable
class _Walk:
    """One run of the program."""

    loops: dict[Op, MainLoop]
    overlapped: set[_Stream]
    problems: list[str] = field(default_factory=list[str])
    moved: Counter[_Stream] = field(default_factory=Counter["_Stream"])

    def graph(self, graph: Graph, given: Sequence[_Value], iteration: int | None) -> list[_Value]:
        """Run the ops of ``graph``; what it gives back.

        ``iteration`` counts those of the body that we are in, through all loops around it.
        """
        values: dict[Tensor, _Value] = {
            tensor: tensor.data for tensor in graph.tensors.values() if tensor.data is not None
        }
        values.update(zip(graph.inputs, given, strict=False))
        for op in graph.topological():
            operands = [None if input_ is None else values.get(input_) for input_ in op.inputs]
            results = self._op(op, operands, iteration)
            values.update(zip(op.outputs, results, strict=True))
        return [values.get(tensor) for tensor in graph.outputs]

    def _op(self, op: Op, operands: list[_Value], iteration: int | None) -> Sequence[_Value]:
        if op in self.loops:
            return self._loop(self.loops[op], operands, iteration or 0)
        condition = operands[0] if op.op_type == "If" else None
        if isinstance(condition, np.ndarray):
            branch = op.subgraphs["then_branch" if condition else "else_branch"]
            return self.graph(branch, operands[1:], iteration)
        if op.op_type == "HostLoad":
            return [self._next(op)]
        if op.op_type == "HostStore":
            self._store(op, operands[0])
            return []
        if op.op_type in ("IoTileCopy", "Copy"):
            return operands[:1]
        return self._compute(op, operands, iteration)

    def _loop(self, loop: MainLoop, operands: list[_Value], outer: int) -> list[_Value]:
        states = integer(loop.op.attributes, "states")
        carried, captures = operands[2 : 2 + states], operands[2 + states :]
        for number in range(loop.trips):
            header: list[_Value] = [np.asarray(number), np.asarray(True)]  # noqa: FBT003
            given = [*header, *carried, *captures]
            carried = self.graph(loop.body, given, outer * loop.trips + number)[1:]
        return carried

    def _next(self, op: Op) -> _Sample:
        stream = _stream(op)
        self.moved[stream] += 1
        return _Sample(stream[1], self.moved[stream] - 1)

    def _store(self, op: Op, value: _Value) -> None:
        stream, period = _stream(op), integer(op.attributes, "period")
        wanted = (self.moved[stream] + 1) * period - 1
        if stream in self.overlapped and isinstance(value, _Made) and value.iteration != wanted:
            self.problems.append(
                f"stream {stream[1]!r} stores what iteration {value.iteration} has computed where "
                f"that of {wanted} belongs"
            )
        self.moved[stream] += 1

    def _compute(
        self, op: Op, operands: Sequence[_Value], iteration: int | None
    ) -> Sequence[_Value]:
        for value in operands:
            if isinstance(value, _Sample) and iteration is not None and value.number != iteration:
                self.problems.append(
                    f"iteration {iteration} reads sample {value.number} of {value.stream!r}: {op!r}"
                )
        known = [
            operand for operand in operands if isinstance(operand, np.ndarray) and operand.size == 1
        ]
        if len(known) == len(op.inputs) and can_evaluate(op):
            return evaluate(op, known)
        return [None if iteration is None else _Made(iteration)] * len(op.outputs)
