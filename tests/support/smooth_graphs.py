"""Random graphs of smooth ops on float64, with nested If and Loop, for checks of gradients.

Every value stays within about [-1, 1], and so do derivatives, however often a loop repeats them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

import numpy as np

from popc.ir import AttributeMap, Graph, Tensor, TensorType
from popc.ops.build import build
from popc_runtime.format import Array, Attribute, DType

__all__ = ["smooth_feeds", "smooth_graph"]

_T = TypeVar("_T")
_BOOL = TensorType(DType.BOOL, ())
_INT64 = TensorType(DType.INT64, ())
_ROWS = 4
_SHAPES = ((), (3,), (_ROWS, 3))  # each can be broadcast to the next
_FLOATS = tuple(TensorType(DType.FLOAT64, shape) for shape in _SHAPES)


@dataclass
class _Builder:
    """A graph that grows; ``pool`` holds what later ops may read."""

    random: Random
    graph: Graph
    depth: int = 0
    trips: int = 0  # of the loop whose body this is
    pool: list[Tensor] = field(default_factory=list[Tensor])

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, items: Sequence[_T]) -> _T:
        return items[self.number(0, len(items) - 1)]

    def recent(self, items: Sequence[_T]) -> _T:
        return self.pick(items[-3:] if self.number(0, 2) else items)

    def floats(self) -> list[Tensor]:
        return [tensor for tensor in self.pool if tensor.type.dtype.is_float]

    def a_float(self) -> Tensor:
        return self.recent(self.floats())

    def of(self, type_: TensorType) -> Tensor:
        """A tensor of ``type_``, a constant if there is none."""
        known = [tensor for tensor in self.pool if tensor.type == type_]
        if known and self.number(0, 9):
            return self.recent(known)
        return self.constant(np.asarray(_random_array(type_, self.number(0, 3))))

    def constant(self, array: Array) -> Tensor:
        type_ = TensorType(DType.of(array.dtype), array.shape)
        return self.graph.add_constant("c", type_, array)

    def emit(self, op_type: str, inputs: Sequence[Tensor], **attributes: Attribute) -> Tensor:
        return build(self.graph, op_type, inputs, attributes).output

    def scaled(self, tensor: Tensor, factor: float) -> Tensor:
        return self.emit("Mul", [tensor, self.constant(np.asarray(factor))])

    def grow(self, most: int) -> None:
        kinds: list[Callable[[], None]] = [
            self.unary, self.unary, self.binary, self.binary, self.choose, self.row, self.element,
            self.element, self.count, self.compare, self.noise, self.dropout, self.quantity,
        ]  # fmt: skip
        if self.depth < 2:
            kinds += [self.branch, self.branch, self.loop, self.loop]
        for _ in range(self.number(2, most)):
            self.pick(kinds)()

    # -- ops on one graph ------------------------------------------------------------------------

    def unary(self) -> None:
        self.pool.append(self.emit(self.pick(("Sin", "Cos", "Neg", "Atan")), [self.a_float()]))

    def binary(self) -> None:
        op_type = self.pick(("Add", "Sub", "Mul"))
        result = self.emit(op_type, [self.a_float(), self.a_float()])
        self.pool.append(result if op_type == "Mul" else self.scaled(result, 0.5))

    def choose(self) -> None:
        operands = [self.of(_BOOL), self.a_float(), self.a_float()]
        self.pool.append(self.emit("Where", operands))

    def row(self) -> None:
        """A row of a matrix, which a counter selects."""
        rows = self.constant(np.asarray(_ROWS))
        index = self.emit("Mod", [self.of(_INT64), rows], fmod=0)
        self.pool.append(self.emit("Gather", [self.of(_FLOATS[2]), index], axis=0))

    def element(self) -> None:
        """Another row, or column, of a matrix in each iteration of a loop."""
        matrices = [tensor for tensor in self.graph.inputs if tensor.type == _FLOATS[2]]
        if not matrices or not self.trips:
            return
        index, axis = self.graph.inputs[0], self.number(0, 1)
        start = self.number(0, 3 - self.trips)
        kind = self.number(0, 3)
        if kind == 0:
            index = self.emit("Sub", [self.constant(np.asarray(start + self.trips - 1)), index])
        elif kind < 3:
            index = self.emit("Add", [index, self.constant(np.asarray(start))])
        else:  # counted from the end
            index = self.emit("Neg", [index])
        element = self.emit("Gather", [self.pick(matrices), index], axis=axis)
        if axis:
            element = self.emit("ReduceMean", [element], axes=(0,), keepdims=0)
        self.pool.append(element)

    def count(self) -> None:
        one = self.constant(np.asarray(self.number(1, 3)))
        self.pool.append(self.emit("Add", [self.of(_INT64), one]))

    def compare(self) -> None:
        limit = self.constant(np.asarray(self.number(0, 3)))
        self.pool.append(self.emit("Less", [self.of(_INT64), limit]))

    def quantity(self) -> None:
        """A float that no gradient goes through."""
        small = self.emit("Mod", [self.of(_INT64), self.constant(np.asarray(3))], fmod=0)
        self.pool.append(self.scaled(self.emit("Cast", [small], to="float64"), 0.3))

    def seed(self) -> int:
        """Of a random op: each has a sequence of its own, whatever the order of execution."""
        return self.number(1, 2**31)

    def noise(self) -> None:
        shape = self.pick(_SHAPES)
        attributes: AttributeMap = {"shape": shape, "to": "float64", "seed": self.seed()}
        self.pool.append(self.emit("RandomUniform", [], low=-1.0, high=1.0, **attributes))

    def dropout(self) -> None:
        ratio, training = self.constant(np.asarray(0.5)), self.constant(np.asarray(1, np.bool_))
        op_inputs = [self.a_float(), ratio, training]
        dropped = self.emit("Dropout", op_inputs, seed=self.seed())
        self.pool.append(self.scaled(dropped, 0.5))

    # -- control flow ----------------------------------------------------------------------------

    def nested(self, name: str, trips: int = 0) -> _Builder:
        return _Builder(self.random, Graph(name), self.depth + 1, trips)

    def some(self, most: int) -> list[Tensor]:
        return [self.recent(self.pool) for _ in range(self.number(1, most))]

    def give(self, types: Sequence[TensorType]) -> None:
        for type_ in types:
            self.graph.add_output("out", self.of(type_))

    def branch(self) -> None:
        captures = [self.a_float(), *self.some(3)]
        types = [self.a_float().type, self.pick(captures).type]
        branches: dict[str, Graph] = {}
        for name in ("then_branch", "else_branch"):
            inner = self.nested(name)
            inner.pool = [inner.graph.add_input("in", tensor.type) for tensor in captures]
            inner.grow(4)
            inner.give(types)
            branches[name] = inner.graph
        op = self.graph.add_op("If", [self.of(_BOOL), *captures], types, subgraphs=branches)
        self.pool += op.outputs

    def loop(self) -> None:
        states, captures = [self.a_float(), *self.some(3)], self.some(3)
        trips, conditional = self.number(0, 3), self.number(0, 2) == 0
        inner = self.nested("body", trips)
        types = [_INT64, _BOOL, *(tensor.type for tensor in (*states, *captures))]
        inputs = [inner.graph.add_input("in", type_) for type_ in types]
        # Without a condition nothing is written to the body's input for it.
        inner.pool = [t for t in inputs if conditional or t is not inputs[1]]
        inner.grow(5)
        inner.give([_BOOL, *(tensor.type for tensor in states)])
        scans = [] if conditional else [inner.a_float() for _ in range(self.number(0, 2))]
        for tensor in scans:
            inner.graph.add_output("scan", tensor)
        starts = self.of(_BOOL) if conditional and self.number(0, 1) else None
        op = self.graph.add_op(
            "Loop",
            [None, starts, *states, *captures],
            [
                *(tensor.type for tensor in states),
                *(tensor.type.with_shape((trips, *tensor.type.shape)) for tensor in scans),
            ],
            {"trip_count": trips, "conditional": int(conditional), "states": len(states)},
            subgraphs={"body": inner.graph},
        )
        self.pool += op.outputs[: len(states)]
        for stack in op.outputs[len(states) :]:
            self.use_stack(stack)

    def use_stack(self, stack: Tensor) -> None:
        """Add a row of ``stack`` and, now and then, all of it to the results."""
        if stack.type.shape[0]:
            index = self.constant(np.asarray(self.number(0, stack.type.shape[0] - 1)))
            self.pool.append(self.emit("Gather", [stack, index], axis=0))
        if self.depth == 0 and self.number(0, 1):
            self.graph.add_output("stack", stack)


def _random_array(type_: TensorType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    if type_.dtype.is_float:
        return rng.uniform(-1, 1, type_.shape).astype(type_.dtype.storage)
    return rng.integers(0, 2, type_.shape).astype(type_.dtype.storage)


def smooth_graph(seed: int, most_ops: int = 8) -> Graph:
    """A graph from floats, a counter and a condition to floats."""
    builder = _Builder(Random(seed), Graph("main"))
    types = [*_FLOATS, _INT64, _BOOL]
    builder.pool = [builder.graph.add_input("x", type_) for type_ in types]
    builder.grow(most_ops)
    for _ in range(builder.number(1, 3)):
        builder.graph.add_output("y", builder.a_float())
    builder.graph.output_names = [f"y{index}" for index in range(len(builder.graph.outputs))]
    return builder.graph


def smooth_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Values for the inputs of ``graph``."""
    return {t.name: _random_array(t.type, seed + i) for i, t in enumerate(graph.inputs)}
