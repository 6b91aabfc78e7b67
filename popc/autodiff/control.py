"""Gradients of If and Loop: ops of the same kind whose subgraphs hold the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from popc.autodiff.backward import Backward
from popc.autodiff.copying import prune
from popc.autodiff.exporting import export
from popc.autodiff.loop import loop_gradient
from popc.autodiff.loop_parts import LoopParts
from popc.autodiff.subgraph import BackwardSubgraph, Walk
from popc.ir import Op, Tensor, TensorType

__all__ = ["CONTROL", "ControlRule", "why_not_differentiable"]

ControlRule: TypeAlias = Callable[[Backward, Walk], Sequence[Tensor | None]]

_FIRST_CAPTURE: Final = 1  # operand 0 of an If is the condition


def _if_gradient(b: Backward, walk: Walk) -> Sequence[Tensor | None]:
    """An If over the same condition that returns the gradients of the captures.

    Its branches compute again what they need of the forward branches, but for the results.
    """
    wanted = [index for index in range(_FIRST_CAPTURE, len(b.op.inputs)) if b.wants(index)]
    parts = {
        name: BackwardSubgraph(b, name, b.op.inputs[_FIRST_CAPTURE:]) for name in b.op.subgraphs
    }
    grads = {name: _branch_gradients(b, part, wanted, walk) for name, part in parts.items()}
    found = [index for index in wanted if any(index in branch for branch in grads.values())]
    if not found:
        return ()
    for name, part in parts.items():
        _set_outputs(part, [grads[name].get(index) or b.input(index).type for index in found])
        _recall(b, name, part)
    captures = _unite_captures(list(parts.values()))
    op = b.graph.add_op(
        "If",
        [b.input(0), *captures],
        [b.input(index).type for index in found],
        settings=b.op.settings.inherited(),
        subgraphs={name: part.graph for name, part in parts.items()},
    )
    by_operand = dict(zip(found, op.outputs, strict=True))
    return [by_operand.get(index) for index in range(len(b.op.inputs))]


def _branch_gradients(
    b: Backward, part: BackwardSubgraph, wanted: Sequence[int], walk: Walk
) -> dict[int, Tensor]:
    """Differentiate one branch: the gradients of captures, by number of the operand."""
    results = enumerate(part.results)
    grads = [(part.copy_of(value), b.optional_grad(index)) for index, value in results]
    seeds = [(copy, part.capture(grad)) for copy, grad in grads if grad is not None]
    formals = [part.copy_of(tensor) for tensor in part.forward.inputs]
    sources = {index: formals[index - _FIRST_CAPTURE] for index in wanted}
    found = walk(part.graph, seeds, list(sources.values()))
    return {index: found[tensor] for index, tensor in sources.items() if tensor in found}


def _set_outputs(part: BackwardSubgraph, grads: Sequence[Tensor | TensorType]) -> None:
    """Return ``grads``, zeros where only the type is given."""
    part.graph.outputs.clear()
    part.graph.output_names.clear()
    for grad in grads:
        tensor = part.emit.zeros(grad) if isinstance(grad, TensorType) else grad
        part.graph.add_output(tensor.name, tensor)


def _recall(b: Backward, name: str, part: BackwardSubgraph) -> None:
    """Read the results and the random numbers of the forward branch."""

    def read(tensor: Tensor) -> Tensor:
        return part.capture(export(b.graph, b.op, name, tensor))

    prune(part.graph)
    part.recall_results(part.results, read)
    part.recall_unrepeatable(read)


def _unite_captures(parts: Sequence[BackwardSubgraph]) -> list[Tensor]:
    """The captures of all branches; each gets an input for every one, in the same order."""
    inner = [dict(zip(part.close([]), part.graph.inputs, strict=True)) for part in parts]
    union = list(dict.fromkeys(outer for captures in inner for outer in captures))
    for part, captures in zip(parts, inner, strict=True):
        part.graph.inputs = [
            captures.get(outer) or part.graph.add_input(outer.name, outer.type) for outer in union
        ]
    return union


def why_not_differentiable(op: Op) -> str:
    """The reason why a control-flow op has no gradient; "" if it has."""
    if op.op_type == "Loop" and LoopParts(op).trip_count < 0:
        return "run-time values alone limit its iterations; give it a constant trip count"
    return ""


CONTROL: Final[Mapping[str, ControlRule]] = {"If": _if_gradient, "Loop": loop_gradient}
