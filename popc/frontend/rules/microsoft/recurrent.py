"""Layers of com.microsoft that carry a state from token to token, and the gates around them.

Qwen3-Next, Qwen3.5 and Mamba are made of these: B, T: batch and tokens; N, K, V: heads, and the
sizes of their keys and values.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import Given, converted, standard_op
from popc.frontend.rules.microsoft.operators import microsoft_domain, plus, times
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.frontend.values import Value
from popc.ir import Shape, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES", "silu", "windows"]

_MOST_STATES: Final = 8  # that a window may keep
_RULES: Final = ("linear", "gated", "delta", "gated_delta")


def silu(node: Node, x: Tensor) -> Tensor:
    """The input times its sigmoid."""
    return node.emit("Mul", [x, node.emit("Sigmoid", [x])])


def windows(node: Node, states: list[Tensor], shape: Shape) -> Tensor:
    """The last of the states after each token, or ``state_window`` of them; zeros before the first.

    ``states`` are those after the last tokens, in order, each of ``shape``.
    """
    count = _state_window(node)
    if count == 0:
        return states[-1]
    rows = [emit_reshape(node, state, (1, *shape)) for state in states[-count:]]
    if len(rows) < count:
        missing = (count - len(rows), *shape)
        node.require_room(prod(missing))
        rows.insert(0, node.constant(np.zeros(missing), states[0].type.dtype))
    return node.emit("Concat", rows, {"axis": 0})


def _state_window(node: Node) -> int:
    count = node.integer("state_window", 0)
    if not 0 <= count <= _MOST_STATES:
        raise ModelError(f"state_window is {count}, not 0 to {_MOST_STATES}")
    return count


def _last_state(node: Node, index: int, shape: Shape, dtype: DType) -> Tensor:
    """The state that the past ended with, of ``shape``; zeros without a past."""
    past, count = node.optional(index), _state_window(node)
    if past is None:
        node.require_room(prod(shape))
        return node.constant(np.zeros(shape), dtype)
    if count:
        rest = [range(dim) for dim in past.type.shape[1:]]
        past = emit_slice(node, past, [range(count - 1, count), *rest])
    return converted(node, emit_reshape(node, past, shape), dtype)


# -- convolution -----------------------------------------------------------------------------------


def _causal_conv(node: Node) -> list[Value | None]:
    """A convolution of each channel over the past, whose last positions are the state."""
    x, weights = node.input(0), node.input(1)
    if node.integer("ndim", 1) != 1:
        raise ModelError("only one axis can be causal: ndim must be 1")
    dilation = node.integer("dilation", 1)
    channels, taps = weights.type.shape[0], weights.type.shape[-1]
    kept = (taps - 1) * dilation
    is_last = node.integer("channels_last", 0) != 0
    rows = x.type.shape[1 if is_last else 2]
    outside = x.type.shape[2:] if is_last else x.type.shape[1:2]
    if prod(outside) != channels:
        raise ModelError(f"{channels} filters do not fit the channels of {x.type}")
    shape = _outside_shape(x, kept, is_last=is_last)
    past = _inside(node, _last_state(node, 3, shape, x.type.dtype), is_last=is_last)
    line = node.emit("Concat", [past, _inside(node, x, is_last=is_last)], {"axis": 2})
    y = _activated(node, _convolved(node, line, dilation))
    if is_last:
        y = _outside(node, y, x.type.shape)
    if not node.wants_output(1):
        return [y]
    ends = range(rows - min(rows, max(_state_window(node), 1)) + 1, rows + 1) if rows else range(1)
    every = [range(dim) for dim in line.type.shape[:2]]
    states = [emit_slice(node, line, [*every, range(end, end + kept)]) for end in ends]
    if is_last:
        states = [_outside(node, state, shape) for state in states]
    return [y, windows(node, states, shape)]


def _outside_shape(x: Tensor, length: int, *, is_last: bool) -> Shape:
    """The shape of ``x``, [B, C, T] or [B, T, channels...], with another length."""
    return (
        (*x.type.shape[:1], length, *x.type.shape[2:]) if is_last else (*x.type.shape[:2], length)
    )


def _inside(node: Node, x: Tensor, *, is_last: bool) -> Tensor:
    """[B, C, T] of that or [B, T, channels...]."""
    if not is_last:
        return x
    batch, rows, *channels = x.type.shape
    return emit_transpose(node, emit_reshape(node, x, (batch, rows, prod(channels))), (0, 2, 1))


def _outside(node: Node, x: Tensor, shape: Shape) -> Tensor:
    """[B, T, channels...] of [B, C, T]."""
    return emit_reshape(node, emit_transpose(node, x, (0, 2, 1)), shape)


def _convolved(node: Node, line: Tensor, dilation: int) -> Tensor:
    weights = node.input(1)
    attributes: dict[str, Given] = {
        "group": weights.type.shape[0],
        "dilations": [dilation],
        "kernel_shape": weights.type.shape[2:],
    }
    return standard_op(node, "Conv", [line, weights, node.optional(2)], attributes)


def _activated(node: Node, y: Tensor) -> Tensor:
    activation = node.text("activation", "none")
    if activation in ("silu", "swish"):
        return silu(node, y)
    if activation != "none":
        raise ModelError(f"activation {activation!r} is not supported")
    return y


# -- linear attention ------------------------------------------------------------------------------


def _linear_attention(node: Node) -> list[Value | None]:
    """A state [B, N, K, V] of each head, that forgets, learns a token, and answers its query.

    In float32, one token after the other: S = exp(decay) S; with beta, the value becomes
    beta (v - k S); S += k (outer) v; the answer is scale q S.
    """
    rule = node.text("update_rule", "gated_delta")
    if rule not in _RULES:
        raise ModelError(f"update_rule {rule!r} is none of {', '.join(_RULES)}")
    query_heads, heads = node.integer("q_num_heads"), node.integer("kv_num_heads")
    x = node.input(0)
    batch, rows, width = x.type.shape
    size = width // query_heads
    values = node.input(2).type.shape[2] // heads
    scale = node.number("scale", 0.0) or 1.0 / sqrt(max(size, 1))
    wide = DType.FLOAT64 if x.type.dtype is DType.FLOAT64 else DType.FLOAT32
    many = max(query_heads, heads)
    if many % query_heads or many % heads:
        raise ModelError(f"{query_heads} query heads do not fit {heads} heads of values")
    # [T, B, N, rows of a matrix, columns]: tokens first, as they are taken in turn
    k = _per_head(node, node.input(1), (node.input(1).type.shape[2] // size, 1, size), heads, wide)
    v = _per_head(node, node.input(2), (heads, 1, values), heads, wide)
    q = _per_head(node, x, (query_heads, 1, size), heads, wide)
    scanned = {"q": times(node, q, scale), "k": k, "v": v}
    if "gated" in rule:
        decay = node.input(4)
        each = decay.type.shape[2] // heads  # of a head as a whole, or of each of its keys
        scanned["g"] = node.emit("Exp", [_per_head(node, decay, (heads, each, 1), heads, wide)])
    if "delta" in rule:
        beta = node.input(5)
        scanned["b"] = _per_head(node, beta, (beta.type.shape[2], 1, 1), heads, wide)
    shape = (batch, heads, size, values)
    state = _last_state(node, 3, shape, wide)
    answers, states = _recurrence(node, state, scanned, rows, shape)
    y = emit_transpose(node, answers, (1, 0, 2, 3, 4))  # [B, T, N, queries of a head, V]
    y = emit_reshape(node, y, (batch, rows, many * values))
    kept = node.optional(3)
    kept_type = x.type.dtype if kept is None else kept.type.dtype
    present = converted(node, windows(node, states, shape), kept_type)
    return [converted(node, y, x.type.dtype), present]


def _per_head(node: Node, x: Tensor, shape: Shape, heads: int, wide: DType) -> Tensor:
    """[B, T, ...] as [T, B, heads, rows, columns]; heads of ``shape`` that are fewer are shared.

    More of them are rows of the heads that they share.
    """
    batch, length, _ = x.type.shape
    own, rows, columns = shape
    if own > heads:
        rows, own = own // heads * rows, heads
    x = converted(node, emit_reshape(node, x, (batch, length, own, rows, columns)), wide)
    x = emit_transpose(node, x, (1, 0, 2, 3, 4))
    if own in (1, heads):
        return x
    if heads % own:
        raise ModelError(f"{own} heads do not fit {heads} heads of values")
    shared = emit_reshape(node, x, (length, batch, own, 1, rows, columns))
    spread = (length, batch, own, heads // own, rows, columns)
    shared = node.emit("Expand", [shared], {"shape": spread})
    return emit_reshape(node, shared, (length, batch, heads, rows, columns))


def _recurrence(
    node: Node, state: Tensor, scanned: dict[str, Tensor], rows: int, shape: Shape
) -> tuple[Tensor, list[Tensor]]:
    """The answers [T, B, N, queries, V], and the states after the last tokens that are kept."""
    kept = min(rows, max(_state_window(node), 1))
    answers, states, start = [], [state], 0
    for end in range(rows - kept + 1, rows + 1) if rows else (0,):
        tokens = {
            name: _tokens(node, x, range(start, end), shape[1]) for name, x in scanned.items()
        }
        operands = [states[-1], *(tokens.get(name) for name in "qkvgb")]
        answer, state = node.emit_all("LinearAttention", operands)
        answers.append(answer)
        states.append(state)
        start = end
    joined = answers[0] if len(answers) == 1 else node.emit("Concat", answers, {"axis": 0})
    return joined, states[1:]


def _tokens(node: Node, x: Tensor, chosen: range, heads: int) -> Tensor:
    """Some of the tokens [T, B, N, rows, columns]; what all heads share is spread to them."""
    length, batch, own, *matrix = x.type.shape
    if own != heads:
        x = node.emit("Expand", [x], {"shape": (length, batch, heads, *matrix)})
    if len(chosen) == length:
        return x
    return emit_slice(node, x, [chosen, *(range(dim) for dim in x.type.shape[1:])])


# -- gates -----------------------------------------------------------------------------------------


def _linear_attention_gate(node: Node) -> list[Value | None]:
    """The decay of heads [B, T, N], decay_scale softplus(a + dt_bias), and sigmoid(b)."""
    a, b = node.input(0), node.optional(3)
    total = node.emit("Add", [converted(node, a, DType.FLOAT32), node.input(1)])
    decay = node.emit("Mul", [standard_op(node, "Softplus", [total]), node.input(2)])
    beta = None if b is None else node.emit("Sigmoid", [b])
    return [converted(node, decay, a.type.dtype), beta]


def _gated_rms_norm(node: Node) -> Tensor:
    """RMSNormalization of groups of as many elements as the scale has, times a gate."""
    x = node.input(0)
    activation = node.text("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise ModelError(f"activation {activation!r} is not supported")
    values, scale, gate = (converted(node, node.input(i), DType.FLOAT32) for i in range(3))
    size = scale.type.size
    if size == 0 or x.type.shape[-1] % size:
        raise ModelError(f"rows of {x.type} cannot be cut into groups of {size}")
    groups = emit_reshape(node, values, (x.type.size // size, size))
    attributes = {"epsilon": node.number("epsilon", 1e-5)}
    y = standard_op(node, "RMSNormalization", [groups, scale], attributes)
    gate = node.emit("Sigmoid", [gate]) if activation == "sigmoid" else silu(node, gate)
    y = node.emit("Mul", [emit_reshape(node, y, x.type.shape), gate])
    return converted(node, y, x.type.dtype)


def _gated_add(node: Node) -> Tensor:
    return plus(node, node.input(0), node.emit("Mul", [node.input(1), node.input(2)]))


RULES: Final = microsoft_domain(
    {
        "CausalConvWithState": _causal_conv,
        "GatedAdd": _gated_add,
        "GatedRMSNorm": _gated_rms_norm,
        "LinearAttention": _linear_attention,
        "LinearAttentionGate": _linear_attention_gate,
    }
)
