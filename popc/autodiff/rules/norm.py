"""Gradients of normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Shape, Tensor, TensorType
from popc.ir.attributes import integer, number
from popc_runtime.format import DType

__all__ = ["GRADIENTS"]


def _cast_like(b: Backward, grads: Sequence[Tensor], first: int) -> list[Tensor | None]:
    """``grads`` in the element types of the operands from ``first`` on."""
    return [
        b.cast(grad, b.input(index).type.dtype) if b.wants(index) else None
        for index, grad in enumerate(grads, first)
    ]


# -- BatchNormalization ----------------------------------------------------------------------------


def _batch(b: Backward) -> Sequence[Tensor | None]:
    """X, scale, bias, mean, variance, the last two not those of X."""
    x, scale, _, mean, variance = (b.input(index) for index in range(5))
    attributes = {**b.attributes, "training_mode": 0}
    data, *sums = b.emit_all(
        "BatchNormalizationGrad", [b.grad(), x, scale, mean, variance], attributes
    )
    statistics: list[Tensor] = []
    if b.wants(3) or b.wants(4):
        wide = sums[0].type.dtype
        spread = b.plus(b.cast(variance, wide), number(b.attributes, "epsilon"))
        factor = b.div(b.cast(scale, wide), b.emit("Sqrt", [spread]))
        of_variance = b.scaled(b.div(b.mul(b.cast(scale, wide), sums[0]), spread), -0.5)
        statistics = [b.neg(b.mul(factor, sums[1])), of_variance]
    return [data, *_cast_like(b, [*sums, *statistics], 1)]


def _batch_training(b: Backward) -> Sequence[Tensor | None]:
    """X, scale, bias; the results are Y and the mean and variance of X."""
    x, scale = b.input(0), b.input(1)
    attributes = {**b.attributes, "training_mode": 1}
    operands = [b.grad(), x, scale, b.output(1), b.output(2)]
    data, *sums = b.emit_all("BatchNormalizationGrad", operands, attributes)
    channels = (x.type.shape[1], *(1 for _ in x.type.shape[2:]))
    for extra in _of_statistics(b, channels):
        data = b.add(data, extra)
    return [data, *_cast_like(b, sums, 1)]


def _of_statistics(b: Backward, channels: Shape) -> list[Tensor]:
    """The terms that the gradients of mean and variance of X add to the gradient of X."""
    x = b.input(0)
    count = max(x.type.size // max(x.type.shape[1], 1), 1)
    of_mean, of_variance = b.optional_grad(1), b.optional_grad(2)
    dtype = b.output(1).type.dtype
    found: list[Tensor] = []
    if of_mean is not None:
        share = b.reshape(b.scaled(of_mean, 1 / count), channels)
        found.append(b.expand(b.cast(share, x.type.dtype), x.type.shape))
    if of_variance is not None:
        share = b.reshape(b.scaled(of_variance, 2 / count), channels)
        centred = b.sub(b.cast(x, dtype), b.reshape(b.output(1), channels))
        found.append(b.cast(b.mul(centred, share), x.type.dtype))
    return found


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------


def _layer(b: Backward) -> Sequence[Tensor | None]:
    """X, scale, [bias]; the results are Y and the mean and 1 / deviation of each row."""
    x = b.input(0)
    mean, inverse = b.output(1), b.output(2)
    known = mean.type.dtype is _wide(x.type)
    operands = [mean, inverse] if known else [None, None]
    data, scale, bias = _row_gradients(b, operands)
    for extra in _of_row_statistics(b):
        data = b.add(data, extra)
    return [data, scale, bias]


def _rms(b: Backward) -> Sequence[Tensor | None]:
    """X, scale."""
    return _row_gradients(b, [])[:2]


def _row_gradients(
    b: Backward, statistics: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Gradients of data, scale, bias.  A scale that differs from row to row is a product before."""
    x, scale = b.input(0), b.input(1)
    row = x.type.shape[integer(b.attributes, "axis") :]
    op_type, attributes = f"{b.op.op_type}Grad", b.attributes
    per_row = _per_row(scale.type.shape, row)
    if per_row is not None:
        vector = b.expand(b.reshape(scale, per_row), row)
        operands = [b.grad(), x, b.cast(vector, x.type.dtype), *statistics]
        data, *sums = b.emit_all(op_type, operands, attributes)
        return data, _summed_to(b, sums[0], 1), _of_bias(b, row, sums[1:])
    scaled = b.mul(b.grad(), b.cast(scale, x.type.dtype))
    data = b.emit(op_type, [scaled, x, None, *statistics], attributes)
    of_scale = _summed_to(b, b.mul(b.grad(), _normalized(b)), 1)
    return data, of_scale, _of_bias(b, row, [])


