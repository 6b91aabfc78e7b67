"""The trip count of a loop whose condition depends on counters only.

Exporters write counted loops as while loops: the body adds one to a carried counter and compares it
with a limit.  If everything that the condition depends on is known at the start, the iterations
can be counted by running just that part of the body.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.ops.build import can_evaluate, evaluate
from popc_runtime.format import Array

__all__ = ["count_iterations"]

_MOST_ITERATIONS: Final = 100_000  # counted one by one when compiling


def count_iterations(
    body: Graph,
    condition: Tensor,
    carried: Sequence[Tensor],
    initial: Sequence[Array | None],
    limit: int,
) -> int | None:
    """The number of iterations, or ``None`` if it depends on run-time values.

    Args:
        body: Inputs are (iteration, condition, *states, *captures).
        condition: Whether to go on, computed by the body.
        carried: The next value of each state.
        initial: The value of each state at the start, where it is known.
        limit: The most iterations that the loop may run; -1 for no limit.
    """
    formal = body.inputs[2 : 2 + len(carried)]
    needed = _needed_states(condition, formal, carried)
    if needed is None or any(initial[index] is None for index in needed):
        return None
    roots = [condition, *(carried[index] for index in needed)]
    ops = _slice(body, roots, {body.inputs[0], *(formal[index] for index in needed)})
    if ops is None:
        return None
    values: dict[Tensor, Array] = {}
    for index in needed:
        start = initial[index]
        assert start is not None, "checked above"
        values[formal[index]] = start
    count = 0
    while limit < 0 or count < limit:
        if count == _MOST_ITERATIONS:
            return None
        values[body.inputs[0]] = np.asarray(count, np.int64)
        _run(ops, values)
        count += 1
        if not bool(_value(condition, values).reshape(())[()]):
            break
        following = {formal[index]: _value(carried[index], values) for index in needed}
        values.update(following)
    return count


def _needed_states(
    condition: Tensor, formal: Sequence[Tensor], carried: Sequence[Tensor]
) -> list[int] | None:
    """States that the condition depends on, directly or through earlier iterations."""
    position = {tensor: index for index, tensor in enumerate(formal)}
    needed: dict[int, None] = {}
    stack = [condition]
    seen: set[Tensor] = set()
    while stack:
        tensor = stack.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in position and position[tensor] not in needed:
            needed[position[tensor]] = None
            stack.append(carried[position[tensor]])
        if tensor.producer is not None:
            if not can_evaluate(tensor.producer):
                return None
            stack.extend(tensor.producer.present_inputs)
    return list(needed)


def _slice(body: Graph, roots: Sequence[Tensor], known: Collection[Tensor]) -> list[Op] | None:
    """The ops that compute ``roots``, in order; ``None`` if they read an input not ``known``."""
    wanted: set[Op] = set()
    stack = list(roots)
    while stack:
        tensor = stack.pop()
        if tensor.producer is None:
            if tensor.data is None and tensor not in known:
                return None
        elif tensor.producer not in wanted:
            wanted.add(tensor.producer)
            stack.extend(tensor.producer.present_inputs)
    return [op for op in body.topological() if op in wanted]


def _run(ops: Sequence[Op], values: dict[Tensor, Array]) -> None:
    for op in ops:
        operands = [None if tensor is None else _value(tensor, values) for tensor in op.inputs]
        values.update(zip(op.outputs, evaluate(op, operands), strict=True))


def _value(tensor: Tensor, values: dict[Tensor, Array]) -> Array:
    return tensor.data if tensor.data is not None else values[tensor]
