"""Move scales and offsets per channel into the weights of the convolution before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.ir.attributes import integer
from popc.ops.shared import shared
from popc.transforms.base import RewritePass
from popc.transforms.match import are_moderate, other_operand, sole_output
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = ["FoldChannelOps"]

_CONVOLUTIONS: Final = ("Conv", "ConvTranspose")
_DTYPES: Final = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


@frozen
class FoldChannelOps(RewritePass):
    """Mul, Div, Add or Sub of a constant per channel, after a convolution that nothing else reads.

    Before::

        %c = Conv(%x, @w)
        %m = Mul(%c, @factor)
        %y = Add(%m, @offset)

    After::

        %y = Conv(%x, @w_folded, @offset)
    """

    name: ClassVar[str] = "fold_channel_ops"
    needs: ClassVar[frozenset[str]] = frozenset(_CONVOLUTIONS)

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Fold ``op`` into its convolution."""
        fold = _FOLDS.get(op.op_type)
        if fold is None:
            return False
        for side in (0, 1):
            conv = sole_output(graph, op.inputs[side], *_CONVOLUTIONS)
            if conv is None or not _is_foldable(conv):
                continue
            factor = other_operand(op, conv.output)
            per_channel = _channel_values(factor, conv.output)
            if per_channel is None or (side == 1 and op.op_type in ("Div", "Sub")):
                continue
            if op.output.type != conv.output.type or not fold(graph, conv, per_channel):
                continue
            conv.settings = conv.settings.fused(op.settings)
            graph.replace_op(op, conv.outputs)
            return True
        return False


def _is_foldable(conv: Op) -> bool:
    weights, bias = conv.operand(1), conv.optional(2)
    return (
        weights.is_constant
        and weights.type.dtype in _DTYPES
        and (bias is None or bias.is_constant)
        and not conv.attributes.get("activation")
        and conv.optional(3) is None
    )


def _channel_values(tensor: Tensor, output: Tensor) -> Array | None:
    """Constant ``tensor`` as one value per channel of ``output`` [N, C, ...], in float64."""
    if tensor.data is None:
        return None
    rank, channels = output.type.rank, output.type.shape[1]
    shape = (1,) * (rank - tensor.type.rank) + tensor.type.shape
    if len(shape) != rank or any(dim != 1 for axis, dim in enumerate(shape) if axis != 1):
        return None
    return np.broadcast_to(tensor.data.astype(np.float64).reshape(-1), (channels,))


def _scale(graph: Graph, conv: Op, factor: Array) -> bool:
    weights, bias, dtype = conv.operand(1), conv.optional(2), conv.output.type.dtype
    assert weights.data is not None, "checked by _is_foldable"
    along = _along_outputs(conv, factor)
    what = ("scale", conv.op_type, weights.type.dtype)
    scaled, largest = shared(what, [weights.data, along], lambda: _scaled(conv, along))
    with np.errstate(all="ignore"):
        moved = None if bias is None or bias.data is None else bias.data * factor
    folded = (factor, largest)
    if not all(are_moderate(op, dtype, tiny=True) for op in folded):
        return False
    if moved is not None:
        if not _is_finite(moved, dtype):
            return False
        _replace(graph, conv, 2, moved)
    _replace(graph, conv, 1, scaled)
    return True


def _scaled(conv: Op, factor: Array) -> tuple[Array, Array]:
    """The weights times ``factor``, in their type, and the largest of each output channel."""
    weights = conv.operand(1)
    assert weights.data is not None, "checked by _is_foldable"
    stored: Array = np.empty(weights.type.shape, weights.type.dtype.storage)
    with np.errstate(all="ignore"):
        np.multiply(weights.data, factor, out=stored, dtype=np.float64, casting="unsafe")
        return stored, _largest(conv, weights.data, factor)


def _largest(conv: Op, weights: Array, factor: Array) -> Array:
    """The largest of ``weights`` times ``factor`` of each output channel.

    Beside it, digits of the others may get lost.
    """
    largest: Array
    if conv.op_type != "Conv":
        largest = np.abs(weights * factor).max(axis=(0, *range(2, weights.ndim)), initial=0)
        return largest
    # A channel has one factor: what is the largest before is so afterwards, rounded or not.
    axes = tuple(range(1, weights.ndim))
    most = weights.max(axis=axes, initial=0, keepdims=True)
    least = weights.min(axis=axes, initial=0, keepdims=True)
    largest = np.maximum(most, -least) * np.abs(factor)
    return largest


def _is_finite(values: Array, dtype: DType) -> bool:
    return bool((np.abs(values) <= float(np.finfo(dtype.storage).max)).all())


def _along_outputs(conv: Op, factor: Array) -> Array:
    """``factor`` per output channel, shaped to multiply the weights."""
    shape = conv.operand(1).type.shape
    if conv.op_type == "Conv":  # [M, C / group, ...]
        return factor.reshape(-1, *(1 for _ in shape[1:]))
    group = integer(conv.attributes, "group", 1)  # [C, M / group, ...]
    rows = np.repeat(factor.reshape(group, shape[1]), shape[0] // group, axis=0)
    return rows.reshape(shape[0], shape[1], *(1 for _ in shape[2:]))


def _shift(graph: Graph, conv: Op, offset: Array) -> bool:
    bias, type_ = conv.optional(2), conv.output.type
    old = 0 if bias is None or bias.data is None else bias.data.astype(np.float64)
    with np.errstate(all="ignore"):
        data = np.asarray(old + offset)
    if not _is_finite(data, type_.dtype):
        return False
    if bias is not None:
        _replace(graph, conv, 2, data)
        return True
    data = data.astype(type_.dtype.storage)
    constant = graph.add_constant(f"{conv.output.name}_bias", type_.with_shape(data.shape), data)
    if len(conv.inputs) > 2:
        graph.set_input(conv, 2, constant)
    else:
        graph.append_input(conv, constant)
    return True


def _replace(graph: Graph, conv: Op, index: int, data: Array) -> None:
    """Give ``conv`` a new constant; others may still read the old one."""
    old = conv.operand(index)
    new = graph.add_constant(
        f"{old.name}_folded", old.type, np.ascontiguousarray(data, old.type.dtype.storage)
    )
    graph.set_input(conv, index, new)


def _divide(graph: Graph, conv: Op, divisor: Array) -> bool:
    return bool(divisor.all()) and _scale(graph, conv, 1 / divisor)


# Puts what follows into the weights, unless that takes numbers that the type has no room for.
_Fold: TypeAlias = Callable[[Graph, Op, Array], bool]
_FOLDS: Final[dict[str, _Fold]] = {
    "Add": _shift,
    "Div": _divide,
    "Mul": _scale,
    "Sub": lambda graph, conv, value: _shift(graph, conv, -value),
}
