"""Residual streams side by side, and what mixes them: hyper-connections, Engram's gates and hashes.

C, H: streams (branches) and their features.  Streams are [..., C, H], or [..., C * H] where the
node says how many there are.  Everything is computed in float32, and rounded once.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.microsoft.operators import microsoft_domain, plus, times
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.frontend.values import Value
from popc.ir import AttributeMap, Shape, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

_LEAST: Final = 1e-6  # of the magnitude under the root of Engram's gate


def _streams(node: Node) -> Tensor:
    """[..., C, H] of operand 0, in float32."""
    x = converted(node, node.input(0), DType.FLOAT32)
    count = node.integer("num_branches", 0)
    if count == 0:
        if x.type.rank < 2:
            raise ModelError(f"{x.type} has no dimension of branches")
        return x
    *outer, width = x.type.shape
    if width % count:
        raise ModelError(f"{width} features cannot be cut into {count} branches")
    return emit_reshape(node, x, (*outer, count, width // count))


def _gates(node: Node, index: int, shape: Shape) -> Tensor:
    """A factor of each stream, or of each of its features, that broadcasts to ``shape``."""
    gates = converted(node, node.input(index), DType.FLOAT32)
    *outer, count, _ = shape
    of_streams = prod(outer) * count
    if gates.type.size == of_streams:
        return emit_reshape(node, gates, (*outer, count, 1))
    if gates.type.size != prod(shape):
        raise ModelError(f"gates {gates.type} do not fit streams {list(shape)}")
    return emit_reshape(node, gates, shape)


def _as_operand(node: Node, x: Tensor) -> Tensor:
    """The streams in the shape and type of operand 0."""
    type_ = node.input(0).type
    return converted(node, emit_reshape(node, x, type_.shape), type_.dtype)


def _pre_mix(node: Node) -> Tensor:
    """The sum of all streams times their gates."""
    streams = _streams(node)
    shape = streams.type.shape
    weighted = node.emit("Mul", [streams, _gates(node, 1, shape)])
    total = node.emit("ReduceSum", [weighted], {"axes": (len(shape) - 2,), "keepdims": 0})
    total = times(node, total, node.number("reduction_scale", 1.0))
    return converted(node, total, node.input(0).type.dtype)


def _post_mix(node: Node) -> Tensor:
    """The streams, mixed by a matrix [C, C] if there is one, plus gates times a block's result."""
    streams = _streams(node)
    shape = streams.type.shape
    *outer, _, width = shape
    block = converted(node, node.input(1), DType.FLOAT32)
    block = emit_reshape(node, block, (*outer, 1, width))
    mix = node.optional(3)
    if mix is not None:
        turned = (*range(mix.type.rank - 2), mix.type.rank - 1, mix.type.rank - 2)
        mix = emit_transpose(node, converted(node, mix, DType.FLOAT32), turned)
        streams = node.emit("MatMul", [mix, streams])
    added = node.emit("Mul", [_gates(node, 2, shape), block])
    return _as_operand(node, plus(node, streams, added))


# -- normalisation ---------------------------------------------------------------------------------


def _normed(node: Node, x: Tensor, scale: Tensor | None) -> Tensor:
    """The last dimension divided by the root of its mean square, times a scale."""
    axes: AttributeMap = {"axes": (x.type.rank - 1,), "keepdims": 1}
    mean = node.emit("ReduceMean", [node.emit("Mul", [x, x])], axes)
    epsilon = node.constant(node.number("epsilon", 1e-5), DType.FLOAT32)
    root = node.emit("Sqrt", [node.emit("Add", [mean, epsilon])])
    y = node.emit("Div", [x, root])
    return y if scale is None else node.emit("Mul", [y, scale])


def _branchwise_norm(node: Node) -> Tensor:
    streams, scale = _streams(node), node.optional(1)
    shape = streams.type.shape
    if scale is not None:
        scale = converted(node, scale, DType.FLOAT32)
        if scale.type.size not in (prod(shape[-2:]), shape[-1]):
            raise ModelError(f"the scale {scale.type} does not fit branches {list(shape)}")
        is_whole = scale.type.size == prod(shape[-2:])
        scale = emit_reshape(node, scale, shape[-2:] if is_whole else shape[-1:])
    return _as_operand(node, _normed(node, streams, scale))


def _scaled_silu(node: Node) -> Tensor:
    """Each of the three steps is rounded to the type of the operand."""
    x, scale = node.input(0), node.optional(1)
    factor = node.constant(node.number("alpha", 1.0), DType.FLOAT32)
    if scale is not None:
        factor = emit_reshape(node, converted(node, scale, DType.FLOAT32), ())
    wide = node.emit("Mul", [converted(node, x, DType.FLOAT32), factor])
    scaled = converted(node, wide, x.type.dtype)
    return node.emit("Mul", [scaled, node.emit("Sigmoid", [scaled])])


