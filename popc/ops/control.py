"""The operands of control-flow ops: which are captures, states and results.

* If(condition, *captures): both branches take the captures and return the results.
* Call(*operands): the callee takes the operands and returns the results.  Several calls may have
  one callee; it has its own memory plan, and is given memory for operands and results by the call.
* Loop(trip count?, condition?, *states, *captures): the body takes (iteration, condition, *states,
  *captures) and returns (condition, *states, *scans); the op's outputs are the final states and
  the stacked scans.
"""

from __future__ import annotations

from typing import NamedTuple

from popc.ir import Graph, Op, Tensor

__all__ = [
    "LoopState",
    "called_graphs",
    "callee_of",
    "captured_as",
    "first_capture",
    "is_read_throughout",
    "loop_body",
    "loop_header",
    "loop_states",
    "own_graphs",
]

_TRIP_COUNT = 0  # operand of a Loop; 1 is the condition
_FIRST_STATE = 2  # operand, and input of the body


class LoopState(NamedTuple):
    """A state of a loop: operand number of its initial value, body input, output of the op."""

    operand: int
    inner: Tensor
    result: Tensor


def callee_of(op: Op) -> Graph | None:
    """The graph that ``op`` calls if it is a call."""
    return op.subgraphs["callee"] if op.op_type == "Call" else None


def called_graphs(graph: Graph) -> list[Graph]:
    """The graphs that are called anywhere in ``graph``, each before those that call it."""
    found = {callee_of(op): None for nested in graph.walk() for op in nested.holders}
    return [nested for nested in reversed(list(graph.walk())) if nested in found]


def own_graphs(graph: Graph) -> list[Graph]:
    """``graph`` and the graphs nested in it otherwise than by calls, outer first."""
    found = [graph]
    for op in graph.holders:
        if callee_of(op) is None:
            for nested in op.subgraphs.values():
                found += own_graphs(nested)
    return found


def loop_body(op: Op) -> Graph | None:
    """The body if ``op`` is a loop."""
    return op.subgraphs.get("body")


def loop_header(body: Graph) -> list[Tensor]:
    """The iteration number and the condition as a loop body sees them."""
    return body.inputs[:_FIRST_STATE]


def loop_states(op: Op) -> list[LoopState]:
    """The states of a loop, in order."""
    body = loop_body(op)
    assert body is not None, f"{op!r} is not a loop"
    return [
        LoopState(index, body.inputs[index], op.outputs[index - _FIRST_STATE])
        for index in range(_FIRST_STATE, first_capture(op))
    ]


def first_capture(op: Op) -> int:
    """The number of the first operand that is a capture.

    Raises:
        ValueError: ``op`` is no known control-flow op.
    """
    if op.op_type == "Call":
        return 0
    if op.op_type == "If":
        return 1
    if op.op_type == "Loop":
        states = op.attributes["states"]
        assert isinstance(states, int), f"{op!r}: states={states!r}"
        return _FIRST_STATE + states
    raise ValueError(f"{op!r} has subgraphs but is no Call, If or Loop")


def captured_as(op: Op, index: int) -> list[Tensor]:
    """The names of operand ``index``, a capture, inside: one graph input per subgraph."""
    assert index >= first_capture(op), f"operand {index} of {op!r} is not a capture"
    shift = 1 if op.op_type == "If" else 0  # a body has an input for every operand, a branch not
    return [graph.inputs[index - shift] for graph in op.subgraphs.values()]


def inner_names(op: Op, tensor: Tensor) -> list[Tensor]:
    """The tensors that graphs nested in ``op``, if there are any, capture ``tensor`` as."""
    indices = range(first_capture(op), len(op.inputs)) if op.subgraphs else ()
    found = (captured_as(op, index) for index in indices if op.inputs[index] is tensor)
    return [name for names in found for name in names]


def is_read_throughout(op: Op, index: int) -> bool:
    """True if operand ``index`` of a control-flow op is read until the op ends.

    If not, it is read when the op begins: a condition, or the initial value of a state.
    """
    is_trip_count = loop_body(op) is not None and index == _TRIP_COUNT
    return is_trip_count or index >= first_capture(op)
