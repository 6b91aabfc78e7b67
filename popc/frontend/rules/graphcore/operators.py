"""ai.graphcore, elementwise operators and moves: PopART's extension of ONNX.

The domain has no schemas; its operators are what PopART's builder makes (`builder.aiGraphcore`),
and the operators of TensorFlow for the IPU that stand alone, named as their functions.  Attributes
that only say how to compute (``__available_memory``, ``planType``, ...) have no effect on results.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node, RuleResult
from popc.frontend.rules.common import same_op, standard_op
from popc.frontend.rules.moves import emit_slice
from popc.frontend.tensors import dtype_from_onnx
from popc.frontend.values import Value
from popc.ir import AttributeMap, ProductCut, Shape, Tensor
from popc.ops.infer import normal_axis
from popc.options.annotations import CUTS
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["DOMAIN", "RULES", "constant_like", "emit_zeros", "graphcore_domain", "takes"]

DOMAIN: Final = "ai.graphcore"

# PopART's numbers of its element types.
_POPART_DTYPES: Final = {
    0: DType.UINT8,
    1: DType.INT8,
    2: DType.FLOAT8E4M3FNUZ,
    3: DType.FLOAT8E5M2FNUZ,
    4: DType.UINT16,
    5: DType.INT16,
    6: DType.INT32,
    7: DType.INT64,
    8: DType.UINT32,
    9: DType.UINT64,
    10: DType.BOOL,
    11: DType.FLOAT32,
    12: DType.FLOAT16,
    13: DType.BFLOAT16,
    14: DType.FLOAT64,
}


def graphcore_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of ai.graphcore by op type, keyed as the rule table wants them."""
    return {(DOMAIN, op_type): rule for op_type, rule in rules.items()}


def takes(fewest: int, most: int, rule: ImportRule) -> ImportRule:
    """``rule`` for nodes with ``fewest`` to ``most`` inputs; others are refused."""
    expected = str(fewest) if fewest == most else f"{fewest} to {most}"

    def checked(node: Node) -> RuleResult:
        count = len(node.inputs)
        while count and node.inputs[count - 1] is None:
            count -= 1
        if not fewest <= count <= most:
            raise ModelError(f"{node.op_type} takes {expected} inputs, but {count} are given")
        return rule(node)

    return checked


def constant_like(node: Node, value: float, x: Tensor) -> Tensor:
    """A scalar constant of the element type of ``x``.

    Raises:
        ModelError: that type has no such number.
    """
    dtype = x.type.dtype
    if dtype.is_integer and (value != int(value) or (value < 0 and dtype.is_unsigned)):
        raise ModelError(f"{value:g} cannot be represented in {dtype}")
    return node.constant(int(value) if dtype.is_integer else value, dtype)


def emit_zeros(node: Node, shape: Shape, dtype: DType) -> Tensor:
    """Zeros that take no space in the archive."""
    if any(dim < 0 for dim in shape):
        raise ModelError(f"shape {list(shape)} has a negative dimension")
    zero = node.constant(0, dtype)
    return node.emit("Expand", [zero], {"shape": shape}) if shape else zero


# -- elementwise -----------------------------------------------------------------------------------


def _bitwise_xnor(node: Node) -> Tensor:
    return node.emit("BitwiseNot", [node.emit("BitwiseXor", [node.input(0), node.input(1)])])


def _modulo(*, truncated: bool) -> ImportRule:
    """The remainder with the sign of the dividend (``truncated``), or that of the divisor."""

    def rule(node: Node) -> Tensor:
        return node.emit("Mod", [node.input(0), node.input(1)], {"fmod": int(truncated)})

    return rule


def _increment_mod(node: Node) -> Tensor:
    """(x + increment) modulo modulus, with the sign of the sum."""
    x = node.input(0)
    total = node.emit("Add", [x, constant_like(node, node.number("increment"), x)])
    return node.emit("Mod", [total, constant_like(node, node.number("modulus"), x)], {"fmod": 1})


def _rounded(node: Node) -> Tensor:
    """To the nearest integer, halves to the even one: as Round-11 of ai.onnx."""
    return node.emit("Round", [node.input(0)])


def _gelu(approximate: str) -> ImportRule:
    def rule(node: Node) -> Tensor:
        return node.emit("Gelu", [node.input(0)], {"approximate": approximate})

    return rule


def _hard_sigmoid(node: Node) -> Tensor:
    return node.emit("HardSigmoid", [node.input(0)], {"alpha": 0.2, "beta": 0.5})


def _swish(node: Node) -> Tensor:
    return node.emit("Swish", [node.input(0)], {"alpha": 1.0})


def _scale(node: Node) -> Tensor:
    x = node.input(0)
    return node.emit("Mul", [x, constant_like(node, node.number("scale"), x)])


def _scaled_add(node: Node) -> Tensor:
    """scale0 * T0 + scale1 * T1; an operand goes before the attribute."""
    x, y = node.input(0), node.input(1)
    if x.type != y.type:
        raise ModelError(f"the operands must have one type, not {x.type} and {y.type}")
    attributes: AttributeMap = {name: node.number(name, 1.0) for name in ("scale0", "scale1")}
    return node.emit("ScaledAdd", [x, y, node.optional(2), node.optional(3)], attributes)


# -- moves -----------------------------------------------------------------------------------------


def _nothing(node: Node) -> Value:
    """Operators that only matter to how a program is laid out on a device."""
    return node.value(0)


def _depth_to_space(node: Node) -> Tensor:
    block, mode = node.integer("blocksize"), node.text("mode", "DCR")
    return standard_op(node, "DepthToSpace", [node.input(0)], {"blocksize": block, "mode": mode})


