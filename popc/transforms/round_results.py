"""Tell instructions how to round results that are float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, Self

from popc.ir import AttributeMap, Graph, Op, StepPart
from popc.ops.load import find_load_ops
from popc.options import FloatingPointException
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels import KERNELS

__all__ = ["RoundResults", "rounds_at_random"]

_NARROW: Final = (DType.FLOAT16, DType.BFLOAT16)
# Their results are whole numbers or elements of their operands: there is nothing to round.
_EXACT: Final = frozenset(
    {
        *("Abs", "Neg", "Sign"),
        *("Ceil", "Floor", "Round"),
        *("Clip", "Relu", "ThresholdedRelu"),
        *("ClipGrad", "ReluGrad", "ThresholdedReluGrad"),
        *("Hardmax", "Max", "Min", "ReduceMax", "ReduceMin", "TopK"),
        *("MaxPool", "MaxUnpool"),
        *("PrintTensor", "TensorScatter"),
    }
)


@frozen
class RoundResults(Pass):
    """Ops that round get attributes ``rounding`` and ``overflow``, if they are to round otherwise.

    Before::

        %y: float16[4] = Add(%x, %x)
        %z: float16[2] = Slice(%y) sizes=[2] starts=[0] steps=[1]

    After, with ``stochastic``::

        %y: float16[4] = Add(%x, %x) rounding='stochastic'
        %z: float16[2] = Slice(%y) sizes=[2] starts=[0] steps=[1]

    Where a loss scale adapts itself, gradients that overflow get the largest number of their type
    (``overflow='largest'``), so that the update that finds the scale too large does no harm.

    What an op's settings say of stochastic rounding comes before what the options say.

    Moving elements rounds nothing.  What depends on constants alone is computed when the archive is
    loaded, or was so when it was compiled: that is always rounded to nearest, as the weights of a
    model are.
    """

    name: ClassVar[str] = "round_results"
    optional: ClassVar[bool] = False
    stochastic: bool = False
    nan_on_overflow: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        checks = options.enable_floating_point_checks
        nan = checks and FloatingPointException.NAN_ON_OVERFLOW in options.floating_point_exceptions
        return cls(options.enable_stochastic_rounding, nan or options.nan_on_overflow)

    def run(self, graph: Graph) -> int:
        """Set the attributes; the number of ops that have got them."""
        adaptive = any(
            op.op_type == "LossScaleUpdate" for nested in graph.walk() for op in nested.ops
        )
        asked = adaptive or self.stochastic or self.nan_on_overflow
        if not asked and not any(
            op.settings.stochastic_rounding for nested in graph.walk() for op in nested.ops
        ):
            return 0
        changes = 0
        for op in filter(rounds, _running(graph)):
            attributes = self._attributes(op, adaptive=adaptive)
            op.attributes.update(attributes)
            changes += bool(attributes)
        return changes

    def _attributes(self, op: Op, *, adaptive: bool) -> AttributeMap:
        attributes: AttributeMap = {}
        if rounds_at_random(op, by_default=self.stochastic):
            attributes["rounding"] = "stochastic"
        if self.nan_on_overflow:
            attributes["overflow"] = "nan"
        elif adaptive and op.settings.part is StepPart.BACKWARD:
            attributes["overflow"] = "largest"
        return attributes


def _running(graph: Graph) -> Iterator[Op]:
    """The ops that every run computes, nested ones too."""
    load = frozenset(find_load_ops(graph))
    for op in graph.ops:
        if op not in load:
            yield op
            for nested in op.subgraphs.values():
                yield from (inner for subgraph in nested.walk() for inner in subgraph.ops)


def rounds_at_random(op: Op, *, by_default: bool) -> bool:
    """True if ``op`` rounds its results, and does so at random.

    ``by_default``: those of which nothing is said do so.
    """
    own = op.settings.stochastic_rounding
    return (by_default if own is None else own) and rounds(op)


def rounds(op: Op) -> bool:
    """True if ``op`` rounds its results to float16 or bfloat16."""
    if op.op_type in _EXACT or op.op_type not in KERNELS:
        return False
    if not any(tensor.type.dtype in _NARROW for tensor in op.outputs):
        return False
    from popc_runtime.kernels import MoveKernel

    return not isinstance(KERNELS[op.op_type], MoveKernel)
