"""Let products of float16 numbers add up in float16, if the options ask for that."""

from __future__ import annotations

from typing import ClassVar, Self

from popc.ir import Graph, Op
from popc.ops.partials import PARTIALS, SUMS_OF_PRODUCTS
from popc.options import Partials
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["PartialsType"]


@frozen
class PartialsType(RewritePass):
    """Products of float16 matrices, and convolutions, get the attribute ``partials``.

    Before::

        %y: float16[2,3] = MatMul(%a, %b)

    After, with type HALF::

        %y: float16[2,3] = MatMul(%a, %b) partials='half'

    Those whose node says it by itself keep what it says.
    """

    name: ClassVar[str] = "partials_type"
    rewrites: ClassVar[frozenset[str]] = frozenset(SUMS_OF_PRODUCTS)
    optional: ClassVar[bool] = False
    type: Partials = Partials.FLOAT
    type_of_convolutions: Partials = Partials.FLOAT

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.partials_type_matmuls, context.options.partials_type)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Set the attribute of one op."""
        del graph
        if op.op_type not in SUMS_OF_PRODUCTS:
            return False
        of_matrices = op.op_type in ("MatMul", "Gemm")
        wanted = self.type if of_matrices else self.type_of_convolutions
        if wanted is Partials.FLOAT:
            return False
        if PARTIALS in op.attributes or op.output.type.dtype is not DType.FLOAT16:
            return False
        op.attributes[PARTIALS] = wanted.value
        return True
