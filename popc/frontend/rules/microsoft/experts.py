"""Mixtures of experts: com.microsoft.MoE, and QMoE, whose weights are of 2, 4 or 8 bits.

T, k, E: tokens, experts of a token, experts; a route is a token with one of its experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, standard_op
from popc.frontend.rules.microsoft.operators import microsoft_domain, plus, times
from popc.frontend.rules.microsoft.recurrent import silu
from popc.frontend.rules.moves import emit_reshape
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]

# A layer of the experts: rows of routes, and the expert of each.
_Layer: TypeAlias = Callable[[Tensor, Tensor], Tensor]

_ACTIVATIONS: Final = ("gelu", "identity", "relu", "silu", "swiglu")
_BLOCK_STEP: Final = 16  # weights that blocks are multiples of


def _moe(node: Node) -> Tensor:
    """Weights of tokens' experts are those of a softmax over all experts."""

    def layer(index: int) -> _Layer | None:
        weights = node.optional(index)
        if weights is None:
            return None
        _check_depth(node, weights, 2 if index == _SECOND else 1)
        return lambda rows, expert: node.emit(
            "ExpertMatMul", [rows, expert, weights, node.optional(index + 1)]
        )

    tokens, router = _tokens(node), node.input(1)
    scores = node.emit("Softmax", [router], {"axis": 1})
    weights, experts = _best(node, scores)
    if node.integer("normalize_routing_weights", 0):
        weights = _normalized(node, weights)
    layers = [layer(index) for index in (2, _SECOND, 6)]
    return _mixed(node, tokens, (weights, experts), layers)


_SECOND: Final = 4  # operand of MoE: weights of the layer after the activation


def _check_depth(node: Node, weights: Tensor, place: int) -> None:
    """The first layers have rows as wide as a token, the second one as many rows as that."""
    width = node.input(0).type.shape[-1]
    if weights.type.rank != 3 or weights.type.shape[3 - place] != width:
        raise ModelError(
            f"weights {list(weights.type.shape)} of experts do not fit tokens of {width} numbers: "
            "rows of [experts, outputs, inputs] are multiplied"
        )


# -- few bits --------------------------------------------------------------------------------------

# Operands of QMoE: weights, scales, bias, zero points of each layer; and what says how wide it is
_PLACES: Final = (
    (2, 3, 4, 11, "fc1_expert_weight_bits"),
    (5, 6, 7, 12, "fc2_expert_weight_bits"),
    (8, 9, 10, 13, "fc3_expert_weight_bits"),
)


def _qmoe(node: Node) -> Tensor:
    """Weights of tokens' experts are those of a softmax over the chosen ones, or given.

    Everything is computed in float32.
    """
    if node.text("quant_type", "int") != "int":
        raise ModelError("only weights of whole numbers are supported: quant_type must be 'int'")
    x = node.input(0)
    tokens = converted(node, _tokens(node), DType.FLOAT32)
    best, experts = _best(node, converted(node, node.input(1), DType.FLOAT32))
    given = node.optional(14)
    if given is None:
        weights = node.emit("Softmax", [best], {"axis": 1})
    else:
        given = converted(node, given, DType.FLOAT32)
        weights = node.emit("GatherElements", [given, experts], {"axis": 1})
        if node.integer("normalize_routing_weights", 0):
            weights = _normalized(node, weights)
    layers = [_few_bits(node, number) for number in range(3)]
    return converted(node, _mixed(node, tokens, (weights, experts), layers), x.type.dtype)


