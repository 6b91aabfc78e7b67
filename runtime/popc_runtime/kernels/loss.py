"""Losses of classification, and their gradients: scores [N, C, d...], labels [N, d...].

The dimensions after C are taken as one: [N, C, D] and [N, D].  See `labels` for labels outside
[0, C).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import blocked
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.core.negation import negative
from popc_runtime.kernels.parts.labels import Labels
from popc_runtime.kernels.reduce import reduce_into
from popc_runtime.kernels.softmax import row_blocks

__all__ = ["KERNELS"]

_Shape: TypeAlias = "tuple[int, int, int]"

# Probabilities are taken as at least this before their logarithm, and before they divide (PopART's
# numbers): the second lets a gradient through where the first would stop it.
_LEAST_LOGARITHM: Final = 1e-7
_LEAST_DIVISOR: Final = 1e-10
_LEAST_HALF: Final = 2.0**-14  # float16: the least normal number


# -- losses ----------------------------------------------------------------------------------------


def _negative_log_likelihood(binding: Binding) -> Calls:
    shape = _by_class(binding.input(0).shape)
    labels = Labels(binding, shape, (1, 2))
    scores, before = as_contiguous(binding, 0)
    losses, pick = _picked(binding, labels, scores)
    return (
        *before,
        pick,
        partial(negative, losses, out=losses),
        _reduced(binding, labels, losses),
    )


def _nll(binding: Binding) -> Calls:
    """PopART's loss of probabilities [..., C]: -log(p)."""
    shape = _by_last(binding.input(0).shape)
    labels = Labels(binding, shape, (1, 2))
    scores, before = as_contiguous(binding, 0)
    losses, pick = _picked(binding, labels, scores)
    least = _least(scores, _LEAST_LOGARITHM)
    return (
        *before,
        pick,
        partial(np.maximum, losses, least, out=losses),
        partial(np.log, losses, out=losses),
        partial(negative, losses, out=losses),
        _reduced(binding, labels, losses),
    )


def _softmax_cross_entropy(binding: Binding) -> Calls:
    """log(sum(exp(x - peak))) + peak - x[label], and what is asked for of the softmax."""
    shape = _by_class(binding.input(0).shape)
    labels = Labels(binding, shape, (1, 2))
    x, before = as_contiguous(binding, 0)
    losses, pick = _picked(binding, labels, x)
    results = list(binding.outputs[1:])
    wanted = {name: results.pop(0) for name in _SOFTMAX_RESULTS if binding.integer(name, 0)}
    log_prob, softmax = (
        None if result is None else result.reshape(shape)
        for result in map(wanted.get, _SOFTMAX_RESULTS)
    )
    mark = binding.scratch.mark()
    steps: list[Call] = []
    for cut in row_blocks(shape) if x.size else ():
        binding.scratch.rewind(mark)
        logs = None if log_prob is None else log_prob[cut]
        shares = None if softmax is None else softmax[cut]
        steps += _softmax_block(
            binding, x.reshape(shape)[cut], losses[cut[0], None, cut[2]], logs, shares
        )
    fill = partial(labels.fill_outside, losses, -float(np.log(_LEAST_LOGARITHM)))
    return (*before, pick, *steps, fill, _reduced(binding, labels, losses))


# Optional results in order, by the attributes that ask for them.
_SOFTMAX_RESULTS: Final = ("log_prob", "softmax")


def _softmax_block(
    binding: Binding, x: Array, losses: Array, logs: Array | None, shares: Array | None
) -> Iterator[Call]:
    """Calls that turn x[label] in ``losses`` [n, 1, d] into the losses of scores [n, C, d]."""
    take, dtype = binding.scratch.take, losses.dtype
    peaks, sums = (take(losses.shape, dtype) for _ in range(2))
    centred = _work_array(binding, x, logs)
    powers = _work_array(binding, x, shares)
    yield partial(np.maximum.reduce, x, 1, None, peaks, keepdims=True)
    yield partial(np.subtract, x, peaks, out=centred)
    yield partial(np.exp, centred, out=powers)
    yield from reduce_into(np.add, powers, (1,), sums, binding.scratch)
    if shares is not None:
        yield partial(np.divide, powers, sums, out=shares, casting="same_kind")
    yield partial(np.subtract, peaks, losses, out=losses)
    yield partial(np.log, sums, out=sums)
    yield partial(np.add, losses, sums, out=losses)
    if logs is not None:
        yield partial(np.subtract, centred, sums, out=logs, casting="same_kind")


def _work_array(binding: Binding, x: Array, result: Array | None) -> Array:
    """``result`` itself if it can hold the work, else scratch of the shape of ``x``."""
    dtype = _work_dtype(x)
    if result is not None and result.dtype == dtype and result.flags.c_contiguous:
        return result
    return binding.scratch.take(x.shape, dtype)


