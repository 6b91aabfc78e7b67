"""Grow the backward pass of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from popc.autodiff.activity import influenced_by, ops_between
from popc.autodiff.backward import GRADIENT_PREFIX, Backward
from popc.autodiff.control import CONTROL, why_not_differentiable
from popc.autodiff.rules import GRADIENTS, NOT_DIFFERENTIABLE
from popc.autodiff.rules.custom import why_no_gradient
from popc.autodiff.rules.dynamic import is_apart, joined_slices
from popc.ir import Graph, Op, OpSettings, Tensor
from popc.ops.build import build
from popc_runtime.errors import ModelError

__all__ = ["GRADIENT_PREFIX", "differentiate", "gradient_name"]


def gradient_name(name: str) -> str:
    """The name of the gradient of tensor ``name``."""
    return GRADIENT_PREFIX + name


def differentiate(
    graph: Graph,
    seeds: Mapping[Tensor, Tensor],
    wanted: Iterable[Tensor],
    *,
    independent: Collection[Tensor] = (),
    decompose_sums: bool = False,
) -> dict[Tensor, Tensor]:
    """Add the backward pass to ``graph``.

    Args:
        graph: The graph; ops are added to it.
        seeds: Tensors of the graph with the gradients that they have from outside: the loss with 1
            (or the loss scale).
        wanted: Tensors whose gradients are asked for.
        independent: Tensors that count as independent of what they are computed from.
        decompose_sums: Add gradients of several uses one by one as they become known, which frees
            each at once, rather than in one Sum.

    Returns:
        The gradients of those ``wanted`` tensors that influence a seed, of their types.  They are
        called ``Gradient___`` and the name of the tensor.

    Raises:
        ModelError: ops on the way have no gradient; all are named.
    """
    backward = _Pass(graph, list(wanted), independent, decompose_sums=decompose_sums)
    return backward.run(seeds.items())


class _Pass:
    """One backward pass over one graph: what is active, and the partial gradients found so far."""

    def __init__(
        self,
        graph: Graph,
        wanted: Sequence[Tensor],
        independent: Collection[Tensor],
        *,
        decompose_sums: bool,
    ) -> None:
        self.graph = graph
        self.wanted = wanted
        self.independent = frozenset(independent)
        self.decompose_sums = decompose_sums
        self.order = graph.topological()
        self.active = influenced_by(wanted, self.order, self.independent)
        self.partials: dict[Tensor, list[Tensor]] = defaultdict(list)
        self.apart: set[Tensor] = set()
        self.total: dict[Tensor, Tensor] = {}

    def run(self, seeds: Iterable[tuple[Tensor, Tensor]]) -> dict[Tensor, Tensor]:
        """Walk the ops backwards; see `differentiate`."""
        for tensor, grad in seeds:
            if tensor in self.active:
                self.partials[tensor].append(grad)
        _refuse_unknown(ops_between(self.active, self.partials, self.order, self.independent))
        for op in reversed(self.order):
            if any(self.partials.get(tensor) for tensor in op.outputs):
                self._differentiate(op)
        return {
            tensor: self._gradient(tensor) for tensor in self.wanted if self.partials.get(tensor)
        }

    def _differentiate(self, op: Op) -> None:
        grads = [self._gradient_of_result(tensor) for tensor in op.outputs]
        operands = list(op.inputs)  # before the rule: a loop may get more
        wants = [tensor is not None and tensor in self.active for tensor in operands]
        if not any(wants) or not any(grads):
            return
        found = self._apply_rule(op, Backward(self.graph, op, grads, wants))
        for operand, is_wanted, grad in zip(operands, wants, found, strict=False):
            if grad is None or operand is None or not is_wanted:
                continue
            assert _fits(grad, operand), f"a gradient of {operand!r} by {op!r}: {grad!r}"
            self.partials[operand].append(grad)
            if is_apart(op):
                self.apart.add(grad)

    def _apply_rule(self, op: Op, backward: Backward) -> Sequence[Tensor | None]:
        if op.op_type in CONTROL:
            return CONTROL[op.op_type](backward, self._walk)
        return GRADIENTS[op.op_type](backward)

    def _walk(
        self,
        graph: Graph,
        seeds: Iterable[tuple[Tensor, Tensor]],
        wanted: Collection[Tensor],
        independent: Collection[Tensor] = (),
    ) -> dict[Tensor, Tensor]:
        """Another pass, over a subgraph."""
        inner = _Pass(graph, list(wanted), independent, decompose_sums=self.decompose_sums)
        return inner.run(seeds)

    def _gradient_of_result(self, tensor: Tensor) -> Tensor | None:
        if tensor in self.independent or not self.partials.get(tensor):
            return None
        return self._gradient(tensor)

    def _gradient(self, tensor: Tensor) -> Tensor:
        """The sum of the partial gradients of ``tensor``, all of which are known by now."""
        if tensor not in self.total:
            grad = self._summed(self.partials[tensor], tensor)
            name = gradient_name(tensor.name)
            if not grad.name.startswith(GRADIENT_PREFIX) and name not in self.graph.tensors:
                self.graph.rename(grad, name)
            self.total[tensor] = grad
        return self.total[tensor]

    def _summed(self, partials: Sequence[Tensor], tensor: Tensor) -> Tensor:
        partials = joined_slices(self.graph, partials, self.apart)
        if len(partials) == 1:
            return partials[0]
        settings = OpSettings(origin=f"GradSum_{tensor.name}")
        if not self.decompose_sums:
            return build(self.graph, "Sum", partials, settings=settings).output
        total, *rest = partials
        for partial in rest:
            total = build(self.graph, "Add", [total, partial], settings=settings).output
        return total


def _fits(grad: Tensor, tensor: Tensor) -> bool:
    """The same type; but integers that stand for real numbers have real gradients."""
    if tensor.type.dtype.is_float:
        return grad.type == tensor.type
    return grad.type.dtype.is_float and grad.type.shape == tensor.type.shape


def _refuse_unknown(ops: Iterable[Op]) -> None:
    unknown: dict[str, list[str]] = defaultdict(list)
    for op in ops:
        reason = _why_not(op)
        if reason:
            unknown[f"{op.op_type} ({reason})"].append(op.settings.origin or op.output.name)
    if unknown:
        raise ModelError(
            f"the loss cannot be differentiated through {', '.join(unknown)}",
            details=tuple(f"{what}: {', '.join(names)}" for what, names in unknown.items()),
            hint="freeze the weights before these ops, or take the loss of another tensor",
        )


def _why_not(op: Op) -> str:
    if op.op_type in CONTROL:
        return why_not_differentiable(op)
    if op.op_type in ("Custom", "HostCall"):
        return why_no_gradient(op)
    if op.op_type in GRADIENTS:
        return ""
    return NOT_DIFFERENTIABLE.get(op.op_type, "has no gradient rule")
