"""Let integer products finish their sums while these are in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.base import RewritePass
from popc.transforms.match import scalar_value, sole_output
from popc_runtime.format import DType
from popc_runtime.kernels.activation import ACTIVATIONS
from popc_runtime.kernels.byte_operands import BIAS, RESIDUAL, SCALE

__all__ = ["FuseByteEpilogues"]

_PRODUCERS: Final = ("ConvInteger", "MatMulInteger")
_MOVES: Final = ("Reshape", "Transpose")
_BYTES: Final = (DType.INT8, DType.UINT8)


@dataclass(frozen=True)
class FuseByteEpilogues(RewritePass):
    """A scale, a rounding, additions, an activation and bytes to go on with become part of the op.

    Results are the same to the bit.  A product that is moved before it is quantised is moved
    afterwards, when it is a quarter of the size.

    Before::

        %s = MatMulInteger(%p, @w) dtype='float32'
        %m = Mul(%s, float32(0.02))
        %b = Add(%m, @bias)
        %y = QuantizeLinear(%b, float32(0.1), uint8(3)) dtype='uint8'

    After::

        %y = MatMulInteger(%p, @w, -, -, -, float32(0.02), @bias) dtype='uint8'
            quantize_factor=1.0 quantize_scale=0.1 quantize_zero=3
    """

    name: ClassVar[str] = "fuse_byte_epilogues"

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Fuse ``op`` into the op that produces its operand."""
        fuse = _RULES.get(op.op_type)
        if fuse is not None and fuse(graph, op):
            return True
        if op.op_type in ACTIVATIONS and len(op.present_inputs) == 1:
            return _fuse_activation(graph, op)
        return False


# -- what a product does already -------------------------------------------------------------------


def _product(graph: Graph, tensor: Tensor) -> Op | None:
    """The product behind ``tensor``, if it may do more: its result is float32 and read once."""
    op = sole_output(graph, tensor, *_PRODUCERS)
    is_matrix = op is not None and min(one.type.rank for one in op.present_inputs[:2]) >= 2
    return op if is_matrix and tensor.type.dtype is DType.FLOAT32 else None


def _is_scaled(op: Op) -> bool:
    return op.optional(SCALE) is not None or _is_rounded(op)


def _is_rounded(op: Op) -> bool:
    return "rounding_scale" in op.attributes or _is_biased(op)


def _is_biased(op: Op) -> bool:
    return op.optional(BIAS) is not None or _is_added_to(op)


def _is_added_to(op: Op) -> bool:
    return op.optional(RESIDUAL) is not None or bool(op.attributes.get("activation"))


# -- one rule for each op that may follow ----------------------------------------------------------


def _fuse_binary(graph: Graph, op: Op, fuse: Callable[[Graph, Op, Tensor, Tensor], bool]) -> bool:
    """``fuse`` with either operand as the product."""
    left, right = op.operand(0), op.operand(1)
    return left is not right and (fuse(graph, op, left, right) or fuse(graph, op, right, left))


def _fuse_scale(graph: Graph, op: Op, product: Tensor, scale: Tensor) -> bool:
    producer = _product(graph, product)
    if producer is None or _is_scaled(producer):
        return False
    return _take_operand(graph, op, producer, SCALE, scale)


def _fuse_addition(graph: Graph, op: Op, product: Tensor, addend: Tensor) -> bool:
    producer = _product(graph, product)
    if producer is None or producer.attributes.get("activation"):
        return False
    if not _is_biased(producer) and _take_operand(graph, op, producer, BIAS, addend):
        return True
    return not _is_added_to(producer) and _take_operand(graph, op, producer, RESIDUAL, addend)


def _take_operand(graph: Graph, op: Op, producer: Op, index: int, tensor: Tensor) -> bool:
    """Let ``producer`` have ``tensor`` as operand ``index``, if it fits, in place of ``op``."""
    if op.output.type != producer.output.type:
        return False
    addend = tensor if index == RESIDUAL else _by_channel(graph, producer, tensor)
    if addend is None or addend.type.dtype is not DType.FLOAT32:
        return False
    if index == RESIDUAL and addend.type != producer.output.type:
        return False
    inputs = [*producer.inputs, *[None] * (index + 1 - len(producer.inputs))]
    inputs[index] = addend
    return _replace(graph, op, producer, {}, inputs)


def _by_channel(graph: Graph, producer: Op, tensor: Tensor) -> Tensor | None:
    """One number, or the numbers of all channels, as a row; ``None`` for what is neither."""
    rank, shape = producer.output.type.rank, tensor.type.shape
    axis = 1 if producer.op_type == "ConvInteger" else rank - 1
    place = axis - (rank - len(shape))
    if tensor.type.size > 1 and (place < 0 or tensor.type.size != shape[place]):
        return None
    if len(shape) <= 1:
        return tensor
    if tensor.data is None:
        return None
    data = tensor.data.reshape(-1)
    return graph.add_constant("c", tensor.type.with_shape(data.shape), data)


