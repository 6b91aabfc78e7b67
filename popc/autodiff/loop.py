"""The gradient of a Loop: a Loop that goes through the iterations backwards.

The forward loop also stacks the states that iterations begin with, if the backward pass reads them.
Iteration i is differentiated by computing it again from there; only its results and its random
numbers are kept.  States of the backward loop:

* the gradient of each state of the forward loop, beginning with that of its final value;
* the gradient of each capture, added up from zero;
* what iteration i has made of a state, where a gradient is computed from that (Tanh): the final
  value first, then what iteration i + 1 had begun with.

If a condition may end the forward loop, the forward loop also counts its iterations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from popc.autodiff.activity import live_states
from popc.autodiff.backward import Backward
from popc.autodiff.copying import prune
from popc.autodiff.elements import Element, elements_of, joined_rows
from popc.autodiff.exporting import count_iterations, export
from popc.autodiff.loop_parts import FIRST_STATE, LoopParts
from popc.autodiff.subgraph import BackwardSubgraph, Walk
from popc.ir import Op, Tensor, TensorType
from popc_runtime.format import DType

__all__ = ["loop_gradient"]


def loop_gradient(b: Backward, walk: Walk) -> Sequence[Tensor | None]:
    """The gradients of the initial states and of the captures."""
    loop = LoopParts(b.op)
    if loop.trip_count == 0:
        return [None, None, *(b.optional_grad(index) for index in range(loop.states))]
    return _LoopGradient(b, loop).run(walk)


class _State(NamedTuple):
    """A state of the backward loop."""

    inner: Tensor
    initial: Tensor
    operand: int | None  # of the forward loop, whose gradient the final value is


class _LoopGradient:
    """The backward loop while it grows.

    The parts of the forward loop are listed at the start, since it may get more of them.
    """

    def __init__(self, b: Backward, loop: LoopParts) -> None:
        self.b, self.loop = b, loop
        self.operands, self.first_capture = list(b.op.inputs), loop.first_capture
        self.formals, self.carried, self.finals = loop.formals, loop.carried, loop.finals
        self.scans = loop.scans
        self.part = BackwardSubgraph(b, "body", self.operands[self.first_capture :])
        self.graph, self.emit = self.part.graph, self.part.emit
        self.iteration = self.graph.add_input("iteration", TensorType(DType.INT64, ()))
        self.condition = self.graph.add_input("condition", TensorType(DType.BOOL, ()))
        self.states: list[_State] = []
        self.last: Tensor | None = None  # the last iteration, if run time decides

    def run(self, walk: Walk) -> Sequence[Tensor | None]:
        """Build it; the gradients of the forward loop's operands."""
        b, copy_of = self.b, self.part.copy_of
        after = {index: self._add_inner(self.finals[index].type) for index in self._live()}
        before = {index: copy_of(self.formals[index]) for index in after}
        captures = {
            inner: index
            for index, inner in enumerate(self.loop.body.inputs)
            if index >= self.first_capture and b.wants(index)
        }
        elements = elements_of(self.loop, captures)
        start = self._count()
        independent = [copy_of(element.tensor) for element in elements]
        wanted = [*before.values(), *map(copy_of, captures), *independent]
        found = walk(self.graph, self._seeds(after), wanted, independent)
        if not found and start is None:
            return ()
        self._begin_outputs()
        for index, inner in after.items():
            changes = before[index] in found or start is not None
            grad = found.get(before[index]) or self.emit.zeros(inner.type)
            self._carry(inner, b.grad(index), grad, FIRST_STATE + index if changes else None)
        self._accumulate({index: found.get(copy_of(inner)) for inner, index in captures.items()})
        rows = [element for element in elements if copy_of(element.tensor) in found]
        for element in rows:
            self._add_row(element, found[copy_of(element.tensor)])
        self._recall()
        return self._gradients(self._build(start), rows)

    # -- what there is to do ---------------------------------------------------------------------

    def _live(self) -> list[int]:
        """The states that have a gradient."""
        wants, grads = self.b.wants, self.b.optional_grad
        wanted = {t for index, t in enumerate(self.operands) if t is not None and wants(index)}
        given = {t for index, t in enumerate(self.b.op.outputs) if grads(index) is not None}
        return live_states(self.loop, wanted, given)

    def _count(self) -> Tensor | None:
        """Let a conditional loop count; whether there is a first iteration to go back through."""
        if not self.loop.conditional:
            return None
        b = self.b
        done = count_iterations(b.graph, b.op)
        self.last = b.sub(done, b.constant(1, DType.INT64))
        return b.emit("Greater", [done, b.constant(0, DType.INT64)])

    def _index(self) -> Tensor:
        """The number of the forward iteration."""
        if self.last is not None:
            last = self.part.capture(self.last)
        else:
            last = self.emit.constant(self.loop.trip_count - 1, DType.INT64)
        return self.emit.sub(last, self.iteration)

    def _row(self, stack: Tensor) -> Tensor:
        """The element of a stack (of the graph around) that belongs to the iteration."""
        return self.emit.emit("Gather", [self.part.capture(stack), self._index()], {"axis": 0})

    def _seeds(self, after: Mapping[int, Tensor]) -> list[tuple[Tensor, Tensor]]:
        """The results of the body, each with its gradient."""
        seeds = [(self.part.copy_of(self.carried[i]), grad) for i, grad in after.items()]
        for index, scan in enumerate(self.scans, len(self.carried)):
            grad = self.b.optional_grad(index)
            if grad is not None:
                seeds.append((self.part.copy_of(scan), self._row(grad)))
        return seeds

    # -- the outputs of the body -----------------------------------------------------------------

    def _begin_outputs(self) -> None:
        self.graph.outputs.clear()
        self.graph.output_names.clear()
        if self.loop.conditional:
            zero = self.emit.constant(0, DType.INT64)
            goes_on = self.emit.emit("Greater", [self._index(), zero])
        else:
            goes_on = self.emit.constant(1, DType.BOOL)
        self.graph.add_output("condition", goes_on)

    def _add_inner(self, type_: TensorType) -> Tensor:
        return self.graph.add_input("state", type_)

    def _carry(
        self, inner: Tensor, initial: Tensor, following: Tensor, operand: int | None = None
    ) -> None:
        """Make ``inner`` a state."""
        self.states.append(_State(inner, initial, operand))
        self.graph.outputs.insert(len(self.states), following)
        self.graph.output_names.insert(len(self.states), inner.name)

    def _accumulate(self, grads: Mapping[int, Tensor | None]) -> None:
        """Add up the gradients of captures, given by operand."""
        for index, grad in grads.items():
            if grad is not None:
                total = self._add_inner(grad.type)
                self._carry(total, self.b.zeros(grad.type), self.emit.add(total, grad), index)

    def _add_row(self, element: Element, grad: Tensor) -> None:
        """Stack the gradient of an element."""
        source = self.operands[element.operand]
        assert source is not None
        row = self.emit.reshape(grad, element.row_shape(source.type))
        self.graph.add_output(row.name, row)

    # -- what it reads ---------------------------------------------------------------------------

    def _saved(self, tensor: Tensor) -> Tensor:
        """The value of a tensor of the forward body in the iteration."""
        return self._row(export(self.b.graph, self.b.op, "body", tensor))

    def _recall(self) -> None:
        """Read the values of the forward loop that the copied body does not compute."""
        prune(self.graph)
        self.part.recall_results(self.scans, self._saved)
        for index, tensor in enumerate(self.carried):
            copy = self.part.copy_of(tensor)
            if self.part.is_computed(copy):
                inner = self._add_inner(copy.type)
                self.graph.replace_uses(copy, inner)
                self._carry(inner, self.finals[index], self.part.copy_of(self.formals[index]))
        self.part.recall_unrepeatable(self._saved)
        for index, formal in enumerate(self.formals):
            if self.part.is_read(self.part.copy_of(formal)):
                self.graph.replace_uses(self.part.copy_of(formal), self._state(index, formal))
        iteration, condition = map(self.part.copy_of, self.loop.body.inputs[:FIRST_STATE])
        self.graph.replace_uses(iteration, self._index())
        self.graph.replace_uses(condition, self.emit.constant(1, DType.BOOL))
        prune(self.graph)

    def _state(self, index: int, formal: Tensor) -> Tensor:
        """The state with which the iteration began."""
        if self.carried[index] is formal:
            initial = self.operands[FIRST_STATE + index]
            assert initial is not None, f"state {index} of {self.b.op!r} is absent"
            return self.part.capture(initial)
        return self._saved(formal)

    def _build(self, start: Tensor | None) -> Op:
        """The loop, once its body is complete."""
        captures = self.part.close(
            [self.iteration, self.condition, *(s.inner for s in self.states)]
        )
        rows = self.graph.outputs[1 + len(self.states) :]
        trips = self.loop.trip_count
        return self.b.graph.add_op(
            "Loop",
            [None, start, *(state.initial for state in self.states), *captures],
            [
                *(state.inner.type for state in self.states),
                *(row.type.with_shape((trips, *row.type.shape)) for row in rows),
            ],
            {
                "trip_count": trips,
                "conditional": int(self.loop.conditional),
                "states": len(self.states),
            },
            settings=self.b.op.settings.inherited(),
            subgraphs={"body": self.graph},
        )

    def _gradients(self, op: Op, elements: Sequence[Element]) -> list[Tensor | None]:
        """By operand of the forward loop."""
        parts: dict[int, list[Tensor]] = defaultdict(list)
        count = len(self.states)
        for state, result in zip(self.states, op.outputs[:count], strict=True):
            if state.operand is not None:
                parts[state.operand].append(result)
        for element, rows in zip(elements, op.outputs[count:], strict=True):
            source = self.operands[element.operand]
            assert source is not None
            parts[element.operand].append(joined_rows(self.b, element, rows, source.type))
        return [
            reduce(self.b.add, parts[index]) if index in parts else None
            for index in range(len(self.operands))
        ]
