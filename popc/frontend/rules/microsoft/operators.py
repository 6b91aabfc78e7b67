"""Fused and general operators of com.microsoft, as optimisers and exporters emit them.

The schemas of this domain are not part of onnx, so defaults of attributes are given here.
Quantised operators, normalisations and attention have files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from popc.frontend.node import ImportRule, Node, RuleResult
from popc.frontend.rules.common import same_op, standard_op, standard_values
from popc.frontend.rules.moves import emit_reshape, emit_transpose
from popc.ir import AttributeMap, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = [
    "RULES",
    "WINDOW_ATTRIBUTES",
    "as_standard",
    "channels_first",
    "channels_last",
    "factor_axes",
    "fused_conv",
    "microsoft_domain",
    "passed_on",
    "plus",
    "scaled_product",
    "times",
]

_DOMAIN: Final = "com.microsoft"

WINDOW_ATTRIBUTES: Final = (
    "auto_pad", "ceil_mode", "count_include_pad", "dilations", "group", "kernel_shape", "pads",
    "strides",
)  # fmt: skip

_TRANSPOSED: Final = ("dilations", "group", "kernel_shape", "output_padding", "strides")

# Attributes of activations: parameters in order, with their defaults
_ACTIVATIONS: Final[dict[str, Mapping[str, float]]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}


def microsoft_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of com.microsoft by op type, keyed as the rule table wants them."""
    return {(_DOMAIN, op_type): rule for op_type, rule in rules.items()}


# -- parts -----------------------------------------------------------------------------------------


def plus(node: Node, x: Tensor, *terms: Tensor | None) -> Tensor:
    """The sum of ``x`` and those ``terms`` that are present."""
    for term in terms:
        if term is not None:
            x = node.emit("Add", [x, term])
    return x


def times(node: Node, x: Tensor, factor: float) -> Tensor:
    """``x`` multiplied by a number."""
    return x if factor == 1 else node.emit("Mul", [x, node.constant(factor, x.type.dtype)])


def passed_on(node: Node, names: Iterable[str]) -> dict[str, int | float | str | Sequence[int]]:
    """The attributes of ``node`` that are present, for the operator that replaces it."""
    found: dict[str, int | float | str | Sequence[int]] = {}
    for name in names:
        value = node.attributes.get(name)
        if isinstance(value, (int, float, str, tuple)):
            found[name] = value
    return found


