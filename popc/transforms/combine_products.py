"""Make one product of several that have an operand in common, or that are small and equal."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import Pass, disguised
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["CombineProducts"]

_SMALL: Final = 1 << 14  # bytes of all operands of a product that is worth stacking with others
_BIAS, _RESIDUAL = 2, 3  # numbers of operands


@frozen
class CombineProducts(Pass):
    """Matrices that multiply the same operand are put side by side, and multiply it once.

    Before::

        %q = MatMul(%x, @wq)
        %k = MatMul(%x, @wk)

    After::

        %w = Concat(@wq, @wk) axis=1
        %qk = MatMul(%x, %w)
        %q, %k = Split(%qk) axis=1 split=[64, 64]

    Operands that meet the same matrix are put one below the other.  Small products of equal shape
    that have nothing in common become a product of stacks of matrices.
    """

    name: ClassVar[str] = "combine_products"
    excludable: ClassVar[bool] = True
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.combine_matmuls)

    def run(self, graph: Graph) -> int:
        """Combine within each graph; the number of products that are gone."""
        if not self.enabled:
            return 0
        with disguised(graph, self.name):
            return sum(
                _side_by_side(nested) + _one_below_the_other(nested) + _stacked(nested)
                for nested in graph.walk()
            )


def _side_by_side(graph: Graph) -> int:
    """Products with the same first operand."""
    from popc.transforms.combining import combine, likeness

    keyed = [
        ((op.operand(0), likeness(op), _bias_kind(op)), op)
        for op in graph.topological()
        if _is_plain(op) and op.operand(1).type.rank == 2 and _bias_kind(op) is not None
    ]
    return combine(graph, keyed, _join_columns)


def _join_columns(graph: Graph, ops: Sequence[Op]) -> None:

    first = ops[0]
    turned = bool(first.attributes.get("transB", 0))
    from popc.transforms.combining import concatenated, split_among

    matrix = concatenated(graph, first, [op.operand(1) for op in ops], axis=int(not turned))
    operands = [first.operand(0), matrix]
    if first.optional(_BIAS) is not None:
        biases = [op.operand(_BIAS) for op in ops]
        operands.append(concatenated(graph, first, biases, axis=biases[0].type.rank - 1))
    split_among(graph, ops, operands, first.output.type.rank - 1)


def _one_below_the_other(graph: Graph) -> int:
    """Products with the same matrix."""
    from popc.transforms.combining import combine, likeness

    keyed = [
        ((op.operand(1), op.optional(_BIAS), likeness(op), op.operand(0).type.shape[1:]), op)
        for op in graph.topological()
        if _is_plain(op)
        and op.operand(1).type.rank == 2
        and op.operand(0).type.rank >= 2
        and not op.attributes.get("transA", 0)
        and _is_row(op.optional(_BIAS))
    ]
    return combine(graph, keyed, _join_rows)


def _join_rows(graph: Graph, ops: Sequence[Op]) -> None:
    from popc.transforms.combining import concatenated, split_among

    rows = concatenated(graph, ops[0], [op.operand(0) for op in ops], axis=0)
    rest = [tensor for tensor in ops[0].inputs[1:] if tensor is not None]
    split_among(graph, ops, [rows, *rest], 0)


def _stacked(graph: Graph) -> int:
    """Small products of two matrices each, of equal shapes."""
    from popc.transforms.combining import concatenated, depths, groups_of, likeness, split_among

    level = depths(graph)
    keyed = [
        ((level[op], op.operand(0).type, op.operand(1).type, likeness(op)), op)
        for op in graph.topological()
        if op.op_type == "MatMul" and _is_plain(op) and len(op.present_inputs) == 2 and _fits(op)
    ]
    count = 0
    for ops in groups_of(keyed):
        operands = [
            concatenated(graph, ops[0], [_row_of(graph, op, index) for op in ops], axis=0)
            for index in (0, 1)
        ]
        split_among(graph, ops, operands, 0)
        count += len(ops) - 1
    return count


def _fits(op: Op) -> bool:
    ranks = {tensor.type.rank for tensor in op.present_inputs}
    return ranks == {2} and sum(t.type.nbytes for t in op.present_inputs) <= _SMALL


def _row_of(graph: Graph, op: Op, index: int) -> Tensor:
    tensor = op.operand(index)
    return build(
        graph, "Reshape", [tensor], {"shape": (1, *tensor.type.shape)}, settings=op.settings
    ).output


def _is_plain(op: Op) -> bool:
    """A product that takes nothing over from ops behind it but a bias and an activation."""
    return (
        op.op_type in ("Gemm", "MatMul")
        and op.optional(_RESIDUAL) is None
        and op.output.type.size > 0
        and len(set(op.present_inputs)) == len(op.present_inputs)
    )


def _bias_kind(op: Op) -> Hashable:
    """The key that biases put side by side must share; ``None`` if this one cannot be."""
    bias = op.optional(_BIAS)
    if bias is None:
        return ()
    columns = op.output.type.shape[-1:]
    return (bias.type.shape[:-1],) if bias.type.rank and bias.type.shape[-1:] == columns else None


def _is_row(bias: Tensor | None) -> bool:
    return bias is None or bias.type.size == (bias.type.shape or (1,))[-1]
