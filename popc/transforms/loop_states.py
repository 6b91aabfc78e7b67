"""The values that the main loops carry on, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.options import ReturnType
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = [
    "MainLoopState",
    "capture_variables",
    "carry_store",
    "make_loop",
    "scalar_constant",
    "zeros",
]


@frozen
class MainLoopState:
    """One state of a main loop.

    Attributes:
        initial: Its value before the first iteration, a tensor of the outer graph.
        formal: The input by which the body sees it.
        value: What the body hands on.
        finish: Called with the loop's result.
    """

    initial: Tensor
    formal: Tensor
    value: Tensor
    finish: Callable[[Tensor], object]


def make_loop(
    outer: Graph,
    body: Graph,
    states: Sequence[MainLoopState],
    captures: Sequence[tuple[Tensor, Tensor]],
    count: int,
) -> Op:
    """Add the loop over ``body``, whose first two inputs are the iteration and the condition.

    Args:
        outer: Where the loop goes.
        body: Its body; its outputs, and the rest of its inputs, are set here.
        states: What it carries.
        captures: What it reads from outside: (tensor of the outer graph, input of the body).
        count: The number of iterations.
    """
    body.inputs[2:] = [*(s.formal for s in states), *(inner for _, inner in captures)]
    body.add_output("condition", scalar_constant(body, 1, DType.BOOL))
    for state in states:
        body.add_output(state.value.name, state.value)
    return outer.add_op(
        "Loop",
        [None, None, *(s.initial for s in states), *(outside for outside, _ in captures)],
        [state.value.type for state in states],
        {"trip_count": count, "conditional": 0, "states": len(states)},
        settings=OpSettings(origin=body.name),
        subgraphs={"body": body},
    )


def carry_store(outer: Graph, body: Graph, store: Op, kind: ReturnType) -> MainLoopState:
    """The state behind a final or summed output; its HostStore moves behind the loop."""
    value = store.operand(0)
    formal = body.add_input(f"{value.name}_state", value.type)
    if kind is ReturnType.SUM:
        value = build(body, "Add", [formal, value], settings=OpSettings(origin="anchorSum")).output
    attributes, settings = dict(store.attributes), store.settings
    body.remove_op(store)
    return MainLoopState(
        zeros(outer, value.type),
        formal,
        value,
        lambda result: build(outer, "HostStore", [result], attributes, settings=settings),
    )


def capture_variables(outer: Graph, body: Graph) -> list[tuple[Tensor, Tensor]]:
    """Move the variables of ``body`` to ``outer``, where they belong, and capture them."""
    captures: list[tuple[Tensor, Tensor]] = []
    for variable in body.variables:
        formal = body.add_input(variable.name, variable.type)
        body.replace_uses(variable, formal)
        body.move_variable(variable, outer)
        captures.append((variable, formal))
    return captures


def scalar_constant(graph: Graph, value: float, dtype: DType) -> Tensor:
    """A scalar constant of a numpy type."""
    data = np.asarray(value, dtype.storage)
    return graph.add_constant("constant", TensorType(dtype, ()), data)


def zeros(graph: Graph, type_: TensorType) -> Tensor:
    """A tensor of zeros that takes no space in the archive."""
    zero = np.zeros((), type_.dtype.storage)
    scalar = graph.add_constant("zero", type_.with_shape(()), zero)
    return build(graph, "Expand", [scalar], {"shape": type_.shape}).output
