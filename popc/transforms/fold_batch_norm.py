"""Batch normalisation with known statistics is a scale and an offset per channel."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from popc.ir import Graph, Op, Tensor, TensorType
from popc.ir.attributes import number
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import are_moderate
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = ["FoldBatchNorm"]

_DTYPES = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


@frozen
class FoldBatchNorm(RewritePass):
    """With constant parameters it becomes Mul and Add, which `FoldChannelOps` moves into weights.

    scale * (x - mean) / sqrt(var + epsilon) + bias, computed in float64 (ONNX
    BatchNormalization-15, inference).

    Before::

        %y = BatchNormalization(%x, @scale, @bias, @mean, @var) epsilon=1e-05

    After::

        %m = Mul(%x, @factor)
        %y = Add(%m, @offset)

    Parameters that are not finite, or make factors near the limits of the type, stay.
    """

    name: ClassVar[str] = "fold_batch_norm"
    rewrites: ClassVar[frozenset[str]] = frozenset({"BatchNormalization"})

    @np.errstate(all="ignore")  # parameters may be anything
    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Replace a BatchNormalization whose four parameters are constants."""
        if op.op_type != "BatchNormalization" or op.operand(0).type.dtype not in _DTYPES:
            return False
        parameters = [tensor.data for tensor in op.present_inputs[1:]]
        scale, bias, mean, variance = (
            None if data is None else data.astype(np.float64) for data in parameters
        )
        if scale is None or bias is None or mean is None or variance is None:
            return False
        factor = scale / np.sqrt(variance + number(op.attributes, "epsilon"))
        offset = bias - mean * factor
        if not _fit(factor, mean * factor, op.operand(0).type.dtype):
            return False
        scaled = build(
            graph,
            "Mul",
            [op.operand(0), _per_channel(graph, op, "factor", factor)],
            settings=op.settings,
        )
        shifted = build(
            graph,
            "Add",
            [scaled.output, _per_channel(graph, op, "offset", offset)],
            settings=op.settings,
        )
        graph.replace_op(op, shifted.outputs)
        return True


def _fit(factor: Array, centre: Array, dtype: DType) -> bool:
    """True if the formula with these numbers of the type is finite where the one before is."""
    largest = float(np.finfo(dtype.storage).max) ** 0.5
    return bool((np.abs(centre) <= largest).all()) and are_moderate(factor, dtype, tiny=True)


def _per_channel(graph: Graph, op: Op, what: str, values: Array) -> Tensor:
    """``values`` as a constant that broadcasts over [N, C, ...]."""
    x = op.operand(0).type
    shape = (len(values), *(1 for _ in x.shape[2:]))
    data = values.astype(x.dtype.storage).reshape(shape)
    return graph.add_constant(f"{op.output.name}_{what}", TensorType(x.dtype, shape), data)