def _few_bits(node: Node, number: int) -> _Layer | None:
    """A layer of QMoE whose rows have a scale for each block, or one."""
    weights, scale, bias, zero, width = _PLACES[number]
    if node.optional(weights) is None:
        return None
    packed = node.input(weights)
    bits = node.integer(width, 0) or node.integer("expert_weight_bits", 4)
    if bits not in (2, 4, 8) or packed.type.rank != 3:
        raise ModelError(f"weights {packed.type} of {bits} bits are not supported")
    experts, rows, depth = packed.type.shape
    columns = depth * 8 // bits
    block = node.integer("block_size", 0) or columns
    if block % _BLOCK_STEP or columns % block:
        raise ModelError(
            f"rows of {columns} weights in blocks of {block} are not supported: blocks are "
            f"multiples of {_BLOCK_STEP} that divide rows"
        )
    blocks = columns // block
    numbers = emit_reshape(node, packed, (experts, rows, blocks, block * bits // 8))
    scales = emit_reshape(node, node.input(scale), (experts, rows, blocks))
    zeros = _zero_points(node, node.optional(zero), bits, scales)
    added = node.optional(bias)
    added = None if added is None else converted(node, added, DType.FLOAT32)
    attributes: AttributeMap = {"bits": bits, "block_size": block, "K": columns}
    operands = [numbers, converted(node, scales, DType.FLOAT32), zeros, added]
    return lambda rows, expert: node.emit(
        "ExpertMatMulNBits", [rows, expert, *operands], attributes
    )


def _zero_points(node: Node, zero: Tensor | None, bits: int, scales: Tensor) -> Tensor | None:
    """In bytes of its own for each row, as they are if rows have several.

    Those of rows with one each are packed across rows.
    """
    if zero is None:
        return None
    experts, rows, blocks = scales.type.shape
    of_row = -(-blocks * bits // 8)
    if zero.type.rank == 3 or bits == 8:
        return emit_reshape(node, zero, (experts, rows, of_row))
    fields = 8 // bits
    spread = emit_reshape(node, zero, (experts, zero.type.shape[1], 1))
    shifts = node.constant(node.positions(fields) * bits, DType.UINT8)
    shifted = node.emit("BitShift", [spread, shifts], {"direction": "RIGHT"})
    mask = node.constant((1 << bits) - 1, DType.UINT8)
    each = node.emit("BitwiseAnd", [shifted, mask])
    whole = emit_reshape(node, each, (experts, zero.type.shape[1] * fields))
    if whole.type.shape[1] != rows:
        starts: AttributeMap = {"starts": (0, 0), "sizes": (experts, rows), "steps": (1, 1)}
        whole = node.emit("Slice", [whole], starts)
    return emit_reshape(node, whole, (experts, rows, 1))


# -- routes ----------------------------------------------------------------------------------------


def _tokens(node: Node) -> Tensor:
    """[T, hidden]."""
    x, router = node.input(0), node.input(1)
    if node.integer("use_sparse_mixer", 0):
        raise ModelError("use_sparse_mixer is not supported")
    width = x.type.shape[-1]
    count = x.type.size // max(width, 1)
    if x.type.rank not in (2, 3) or router.type.rank != 2 or router.type.shape[0] != count:
        raise ModelError(f"{router.type} does not route the tokens of {x.type}")
    return emit_reshape(node, x, (count, width))


def _best(node: Node, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The k largest scores of tokens, and whose they are; among equals those of later experts."""
    experts = scores.type.shape[1]
    k = node.integer("k", 1)
    if not 1 <= k <= experts:
        raise ModelError(f"k is {k}, but there are {experts} experts")
    every = range(experts)[::-1]
    last_first = node.emit("Gather", [scores, node.constant(list(every))], {"axis": 1})
    attributes: AttributeMap = {"axis": 1, "k": k, "largest": 1, "sorted": 1}
    best, places = node.emit_all("TopK", [last_first], attributes)
    return best, node.emit("Sub", [node.constant(experts - 1), places])


def _normalized(node: Node, weights: Tensor) -> Tensor:
    """Weights of a token that add up to one, or are all zero."""
    total = node.emit("ReduceSum", [weights], {"axes": (1,), "keepdims": 1})
    none = node.emit("Equal", [total, node.constant(0.0, total.type.dtype)])
    total = node.emit("Where", [none, node.constant(1.0, total.type.dtype), total])
    return node.emit("Div", [weights, total])


def _mixed(
    node: Node, tokens: Tensor, routes: tuple[Tensor, Tensor], layers: list[_Layer | None]
) -> Tensor:
    """The weighted sum of what a token's experts make of it: layer 1 of the activated layer 0."""
    weights, experts = routes
    (count, width), k = tokens.type.shape, weights.type.shape[1]
    of_route = emit_reshape(node, experts, (count * k,))
    spread = emit_reshape(node, tokens, (count, 1, width))
    if k > 1:
        spread = node.emit("Expand", [spread], {"shape": (count, k, width)})
    rows = emit_reshape(node, spread, (count * k, width))
    first, second, third = layers
    if first is None or second is None:
        raise ModelError("weights of two layers are required")
    inner = first(rows, of_route)
    gate = None if third is None else third(rows, of_route)
    answers = second(_activated(node, inner, gate), of_route)
    answers = emit_reshape(node, answers, (count, k, width))
    weighted = node.emit("Mul", [answers, emit_reshape(node, weights, (count, k, 1))])
    total = node.emit("ReduceSum", [weighted], {"axes": (1,), "keepdims": 0})
    return emit_reshape(node, total, node.input(0).type.shape)


def _activated(node: Node, x: Tensor, linear: Tensor | None) -> Tensor:
    name = node.text("activation_type", "relu")
    if name not in _ACTIVATIONS:
        raise ModelError(f"activation_type {name!r} is none of {', '.join(_ACTIVATIONS)}")
    if name == "swiglu":
        return _swiglu(node, x, linear)
    if name == "gelu":
        x = standard_op(node, "Gelu", [x], {"approximate": "tanh"})
    elif name == "silu":
        x = silu(node, x)
    elif name == "relu":
        x = node.emit("Relu", [x])
    return x if linear is None else node.emit("Mul", [x, linear])


def _swiglu(node: Node, x: Tensor, linear: Tensor | None) -> Tensor:
    """gate sigmoid(alpha gate) (linear + beta); both may lie in one, in turn or side by side."""
    fusion = node.integer("swiglu_fusion", 0)
    if linear is None:
        count, width = x.type.shape
        if fusion not in (1, 2) or width % 2:
            raise ModelError(f"swiglu of {width} columns needs swiglu_fusion 1 or 2, or a layer 3")
        shape = (count, width // 2, 2) if fusion == 1 else (count, 2, width // 2)
        halves: AttributeMap = {"axis": 2 if fusion == 1 else 1, "split": (1, 1)}
        parts = node.emit_all("Split", [emit_reshape(node, x, shape)], halves)
        x, linear = (emit_reshape(node, part, (count, width // 2)) for part in parts)
    elif fusion:
        raise ModelError("swiglu_fusion says that there is no third layer, but there is")
    if node.has("swiglu_limit"):
        limit = node.constant(node.number("swiglu_limit"), x.type.dtype)
        least = node.constant(-node.number("swiglu_limit"), x.type.dtype)
        x = node.emit("Min", [x, limit])
        linear = node.emit("Max", [node.emit("Min", [linear, limit]), least])
    gate = node.emit("Sigmoid", [times(node, x, node.number("activation_alpha", 1.0))])
    beta = node.number("activation_beta", 0.0)
    shifted = plus(node, linear, node.constant(beta, x.type.dtype)) if beta else linear
    return node.emit("Mul", [node.emit("Mul", [x, gate]), shifted])


RULES: Final = microsoft_domain({"MoE": _moe, "QMoE": _qmoe})
