"""Cross entropy and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import is_indexed_float32
from popc_runtime.native.record import Encoder, Record, tensor_words
from popc_runtime.native.views import View, merged_view

__all__ = ["ENCODERS"]

_REDUCTIONS: Final = ("none", "sum", "mean")


def _words(
    binding: NativeBinding,
    scores: View,
    labels: View,
    weights: View | None,
    wanted: tuple[View | None, ...],
) -> tuple[int, ...]:
    apart = merged_view(scores, (*scores.shape[:2], prod(scores.shape[2:])))
    assert apart is not None, "callers look at that"
    words = [*tensor_words(apart), *tensor_words(labels), *tensor_words(weights)]
    words.append(_REDUCTIONS.index(binding.text("reduction")))
    flags = int("ignore_index" in binding.attributes) + 2 * binding.integer("outside", 0)
    words += (flags, binding.integer("ignore_index", -1))
    for array in wanted:
        words += tensor_words(array)
    return tuple(words)


def _cross_entropy(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Scores [N, C, d...], labels [N, d...], [weights [C]]: the loss, and the softmax if wanted."""
    del numbers
    x = binding.input(0)
    if (
        not is_indexed_float32(binding, 1)
        or merged_view(x, (*x.shape[:2], prod(x.shape[2:]))) is None
    ):
        return None
    results = list(binding.outputs[1:])
    log_prob, softmax = (
        results.pop(0) if binding.integer(name, 0) else None for name in ("log_prob", "softmax")
    )
    scores, labels = binding.input(0), binding.input(1)
    wanted = (binding.output(), log_prob, softmax, None)
    words = _words(binding, scores, labels, binding.optional(2), wanted)
    explain = partial(_wrong_label, labels, scores.shape[1], binding.attributes.get("ignore_index"))
    return Record("CrossEntropy_f32", (*words, 0), explain=explain)


def _picked(binding: NativeBinding, numbers: Mapping[str, int], *, last: bool) -> Record | None:
    """Logarithms [N, C, d...], or with classes ``last`` shares [..., C]; labels, [weights]."""
    del numbers
    x, labels = binding.input(0), binding.input(1)
    shape = (prod(x.shape[:-1]), x.shape[-1], 1) if last else (*x.shape[:2], prod(x.shape[2:]))
    if not is_indexed_float32(binding, 1):
        return None
    scores = merged_view(x, shape)
    if scores is None:
        return None
    words = _words(
        binding, scores, labels, binding.optional(2), (binding.output(), None, None, None)
    )
    explain = partial(_wrong_label, labels, shape[1], binding.attributes.get("ignore_index"))
    return Record("PickedLoss_f32", (*words, int(not last)), explain=explain)


def _cross_entropy_grad(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The gradient of the loss, the softmax or its logarithm, labels, [weights]."""
    del numbers
    if not is_indexed_float32(binding, 2) or not binding.input(0).is_contiguous:
        return None
    given, labels = binding.input(1), binding.input(2)
    wanted = (binding.output(), None, None, binding.input(0))
    words = _words(binding, given, labels, binding.optional(3), wanted)
    explain = partial(_wrong_label, labels, given.shape[1], binding.attributes.get("ignore_index"))
    logarithms = binding.integer("log_probability", 0)
    return Record("CrossEntropyGrad_f32", (*words, logarithms), explain=explain)


def _picked_grad(
    binding: NativeBinding, numbers: Mapping[str, int], *, last: bool
) -> Record | None:
    """The gradient of the loss, with classes ``last`` also the shares; labels, [weights]."""
    del numbers
    place = 2 if last else 1
    if not is_indexed_float32(binding, place) or not binding.input(0).is_contiguous:
        return None
    out, labels = binding.output(), binding.input(place)
    # Only the shape of logarithms is of interest.
    scores = binding.input(1) if last else out
    shape = (prod(out.shape[:-1]), out.shape[-1], 1) if last else out.shape
    wanted = (out, None, None, binding.input(0))
    weights = binding.optional(place + 1)
    words = _words(binding, scores.reshape(shape), labels, weights, wanted)
    explain = partial(_wrong_label, labels, shape[1], binding.attributes.get("ignore_index"))
    return Record("PickedLossGrad_f32", (*words, int(not last)), explain=explain)


def _wrong_label(labels: View, classes: int, ignored: object) -> str:
    """The message about the label that is out of range."""
    import numpy as np

    from popc_runtime.kernels.parts.labels import check_labels

    hidden = ignored if isinstance(ignored, int) else None
    given = np.asarray(labels)
    shown = given if hidden is None else np.where(given == hidden, 0, given)
    try:
        check_labels(shown, classes, labels.shape, ignored=hidden)
    except IndexError as error:
        return str(error)
    return ""


ENCODERS: Final[dict[str, Encoder]] = {
    "NegativeLogLikelihoodLoss": partial(_picked, last=False),
    "NegativeLogLikelihoodLossGrad": partial(_picked_grad, last=False),
    "Nll": partial(_picked, last=True),
    "NllGrad": partial(_picked_grad, last=True),
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "SoftmaxCrossEntropyLossGrad": _cross_entropy_grad,
}
