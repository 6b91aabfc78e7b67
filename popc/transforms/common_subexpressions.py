"""Compute equal things once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from popc.ir import Graph, Op, Recompute, Tensor
from popc.ops import OPS
from popc.transforms.base import Pass, disguised
from popc_runtime.ground.frozen import frozen

__all__ = ["CommonSubexpressions"]


@frozen
class CommonSubexpressions(Pass):
    """Only the first of ops with equal type, operands, attributes and place stays.

    So for constants.  PopART calls it merging duplicate ops.

    Before::

        %a = Exp(%x)
        %b = Exp(%x)
        %y = Add(%a, %b)

    After::

        %a = Exp(%x)
        %y = Add(%a, %a)
    """

    name: ClassVar[str] = "common_subexpressions"
    excludable: ClassVar[bool] = True

    def run(self, graph: Graph) -> int:
        """Merge duplicates within each graph; the number of removals."""
        with disguised(graph, self.name):
            return sum(_merge_constants(nested) + _merge_ops(nested) for nested in graph.walk())


def _merge_constants(graph: Graph) -> int:
    first: dict[Hashable, Tensor] = {}
    changes = 0
    for tensor in graph.constants:
        kept = first.setdefault(_constant_key(tensor), tensor)
        if kept is not tensor:
            graph.replace_uses(tensor, kept)
            graph.remove_tensor(tensor)
            changes += 1
    return changes


def _constant_key(tensor: Tensor) -> Hashable:
    """Equal keys mean equal contents: the same array object, or the same few bytes."""
    assert tensor.data is not None
    if tensor.type.nbytes <= 64:
        return tensor.type, tensor.data.tobytes()
    return tensor.type, id(tensor.data)


def _merge_ops(graph: Graph) -> int:
    alike: dict[Hashable, Op] = {}  # the first of those that may be equal
    first: dict[Hashable, Op] = {}
    changes = 0
    for op in graph.topological():
        if _reads_alone(op):
            continue
        other = alike.setdefault((op.op_type, sum(map(id, op.inputs))), op)
        if other is op or not _is_candidate(op) or not _is_candidate(other):
            continue
        first.setdefault(_op_key(other), other)
        kept = first.setdefault(_op_key(op), op)
        if kept is not op:
            kept.settings = kept.settings.merged(op.settings)
            graph.replace_op(op, kept.outputs)
            changes += 1
    return changes


def _reads_alone(op: Op) -> bool:
    """True if nobody else reads one of the operands, so that there can be no equal op."""
    for tensor in op.inputs:  # noqa: SIM110 - a generator takes twice as long
        if tensor is not None and len(tensor.uses) == 1:
            return True
    return False


def _is_candidate(op: Op) -> bool:
    spec = OPS.get(op.op_type)
    if spec is None or spec.transfer:
        return False
    return not spec.random and not spec.side_effect and not op.subgraphs


def _op_key(op: Op) -> Hashable:
    operands = tuple(map(id, op.inputs))
    if OPS[op.op_type].commutative:
        operands = (*sorted(operands[:2]), *operands[2:])
    # 1 and 1.0 are equal to Python, but not as attributes.
    attributes: Hashable = ()
    if op.attributes:
        attributes = tuple(
            (key, type(value).__name__, repr(value)) for key, value in sorted(op.attributes.items())
        )
    # What is there to be computed once more must not be merged with the first time.
    is_repetition = op.settings.recompute is Recompute.RECOMPUTED
    return op.op_type, operands, attributes, is_repetition, op.settings.place
