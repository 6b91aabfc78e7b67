"""Let instructions know the names of their results."""

from __future__ import annotations

from typing import ClassVar, Self

from popc.ir import Graph, Op
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels import KERNELS

__all__ = ["NameResults"]


@frozen
class NameResults(RewritePass):
    """Ops with floating-point results get the names of their results as attribute ``results``.

    Before::

        %y: float32[4] = Log(%x)

    After::

        %y: float32[4] = Log(%x) results=['y']

    Programs know tensors by where they lie; with names, floating-point checks can say more.
    """

    name: ClassVar[str] = "name_results"
    optional: ClassVar[bool] = False
    enabled: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.enable_floating_point_checks)

    def run(self, graph: Graph) -> int:
        """Set the attributes, if that is wanted."""
        return RewritePass.run(self, graph) if self.enabled else 0

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Set the attribute of one op."""
        del graph
        is_checked = any(tensor.type.dtype.is_float for tensor in op.outputs)
        if op.op_type in KERNELS and is_checked:
            op.attributes["results"] = tuple(tensor.name for tensor in op.outputs)
            return True
        return False