def _engram_gate(node: Node) -> list[Value | None]:
    """Values [B, S, H] as streams [B, S, C, H], times gates by keys and queries of streams."""
    dtype = node.input(0).type.dtype
    key, query, value, *scales = (
        converted(node, node.input(index), DType.FLOAT32) for index in range(5)
    )
    batch, rows, _, width = key.type.shape
    product = node.emit(
        "Mul", [_normed(node, x, s) for x, s in zip((key, query), scales, strict=True)]
    )
    dot = node.emit("ReduceSum", [product], {"axes": (3,), "keepdims": 1})
    dot = times(node, dot, 1.0 / sqrt(max(width, 1)))
    least = node.constant(_LEAST, DType.FLOAT32)
    size = node.emit("Sqrt", [node.emit("Max", [node.emit("Abs", [dot]), least])])
    gate = node.emit("Sigmoid", [node.emit("Mul", [node.emit("Sign", [dot]), size])])
    y = node.emit("Mul", [gate, emit_reshape(node, value, (batch, rows, 1, width))])
    if not node.wants_output(1):
        return [converted(node, y, dtype)]
    normed = _normed(node, y, converted(node, node.input(5), DType.FLOAT32))
    return [converted(node, y, dtype), converted(node, normed, dtype)]


# -- hashes ----------------------------------------------------------------------------------------


def _ngram_hashes(node: Node) -> list[Value | None]:
    """Numbers of n-grams that end at each token, for n from 2 on: products of ids, joined by xor.

    History that ended before, by a token or by another segment, is replaced.
    """
    ids, factors, sizes = (node.input(index) for index in range(3))
    (batch, rows), most = ids.type.shape, node.integer("max_ngram_size")
    heads, dtype = node.integer("n_head_per_ngram"), ids.type.dtype
    if most < 2 or heads < 1 or sizes.type.size != (most - 1) * heads:
        raise ModelError(f"{sizes.type} has not {heads} sizes for each n from 2 to {most}")
    end = node.optional(5)
    missing = node.constant(node.integer("pad_id"), dtype)
    missing = missing if end is None else emit_reshape(node, end, ())
    past = node.optional(3)
    if past is None:
        past = node.emit("Expand", [missing], {"shape": (batch, most - 1)})
    line = node.emit("Concat", [past, ids], {"axis": 1})
    blocked: Tensor | None = None
    mixed: Tensor | None = None
    hashes = []
    for shift in range(most):
        seen = _shifted(node, line, shift, rows)
        if shift:
            blocked = _either(node, blocked, _ended(node, seen, shift, rows))
        kept = seen if blocked is None else node.emit("Where", [blocked, missing, seen])
        factor = emit_reshape(node, emit_slice(node, factors, [range(shift, shift + 1)]), ())
        term = node.emit("Mul", [kept, factor])
        mixed = term if mixed is None else node.emit("BitwiseXor", [mixed, term])
        if shift:
            hashes.append(_by_head(node, mixed, (shift - 1) * heads, heads))
    whole = node.emit("Concat", hashes, {"axis": 2})
    if node.optional(4) is not None:
        whole = plus(node, whole, node.input(4))
    return [whole, emit_slice(node, line, [range(batch), range(rows, rows + most - 1)])]


def _shifted(node: Node, line: Tensor, shift: int, rows: int) -> Tensor:
    """The last ``rows`` columns but ``shift``."""
    batch, width = line.type.shape
    first = width - rows - shift
    return emit_slice(node, line, [range(batch), range(first, first + rows)])


def _either(node: Node, x: Tensor | None, y: Tensor | None) -> Tensor | None:
    if x is None or y is None:
        return x if y is None else y
    return node.emit("Or", [x, y])


def _ended(node: Node, seen: Tensor, shift: int, rows: int) -> Tensor | None:
    """True where the token ``shift`` places before, or its segment, is not of this sequence."""
    found, end, segments = None, node.optional(5), node.optional(6)
    if end is not None and node.integer("reset_on_eos", 0):
        found = node.emit("Equal", [seen, emit_reshape(node, end, ())])
    if segments is None:
        return found
    batch = segments.type.shape[0]
    same = node.constant(np.zeros((batch, min(shift, rows)), np.bool_))
    if shift >= rows:
        return _either(node, found, same)
    every = range(batch)
    later = emit_slice(node, segments, [every, range(1, rows - shift + 1)])
    before = emit_slice(node, segments, [every, range(rows - shift)])
    differs = node.emit("Not", [node.emit("Equal", [later, before])])
    return _either(node, found, node.emit("Concat", [same, differs], {"axis": 1}))


def _by_head(node: Node, mixed: Tensor, first: int, heads: int) -> Tensor:
    """[B, S, heads]: remainders by the sizes of some heads."""
    sizes = emit_slice(node, node.input(2), [range(first, first + heads)])
    spread = emit_reshape(node, mixed, (*mixed.type.shape, 1))
    return node.emit("Mod", [spread, sizes], {"fmod": 0})


RULES: Final = microsoft_domain(
    {
        "BranchwiseRMSNorm": _branchwise_norm,
        "EngramGate": _engram_gate,
        "HyperConnectionPostMix": _post_mix,
        "HyperConnectionPreMix": _pre_mix,
        "NGramHashMapping": _ngram_hashes,
        "ScaledSiLU": _scaled_silu,
    }
)
