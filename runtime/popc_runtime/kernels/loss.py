"""Losses of classification: scores [N, C, d...], labels [N, d...], class weights [C].

The dimensions after C are taken as one.  Labels equal to ``ignore_index`` count with weight 0,
whatever class they name; other labels outside [0, C) are an error of the data, read as the nearest
class.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.binding import Binding, Call, Calls, Kernel

__all__ = ["KERNELS"]

_Loss: TypeAlias = Callable[[Array], None]  # from log-probabilities [N, C, D], into output 0


def _negative_log_likelihood(binding: Binding) -> Calls:
    scores = binding.input(0)
    shape = _flat_shape(scores)
    loss = _loss(binding, shape)

    def call() -> None:
        loss(scores.astype(_work_dtype(scores), copy=False).reshape(shape))

    return call


def _softmax_cross_entropy(binding: Binding) -> Calls:
    scores, log_prob = binding.input(0), binding.optional_output(1)
    shape = _flat_shape(scores)
    loss = _loss(binding, shape)
    work = _work_dtype(scores)
    if log_prob is not None and log_prob.dtype == work:
        result = log_prob.reshape(shape)
    else:
        result = binding.scratch.take(shape, work)
    powers = binding.scratch.take(shape, work)

    def call() -> None:
        np.copyto(result.reshape(scores.shape), scores)
        np.subtract(result, result.max(axis=1, keepdims=True, initial=-np.inf), out=result)
        np.exp(result, out=powers)
        np.subtract(result, np.log(powers.sum(axis=1, keepdims=True)), out=result)
        loss(result)

    return call if log_prob is None or log_prob.dtype == work else (call, _store(result, log_prob))


def _store(values: Array, target: Array) -> Call:
    def call() -> None:
        np.copyto(target, values.reshape(target.shape), casting="same_kind")

    return call


def _flat_shape(scores: Array) -> tuple[int, int, int]:
    return scores.shape[0], scores.shape[1], prod(scores.shape[2:])


def _work_dtype(scores: Array) -> np.dtype[np.generic]:
    """float16 is too narrow for sums of logarithms."""
    return np.promote_types(scores.dtype, np.float32)


def _loss(binding: Binding, shape: tuple[int, int, int]) -> _Loss:
    """Picks the log-probability of each label, weighs it and reduces."""
    batch, classes, inner = shape
    labels, weights, out = binding.input(1), binding.optional(2), binding.output()
    first = np.arange(batch)[:, None] * (classes * inner) + np.arange(inner)
    reduction = binding.text("reduction")
    ignore = binding.integer("ignore_index") if "ignore_index" in binding.attributes else None

    def loss(log_prob: Array) -> None:
        flat = labels.reshape(batch, inner)
        safe = np.clip(flat, 0, classes - 1)
        picked = log_prob.reshape(-1)[first + safe * inner]
        dtype = picked.dtype
        weight = np.ones((), dtype) if weights is None else weights.astype(dtype)[safe]
        if ignore is not None:
            weight = np.where(flat == ignore, dtype.type(0), weight)
        losses = np.where(weight == 0, weight, -picked * weight)
        result = losses.reshape(out.shape) if reduction == "none" else losses.sum()
        if reduction == "mean":
            result = result / np.broadcast_to(weight, losses.shape).sum()
        np.copyto(out, result, casting="same_kind")

    return loss


KERNELS: Final[dict[str, Kernel]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