def _picked(binding: Binding, labels: Labels, scores: Array) -> tuple[Array, Call]:
    """The score of each label, [N, D] in the dtype of the computation, and the call for it."""
    flat = scores.reshape(-1)
    picked = binding.scratch.take(labels.positions.shape, _work_dtype(scores))

    def pick() -> None:
        labels.locate()
        picked[...] = flat[labels.positions]
        labels.fill_outside(picked, 0)  # a probability, or nothing beside logarithms

    return picked, pick


def _reduced(binding: Binding, labels: Labels, losses: Array) -> Call:
    """Weigh the losses [N, D] and reduce them into output 0."""
    out, reduction = binding.output(), binding.text("reduction")

    def call() -> None:
        if labels.counts is not None:
            np.multiply(losses, labels.counts, out=losses)
            np.copyto(losses, 0, where=labels.counts == 0)  # also where the loss is infinite
        if reduction == "none":
            out[...] = losses.reshape(out.shape)
            return
        total = np.add.reduce(losses, None)
        out[...] = total / labels.total() if reduction == "mean" else total

    return call


# -- gradients -------------------------------------------------------------------------------------


def _negative_log_likelihood_grad(binding: Binding) -> Calls:
    """-g where the label is, else 0."""
    labels = Labels(binding, _by_class(binding.output().shape), (1, 2))
    shares, spread = _shares(binding, labels)
    flat = binding.output().reshape(-1)

    def store() -> None:
        flat[labels.positions] = np.subtract(0, labels.inside(shares))

    return (*spread, partial(flat.fill, 0), store)


def _nll_grad(binding: Binding) -> Calls:
    """-g / p where the label is, else 0."""
    probabilities, before = as_contiguous(binding, 1)
    labels = Labels(binding, _by_last(probabilities.shape), (2, 3))
    shares, spread = _shares(binding, labels)
    given, flat = probabilities.reshape(-1), binding.output().reshape(-1)
    least = _least(probabilities, _LEAST_DIVISOR)

    def store() -> None:
        divisor = np.maximum(given[labels.positions], least, dtype=shares.dtype)
        flat[labels.positions] = np.subtract(0, labels.inside(shares) / divisor)

    return (*before, *spread, partial(flat.fill, 0), store)


def _softmax_cross_entropy_grad(binding: Binding) -> Calls:
    """g * (softmax - 1 where the label is); operand 1 is the softmax, or its logarithm."""
    given, before = as_contiguous(binding, 1)
    shape = _by_class(given.shape)
    labels = Labels(binding, shape, (2, 3))
    shares, spread = _shares(binding, labels)
    flat = binding.output().reshape(-1)

    def step(out: Array, softmax: Array, share: Array) -> Iterable[Call]:
        if binding.integer("log_probability", 0):
            yield partial(np.exp, softmax, out=out)
            softmax = out
        yield partial(np.multiply, softmax, share, out=out)

    def subtract() -> None:
        flat[labels.positions] = flat[labels.positions] - labels.inside(shares)

    operands = (given.reshape(shape), shares[:, None, :])
    scaled = blocked(step, flat.reshape(shape), operands, binding.scratch)
    return (*before, *spread, *scaled, subtract)


def _shares(binding: Binding, labels: Labels) -> tuple[Array, tuple[Call, ...]]:
    """The part [N, D] of the loss's gradient (operand 0) that each label gets."""
    grad, reduction = binding.input(0), binding.text("reduction")
    shares = binding.scratch.take(labels.positions.shape, _work_dtype(grad))

    def spread() -> None:
        labels.locate()
        shares[...] = grad.reshape(shares.shape) if reduction == "none" else grad
        if reduction == "mean":  # if nothing counts, nothing gets a share
            np.divide(shares, labels.total() or 1.0, out=shares)
        if labels.counts is not None:
            np.multiply(shares, labels.counts, out=shares)

    return shares, (spread,)


# -- shapes and types ------------------------------------------------------------------------------


def _by_class(shape: tuple[int, ...]) -> _Shape:
    """[N, C, d...] as [N, C, D]."""
    return shape[0], shape[1], prod(shape[2:])


def _by_last(shape: tuple[int, ...]) -> _Shape:
    """[..., C] as [N, C, 1]."""
    return prod(shape[:-1]), shape[-1], 1


def _work_dtype(scores: Array) -> np.dtype[Any]:
    """float16 is too narrow for sums of logarithms."""
    return np.promote_types(scores.dtype, np.float32)


def _least(probabilities: Array, least: float) -> Array:
    narrow = probabilities.dtype == np.float16
    return np.asarray(_LEAST_HALF if narrow else least, _work_dtype(probabilities))


KERNELS: Final[dict[str, Kernel]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "NegativeLogLikelihoodLossGrad": _negative_log_likelihood_grad,
    "Nll": _nll,
    "NllGrad": _nll_grad,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
    "SoftmaxCrossEntropyLossGrad": _softmax_cross_entropy_grad,
}
