"""Make one convolution of several that read the same operand through the same window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op
from popc.transforms.base import Pass, disguised
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["CombineConvolutions"]

_BIAS, _RESIDUAL = 2, 3  # numbers of operands
_CHANNELS: Final = 1  # the axis of results


@frozen
class CombineConvolutions(Pass):
    """Their weights become more output channels of one convolution.

    Before::

        %a = Conv(%x, @v)
        %b = Conv(%x, @w)

    After::

        %vw = Concat(@v, @w) axis=0
        %ab = Conv(%x, %vw)
        %a, %b = Split(%ab) axis=1 split=[16, 32]

    Not those in groups, whose channels do not see all of the operand.
    """

    name: ClassVar[str] = "combine_convolutions"
    excludable: ClassVar[bool] = True
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.combine_convolutions)

    def run(self, graph: Graph) -> int:
        """Combine within each graph; the number of convolutions that are gone."""
        if not self.enabled:
            return 0
        with disguised(graph, self.name):
            return sum(_combine(nested) for nested in graph.walk())


def _combine(graph: Graph) -> int:
    from popc.transforms.combining import combine, likeness

    keyed = [
        ((op.operand(0), likeness(op), op.operand(1).type.shape[1:], _has_bias(op)), op)
        for op in graph.topological()
        if op.op_type == "Conv" and _is_plain(op)
    ]
    return combine(graph, keyed, _merge)


def _has_bias(op: Op) -> bool:
    return op.optional(_BIAS) is not None


def _is_plain(op: Op) -> bool:
    return op.attributes.get("group", 1) == 1 and op.optional(_RESIDUAL) is None


def _merge(graph: Graph, ops: Sequence[Op]) -> None:

    first = ops[0]
    numbers = (1, _BIAS) if _has_bias(first) else (1,)
    from popc.transforms.combining import concatenated, split_among

    operands = [
        concatenated(graph, first, [op.operand(number) for op in ops], axis=0) for number in numbers
    ]
    split_among(graph, ops, [first.operand(0), *operands], _CHANNELS)