def _reshape(node: Node) -> Tensor:
    """Import Reshape as ai.onnx has it, with the shape as an attribute."""
    shape = node.constant(node.integers("shape"), DType.INT64)
    return standard_op(node, "Reshape", [node.input(0), shape])


def _reverse(node: Node) -> Tensor:
    x = node.input(0)
    dimensions = node.integers("dimensions", ())
    windows = [range(dim) for dim in x.type.shape]
    if len(set(dimensions)) != len(dimensions):
        raise ModelError(f"dimensions {list(dimensions)} are not distinct")
    for axis in dimensions:
        place = normal_axis(axis, x.type.rank)
        windows[place] = windows[place][::-1]
    return emit_slice(node, x, windows)


def _slice(node: Node) -> Tensor:
    """Import Slice-1 as ai.onnx has it: all in attributes, no steps."""
    starts, ends = node.integers("starts"), node.integers("ends")
    axes = node.integers("axes", ()) or tuple(range(len(starts)))
    bounds = [node.constant(values, DType.INT64) for values in (starts, ends, axes)]
    return standard_op(node, "Slice", [node.input(0), *bounds])


def _subsample(node: Node) -> list[Tensor]:
    """Every stride-th element along each axis, of each operand."""
    return [_subsampled(node, x, node.integers("strides")) for x in node.tensors()]


def _subsampled(node: Node, x: Tensor, strides: tuple[int, ...]) -> Tensor:
    if len(strides) != x.type.rank or min(strides, default=1) < 1:
        raise ModelError(f"strides {list(strides)} do not fit {x.type}")
    pairs = zip(x.type.shape, strides, strict=True)
    return emit_slice(node, x, [range(0, dim, stride) for dim, stride in pairs])


# -- new tensors -----------------------------------------------------------------------------------


def _init(node: Node) -> Tensor:
    """Zeros, also where PopART leaves memory as it is; the type is of PopART's numbering."""
    number = node.integer("data_type")
    if number not in _POPART_DTYPES:
        raise ModelError(f"data_type {number} is not supported")
    return emit_zeros(node, node.integers("shape"), _POPART_DTYPES[number])


def _zeros(node: Node) -> Tensor:
    dtype = dtype_from_onnx(node.integer("dtype")) if node.has("dtype") else DType.FLOAT32
    return emit_zeros(node, node.integers("shape"), dtype)


def _zeros_like(node: Node) -> Tensor:
    type_ = node.input(0).type
    dtype = dtype_from_onnx(node.integer("dtype")) if node.has("dtype") else type_.dtype
    return emit_zeros(node, type_.shape, dtype)


# -- products --------------------------------------------------------------------------------------


def _serialized_matmul(node: Node) -> Tensor:
    """A product of matrices that is computed in ``serialization_factor`` parts."""
    operands = [_matrices(node, index, name) for index, name in enumerate("ab")]
    rows, inner = operands[0].type.shape[-2:]
    cut = {"a_columns": rows, "a_rows_b_columns": inner, "b_rows": operands[1].type.shape[-1]}
    dimension, factor = node.text("serialization_dimension"), node.integer("serialization_factor")
    if dimension not in cut:
        raise ModelError(f"serialization_dimension {dimension!r} is not one of {', '.join(cut)}")
    if factor < 1 or cut[dimension] % factor:
        raise ModelError(f"{cut[dimension]} {dimension} cannot be cut into {factor} parts")
    wanted = ProductCut(str(CUTS.meanings[dimension]), factor) if factor > 1 else None
    return node.emit("MatMul", operands, cut=wanted)


def _matrices(node: Node, index: int, name: str) -> Tensor:
    x = node.input(index)
    if x.type.rank < 2:
        raise ModelError(f"input {index} must hold matrices, not {x.type}")
    if not node.integer(f"transpose_{name}", 0):
        return x
    rank = x.type.rank
    return node.emit("Transpose", [x], {"perm": (*range(rank - 2), rank - 1, rank - 2)})


_ANY: Final = 1 << 16  # more opset versions than there will be

RULES: Final = graphcore_domain(
    {
        "Atan2": takes(2, 2, same_op),
        "BitwiseAnd": takes(2, 2, same_op),
        "BitwiseNot": takes(1, 1, same_op),
        "BitwiseOr": takes(2, 2, same_op),
        "BitwiseXnor": takes(2, 2, _bitwise_xnor),
        "BitwiseXor": takes(2, 2, same_op),
        "DepthToSpace": takes(1, 1, _depth_to_space),
        "Expm1": takes(1, 1, same_op),
        "Fmod": takes(2, 2, _modulo(truncated=True)),
        "Gelu": takes(1, 1, _gelu("tanh")),
        "GeluErf": takes(1, 1, _gelu("none")),
        "HardSigmoid": takes(1, 1, _hard_sigmoid),
        "IncrementMod": takes(1, 1, _increment_mod),
        "Init": takes(0, 0, _init),
        "Log1p": takes(1, 1, same_op),
        "NearbyInt": takes(1, 1, _rounded),
        "Nop": takes(1, 1, _nothing),
        "Remainder": takes(2, 2, _modulo(truncated=False)),
        "Reshape": takes(1, 1, _reshape),
        "Reverse": takes(1, 1, _reverse),
        "Round": takes(1, 1, _rounded),
        "Scale": takes(1, 1, _scale),
        "ScaledAdd": takes(2, 4, _scaled_add),
        "SerializedMatMul": takes(2, 2, _serialized_matmul),
        "Slice": takes(1, 1, _slice),
        "Square": takes(1, 1, same_op),
        "Subsample": takes(1, _ANY, _subsample),
        "Swish": takes(1, 1, _swish),
        "TensorRemap": takes(1, 1, _nothing),
        "Zeros": takes(0, 0, _zeros),
        "ZerosLike": takes(1, 1, _zeros_like),
    }
)
