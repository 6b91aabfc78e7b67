"""Error bounds of moves: errors go where elements go."""

from __future__ import annotations

import numpy as np

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import run_node
from tools.campaigns.random_models.rules import Step, of_sum, wide

__all__ = ["exact", "moved", "pooled_maximum", "refused_if_uncertain", "scattered"]


def moved(step: Step) -> list[Array]:
    """Errors go where elements go."""
    operands = [
        None
        if x is None
        else x.error.astype(np.float32)
        if i in moved_operands(step)
        else wide(x.array)
        for i, x in enumerate(step.operands)
    ]
    if step.node.op_type == "Pad" and step.has(2):
        operands[2] = np.zeros((), np.float32)
    if not any(
        a is not None and a.any() for i, a in enumerate(operands) if i in moved_operands(step)
    ):
        return exact(step)
    results = run_node(step.node, operands, step.opset)
    return [
        np.zeros(()) if made is None else results[name].astype(np.float64)
        for name, made in zip(step.node.output, step.results, strict=True)
    ]


def moved_operands(step: Step) -> range:
    kind = step.node.op_type
    if kind in {"Concat", "Max", "Min"}:
        return range(len(step.operands))
    return range(1)


def exact(step: Step) -> list[Array]:
    """No result is off."""
    return [np.zeros(()) if array is None else np.zeros(array.shape) for array in step.results]


def refused_if_uncertain(step: Step) -> list[Array]:
    """Integers and truth values that are exact if operands are."""
    if any(x is not None and x.error.any() for x in step.operands):
        return [np.full(() if a is None else a.shape, np.inf) for a in step.results]
    return exact(step)


def scattered(step: Step) -> list[Array]:
    """ScatterElements and ScatterND: errors go where elements go."""
    data, indices, updates = (step.operand(i) for i in range(3))
    error = step.evaluated(
        [data.error.astype(np.float32), indices.array, updates.error.astype(np.float32)]
    )
    if step.attribute("reduction", b"none") == b"none":
        return [error]
    sizes = step.evaluated([wide(np.abs(data.array)), indices.array, wide(np.abs(updates.array))])
    return [error + of_sum(updates.array.size) * sizes + step.rounding()]


def pooled_maximum(step: Step) -> list[Array]:
    """The largest error of a window."""
    if len([a for a in step.results if a is not None]) > 1:
        return refused_if_uncertain(step)
    return [step.through(step.operand(0).error)]
