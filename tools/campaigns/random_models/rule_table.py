"""The rules of `rules`, by operator."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import numpy as np
import onnx

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import run_node
from tools.campaigns.random_models.rules import (
    FLOAT32,
    FUNCTION,
    Rule,
    Step,
    of_sum,
    rounding,
    unit,
    wide,
)

__all__ = ["RULES", "sampled"]

_SAMPLES: Final = 4
_MARGIN: Final = 8.0  # of the largest of so many samples
_WINOGRAD: Final = 1e-5  # of the largest sum: docs/options.md says half of it of one result


# -- moves -----------------------------------------------------------------------------------------


def _moved(step: Step) -> list[Array]:
    """Errors go where elements go."""
    operands = [
        None
        if x is None
        else x.error.astype(np.float32)
        if i in _moved_operands(step)
        else wide(x.array)
        for i, x in enumerate(step.operands)
    ]
    if step.node.op_type == "Pad" and step.has(2):
        operands[2] = np.zeros((), np.float32)
    if not any(a is not None and a.any() for i, a in enumerate(operands) if i in _moved_operands(step)):
        return _exact(step)
    results = run_node(step.node, operands, step.opset)
    return [
        np.zeros(()) if made is None else results[name].astype(np.float64)
        for name, made in zip(step.node.output, step.results, strict=True)
    ]


def _moved_operands(step: Step) -> range:
    kind = step.node.op_type
    if kind in {"Concat", "Max", "Min"}:
        return range(len(step.operands))
    return range(1)


def _exact(step: Step) -> list[Array]:
    return [np.zeros(()) if array is None else np.zeros(array.shape) for array in step.results]


def _refused_if_uncertain(step: Step) -> list[Array]:
    """Integers and truth values that are exact if operands are."""
    if any(x is not None and x.error.any() for x in step.operands):
        return [np.full(() if a is None else a.shape, np.inf) for a in step.results]
    return _exact(step)


def _scattered(step: Step) -> list[Array]:
    """ScatterElements and ScatterND: errors go where elements go."""
    data, indices, updates = (step.operand(i) for i in range(3))
    error = step.evaluated(
        [data.error.astype(np.float32), indices.array, updates.error.astype(np.float32)]
    )
    if step.attribute("reduction", b"none") == b"none":
        return [error]
    sizes = step.evaluated(
        [wide(np.abs(data.array)), indices.array, wide(np.abs(updates.array))]
    )
    return [error + of_sum(updates.array.size) * sizes + step.rounding()]


def _padded(step: Step) -> list[Array]:
    return _moved(step)


def _pooled_maximum(step: Step) -> list[Array]:
    """The largest error of a window."""
    if len([a for a in step.results if a is not None]) > 1:
        return _refused_if_uncertain(step)
    return [step.through(step.operand(0).error)]


# -- elementwise -----------------------------------------------------------------------------------


def _between(extra: Callable[[Step], Array]) -> Rule:
    """A function that rises or falls: what is between the results of the ends of an interval."""

    def rule(step: Step) -> list[Array]:
        x = step.operand(0)
        here = x.array.astype(np.float64)
        reach = x.error + 0.0
        if step.node.op_type == "QuantizeLinear":
            reach = reach + 4 * FLOAT32 * np.abs(here)
        ends = [_as_operand(here + side * reach, x.array) for side in (-1, 1)]
        moved = [np.abs(step.through(end) - step.y) for end in ends]
        return [np.maximum(*moved) + extra(step)]

    return rule


def _as_operand(values: Array, like: Array) -> Array:
    if like.dtype.kind == "f":
        return values.astype(np.float32)
    if like.dtype == np.bool_:
        return values > 0.5
    limits = np.iinfo(like.dtype)
    return np.clip(values, limits.min, limits.max).astype(like.dtype)


def _dequantized(step: Step) -> list[Array]:
    """(x - zero point) scale, with a scale that may be off."""
    (error,) = _between(_rounded)(step)
    scale = step.operand(1)
    if not scale.error.any():
        return [error]
    relative = float((scale.error / np.abs(scale.array)).max())
    return [error + np.abs(step.y) * relative]


def _rounded(step: Step) -> Array:
    return step.rounding()


def _nothing(step: Step) -> Array:
    return np.zeros(step.y.shape)


def _function(step: Step) -> Array:
    return step.rounding() + FUNCTION * np.abs(step.y).max(initial=0)


def _steep(slope: float, extra: Callable[[Step], Array]) -> Rule:
    """A function that is nowhere steeper than ``slope``."""
    return lambda step: [slope * step.operand(0).error + extra(step)]


def _added(step: Step) -> list[Array]:
    return [sum((x.error for x in step.operands if x is not None), step.rounding())]


def _multiplied(step: Step) -> list[Array]:
    a, b = step.operand(0), step.operand(1)
    sizes = [np.abs(x.array.astype(np.float64)) for x in (a, b)]
    error = sizes[0] * b.error + sizes[1] * a.error + a.error * b.error
    return [error + step.rounding()]


def _divided(step: Step) -> list[Array]:
    a, b = step.operand(0), step.operand(1)
    if not a.is_float:
        return _refused_if_uncertain(step)
    size = np.abs(b.array.astype(np.float64))
    rest = np.where(size > 2 * b.error, size - b.error, 0)
    error = (np.abs(step.y) * b.error + a.error) / rest
    return [np.where((a.error == 0) & (b.error == 0), 0, error) + 2 * step.rounding()]


def _squared(step: Step) -> list[Array]:
    """Pow with a small whole exponent."""
    x, power = step.operand(0), step.operand(1)
    size = np.abs(x.array.astype(np.float64)) + x.error
    exponent = np.abs(power.array.astype(np.float64))
    slope = exponent * size ** np.maximum(exponent - 1, 0)
    return [slope * x.error + step.rounding() + FUNCTION * np.abs(step.y)]


def _largest(step: Step) -> list[Array]:
    return [np.maximum.reduce(np.broadcast_arrays(*[x.error for x in step.operands if x]))]


def _compared(step: Step) -> list[Array]:
    a, b = step.operand(0), step.operand(1)
    apart = np.abs(a.array.astype(np.float64) - b.array.astype(np.float64))
    reach = a.error + b.error
    return [((reach > 0) & (apart <= reach)).astype(np.float64)]


def _chosen(step: Step) -> list[Array]:
    condition, a, b = (step.operand(i) for i in range(3))
    apart = np.abs(a.array.astype(np.float64) - b.array.astype(np.float64))
    error = np.where(condition.array, a.error, b.error)
    return [np.where(condition.error > 0, apart + a.error + b.error, error)]


def _logical(step: Step) -> list[Array]:
    return [np.maximum.reduce(np.broadcast_arrays(*[x.error for x in step.operands if x]))]


# -- sums ------------------------------------------------------------------------------------------


def _products(terms: Callable[[Step], float], products: int = 2) -> Rule:
    """Sums of products of the first operands, to which later ones are added."""

    def rule(step: Step) -> list[Array]:
        given = [x for x in step.operands if x is not None]
        sizes = [np.abs(x.array.astype(np.float64)) for x in given]
        if step.operands[0] is not None and step.operands[0].array.dtype.kind != "f":
            return _refused_if_uncertain(step)
        total = step.through(*sizes)
        reached = total
        if any(x.error.any() for x in given):
            spread = [size + x.error for size, x in zip(sizes, given, strict=True)]
            reached = step.through(*spread)
        error = np.maximum(reached - total, 0) + of_sum(terms(step) + products) * total
        if step.node.op_type == "Conv" and list(step.operand(1).shape[2:]) == [3, 3]:
            error = error + _WINOGRAD * total.max(initial=0)
        if not step.operand(1).error.any():  # what follows may be folded into the weights
            error = error + unit(step.operand(1).array.dtype) * total
        return [error + step.rounding()]

    return rule


def _terms_of_conv(step: Step) -> float:
    return float(prod(step.operand(1).shape[1:]))


def _terms_of_transposed(step: Step) -> float:
    weights = step.operand(1).shape
    return float(weights[0] * prod(weights[2:]))


def _terms_of_matmul(step: Step) -> float:
    return float(step.operand(0).shape[-1])


def _terms_of_gemm(step: Step) -> float:
    return float(max(step.operand(0).shape))


def _averaged(step: Step) -> list[Array]:
    """Means, sums and interpolations: weights are not negative."""
    x = step.operand(0)
    count = x.array.size / max(step.y.size, 1)
    if step.node.op_type in {"AveragePool", "Resize", "CumSum", "LpPool"}:
        count = 64.0
    total = step.through(np.abs(x.array.astype(np.float64)))
    if not x.is_float:
        return _refused_if_uncertain(step)
    return [step.through(x.error) + of_sum(count) * total + step.rounding()]


def _resized(step: Step) -> list[Array]:
    """Resize: nearest moves, linear averages, cubic has weights of both signs."""
    mode = step.attribute("mode", b"nearest")
    x = step.operand(0)
    if mode == b"nearest":
        return _moved(step)
    if mode == b"linear" and step.attribute("coordinate_transformation_mode", b"") != (
        b"tf_crop_and_resize"
    ):
        weights = 1.0
    else:
        weights = 2.0 ** len(x.shape)  # magnitudes of the weights of an axis: 1.5 or less
    size = float(np.abs(x.array.astype(np.float64)).max(initial=0))
    error = weights * (float(x.error.max(initial=0)) + of_sum(64.0) * size)  # places too
    return [error + step.rounding()]


def _sum_of_squares(step: Step) -> list[Array]:
    x = step.operand(0)
    size = np.abs(x.array.astype(np.float64))
    total = step.y
    reached = step.through(size + x.error)
    return [np.maximum(reached - total, 0) + of_sum(float(x.array.size)) * total + step.rounding()]


def _anywhere(step: Step) -> list[Array]:
    """The largest error of all."""
    return [np.full(step.y.shape, step.operand(0).error.max(initial=0))]


def _length(step: Step) -> list[Array]:
    x = step.operand(0)
    return [step.through(x.error) + of_sum(float(x.array.size)) * step.y + step.rounding()]


def _requantized(step: Step) -> list[Array]:
    """QLinearConv and QLinearMatMul of exact operands: either of two where a sum is at a tie."""
    y = step.results[0]
    assert y is not None
    if any(x is not None and x.error.any() for x in step.operands):
        return _refused_if_uncertain(step)
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale = (step.operand(i) for i in range(7))
    name = {"QLinearConv": "ConvInteger", "QLinearMatMul": "MatMulInteger"}[step.node.op_type]
    node = onnx.NodeProto()
    node.CopyFrom(step.node)
    node.op_type = name
    operands = [x.array, w.array, x_zero.array, w_zero.array]
    sums = next(iter(run_node(node, operands, step.opset).values())).astype(np.float64)
    bias = step.operand(8).array if step.has(8) else np.zeros(())
    factor = np.float64(x_scale.array) * w_scale.array / y_scale.array
    shape = (-1, 1, 1) if name == "ConvInteger" else (-1,)
    steps = (sums + bias.reshape(shape)) * np.reshape(factor, shape)
    to_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    return [(to_tie <= 8 * FLOAT32 * (1 + np.abs(steps))).astype(np.float64)]


def _dynamically_quantized(step: Step) -> list[Array]:
    """Numbers that lie at ties may go either way; so may those that are not exact."""
    x = step.operand(0)
    scale, zero = (made for made in step.results[1:] if made is not None)
    reach = float(x.error.max(initial=0))
    of_scale = 2 * reach / 255 + 4 * FLOAT32 * float(scale)
    steps = x.array.astype(np.float64) / float(scale)
    apart = 2 * (x.error + reach) / float(scale) + 8 * FLOAT32 * (1 + np.abs(steps))
    to_tie = np.abs(np.abs(steps - np.floor(steps)) - 0.5)
    edge = -float(x.array.min(initial=0)) / float(scale)
    shifts = abs(abs(edge - np.floor(edge)) - 0.5) <= apart.max(initial=0)
    may = (to_tie <= apart).astype(np.float64) * np.ceil(apart)
    return [may + float(shifts), np.array(of_scale), np.full(zero.shape, float(shifts))]


# -- what looks at rows ----------------------------------------------------------------------------


def _softmax(step: Step) -> list[Array]:
    reach = float(step.operand(0).error.max(initial=0))
    if step.node.op_type == "LogSoftmax":
        return [2 * reach + FUNCTION * (1 + np.abs(step.y).max(initial=0)) + step.rounding()]
    relative = np.expm1(2 * reach) + 4 * FUNCTION + of_sum(float(step.y.size))
    return [step.y * relative + step.rounding()]


def _indices(step: Step) -> list[Array]:
    """ArgMax, ArgMin: uncertain where two elements along the axis may be in either order."""
    x = step.operand(0)
    if x.error.any():
        gaps = np.diff(np.sort(x.array.astype(np.float64), axis=step.attribute("axis", 0)))
        if not gaps.size or gaps.min() <= 2 * x.error.max():
            return [np.full(step.y.shape, np.inf)]
    return _exact(step)


def _batch_normalized(step: Step) -> list[Array]:
    x, scale, bias, mean, variance = (step.operand(i) for i in range(5))
    if any(value.error.any() for value in (scale, bias, mean, variance)):
        return sampled(step)
    shape = (-1, *(1 for _ in x.shape[2:]))
    factor = np.abs(scale.array.astype(np.float64)) / np.sqrt(
        variance.array.astype(np.float64) + step.attribute("epsilon", 1e-5)
    )
    parts = np.abs(x.array.astype(np.float64)) + np.abs(mean.array).reshape(shape)
    sizes = parts * factor.reshape(shape) + np.abs(bias.array).reshape(shape)
    moved = x.error * factor.reshape(shape)
    return [moved + 16 * FLOAT32 * sizes + 4 * step.rounding(sizes.astype(x.array.dtype))]


def _rows(step: Step) -> Array:
    """The operand of a normalization as rows that are normalized by themselves."""
    x = step.operand(0).array.astype(np.float64)
    if step.node.op_type == "GroupNormalization":
        return x.reshape(x.shape[0] * step.attribute("num_groups", 1), -1)
    if step.node.op_type == "InstanceNormalization":
        return x.reshape(prod(x.shape[:2]), -1)
    axis = step.attribute("axis", -1)
    return x.reshape(prod(x.shape[:axis]), -1)


def _normalized(step: Step) -> list[Array]:
    """What is off, or rounded off, of a row counts in deviations of the row."""
    rows, x = _rows(step), step.operand(0)
    if any(value is not None and value.error.any() for value in step.operands[1:]):
        return sampled(step)
    squares = np.square(rows).mean(axis=1)
    is_centred = step.node.op_type != "RMSNormalization"
    variance = (rows.var(axis=1) if is_centred else squares) + step.attribute("epsilon", 1e-5)
    reach = x.error.reshape(rows.shape).max(axis=1)
    of_mean = of_sum(rows.shape[1]) * np.sqrt(squares) + reach
    of_variance = of_sum(rows.shape[1]) * squares + 2 * reach * np.sqrt(variance)
    largest = np.abs(rows - (rows.mean(axis=1, keepdims=True) if is_centred else 0)).max(axis=1)
    relative = 2 * of_mean + largest * of_variance / (2 * variance)
    error = (relative + 8 * FLOAT32 * largest) / np.sqrt(variance)
    scale = float(np.abs(step.operand(1).array.astype(np.float64)).max(initial=0))
    spread = np.broadcast_to((error * scale)[:, np.newaxis], rows.shape).reshape(x.shape)
    return [spread + 2 * step.rounding() + FUNCTION]


def sampled(step: Step) -> list[Array]:
    """A function that has no rule: how far results move if operands move as far as they may.

    Operands move by what they may be off, and at least by some roundings of the largest; the
    largest of some samples counts several times, for all elements of a result alike.
    """
    random = np.random.default_rng(0)
    if any(x is not None and not x.is_float and x.error.any() for x in step.operands):
        return _refused_if_uncertain(step)
    moved = [0.0] * len(step.results)
    for _ in range(_SAMPLES):
        operands = [_disturbed(random, x) for x in _arrays_and_errors(step)]
        results = run_node(step.node, operands, step.opset)
        for i, made in enumerate(step.results):
            if made is not None and made.size:
                other = results[step.node.output[i]].astype(np.float64)
                moved[i] = max(moved[i], float(np.abs(other - made).max()))
    return [
        np.zeros(())
        if made is None
        else _MARGIN * far + rounding(made) + 4 * FUNCTION * np.abs(made.astype(np.float64)).max(initial=0)
        if made.dtype.kind == "f"
        else np.full(made.shape, far * np.inf if far else 0.0)
        for made, far in zip(step.results, moved, strict=True)
    ]


def _arrays_and_errors(step: Step) -> list[tuple[Array, Array] | None]:
    return [None if x is None else (x.array, x.error) for x in step.operands]


def _disturbed(random: np.random.Generator, given: tuple[Array, Array] | None) -> Array | None:
    if given is None:
        return None
    array, error = given
    if array.dtype.kind != "f":
        return array
    values = array.astype(np.float64)
    reach = np.maximum(error, 8 * FLOAT32 * np.abs(values).max(initial=0))
    return (values + reach * random.choice([-1.0, 1.0], values.shape)).astype(np.float32)


_MOVES: Final = (
    *("Identity", "Reshape", "Transpose", "Slice", "Split", "Concat", "Expand", "Tile", "Squeeze"),
    *("Unsqueeze", "Flatten", "DepthToSpace", "SpaceToDepth", "Gather", "GatherElements"),
    *("GatherND", "Pad", "Trilu", "ReverseSequence", "Dropout"),
)
_COMPARISONS: Final = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_RISING: Final = ("Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Softplus", "Elu", "Selu", "Celu", "HardSigmoid")
_PIECEWISE: Final = ("Relu", "Clip", "LeakyRelu", "Softsign", "ThresholdedRelu")

RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(_COMPARISONS, _compared),
    **dict.fromkeys(_RISING, _between(_function)),
    **dict.fromkeys(_PIECEWISE, _between(lambda step: 4 * _rounded(step))),
    **dict.fromkeys(("Floor", "Ceil", "Round", "Sign", "QuantizeLinear"), _between(_nothing)),
    **dict.fromkeys(("Cast",), _between(_rounded)),
    **dict.fromkeys(("Gelu", "Mish", "HardSwish", "Swish"), _steep(1.5, _function)),
    **dict.fromkeys(("Sin", "Cos"), _steep(1.0, _function)),
    **dict.fromkeys(("Abs", "Neg"), _steep(1.0, _nothing)),
    **dict.fromkeys(("Add", "Sub", "Sum"), _added),
    **dict.fromkeys(("Max", "Min"), _largest),
    **dict.fromkeys(("And", "Or", "Xor", "Not"), _logical),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "GlobalAveragePool", "AveragePool"), _averaged),
    **dict.fromkeys(("ReduceL1", "ReduceL2"), _length),
    **dict.fromkeys(("ArgMax", "ArgMin"), _indices),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    **dict.fromkeys(
        (
            "GroupNormalization",
            "InstanceNormalization",
            "LayerNormalization",
            "RMSNormalization",
        ),
        _normalized,
    ),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),
    **dict.fromkeys(("Shape", "Size", "Mod", "BitShift", "OneHot", "ConvInteger"), _refused_if_uncertain),
    "BatchNormalization": _batch_normalized,
    "Conv": _products(_terms_of_conv),
    "ConvTranspose": _products(_terms_of_transposed),
    "CumSum": _averaged,
    "DequantizeLinear": _dequantized,
    "Div": _divided,
    "DynamicQuantizeLinear": _dynamically_quantized,
    "Gemm": _products(_terms_of_gemm),
    "Einsum": _products(_terms_of_matmul),
    "GlobalMaxPool": _pooled_maximum,
    "MatMul": _products(_terms_of_matmul),
    "MaxPool": _pooled_maximum,
    "LpPool": _length,
    "Mul": _multiplied,
    "Pow": _squared,
    "ReduceMax": _pooled_maximum,
    "ReduceMin": _anywhere,
    "ReduceSumSquare": _sum_of_squares,
    "QLinearConv": _requantized,
    "QLinearMatMul": _requantized,
    "Resize": _resized,
    "Where": _chosen,
}
