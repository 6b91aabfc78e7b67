"""A small network with its gradients in numpy, and graphs that update its weights.

The gradients do not come from popc, so that these tests are about optimizers alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import numpy as np

from popc.ir import Graph, Op, Tensor, TensorType, VariableRole
from popc.optimizers import (
    UpdateContext,
    UpdateResult,
    add_updates,
    loss_scale,
    parse_optimizer,
)
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import as_stored, floats_of
from tests.support.oracles import changed_variables, known_values, run_one

__all__ = [
    "STEPS",
    "Trained",
    "bits",
    "gradients",
    "initial_weights",
    "samples",
    "train",
    "update_graph",
]

STEPS: Final = 50

Weights = dict[str, Array]


def initial_weights(dtype: Any = np.float32) -> Weights:
    """Two layers of weights and biases."""
    rng = np.random.default_rng(4)
    shapes = {"w1": (6, 5), "b1": (5,), "w2": (5, 3), "b2": (3,)}
    return {name: rng.normal(0, 0.5, shape).astype(dtype) for name, shape in shapes.items()}


def samples(step: int, micro_batch: int = 0) -> tuple[Array, Array]:
    """Inputs and targets of one micro-batch."""
    rng = np.random.default_rng((step, micro_batch))
    return rng.normal(size=(8, 6)), rng.normal(size=(8, 3))


def gradients(weights: Mapping[str, Array], step: int, micro_batch: int = 0) -> Weights:
    """The gradients of mean squared error, computed in float64, as float32."""
    x, target = samples(step, micro_batch)
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    hidden = np.tanh(x @ w["w1"] + w["b1"])
    error = (hidden @ w["w2"] + w["b2"] - target) * (2 / target.size)
    inner = error @ w["w2"].T * (1 - hidden * hidden)
    found = {"w1": x.T @ inner, "b1": inner.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}
    return {name: grad.astype(weights[name].dtype) for name, grad in found.items()}


def update_graph(
    settings: Mapping[str, object], weights: Mapping[str, Array], **context: Any
) -> tuple[Graph, UpdateResult]:
    """A graph that updates weights with gradients that are its inputs."""
    graph = Graph("update")
    spec = parse_optimizer(settings)
    pairs: list[tuple[Tensor, Tensor]] = []
    for name, value in weights.items():
        type_ = TensorType(DType.of(value.dtype), value.shape)
        weight = graph.add_variable(name, type_, VariableRole.WEIGHT, bits(value))
        pairs.append((weight, graph.add_input(f"Gradient___{name}", type_)))
    scale = loss_scale(graph, spec)
    return graph, add_updates(graph, pairs, spec, UpdateContext(loss_scale=scale, **context))


def run_update(
    graph: Graph,
    micro_batches: Sequence[Mapping[str, Array]],
    variables: MutableMapping[str, Array],
) -> None:
    """Run a graph for each micro-batch up to its Accumulate ops, and once from there on."""
    runs = [known_values(graph, variables) for _ in micro_batches]
    for values, feeds in zip(runs, micro_batches, strict=True):
        values |= {tensor: feeds[tensor.name] for tensor in graph.inputs}
    after: set[Tensor] = set()
    for op in graph.topological():
        if op.op_type == "Accumulate":
            runs[-1][op.output] = _accumulated(op, runs)
            after.add(op.output)
        elif any(tensor in after for tensor in op.present_inputs):
            runs[-1] |= dict(zip(op.outputs, run_one(op, runs[-1]), strict=True))
            after.update(op.outputs)
        else:
            for values in runs:
                values |= dict(zip(op.outputs, run_one(op, values), strict=True))
    variables.update(changed_variables(graph, runs[-1]))


def _accumulated(op: Op, runs: Sequence[Mapping[Tensor, Array]]) -> Array:
    dtype, start = op.output.type.dtype, op.optional(1)
    terms = [floats_of(values[op.operand(0)], dtype) for values in runs]
    total = np.zeros_like(terms[0]) if start is None else floats_of(runs[0][start], dtype)
    mean = op.attributes["kind"] == "mean"
    for count, term in enumerate(terms, start=1):
        total = total + (term - total) / count if mean else total + term
    return as_stored(total, dtype)


def bits(value: Array) -> Array:
    """``value`` as popc stores it."""
    return value.view(np.uint16) if DType.of(value.dtype) is DType.BFLOAT16 else value


class Trained:
    """What a training run has made of weights and state."""

    def __init__(self, weights: Weights, variables: dict[str, Array], result: UpdateResult) -> None:
        self.weights = weights
        self.variables = variables
        self.result = result


def train(
    settings: Mapping[str, object],
    *,
    steps: int = STEPS,
    dtype: Any = np.float32,
    micro_batches: int = 1,
    gradient_scale: float = 1.0,
    changes: Mapping[int, Mapping[str, float]] | None = None,
    **context: Any,
) -> Trained:
    """Train the network with popc's optimizer.

    ``changes``: new values of hyper-parameter variables, by the step before which they are written.
    """
    weights = initial_weights(dtype)
    graph, result = update_graph(settings, weights, accumulation_factor=micro_batches, **context)
    variables: dict[str, Array] = dict(weights)
    for step in range(steps):
        for name, value in (changes or {}).get(step, {}).items():
            assert name in graph.tensors, name
            variables[name] = np.asarray(value, np.float32)
        current = {name: variables[name] for name in weights}
        feeds = [
            {
                f"Gradient___{name}": (g * gradient_scale).astype(g.dtype)
                for name, g in found.items()
            }
            for found in _all_gradients(current, step, micro_batches)
        ]
        run_update(graph, feeds, variables)
    return Trained({name: variables[name] for name in weights}, variables, result)


def _all_gradients(weights: Weights, step: int, micro_batches: int) -> Iterator[Weights]:
    for micro_batch in range(micro_batches):
        yield gradients(weights, step, micro_batch)
