"""Graphs on which passes that rewrite single ops may fire, as in `drawn_rules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from popc.ir import OpSettings, ProductCut, Shape, Tensor
from popc.options import Partials
from popc.transforms.base import RewritePass
from popc.transforms.batch_serialization.sums import SumParts
from popc.transforms.constant_folding import ConstantFolding
from popc.transforms.distribute_batch_norm import DistributeBatchNorm
from popc.transforms.early_slices import EarlySlices
from popc.transforms.fold_batch_norm import FoldBatchNorm
from popc.transforms.fold_channel_ops import FoldChannelOps
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc.transforms.fuse_epilogues import FuseEpilogues
from popc.transforms.fuse_loss_gradients import FuseLossGradients
from popc.transforms.fuse_quantization import FuseQuantization
from popc.transforms.hoist_row_products import HoistRowProducts
from popc.transforms.integer_products import IntegerProducts
from popc.transforms.invariant_states import InvariantStates
from popc.transforms.name_results import NameResults
from popc.transforms.partials_type import PartialsType
from popc.transforms.recognise_activations import RecogniseActivations
from popc.transforms.recognise_attention import RecogniseAttention
from popc.transforms.recognise_layer_norm import RecogniseLayerNorm
from popc.transforms.serialize_lookups import SerializeLookups
from popc.transforms.serialize_products import SerializeProducts
from popc.transforms.winograd import Winograd
from popc_runtime.format import DType
from tests.transforms.drawing import FLOATS, Drawing
from tests.transforms.drawn_quantised import (
    activated,
    byte_sums,
    integer_products,
    plus,
    product,
    quantised,
)

__all__ = ["DRAWN_PASSES", "DrawnPass"]


@dataclass(frozen=True)
class DrawnPass:
    """A pass, and the graphs on which it is tried.

    Attributes:
        bits: Results are the same bit for bit; else they are rounded elsewhere.
        zeros: Signs of zeros are the same too, if the other bits are.
        type: The type of float in which it adds up, if that is another one than that of results.
        extremes: Whether inputs may be NaN or infinite: the results are the same then, too.
        again: Whether it is tried until it changes nothing.
    """

    make: RewritePass
    write: Callable[[Drawing], Tensor]
    bits: bool = False
    zeros: bool = True
    type: DType | None = None
    extremes: bool = True
    again: bool = True


def _conv(d: Drawing, dtype: DType = DType.FLOAT32) -> Tensor:
    """A convolution, or a transposed one, of 1 to 3 spatial axes."""
    spatial = d.number(1, 3)
    transposed, group = d.flag(), d.of(1, 1, 2)
    taken, given = group * d.number(1, 2), group * d.number(1, 2)
    x = d.input((d.number(1, 2), taken, *(d.number(2, 4) for _ in range(spatial))), dtype)
    kernel = tuple(d.number(1, 2) for _ in range(spatial))
    channels = (taken, given // group) if transposed else (given, taken // group)
    weights = d.extremes((*channels, *kernel), dtype)
    operands = [x, weights, *([d.extremes((given,), dtype)] if d.flag() else [])]
    return d(d.of(*(("ConvTranspose",) if transposed else ("Conv",))), *operands, group=group)


def _channels(d: Drawing, x: Tensor) -> Tensor:
    """A constant per channel of ``x``, or for all, or of another form."""
    dtype, rank = x.type.dtype, x.type.rank
    if d.flag():
        return d.scalar(dtype, 2, 0.5)
    spatial = rank - 2 + d.number(-1, 1)
    return d.extremes((d.of(1, x.type.shape[1]), *(1 for _ in range(spatial))), dtype)


def _channel_ops(d: Drawing) -> Tensor:
    y = _conv(d, d.dtype(*FLOATS))
    for _ in range(d.number(1, 3)):
        other = _channels(d, y)
        if _fits(y.type.shape, other.type.shape):
            y = d(d.of("Mul", "Add", "Div", "Sub"), *((y, other) if d.flag() else (other, y)))
    return y


def _fits(one: Shape, other: Shape) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs) and len(other) <= len(one) + 1


def _batch_norm(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input(d.shape(least=2, smallest=1), dtype)
    parameters = [d.extremes(x.type.shape[1:2], dtype) for _ in range(4)]
    if d.flag():
        parameters[3] = d.constant(np.full(x.type.shape[1:2], 0.5), dtype)
    epsilon = d.of(1e-5, 1e-5, 0.0)
    return d("BatchNormalization", x, *parameters, epsilon=epsilon)


def _near(d: Drawing, dtype: DType, value: float) -> Tensor:
    """``value``, or by chance something else."""
    return d.scalar(dtype, *[value] * 40, most=2)


def _activation(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input(d.shape(), dtype)
    kind = d.of("hard_sigmoid", "hard_swish", "swish", "gelu", "tanh")
    if kind == "swish":
        return product(d, x, d("Sigmoid", x))
    if kind.startswith("hard"):
        clipped = d("Clip", plus(d, x, _near(d, dtype, 3)), min=0.0, max=6.0)
        if kind == "hard_swish":
            clipped = product(d, x, clipped)
        return _scaled(d, clipped, 1 / 6)
    if kind == "gelu":
        inner = d("Erf", _scaled(d, x, 2**-0.5))
    else:
        cubic = _scaled(d, d("Pow", x, _near(d, dtype, 3)), 0.044715)
        inner = d("Tanh", _scaled(d, plus(d, x, cubic), (2 / np.pi) ** 0.5))
    gate = plus(d, inner, _near(d, dtype, 1))
    if d.flag():
        return product(d, _scaled(d, x, 0.5), gate)
    return _scaled(d, product(d, x, gate), 0.5)


def _scaled(d: Drawing, x: Tensor, factor: float) -> Tensor:
    if d.flag():
        return d("Div", x, _near(d, x.type.dtype, 1 / factor))
    return product(d, x, _near(d, x.type.dtype, factor))


def _layer_norm(d: Drawing) -> Tensor:
    dtype = d.of(DType.FLOAT32, DType.FLOAT32, DType.FLOAT32, *FLOATS)
    shape = d.shape(least=1, smallest=1)
    x = d.input(shape, dtype)
    axes = tuple(range(d.number(0, len(shape) - 1), len(shape)))
    mean = d("ReduceMean", x, axes=axes, keepdims=1)
    centred = d("Sub", x, mean)
    square = d("Mul", centred, centred) if d.flag() else d("Pow", centred, _near(d, dtype, 2))
    variance = d("ReduceMean", square, axes=axes, keepdims=1)
    epsilon = d.scalar(dtype, *[1e-5] * 30)
    y = d("Div", centred, d("Sqrt", plus(d, variance, epsilon)))
    own = shape[axes[0] :]
    if d.flag():
        y = product(d, y, d.constant(d.values(d.of(own, own, (1,), (1, *own)), dtype), dtype))
    if d.flag():
        y = plus(d, y, d.constant(d.values(d.of(own, own, (1,), (1, *own)), dtype), dtype))
    return y


def _attention(d: Drawing) -> Tensor:
    dtype = d.dtype(DType.FLOAT32, DType.FLOAT64, DType.FLOAT16)
    batch, rows, depth, keys = (d.number(1, 3), d.number(1, 2)), d.number(1, 3), 2, d.number(1, 3)
    q, k = d.input((*batch, rows, depth), dtype), d.input((*batch, depth, keys), dtype)
    v = d.input((*batch, keys, depth), dtype)
    if d.flag():
        q = _factor(d, q)
    if d.flag():
        k = _factor(d, k)
    scores = d("MatMul", q, k)
    if d.flag():
        scores = _factor(d, scores)
    if d.flag():
        mask = d.input(d.of((rows, keys), (1, 1, 1, keys), (), (1, 1, 1, 1)), dtype)
        scores = plus(d, scores, mask)
    y = d("MatMul", d("Softmax", scores, axis=3), v)
    return d("Transpose", y, perm=(0, 2, 1, 3)) if d.flag() else y


def _factor(d: Drawing, x: Tensor) -> Tensor:
    scalar = d.scalar(x.type.dtype, 2, 0.5, 8, 0.125, most=4)
    return d("Div", x, scalar) if d.flag() else product(d, x, scalar)


def _matrices(d: Drawing, dtype: DType) -> Tensor:
    rows, depth, columns = d.number(1, 3), d.number(1, 3), d.number(1, 3)
    if d.flag():
        operands = [d.input((rows, depth), dtype), d.input((depth, columns), dtype)]
        if d.flag():
            operands.append(d.input(d.of((rows, columns), (columns,), ()), dtype))
        return d("Gemm", *operands, alpha=d.of(1.0, 0.5), beta=d.of(1.0, 2.0))
    batch = d.shape(most=2, smallest=1)
    left = (*batch, rows, depth) if d.flag() else (depth,)
    return d("MatMul", d.input(left, dtype), d.input((depth, columns), dtype))


def _epilogue(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    y = _conv(d, dtype) if d.flag() else _matrices(d, dtype)
    for _ in range(d.number(1, 3)):
        if d.flag():
            y = activated(d, y)
            continue
        shape = d.beside(y.type.shape)
        other = d.input(shape, dtype) if d.flag() else d.extremes(shape, dtype)
        y = plus(d, y, other)
    return y


def _loss_gradient(d: Drawing) -> Tensor:
    classes = 3
    dtype = d.dtype(*FLOATS)
    shape = (*d.shape(least=1, most=3, smallest=1), classes)
    x = d.input(shape, dtype)
    places = np.random.default_rng(d.number(0, 9)).integers(0, classes, shape[:-1])
    labels = d.constant(places, DType.INT32)
    reduction = d.of("mean", "sum", "none")
    grad = d.input(shape[:-1] if reduction == "none" else (), dtype)
    attributes: dict[str, object] = {"reduction": reduction}
    p = d("Softmax", x, axis=len(shape) - 1)
    g = d("NllGrad", grad, p, labels, **attributes)
    return d("SoftmaxGrad", g, p, axis=len(shape) - 1)


def _loop_of_rows(d: Drawing) -> Tensor:
    steps, rows, depth, width = d.number(1, 3), d.number(1, 2), d.number(1, 3), d.number(1, 3)
    x, state = d.input((steps, rows, depth)), d.input((rows, width))
    weights = d.values((depth, width), DType.FLOAT32)
    loop = d.small.loop(
        [state],
        [x],
        lambda g, t: [
            t[1],
            g("Add", t[2], g("MatMul", g("Gather", t[3], t[0], axis=0), g.constant(weights))),
        ],
        trip_count=d.number(0, steps) or steps,
    )
    return loop.output


def _loop_with_states(d: Drawing) -> Tensor:
    x, fixed = d.input(d.shape(), d.dtype(*FLOATS)), None
    fixed = (
        d.input(x.type.shape, x.type.dtype) if d.flag() else d.extremes(x.type.shape, x.type.dtype)
    )
    loop = d.small.loop(
        [x, fixed], [], lambda g, t: [t[1], g("Mul", t[2], t[3]), t[3]], trip_count=d.number(0, 3)
    )
    return d("Add", *loop.outputs)


def _parts(d: Drawing) -> Tensor:
    dtype, shape = d.dtype(*FLOATS), d.shape()
    addends: list[Tensor] = []
    for phase in range(d.number(2, 4)):
        one = d("Neg", d.input(shape if d.number(0, 5) else d.beside(shape), dtype))
        assert one.producer is not None
        one.producer.settings = OpSettings(batch_phase=phase)
        addends.append(one)
    return d("Sum", *addends)


def _cut(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input((*d.shape(most=2, smallest=1), 4, 4), dtype)
    y = d("MatMul", x, d.input((4, 4), dtype))
    assert y.producer is not None
    mode = d.of("input_channels", "reducing_dim", "output_channels")
    y.producer.settings = replace(y.producer.settings, cut=ProductCut(mode, d.of(2, 4)))
    return y


def _lookup(d: Drawing) -> Tensor:
    rows = d.of(2, 4, 8)
    table = d.input((rows, *d.shape(most=2)), d.dtype())
    wanted = [d.number(-rows, rows - 1) for _ in range(d.number(1, 4))]
    indices = d.constant(wanted, d.of(DType.INT32, DType.INT64))
    y = d("Gather", table, indices, axis=0)
    assert y.producer is not None
    cut = ProductCut("rows", d.of(*(factor for factor in (2, 4, 8) if factor <= rows)))
    y.producer.settings = replace(y.producer.settings, cut=cut)
    return y


def _folded(d: Drawing) -> Tensor:
    dtype, shape = d.dtype(), d.shape()
    a, b = d.extremes(shape, dtype), d.extremes(d.beside(shape), dtype)
    total = d(d.of("Add", "Mul", "Sub", "Max", "Min"), a, b)
    return d("Mul", d.input(d.beside(total.type.shape), dtype), total)


def _statistics(d: Drawing) -> Tensor:
    dtype = d.dtype(*FLOATS)
    x = d.input(d.shape(least=2, smallest=1), dtype)
    scale, bias = (d.input(x.type.shape[1:2], dtype) for _ in range(2))
    return d("BatchNormalizationTraining", x, scale, bias, epsilon=1e-2)


def _rows(d: Drawing) -> Tensor:
    """Some rows of what a few ops have made, each of the ops before."""
    dtype = d.dtype(DType.FLOAT32, DType.FLOAT64, DType.FLOAT16)
    x = d.input((d.number(1, 3), d.number(2, 4), 2), dtype)
    for _ in range(d.number(1, 4)):
        batch, rows, columns = x.type.shape
        kind = d.number(0, 4)
        if kind == 0:
            x = d("MatMul", x, d.input((columns, d.number(1, 3)), dtype))
        elif kind == 1:
            scale = d.input(d.of((columns,), (1,), (rows, columns)), dtype)
            axis = d.of(-1, 2, 1)
            x = d("RMSNormalization", x, scale, axis=axis, epsilon=1e-2, stash_type="float32")
        elif kind == 2:
            operand = d.input(d.of((rows, 1), (columns,), (batch, 1, columns), ()), dtype)
            x = d("Max", *((x, operand) if d.flag() else (operand, x)))
        elif kind == 3:
            x = d("Transpose", x, perm=d.of((1, 0, 2), (0, 2, 1), (2, 1, 0)))
        else:
            x = d("Reshape", x, shape=d.of((rows, batch, columns), (batch, columns, rows)))
    axis, shape = d.number(0, 2), list(x.type.shape)
    start = d.number(0, shape[axis] - 1)
    shape[axis] = d.number(1, shape[axis] - start)
    starts = tuple(start if index == axis else 0 for index in range(3))
    return d("Slice", x, starts=starts, sizes=tuple(shape), steps=(1, 1, 1))


DRAWN_PASSES: Final[Mapping[type[RewritePass], DrawnPass]] = {
    ConstantFolding: DrawnPass(ConstantFolding(1 << 20), _folded, bits=True),
    DistributeBatchNorm: DrawnPass(DistributeBatchNorm(2), _statistics, extremes=False),
    EarlySlices: DrawnPass(EarlySlices(), _rows),
    FoldBatchNorm: DrawnPass(FoldBatchNorm(), _batch_norm),
    # Beside larger weights, the least may round to 0: infinite inputs show that, and nothing else.
    FoldChannelOps: DrawnPass(FoldChannelOps(), _channel_ops, extremes=False),
    FuseByteEpilogues: DrawnPass(FuseByteEpilogues(), byte_sums, bits=True),
    FuseEpilogues: DrawnPass(FuseEpilogues(), _epilogue),
    # The formula divides by probabilities, and cannot where they are 0.
    FuseLossGradients: DrawnPass(FuseLossGradients(), _loss_gradient, extremes=False),
    FuseQuantization: DrawnPass(FuseQuantization(), quantised, bits=True, zeros=False),
    HoistRowProducts: DrawnPass(HoistRowProducts(), _loop_of_rows),
    IntegerProducts: DrawnPass(IntegerProducts(), integer_products),
    InvariantStates: DrawnPass(InvariantStates(), _loop_with_states, bits=True),
    NameResults: DrawnPass(NameResults(), _epilogue, bits=True, again=False),
    PartialsType: DrawnPass(
        PartialsType(Partials.HALF, Partials.HALF), _epilogue, type=DType.FLOAT16
    ),
    RecogniseActivations: DrawnPass(RecogniseActivations(), _activation),
    # It says what becomes of queries that see no key, and only the mask can see to that.
    RecogniseAttention: DrawnPass(RecogniseAttention(), _attention, extremes=False),
    RecogniseLayerNorm: DrawnPass(RecogniseLayerNorm(), _layer_norm),
    SerializeLookups: DrawnPass(SerializeLookups(), _lookup, bits=True),
    SerializeProducts: DrawnPass(SerializeProducts(), _cut),
    SumParts: DrawnPass(SumParts(), _parts),
    Winograd: DrawnPass(Winograd(allowed=False), _conv, bits=True),
}
