"""Scaled dot-product attention, and rotary embedding.

``Attention``: softmax(scale * Q K^T + mask) V.  Operands:

    q [B, H, S, D], k [B, Hk, T, D], v [B, Hk, T, Dv] where Hk divides H: each key head serves
    H / Hk neighbouring query heads; optional mask, bool (visible) or float (added), broadcast to
    [B, H, S, T]; optional int64 lengths [B]: the number of keys that are not padding; optional
    sinks [H]: a score of each head that softmax counts, as if it were of one more key, of zeros.

Attributes: scale; causal, left_window, right_window (-1: unbounded): what a query at position
row + offset may see, where ``offset`` is an attribute, or lengths - S if there are lengths; softcap
(0: none); heads_last: the result is [B, S, H, Dv] instead of [B, H, S, Dv]; scores: which stage of
the scores [B, H, S, T] is a second result: -1 none, 0 the product, 1 after softcap, 2 after the
mask, 3 after softmax.  The result is zero for a query that sees no key.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import broadcast_shapes, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]

_STAGES: Final = range(-1, 4)  # of the scores that a second result holds; -1: there is none


def _attention(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    q, k, v = (operand(inputs, index) for index in range(3))
    _check_operands(q, k, v)
    batch, heads, rows, _ = q.shape
    scores = q.with_shape((batch, heads, rows, k.shape[2]))
    mask = inputs[3] if len(inputs) > 3 else None
    if mask is not None and broadcast_shapes([mask.shape, scores.shape]) != scores.shape:
        raise ModelError(f"the mask {list(mask.shape)} does not broadcast to {list(scores.shape)}")
    sinks = inputs[5] if len(inputs) > 5 else None
    if sinks is not None and sinks != q.with_shape((heads,)):
        raise ModelError(f"sinks are one {q.dtype} for each of {heads} heads, not {sinks}")
    shape = (batch, heads, rows, v.shape[3])
    if integer(attributes, "heads_last", 0):
        shape = (batch, rows, heads, v.shape[3])
    stage = integer(attributes, "scores", -1)
    if stage not in _STAGES:
        raise ModelError(f"there are no scores of mode {stage}, only 0 to {_STAGES[-1]}")
    return (q.with_shape(shape),) if stage < 0 else (q.with_shape(shape), scores)


def _attention_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: those of Attention (5), the gradient of its result, and that result.

    Results: the gradients of q, k and v, and with ``mask_grad`` that of the mask.
    """
    (result,) = _attention(inputs[:5], {**attributes, "scores": -1})
    for type_ in (operand(inputs, 5), operand(inputs, 6)):
        if type_ != result:
            raise ModelError(f"the result of the attention is {result}, not {type_}")
    count = 3 + integer(attributes, "mask_grad", 0)
    return tuple(operand(inputs, index) for index in range(count))


def _check_operands(q: TensorType, k: TensorType, v: TensorType) -> None:
    for name, type_ in (("q", q), ("k", k), ("v", v)):
        if type_.rank != 4:
            raise ModelError(f"{name} must have 4 dimensions, not {type_.rank}")
    same = q.shape[0] == k.shape[0] == v.shape[0]
    if not same or q.shape[3] != k.shape[3] or k.shape[1:3] != v.shape[1:3]:
        raise ModelError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit together"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ModelError(f"{q.shape[1]} query heads cannot share {k.shape[1]} key heads")


def _rotary(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The type of x [..., D]; cos and sin broadcast to [..., R / 2], R <= D columns are rotated."""
    del attributes
    x, cosine, sine = (operand(inputs, index) for index in range(3))
    half = cosine.shape[-1]
    rotated = (*x.shape[:-1], half)
    fits = cosine.shape == sine.shape and 2 * half <= x.shape[-1]
    if not fits or broadcast_shapes([cosine.shape, rotated]) != rotated:
        raise ModelError(
            f"cos {list(cosine.shape)} and sin {list(sine.shape)} do not fit {list(x.shape)}"
        )
    return (x,)


OPS: Final[dict[str, OpSpec]] = {
    "Attention": OpSpec(_attention),
    "AttentionGrad": OpSpec(_attention_grad),
    "RotaryEmbedding": OpSpec(_rotary),
}
