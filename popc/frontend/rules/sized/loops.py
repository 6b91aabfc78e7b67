"""Rows that a loop collects, one in each iteration, where data decides how many iterations run.

They are written to a state that has room for the most iterations.  A state that a body only joins
rows to, which is how exporters write lists of tensors, is collected in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from popc.frontend import messages as onnx
from popc.frontend.node import Node
from popc.frontend.open_graph import OpenGraph
from popc.frontend.problems import AlreadyReported, DataDependent
from popc.frontend.rules.sized.moves import joined
from popc.frontend.rules.sized.node import SizedNode, sized
from popc.frontend.rules.sized.shapes import reshaped_to
from popc.frontend.values import SizedValue, Unknown, Value
from popc.frontend.walk import free_names, nested_graphs, number_of
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.ground.frozen import frozen

__all__ = ["CollectedRows", "Joined", "as_rows", "joined_states", "joined_to", "without_joins"]

_HEADER: Final = 2  # iteration and condition, in front of the states of a body


@frozen
class Joined:
    """A state that a body joins rows to.

    Attributes:
        place: Its number among the states.
        axis: The axis along which rows are joined.
        rows: The name of the rows within the body.
        own: The name of the state where it is joined to.
    """

    place: int
    axis: int
    rows: str
    own: str


def joined_states(body: onnx.GraphProto) -> list[Joined]:
    """The states that each iteration reads for nothing but to join rows behind them."""
    found: list[Joined] = []
    results = [info.name for info in body.output[1:]]
    for place, info in enumerate(body.input[_HEADER:]):
        own = _itself(body, info)
        readers = [node for node in body.node if _reads(node, own)]
        if len(readers) != 1 or place >= len(results) or readers[0].op_type != "Concat":
            continue
        (node,) = readers
        is_joined = len(node.input) == 2 and node.input[0] == own
        is_read = any(_reads(other, results[place]) for other in body.node)
        once = results.count(results[place]) == 1 and not {info.name, own} & {*results}
        if is_joined and once and not is_read and node.output[0] == results[place]:
            axis = number_of(node, "axis")
            if axis is not None:
                found.append(Joined(place, axis, node.input[1], own))
    return found


def _itself(body: onnx.GraphProto, info: onnx.ValueInfoProto) -> str:
    """The name of a state where it is read: scripts cast it to the type that it has."""
    readers = [node for node in body.node if _reads(node, info.name)]
    if len(readers) != 1 or readers[0].op_type != "Cast":
        return info.name
    is_same = number_of(readers[0], "to") == info.type.tensor_type.elem_type
    return readers[0].output[0] if is_same else info.name


def _reads(node: onnx.NodeProto, name: str) -> bool:
    inside = (free for graph in nested_graphs(node) for free in free_names(graph))
    return name in node.input or name in inside


def without_joins(body: onnx.GraphProto, states: Sequence[Joined]) -> onnx.GraphProto:
    """A body that gives the rows as its last results, in place of joining them to states."""
    own = onnx.GraphProto()
    own.CopyFrom(body)
    names = {body.output[1 + state.place].name for state in states}
    names |= {state.own for state in states}
    kept = [node for node in own.node if node.output[0] not in names]
    del own.node[:]
    own.node.extend(kept)
    for state in sorted(states, key=lambda state: -state.place):
        del own.input[_HEADER + state.place]
        del own.output[1 + state.place]
    own.output.extend(onnx.ValueInfoProto(name=state.rows) for state in states)
    return own


def joined_to(node: Node, state: Joined, initial: Value, rows: Value) -> Value:
    """The value of such a state behind the loop: the initial one, and all rows [n, ...] behind."""
    own = SizedNode(node, lambda _: ())
    first, stacked = sized(initial), sized(rows)
    axis = normal_axis(state.axis, len(first.counts))
    perm = (*range(1, axis + 1), 0, *range(axis + 1, len(stacked.counts)))
    padded = stacked.padded
    if axis:
        padded = own.emit("Transpose", [padded], {"perm": perm})
    moved = SizedValue(padded, tuple(stacked.counts[place] for place in perm))
    counts = [own.count(moved, place) for place in range(len(perm))]
    merged = own.mul(counts[axis], counts[axis + 1])
    whole = reshaped_to(own, moved, [*counts[:axis], merged, *counts[axis + 2 :]])
    return joined(own, [first, sized(whole)], axis)


class CollectedRows:
    """States of a loop that collect its rows, and count them.

    Attributes:
        initial: The first values of these states: of the rows, then the number.
    """

    def __init__(self, node: Node, body: OpenGraph, most: float, outputs: Sequence[int]) -> None:
        self._node = SizedNode(node, lambda _: ())
        self._inner = SizedNode.within_body(node, body)
        self._outputs = outputs
        self._most = most
        self._bound = self._find_bound()
        self.initial: list[Tensor] = []

    def _find_bound(self) -> int:
        table = self._node.table
        names = [self._node.result_name(output) for output in self._outputs]
        bound = min(self._most, table.given_bound(*names))
        if bound == inf:
            raise self._node.refuse(
                f"nothing bounds the number of its iterations, which is the size of a result "
                f"(give the most that it can be: --bound {names[0]}=N)"
            )
        return int(bound)

    def collected(self, rows: Sequence[Tensor], position: int) -> list[Tensor]:
        """Add the states to the body, as inputs from ``position`` on; their next values."""
        node, inner, graph = self._node, self._inner, self._inner.importer.graph
        number = inner.emit("Add", [graph.inputs[0], inner.int64(1)])
        if self._most > self._bound:
            name = node.result_name(self._outputs[0])
            attributes: AttributeMap = {"bound": self._bound, "tensor": name}
            number = inner.emit("CheckSize", [number], attributes)
        # From the checked number: one too many is found before it is written anywhere.
        last = inner.emit("Sub", [number, inner.int64(1)])
        place = inner.emit("Reshape", [last], {"shape": (1, 1)})
        news: list[Tensor] = []
        for row in rows:
            shape = (self._bound, *row.type.shape)
            zero = node.constant(0, row.type.dtype)
            self.initial.append(node.emit("Expand", [zero], {"shape": shape}))
            state = graph.add_input("rows", row.type.with_shape(shape))
            one = inner.emit("Reshape", [row], {"shape": (1, *row.type.shape)})
            news.append(inner.emit("ScatterND", [state, place, one], {"reduction": "none"}))
        self.initial.append(node.int64(0))
        graph.add_input("number", self.initial[-1].type)
        added = len(graph.inputs) - len(self.initial)
        own, others = graph.inputs[added:], graph.inputs[position:added]
        graph.inputs = [*graph.inputs[:position], *own, *others]
        return [*news, number]

    def values(self, results: Sequence[Tensor]) -> list[Value]:
        """The rows, from the results of the loop that these states are."""
        *rows, number = results
        self._node.table.limit(number, self._bound)
        return [self._node.value_of(row, (number, *(None,) * (row.type.rank - 1))) for row in rows]


def as_rows(node: Node, body: OpenGraph, value: Value | None, like: Value | None) -> Tensor:
    """Rows of one size in every iteration; those joined to ``like`` have its size but along one.

    Raises:
        AlreadyReported: they have not been imported.
        DataDependent: data decides their size.
    """
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Unknown):
        raise AlreadyReported
    if not isinstance(value, SizedValue):
        raise DataDependent("Loop: sequences and optionals must be resolved at compile time")
    inner = SizedNode.within_body(node, body)
    shape = like.type.shape if isinstance(like, Tensor) else ()
    padded = value.padded
    for axis, count in enumerate(value.counts):
        if count is None:
            continue
        if len(shape) != len(value.counts) or not shape[axis]:
            raise inner.refuse("collects rows of sizes that data decides")
        padded = inner.exactly(padded, axis, count, shape[axis])
    return padded