def _fuse_rounding(graph: Graph, op: Op) -> bool:
    producer = _product(graph, op.operand(0))
    if producer is None or _is_rounded(producer):
        return _fuse_activation(graph, op)
    added: AttributeMap = {f"rounding_{name}": value for name, value in op.attributes.items()}
    return _replace(graph, op, producer, added)


def _fuse_activation(graph: Graph, op: Op) -> bool:
    producer = _product(graph, op.operand(0))
    if producer is None or producer.attributes.get("activation"):
        return False
    added: AttributeMap = {f"activation_{name}": value for name, value in op.attributes.items()}
    return _replace(graph, op, producer, {"activation": op.op_type, **added})


def _fuse_requantize(graph: Graph, op: Op) -> bool:
    """A scale, and quotients by one."""
    producer, zero = _product(graph, op.operand(0)), _zero_point(op)
    if producer is None or _is_scaled(producer) or zero is None:
        return False
    bytes_ = op.output.type
    if bytes_.dtype not in _BYTES:
        return False
    multiplier = op.operand(1)
    scaled = build(graph, "Mul", [op.operand(0), multiplier], settings=op.settings)
    one = graph.add_constant("c", TensorType(DType.FLOAT32, ()), np.ones((), np.float32))
    attributes: AttributeMap = {"axis": 0, "block_size": 0, "dtype": bytes_.dtype.value}
    operands = [scaled.output, one, op.optional(2)]
    quantized = build(graph, "QuantizeLinear", operands, attributes, settings=op.settings)
    graph.replace_op(op, quantized.outputs)
    return True


def _zero_point(op: Op) -> int | None:
    """The zero point in operand 2, if it is known and serves the whole tensor; 0 if absent."""
    zero = op.optional(2)
    if zero is None:
        return 0
    value = scalar_value(zero)
    return None if value is None else int(value)


def _fuse_quantize(graph: Graph, op: Op) -> bool:
    scale, zero = scalar_value(op.optional(1)), _zero_point(op)
    if scale is None or zero is None or op.output.type.dtype not in _BYTES:
        return False
    if op.operand(0).type.dtype is not DType.FLOAT32:
        return False
    factor, source = _factor_behind(graph, op.operand(0))
    moves = _moves_behind(graph, source)
    producer = _product(graph, moves[-1].operand(0) if moves else source)
    if producer is None:
        return False
    attributes: AttributeMap = {
        **producer.attributes,
        "dtype": op.output.type.dtype.value,
        "quantize_factor": factor,
        "quantize_scale": scale,
        "quantize_zero": zero,
    }
    settings = producer.settings.fused(op.settings)
    new = build(graph, producer.op_type, producer.inputs, attributes, settings=settings)
    for move in reversed(moves):
        operands = [new.output, *move.inputs[1:]]
        new = build(graph, move.op_type, operands, move.attributes, settings=move.settings)
    graph.replace_op(op, new.outputs)
    return True


def _factor_behind(graph: Graph, tensor: Tensor) -> tuple[float, Tensor]:
    """What ``tensor`` is a multiple of, which nobody else reads, and the constant; 1 and itself."""
    op = sole_output(graph, tensor, "Mul")
    if op is None:
        return 1.0, tensor
    for index in (0, 1):
        factor, other = scalar_value(op.operand(index)), op.operand(1 - index)
        if factor is not None and other.type == tensor.type:
            return factor, other
    return 1.0, tensor


def _moves_behind(graph: Graph, tensor: Tensor) -> list[Op]:
    """The ops that only move what becomes ``tensor``, which nobody else reads, the last first."""
    moves: list[Op] = []
    while (move := sole_output(graph, tensor, *_MOVES)) is not None:
        moves.append(move)
        tensor = move.operand(0)
    return moves


def _replace(
    graph: Graph,
    op: Op,
    producer: Op,
    added: AttributeMap,
    inputs: Sequence[Tensor | None] | None = None,
) -> bool:
    """Put ``producer`` in place of ``op``, with attributes ``added`` and ``inputs``."""
    attributes = {**producer.attributes, **added}
    operands = producer.inputs if inputs is None else inputs
    settings = producer.settings.fused(op.settings)
    new = build(graph, producer.op_type, operands, attributes, settings=settings)
    graph.replace_op(op, new.outputs)
    return True


_RULES: Final[dict[str, Callable[[Graph, Op], bool]]] = {
    "Add": lambda graph, op: _fuse_binary(graph, op, _fuse_addition),
    "FakeQuantize": _fuse_rounding,
    "Mul": lambda graph, op: _fuse_binary(graph, op, _fuse_scale),
    "QuantizeLinear": _fuse_quantize,
    "Requantize": _fuse_requantize,
}
