"""Gradients of attention and rotary embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.autodiff.backward import Backward, GradientRule
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["GRADIENTS"]


def _attention(b: Backward) -> Sequence[Tensor | None]:
    if len(b.op.outputs) > 1 and b.optional_grad(1) is not None:
        raise ModelError(
            "the scores that Attention returns have no gradient",
            subject=b.op.settings.origin,
            hint="let the loss depend on the first output of Attention only",
        )
    if b.optional(5) is not None:
        raise ModelError(
            "Attention with sinks has no gradient",
            subject=b.op.settings.origin,
            hint="train the model without head_sink and smooth_softmax",
        )
    operands = [b.input(0), b.input(1), b.input(2), b.optional(3), b.optional(4)]
    wants_mask = int(b.wants(3))
    attributes = {name: value for name, value in b.attributes.items() if name != "scores"}
    return b.emit_all(
        "AttentionGrad",
        [*operands, b.grad(), b.output()],
        {**attributes, "mask_grad": wants_mask},
    )


def _rotary_embedding(b: Backward) -> Sequence[Tensor | None]:
    """Rotated back: by the negative angles."""
    g, x, cosine, sine = b.grad(), b.input(0), b.input(1), b.input(2)
    first = b.emit("RotaryEmbedding", [g, cosine, b.neg(sine)], dict(b.attributes))
    if not (b.wants(1) or b.wants(2)):
        return [first]
    (a, c), (ga, gc) = (_halves(b, tensor, cosine.type.shape[-1]) for tensor in (x, g))
    by_cosine = b.add(b.mul(ga, a), b.mul(gc, c))
    by_sine = b.sub(b.mul(gc, a), b.mul(ga, c))
    return [first, b.sum_to(by_cosine, cosine.type), b.sum_to(by_sine, sine.type)]


def _halves(b: Backward, x: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """The elements of the last dimension that are rotated into each other."""
    axis = x.type.rank - 1
    if b.attributes.get("interleaved"):
        windows = range(0, 2 * half, 2), range(1, 2 * half, 2)
    else:
        windows = range(half), range(half, 2 * half)
    first, second = (b.part(x, axis, window) for window in windows)
    return first, second


GRADIENTS: Final[dict[str, GradientRule]] = {
    "Attention": _attention,
    "RotaryEmbedding": _rotary_embedding,
}
