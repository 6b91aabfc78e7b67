"""Look several lists of rows up in a table at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import Pass, disguised
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["CombineLookups"]


@frozen
class CombineLookups(Pass):
    """Lookups in the same table become one; in training, the table then has one gradient.

    Before::

        %a = Gather(@table, %i) axis=0
        %b = Gather(@table, %j) axis=0

    After::

        %ij = Concat(%i, %j) axis=0
        %ab = Gather(@table, %ij) axis=0
        %a, %b = Split(%ab) axis=0 split=[5, 7]
    """

    name: ClassVar[str] = "combine_lookups"
    excludable: ClassVar[bool] = True
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.combine_embedding_lookups)

    def run(self, graph: Graph) -> int:
        """Combine within each graph; the number of lookups that are gone."""
        if not self.enabled:
            return 0
        with disguised(graph, self.name):
            return sum(_combine(nested) for nested in graph.walk())


def _combine(graph: Graph) -> int:

    keyed = [
        (
            (
                op.operand(0),
                op.operand(1).type.dtype,
                op.attributes["axis"],
                op.settings.place,
                op.settings.part,
                op.settings.recompute,
            ),
            op,
        )
        for op in graph.topological()
        if op.op_type == "Gather" and op.output.type.size
    ]
    from popc.transforms.combining import combine

    return combine(graph, keyed, _merge)


def _merge(graph: Graph, ops: Sequence[Op]) -> None:
    first, settings = ops[0], ops[0].settings
    lists = [_reshaped(graph, op, op.operand(1), (op.operand(1).type.size,)) for op in ops]
    places = build(graph, "Concat", lists, {"axis": 0}, settings=settings).output
    axis = first.attributes["axis"]
    operands = [first.operand(0), places]
    whole = build(graph, "Gather", operands, {"axis": axis}, settings=settings).output
    attributes = {"axis": axis, "split": tuple(op.operand(1).type.size for op in ops)}
    parts = build(graph, "Split", [whole], attributes, settings=settings).outputs
    for op, part in zip(ops, parts, strict=True):
        graph.replace_op(op, [_reshaped(graph, op, part, op.output.type.shape)])


def _reshaped(graph: Graph, op: Op, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tensor.type.shape == shape:
        return tensor
    return build(graph, "Reshape", [tensor], {"shape": shape}, settings=op.settings).output