def _of_bias(b: Backward, row: Shape, sums: Sequence[Tensor]) -> Tensor | None:
    """From the sum over rows, if that is known and the bias is the same in all."""
    if not b.wants(2):
        return None
    is_same = _per_row(b.input(2).type.shape, row) is not None
    return _summed_to(b, sums[0] if sums and is_same else b.grad(), 2)


def _per_row(shape: Shape, row: Shape) -> Shape | None:
    """The shape of a scale in one row, if it is the same in all."""
    extra = len(shape) - len(row)
    if extra > 0 and any(size != 1 for size in shape[:extra]):
        return None
    return shape[max(extra, 0) :]


def _summed_to(b: Backward, grad: Tensor, index: int) -> Tensor | None:
    """``grad``, of whole rows, as the gradient of an operand that is repeated to it."""
    if not b.wants(index):
        return None
    type_ = b.input(index).type
    lead = max(type_.rank - grad.type.rank, 0)
    inner = TensorType(grad.type.dtype, type_.shape[lead:])
    return b.cast(b.reshape(b.sum_to(grad, inner), type_.shape), type_.dtype)


def _normalized(b: Backward) -> Tensor:
    """X before scale and bias."""
    x = b.input(0)
    row = b.constant(1.0, x.type.dtype)
    return b.emit(b.op.op_type, [x, row], b.attributes)


def _wide(type_: TensorType) -> DType:
    return DType.FLOAT64 if type_.dtype is DType.FLOAT64 else DType.FLOAT32


def _of_row_statistics(b: Backward) -> list[Tensor]:
    """The terms of the gradients of mean and r = 1 / deviation: r' = -r ** 3 (x - mean) / n."""
    x, mean, inverse = b.input(0), b.output(1), b.output(2)
    count = max(x.type.size // max(mean.type.size, 1), 1)
    of_mean, of_inverse = b.optional_grad(1), b.optional_grad(2)
    found: list[Tensor] = []
    if of_mean is not None:
        share = b.cast(b.scaled(of_mean, 1 / count), x.type.dtype)
        found.append(b.expand(share, x.type.shape))
    if of_inverse is not None:
        slope = b.scaled(b.mul(of_inverse, b.mul(inverse, b.square(inverse))), -1 / count)
        centred = b.sub(b.cast(x, mean.type.dtype), mean)
        found.append(b.cast(b.mul(centred, slope), x.type.dtype))
    return found


# -- the others ------------------------------------------------------------------------------------


def _group(b: Backward) -> Sequence[Tensor | None]:
    """X, scale, bias."""
    operands = [b.grad(), b.input(0), b.input(1)]
    data, *sums = b.emit_all(f"{b.op.op_type}Grad", operands, b.attributes)
    return [data, *_cast_like(b, sums, 1)]


def _lrn(b: Backward) -> Sequence[Tensor | None]:
    return [b.grad_op(b.input(0))]


GRADIENTS: Final[dict[str, GradientRule]] = {
    "BatchNormalization": _batch,
    "BatchNormalizationTraining": _batch_training,
    "GroupNormalization": _group,
    "InstanceNormalization": _group,
    "LRN": _lrn,
    "LayerNormalization": _layer,
    "RMSNormalization": _rms,
}
