"""Let integer products finish their sums while these are in the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build
from popc.ops.constants import scalar_value
from popc.transforms.base import RewritePass
from popc.transforms.match import may_be_one, sole_output
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.families import ACTIVATION_NAMES
from popc_runtime.kernels.parts.byte_operands import BIAS, RESIDUAL, SCALE

__all__ = ["FuseByteEpilogues"]

_PRODUCERS: Final = ("ConvInteger", "MatMulInteger")
_MOVES: Final = ("Reshape", "Transpose")
_BYTES: Final = (DType.INT8, DType.UINT8)


@frozen
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
    needs: ClassVar[frozenset[str]] = frozenset(_PRODUCERS)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Fuse ``op`` into the op that produces its operand."""
        fuse = _RULES.get(op.op_type)
        if fuse is not None and fuse(graph, op):
            return True
        if op.op_type in ACTIVATION_NAMES and len(op.present_inputs) == 1:
            return _fuse_activation(graph, op)
        return False


# -- what a product does already -------------------------------------------------------------------


def _product(graph: Graph, tensor: Tensor) -> Op | None:
    """The product behind ``tensor``, if it may do more: its result is float32 and read once."""
    op = sole_output(graph, tensor, *_PRODUCERS)
    is_matrix = op is not None and min(operand.type.rank for operand in op.present_inputs[:2]) >= 2
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
    inputs = _with_operand(graph, producer, index, tensor)
    return inputs is not None and _replace(graph, op, producer, {}, inputs)


def _with_operand(
    graph: Graph, producer: Op, index: int, tensor: Tensor
) -> list[Tensor | None] | None:
    """The operands of ``producer`` with ``tensor`` as number ``index``; ``None`` if it is unfit."""
    if tensor.type.dtype is not DType.FLOAT32:
        return None
    if index == RESIDUAL:
        fit = tensor if tensor.type == producer.output.type else None
    else:
        fit = _by_channel(graph, producer, tensor)
    if fit is None:
        return None
    inputs = [*producer.inputs, *[None] * (index + 1 - len(producer.inputs))]
    inputs[index] = fit
    return inputs


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
    producer, zero, dtype = _product(graph, op.operand(0)), _zero_point(op), op.output.type.dtype
    if producer is None or _is_scaled(producer) or zero is None or dtype not in _BYTES:
        return False
    inputs = _with_operand(graph, producer, SCALE, op.operand(1))
    return inputs is not None and _replace(graph, op, producer, _quotients(dtype, zero), inputs)


def _quotients(dtype: DType, zero: int, factor: float = 1.0, scale: float = 1.0) -> AttributeMap:
    """Attributes of a result of bytes: multiples of ``factor``, by ``scale``, and ``zero``."""
    return {
        "dtype": dtype.value,
        "quantize_factor": factor,
        "quantize_scale": scale,
        "quantize_zero": zero,
    }


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
    factor, source, multiplication = _factor_behind(graph, op.operand(0))
    moves = _moves_behind(graph, source)
    producer = _product(graph, moves[-1].operand(0) if moves else source)
    if producer is None:
        return False
    folded = [] if multiplication is None else [multiplication]
    if not may_be_one(graph, op, [producer, *moves, *folded]):
        return False
    added = _quotients(op.output.type.dtype, zero, factor, scale)
    attributes: AttributeMap = {**producer.attributes, **added}
    places = {producer: producer.settings, **{move: move.settings for move in reversed(moves)}}
    for follower in folded:
        places[producer] = places[producer].fused(follower.settings)
    last = moves[0] if moves else producer
    places[last] = places[last].fused(op.settings)
    new = build(graph, producer.op_type, producer.inputs, attributes, settings=places[producer])
    successors = {producer: new}
    for move in reversed(moves):
        operands = [new.output, *move.inputs[1:]]
        new = build(graph, move.op_type, operands, move.attributes, settings=places[move])
        successors[move] = new
    graph.replace_op(op, new.outputs)
    _hand_over_order(graph, {**successors, **dict.fromkeys(folded, new)})
    return True


def _factor_behind(graph: Graph, tensor: Tensor) -> tuple[float, Tensor, Op | None]:
    """A constant, what ``tensor``, which is read once, is the multiple of, and the op that does it.

    1, ``tensor`` and ``None`` if there is no such op.
    """
    op = sole_output(graph, tensor, "Mul")
    if op is None:
        return 1.0, tensor, None
    for index in (0, 1):
        factor, other = scalar_value(op.operand(index)), op.operand(1 - index)
        if factor is not None and other.type == tensor.type:
            return factor, other, op
    return 1.0, tensor, None


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
    if not may_be_one(graph, op, [producer]):
        return False
    attributes = {**producer.attributes, **added}
    operands = producer.inputs if inputs is None else inputs
    settings = producer.settings.fused(op.settings)
    new = build(graph, producer.op_type, operands, attributes, settings=settings)
    graph.replace_op(op, new.outputs)
    _hand_over_order(graph, {producer: new})
    return True


# -- what has been required of the order of ops ----------------------------------------------------


def _hand_over_order(graph: Graph, successors: Mapping[Op, Op]) -> None:
    """Require of the ops that now do the work what was required of those before."""
    for old, new in successors.items():
        if old in graph.ordering:
            graph.ordering.replace(old, new)


_RULES: Final[dict[str, Callable[[Graph, Op], bool]]] = {
    "Add": lambda graph, op: _fuse_binary(graph, op, _fuse_addition),
    "FakeQuantize": _fuse_rounding,
    "Mul": lambda graph, op: _fuse_binary(graph, op, _fuse_scale),
    "QuantizeLinear": _fuse_quantize,
    "Requantize": _fuse_requantize,
}
