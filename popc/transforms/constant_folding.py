"""Compute at compile time what depends on constants only, unless that makes the archive larger."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, TensorKind
from popc.ops.build import can_evaluate, evaluate
from popc.ops.float8 import widens_device_float
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["ConstantFolding"]

_CONSTANT: Final = TensorKind.CONSTANT
_QUANTISED_GROWTH: Final = 256  # bytes: numbers that rewrites look at, and a channel or two


@frozen
class ConstantFolding(RewritePass):
    """An op whose operands are all constants becomes a constant.

    Results may be larger than the operands by ``growth_limit`` bytes; beyond that the op stays,
    and the runtime computes it once when it loads the archive (broadcast constants).  Weights that
    are stored as integers and used as floats stay integers, but for a few numbers: a model has so
    many of them that it would be as large as without quantisation.  So do floats of eight bits in a
    format that chips multiply as it is.

    Before::

        %t = Transpose(@w) perm=[1, 0]
        %y = MatMul(%x, %t)

    After::

        %y = MatMul(%x, @t)
    """

    name: ClassVar[str] = "constant_folding"
    level: ClassVar[str] = ""
    growth_limit: int

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.fold_limit_bytes)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Fold ``op`` if it is worth it."""
        for tensor in op.inputs:
            if tensor is not None and tensor.kind is not _CONSTANT:
                return False
        operands = op.present_inputs
        if widens_device_float(op):
            return False
        if not can_evaluate(op):
            return False
        # An operand that others still read stays in the archive, so it does not pay for the result.
        sole = [t for t in dict.fromkeys(operands) if len(t.uses) == 1 and not graph.is_output(t)]
        freed = sum(tensor.type.nbytes for tensor in sole)
        grown = sum(tensor.type.nbytes for tensor in op.outputs)
        quantised = op.op_type == "DequantizeLinear"
        limit = min(self.growth_limit, _QUANTISED_GROWTH) if quantised else self.growth_limit
        if grown > freed + limit:
            return False
        values = evaluate(op, [None if tensor is None else tensor.data for tensor in op.inputs])
        constants = [
            graph.add_constant(tensor.name, tensor.type, value)
            for tensor, value in zip(op.outputs, values, strict=True)
        ]
        graph.replace_op(op, constants)
        for tensor in sole:
            graph.remove_tensor(tensor)
        return True
