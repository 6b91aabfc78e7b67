"""Random graphs for hypothesis, and an interpreter that gives every value memory of its own.

Graphs mix elementwise ops, views, joins and ops that need contiguous operands, over inputs and
constants of two element types, with nested If, Loop and Call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from popc.ir import Graph, Op, Shape, Tensor, TensorType, VariableRole
from popc.ops.build import build, evaluate
from popc.transforms.subgraph_outputs import SubgraphOutputs
from popc_runtime.format import Array, DType

__all__ = ["first_state", "graphs", "interpret", "random_feeds"]

# A transfer from or to the host: its results.
Host: TypeAlias = "Callable[[Op, Sequence[Array | None]], Sequence[Array]]"

_T = TypeVar("_T")
_BOOL = TensorType(DType.BOOL, ())
_INT64 = TensorType(DType.INT64, ())
_MATRIX = TensorType(DType.FLOAT32, (2, 3))
_DEEPEST = 2  # graphs in graphs
_UNARY = ("Relu", "Neg", "Abs")
_BINARY = ("Add", "Sub", "Mul")


@dataclass
class _Builder:
    """A graph that grows op by op; ``pool`` holds what later ops may read."""

    draw: DrawFn
    graph: Graph
    depth: int
    pool: list[Tensor] = field(default_factory=list[Tensor])
    # What may be called, in the graphs around this one too.
    callees: list[Graph] = field(default_factory=list[Graph])

    def pick(self, items: Sequence[_T]) -> _T:
        return items[self.number(0, len(items) - 1)]

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def some(self, items: Sequence[_T], most: int) -> list[_T]:
        count = self.number(0, min(most, len(items)))
        return [self.pick(items) for _ in range(count)]

    def recent(self, items: Sequence[_T]) -> _T:
        """One of the last two items, or any: chains are where memory is taken over."""
        return self.pick(items[-2:] if self.number(0, 2) else items)

    def constant(self, type_: TensorType) -> Tensor:
        seed = self.number(0, 3)  # few, so that contents repeat
        shape = "x".join(map(str, type_.shape))
        name = f"{type_.dtype}_{shape}_{seed}_"  # prints tell equal names by equal contents
        return self.graph.add_constant(name, type_, _random_array(type_, seed))

    def emit(self, op_type: str, inputs: Sequence[Tensor], **attributes: int | Shape) -> None:
        self.pool.extend(build(self.graph, op_type, inputs, {**attributes}).outputs)

    def grow(self, most: int) -> None:
        kinds = [
            self.unary, self.binary, self.binary, self.reshape, self.transpose, self.slice,
            self.split, self.expand, self.concat, self.concat, self.reduce,
        ]  # fmt: skip
        if self.depth < _DEEPEST:
            kinds += [self.branch, self.loop, self.call, self.call]
        for _ in range(self.number(1, most)):
            self.pick(kinds)()

    # -- ops on one graph ------------------------------------------------------------------------

    def numeric(self) -> Tensor:
        return self.recent([t for t in self.pool if t.type.dtype is not DType.BOOL])

    def ranked(self) -> Tensor:
        return self.recent([t for t in self.pool if t.type.rank and t.type.dtype is not DType.BOOL])

    def like(self, tensor: Tensor) -> Tensor:
        """A tensor of the same type, ``tensor`` itself if need be."""
        return self.recent([t for t in self.pool if t.type == tensor.type])

    def unary(self) -> None:
        self.emit(self.pick(_UNARY), [self.numeric()])

    def binary(self) -> None:
        tensor = self.numeric()
        fitting = [t for t in self.pool if t.type.dtype is tensor.type.dtype]
        other = self.recent([t for t in fitting if _broadcasts(t.type.shape, tensor.type.shape)])
        self.emit(self.pick(_BINARY), [tensor, other])

    def reshape(self) -> None:
        tensor = self.numeric()
        size = tensor.type.size
        shapes: list[Shape] = [(size,), (1, size), (size, 1)]
        if size % 2 == 0:
            shapes += [(2, size // 2), (size // 2, 2)]
        self.emit("Reshape", [tensor], shape=self.pick(shapes))

    def transpose(self) -> None:
        tensor = self.numeric()
        perm = self.draw(st.permutations(range(tensor.type.rank)))
        self.emit("Transpose", [tensor], perm=tuple(perm))

    def slice(self) -> None:
        tensor = self.ranked()
        starts, sizes, steps = [], [], []
        for dim in tensor.type.shape:
            start = self.number(0, max(dim - 1, 0))
            size = self.number(0, dim - start)
            starts.append(start)
            sizes.append(size)
            steps.append(1)
            if dim and self.number(0, 3) == 0:  # backwards
                starts[-1], sizes[-1], steps[-1] = dim - 1, (dim + 1) // 2, -2 if dim > 2 else -1
        self.emit("Slice", [tensor], starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))

    def split(self) -> None:
        tensor = self.ranked()
        axis = self.number(0, tensor.type.rank - 1)
        dim = tensor.type.shape[axis]
        cut = self.number(0, dim)
        self.emit("Split", [tensor], axis=axis, split=(cut, dim - cut))

    def expand(self) -> None:
        tensor = self.numeric()
        shape = tuple(3 if dim == 1 else dim for dim in tensor.type.shape)
        self.emit("Expand", [tensor], shape=(2, *shape) if tensor.type.rank < 3 else shape)

    def concat(self) -> None:
        tensor = self.ranked()
        operands = [tensor, *(self.like(tensor) for _ in range(self.number(0, 2)))]
        self.emit("Concat", operands, axis=self.number(0, tensor.type.rank - 1))

    def reduce(self) -> None:
        tensor = self.ranked()
        if tensor.type.size and tensor.type.dtype is DType.FLOAT32:
            self.emit("ReduceMax", [tensor], axes=(0,), keepdims=self.number(0, 1))

    # -- control flow ----------------------------------------------------------------------------

    def nested(self, name: str) -> _Builder:
        return _Builder(self.draw, Graph(name), self.depth + 1, callees=self.callees)

    def scalar(self, type_: TensorType) -> Tensor:
        known = [tensor for tensor in self.pool if tensor.type == type_]
        return self.pick([*known, self.constant(type_)])

    def branch(self) -> None:
        captures = [self.pick(self.pool), *self.some(self.pool, 2)]
        branches: dict[str, Graph] = {}
        wanted = [t.type for t in self.some(captures, 2)]
        for name in ("then_branch", "else_branch"):
            inner = self.nested(name)
            inner.pool = [inner.graph.add_input(t.name, t.type) for t in captures]
            inner.pool.append(inner.constant(_MATRIX))
            inner.grow(4)
            inner.give(wanted)
            branches[name] = inner.graph
        op = self.graph.add_op("If", [self.scalar(_BOOL), *captures], wanted, subgraphs=branches)
        self.pool += op.outputs

    def call(self) -> None:
        """Call a graph once more, or a new one."""
        known = [
            callee
            for callee in self.callees
            if all(any(t.type == wanted.type for t in self.pool) for wanted in callee.inputs)
        ]
        callee = self.pick([*known, *known, self.new_callee()] if known else [self.new_callee()])
        operands = [self.like(tensor) for tensor in callee.inputs]
        types = [tensor.type for tensor in callee.outputs]
        self.pool += self.graph.add_op(
            "Call", operands, types, subgraphs={"callee": callee}
        ).outputs

    def new_callee(self) -> Graph:
        inner = self.nested("callee")
        types = [tensor.type for tensor in (self.pick(self.pool), *self.some(self.pool, 2))]
        inner.pool = [inner.graph.add_input("in", type_) for type_ in types]
        inner.pool.append(inner.constant(_MATRIX))
        inner.grow(5)
        inner.give([tensor.type for tensor in (inner.pool[-1], *inner.some(inner.pool, 1))])
        inner.graph.name += str(len(self.callees))  # those within it have theirs
        self.callees.append(inner.graph)
        return inner.graph

    def loop(self) -> None:
        states, captures = self.some(self.pool, 3), self.some(self.pool, 2)
        inner = self.nested("body")
        types = [_INT64, _BOOL, *(t.type for t in states), *(t.type for t in captures)]
        inputs = [inner.graph.add_input("in", type_) for type_ in types]
        inner.pool = [*inputs, inner.constant(_MATRIX)]
        inner.grow(5)
        conditional = self.number(0, 1)
        inner.give([_BOOL, *(t.type for t in states)])
        static = self.number(0, 2) > 0
        trip_count = self.number(0, 3) if static else -1
        scans = inner.some(inner.pool, 2) if static and not conditional else []
        for tensor in scans:
            inner.graph.add_output("scan", tensor)
        self.pool += self.graph.add_op(
            "Loop",
            [
                None if static else self.constant(_INT64),
                self.scalar(_BOOL) if conditional else None,
                *states,
                *captures,
            ],
            [
                *(t.type for t in states),
                *(t.type.with_shape((trip_count, *t.type.shape)) for t in scans),
            ],
            {"trip_count": trip_count, "conditional": conditional, "states": len(states)},
            subgraphs={"body": inner.graph},
        ).outputs

    def give(self, types: Sequence[TensorType]) -> None:
        """Choose outputs of the given types, the latest results rather than the first inputs."""
        for type_ in types:
            fitting = [tensor for tensor in self.pool if tensor.type == type_]
            self.graph.add_output("out", self.pick(fitting[-2:]))

    # -- variables -------------------------------------------------------------------------------

    def variable(self) -> Tensor:
        initial = _random_array(_MATRIX, 7) if self.number(0, 1) else None
        return self.graph.add_variable("v", _MATRIX, VariableRole.WEIGHT, initial)

    def update(self, variables: Sequence[Tensor]) -> None:
        """Write to some of the variables."""
        for variable in variables:
            if self.number(0, 3):
                build(self.graph, "CopyVarUpdate", [variable, self.like(variable)])


def _broadcasts(first: Shape, second: Shape) -> bool:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _random_array(type_: TensorType, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 4, type_.shape).astype(type_.dtype.storage)


@st.composite
def graphs(
    draw: DrawFn, most_ops: int = 16, *, variables: bool = True, nested: bool = True
) -> Graph:
    """A valid graph whose nested outputs have memory of their own."""
    builder = _Builder(draw, Graph("main"), 0 if nested else _DEEPEST)
    types = [_BOOL, _MATRIX, TensorType(DType.FLOAT32, (4,))]
    types += builder.some([TensorType(DType.INT8, (3, 1, 2)), TensorType(DType.INT8, (5,))], 2)
    builder.pool = [builder.graph.add_input("x", type_) for type_ in types]
    builder.pool.append(builder.constant(builder.pick(types)))
    updated = [builder.variable() for _ in range(builder.number(0, 2) if variables else 0)]
    builder.pool += updated
    builder.grow(most_ops)
    builder.update(updated)
    for tensor in [builder.pool[-1], *builder.some(builder.pool, 2)]:
        # What a run returns is read when the variables have been overwritten.
        kept = build(builder.graph, "Copy", [tensor]).output if updated else tensor
        builder.graph.add_output("y", kept)
    SubgraphOutputs().run(builder.graph)
    return builder.graph


def random_feeds(graph: Graph, seed: int) -> list[Array]:
    """Values for the inputs of ``graph``."""
    return [_random_array(tensor.type, seed + i) for i, tensor in enumerate(graph.inputs)]


# -- the oracle ------------------------------------------------------------------------------------


def first_state(graph: Graph) -> dict[Tensor, Array]:
    """The values of the variables before the first run."""
    return {
        tensor: np.zeros(tensor.type.shape, tensor.type.dtype.storage)
        if tensor.initial is None
        else tensor.initial
        for tensor in graph.variables
    }


def interpret(
    graph: Graph,
    inputs: Sequence[Array],
    state: dict[Tensor, Array] | None = None,
    host: Host | None = None,
) -> list[Array]:
    """The outputs of ``graph``, every op evaluated on its own; updates the variables' values."""
    values = dict(zip(graph.inputs, inputs, strict=True)) | (state or {})
    values |= {t: t.data for t in graph.tensors.values() if t.data is not None}
    for op in graph.topological():
        operands = [None if tensor is None else values[tensor] for tensor in op.inputs]
        if op.op_type != "CopyVarUpdate":
            values.update(zip(op.outputs, _results(op, operands, host), strict=True))
    for op in graph.ops:
        if op.op_type == "CopyVarUpdate" and state is not None:
            state[op.operand(0)] = values[op.operand(1)]
    return [values[tensor] for tensor in graph.outputs]


