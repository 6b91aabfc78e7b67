"""Batch normalisation by the statistics of several replicas."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Self

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = ["DistributeBatchNorm"]


@frozen
class DistributeBatchNorm(RewritePass):
    """In training, groups of neighbouring replicas normalise by the statistics of all their data.

    Before::

        %y, %mean, %variance = BatchNormalizationTraining(%x, $scale, $bias) epsilon=1e-05

    After, for two replicas::

        %own = ReduceMean(%x) axes=[0, 2] keepdims=0
        %mean = ReplicatedAllReduce(%own) op='mean' size=2 stride=1
        %centred = Sub(%x, Reshape(%mean))
        %spread = ReduceMean(Mul(%centred, %centred)) axes=[0, 2] keepdims=0
        %variance = ReplicatedAllReduce(%spread) op='mean' size=2 stride=1
        %y = BatchNormalization(%x, $scale, $bias, %mean, %variance) epsilon=1e-05

    Gradients flow through the exchange, so the pass comes before differentiation.

    Attributes:
        size: Replicas per group.
    """

    name: ClassVar[str] = "distribute_batch_norm"
    rewrites: ClassVar[frozenset[str]] = frozenset({"BatchNormalizationTraining"})
    optional: ClassVar[bool] = False
    size: int

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        return cls(context.options.distributed_batch_norm_replica_group_size)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace a normalisation in training mode."""
        if op.op_type != "BatchNormalizationTraining" or self.size == 1:
            return False
        emit = partial(_emit, graph, op)
        x, wide = op.operand(0), op.outputs[1].type.dtype
        values = x if x.type.dtype is wide else emit("Cast", [x], {"to": wide.value})
        others: AttributeMap = {
            "axes": tuple(axis for axis in range(x.type.rank) if axis != 1),
            "keepdims": 0,
        }
        group: AttributeMap = {"op": "mean", "size": self.size, "stride": 1}
        channels = (x.type.shape[1], *(1 for _ in x.type.shape[2:]))
        mean = emit("ReplicatedAllReduce", [emit("ReduceMean", [values], others)], group)
        centred = emit("Sub", [values, emit("Reshape", [mean], {"shape": channels})], {})
        spread = emit("ReduceMean", [emit("Mul", [centred, centred], {})], others)
        variance = emit("ReplicatedAllReduce", [spread], group)
        operands = [x, op.operand(1), op.operand(2), mean, variance]
        y = emit("BatchNormalization", operands, {"epsilon": op.attributes["epsilon"]})
        graph.replace_op(op, [y, mean, variance])
        return True


def _emit(
    graph: Graph, op: Op, op_type: str, inputs: list[Tensor], attributes: AttributeMap
) -> Tensor:
    return build(graph, op_type, inputs, dict(attributes), settings=op.settings).output
