"""Keep convolutions from being computed by Winograd's algorithm, if the options say so."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from popc.ir import Graph, Op
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["Winograd"]

_ATTRIBUTE: Final = "winograd"
_CONVOLUTIONS: Final = ("Conv", "ConvTranspose", "ConvWeightsGrad")


@frozen
class Winograd(RewritePass):
    """Unless it is allowed, convolutions say that native kernels are to add products up.

    Before::

        %y: float32[1,64,56,56] = Conv(%x, %w) pads=[1,1,1,1]

    After::

        %y: float32[1,64,56,56] = Conv(%x, %w) pads=[1,1,1,1], winograd=0
    """

    name: ClassVar[str] = "winograd"
    rewrites: ClassVar[frozenset[str]] = frozenset(_CONVOLUTIONS)
    optional: ClassVar[bool] = False
    allowed: bool = True

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.winograd)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Set the attribute of one op."""
        del graph
        if self.allowed or op.op_type not in _CONVOLUTIONS or _ATTRIBUTE in op.attributes:
            return False
        op.attributes[_ATTRIBUTE] = 0
        return True