def _results(op: Op, operands: list[Array | None], host: Host | None) -> Sequence[Array]:
    if op.op_type in ("HostLoad", "HostStore"):
        assert host is not None
        return host(op, operands)
    if op.op_type == "If":
        name = "then_branch" if _is_true(operands[0]) else "else_branch"
        return interpret(op.subgraphs[name], [a for a in operands[1:] if a is not None], host=host)
    if op.op_type == "Loop":
        return _run_loop(op, operands, host)
    if op.op_type == "Call":
        return interpret(op.subgraphs["callee"], [a for a in operands if a is not None], host=host)
    return evaluate(op, operands)


def _is_true(condition: Array | None) -> bool:
    return condition is None or bool(condition)


def _run_loop(op: Op, operands: list[Array | None], host: Host | None) -> list[Array]:
    count = int(str(op.attributes["states"]))
    trips = int(str(op.attributes["trip_count"]))
    if trips < 0:
        assert operands[0] is not None
        trips = int(operands[0])
    given = [array for array in operands[2:] if array is not None]
    states, captures = given[:count], given[count:]
    condition = np.array(_is_true(operands[1]))
    scans: list[list[Array]] = []
    iteration = 0
    while iteration < trips and (condition or not op.attributes["conditional"]):
        going_on = condition if op.attributes["conditional"] else np.array(1, np.bool_)
        header = [np.array(iteration), going_on]
        results = interpret(op.subgraphs["body"], [*header, *states, *captures], host=host)
        condition, states = results[0], results[1 : 1 + count]
        scans.append(results[1 + count :])
        iteration += 1
    stacked = [
        np.array([row[i] for row in scans], t.type.dtype.storage).reshape(t.type.shape)
        for i, t in enumerate(op.outputs[count:])
    ]
    return [*states, *stacked]