def channels_first(node: Node, x: Tensor) -> Tensor:
    """[N, ..., C] -> [N, C, ...]."""
    rank = x.type.rank
    return emit_transpose(node, x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(node: Node, x: Tensor) -> Tensor:
    """[N, C, ...] -> [N, ..., C]."""
    return emit_transpose(node, x, (0, *range(2, x.type.rank), 1))


def _activated(node: Node, x: Tensor, given: Mapping[str, float]) -> Tensor:
    """``x`` after the activation that a fused operator names, with the parameters given."""
    name = node.text("activation", "")
    if name == "":
        return x
    if name not in _ACTIVATIONS:
        raise ModelError(f"activation {name!r} is not supported")
    return standard_op(node, name, [x], {**_ACTIVATIONS[name], **given})


def _activated_in_order(node: Node, x: Tensor, parameters: Sequence[float]) -> Tensor:
    """``x`` after an activation whose parameters have no names."""
    name = node.text("activation", "")
    if name == "Clip":
        limits = [node.constant(value, x.type.dtype) for value in parameters]
        return standard_op(node, "Clip", [x, *limits])
    names = _ACTIVATIONS.get(name, {})
    return _activated(node, x, dict(zip(names, parameters, strict=False)))


# -- products and convolutions ---------------------------------------------------------------------


def _fused_matmul(node: Node) -> Tensor:
    """MatMul of operands whose axes are moved first; the result is multiplied by alpha."""
    factors = [node.input(0), node.input(1)]
    moved = [
        emit_transpose(node, x, factor_axes(node, x, side))
        for x, side in zip(factors, "AB", strict=True)
    ]
    return scaled_product(node, moved)


def scaled_product(node: Node, factors: Sequence[Tensor | None]) -> Tensor:
    """The product of factors whose axes lie as MatMul has them, by alpha."""
    return times(node, node.emit("MatMul", factors), node.number("alpha", 1.0))


def factor_axes(node: Node, x: Tensor, side: str) -> tuple[int, ...]:
    """transBatch: [M, batch..., K] -> [batch..., M, K]; then trans swaps the last two axes."""
    axes = list(range(x.type.rank))
    if len(axes) > 1 and node.integer(f"transBatch{side}", 0):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if len(axes) > 1 and node.integer(f"trans{side}", 0):
        axes[-2:] = axes[-1], axes[-2]
    return tuple(axes)


def _fused_gemm(node: Node) -> Tensor:
    attributes = passed_on(node, ("alpha", "beta", "transA", "transB"))
    y = standard_op(node, "Gemm", [node.input(0), node.input(1), node.optional(2)], attributes)
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    given = {name: node.number(name) for name in names if node.has(name)}
    return _activated(
        node, y, {name.removeprefix("activation_"): value for name, value in given.items()}
    )


def fused_conv(node: Node) -> Tensor:
    """Conv, a sum with the optional operand Z, an activation."""
    operands = [node.input(0), node.input(1), node.optional(2)]
    y = standard_op(node, "Conv", operands, passed_on(node, WINDOW_ATTRIBUTES))
    y = plus(node, y, node.optional(3))
    return _activated_in_order(node, y, node.numbers("activation_params", ()))


def _nhwc_conv(node: Node) -> Tensor:
    """Conv of [N, H, W, C] by weights [M, kH, kW, C / group]."""
    x, weights = (channels_first(node, node.input(index)) for index in (0, 1))
    attributes = passed_on(node, WINDOW_ATTRIBUTES)
    y = standard_op(node, "Conv", [x, weights, node.optional(2)], attributes)
    return channels_last(node, y)


def _nhwc_max_pool(node: Node) -> Tensor:
    """MaxPool of [N, H, W, C], of bytes."""
    x = channels_first(node, node.input(0))
    return channels_last(
        node, standard_op(node, "MaxPool", [x], passed_on(node, WINDOW_ATTRIBUTES))
    )


def _distances(node: Node) -> Tensor:
    """Distances of the rows of [M, K] from those of [N, K], as sums over differences.

    onnxruntime adds squared norms to a product, which leaves little of small distances.
    """
    a, b = node.input(0), node.input(1)
    if a.type.rank != 2 or b.type.rank != 2 or a.type.shape[1] != b.type.shape[1]:
        raise ModelError(
            f"rows of {list(a.type.shape)} and {list(b.type.shape)} have no distances: both must "
            "be matrices with as many columns"
        )
    metric = node.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise ModelError(f"metric is {metric!r}, not 'euclidean' or 'sqeuclidean'")
    (rows, width), (others, _) = a.type.shape, b.type.shape
    pair = [emit_reshape(node, a, (rows, 1, width)), emit_reshape(node, b, (1, others, width))]
    over: AttributeMap = {"axes": (2,), "keepdims": 0}
    squares = node.emit("ReduceSumSquare", [node.emit("Sub", pair)], over)
    return squares if metric == "sqeuclidean" else node.emit("Sqrt", [squares])


# -- activations -----------------------------------------------------------------------------------


def _gelu(node: Node) -> Tensor:
    """The exact Gelu of the input, or of the sum of two inputs (BiasGelu)."""
    return standard_op(node, "Gelu", [plus(node, node.input(0), node.optional(1))])


def _fast_gelu(node: Node) -> Tensor:
    x = plus(node, node.input(0), node.optional(1))
    return standard_op(node, "Gelu", [x], {"approximate": "tanh"})


def _quick_gelu(node: Node) -> Tensor:
    """The input times the sigmoid of alpha times the input."""
    x = node.input(0)
    gate = node.emit("Sigmoid", [times(node, x, node.number("alpha", 1.702))])
    return node.emit("Mul", [x, gate])


def _bias_softmax(node: Node) -> Tensor:
    """Softmax of a sum, over all axes from ``axis`` on together."""
    x = node.input(0)
    rank = x.type.rank
    axis = normal_axis(node.integer("axis", 1), rank)
    bias = node.input(1)
    if not node.integer("is_inner_broadcast", 0) and bias.type.rank < rank:
        bias = emit_reshape(node, bias, (1,) * (rank - bias.type.rank) + bias.type.shape)
    total = node.emit("Add", [x, bias])
    if axis == rank - 1:
        return node.emit("Softmax", [total], {"axis": axis})
    rows = (*x.type.shape[:axis], -1)
    flat = standard_op(node, "Reshape", [total, node.constant(rows, DType.INT64)])
    return emit_reshape(node, node.emit("Softmax", [flat], {"axis": axis}), x.type.shape)


def _bias_split_gelu(node: Node) -> Tensor:
    """The first half of the columns of a sum, times the Gelu of the second half."""
    total = plus(node, node.input(0), node.input(1))
    width = total.type.shape[-1] // 2
    halves: AttributeMap = {"axis": total.type.rank - 1, "split": (width, width)}
    left, right = node.emit_all("Split", [total], halves)
    return node.emit("Mul", [left, standard_op(node, "Gelu", [right])])


def _bias_add(node: Node) -> Tensor:
    return plus(node, node.input(0), node.input(1), node.input(2))


# -- movement --------------------------------------------------------------------------------------


def _expand_dims(node: Node) -> Tensor:
    axis = int(node.require_known(1, "the axis").reshape(())[()])
    x = node.input(0)
    axis = normal_axis(axis, x.type.rank + 1)
    return emit_reshape(node, x, (*x.type.shape[:axis], 1, *x.type.shape[axis:]))


def _unfold(node: Node) -> Tensor:
    """Windows of an axis, side by side; their elements are a new last dimension."""
    x, size, step = node.input(0), node.integer("size"), node.integer("step", 1)
    axis = normal_axis(node.integer("dim", -1), x.type.rank)
    length = x.type.shape[axis]
    if not 1 <= size <= length or step < 1:
        raise ModelError(f"windows of {size} in steps of {step} do not fit {length} elements")
    count = (length - size) // step + 1
    starts = node.positions(count).reshape(-1, 1) * step
    node.require_room(count * size)
    windows = node.emit("Gather", [x, node.constant(starts + node.positions(size))], {"axis": axis})
    rank = windows.type.rank
    return emit_transpose(node, windows, (*range(axis + 1), *range(axis + 2, rank), axis + 1))


def _echo(node: Node) -> Tensor:
    return node.input(0)


def _conv_transpose(node: Node) -> Tensor:
    """ConvTranspose whose padding is an operand."""
    attributes = passed_on(node, (*_TRANSPOSED, "auto_pad"))
    operands = [node.input(0), node.input(1), node.optional(3)]
    pads = node.require_known(2, "the padding")
    attributes["pads"] = [int(pad) for pad in pads.reshape(-1)]
    return standard_op(node, "ConvTranspose", operands, attributes)


def _matmul_words(node: Node) -> Tensor:
    """The product of integers of 16 bits, in 32."""
    wide = [node.emit("Cast", [node.input(i)], {"to": DType.INT32.value}) for i in (0, 1)]
    return node.emit("MatMul", wide)


# -- operators that ai.onnx has too ----------------------------------------------------------------


def as_standard(*names: str) -> ImportRule:
    """The operator of the same name, operands and (``names``) attributes in ai.onnx."""

    def rule(node: Node) -> RuleResult:
        operands = [node.optional(index) for index in range(len(node.inputs))]
        attributes = passed_on(node, names)
        return standard_values(node, node.op_type, operands, node.output_names, attributes)

    return rule


def _range(node: Node) -> RuleResult:
    """The standard's Range, whose step may be absent: then it is one."""
    start = node.value(0)
    step = node.optional_value(2)
    if step is None:
        step = node.constant(1, node.input(0).type.dtype)
    names = node.output_names
    return standard_values(node, "Range", [start, node.value(1), step], names)


def _gather_nd(node: Node) -> RuleResult:
    """The standard's GatherND, whose indices may be int32."""
    index = node.value(1)
    if isinstance(index, Tensor) and index.type.dtype is not DType.INT64:
        index = node.emit("Cast", [index], {"to": DType.INT64.value})
    return standard_values(node, "GatherND", [node.value(0), index], node.output_names)


RULES: Final = microsoft_domain(
    {
        "BiasAdd": _bias_add,
        "BiasGelu": _gelu,
        "BiasSoftmax": _bias_softmax,
        "BiasSplitGelu": _bias_split_gelu,
        "CDist": _distances,
        "ConvTransposeWithDynamicPads": _conv_transpose,
        "ExpandDims": _expand_dims,
        "FastGelu": _fast_gelu,
        "FusedConv": fused_conv,
        "FusedGemm": _fused_gemm,
        "FusedMatMul": _fused_matmul,
        "GatherND": _gather_nd,
        "Gelu": _gelu,
        "GridSample": as_standard("align_corners", "mode", "padding_mode"),
        "Inverse": same_op,
        "MatMulInteger16": _matmul_words,
        "NhwcConv": _nhwc_conv,
        "NhwcMaxPool": _nhwc_max_pool,
        "Pad": as_standard("mode"),
        "QuickGelu": _quick_gelu,
        "Range": _range,
        "SampleOp": _echo,
        "TransposeMatMul": _fused_matmul,
        "Trilu": as_standard("upper"),
        "UnfoldTensor": _unfold,
    }
)
