"""Error bounds of results that look at whole rows, and of those without a rule of their own."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import run_node
from tools.campaigns.random_models.rules import FLOAT32, FUNCTION, Step, of_sum, rounding
from tools.campaigns.random_models.rules_of_moves import exact, refused_if_uncertain

__all__ = ["batch_normalized", "indices", "normalized", "recurrent", "sampled", "softmax"]

_SAMPLES: Final = 4
_MARGIN: Final = 8.0  # of the largest of so many samples


def softmax(step: Step) -> list[Array]:
    """Softmax and LogSoftmax: relative to each share, by the largest error of a score."""
    reach = float(step.operand(0).error.max(initial=0))
    if step.node.op_type == "LogSoftmax":
        return [2 * reach + FUNCTION * (1 + np.abs(step.y).max(initial=0)) + step.rounding()]
    relative = np.expm1(2 * reach) + 4 * FUNCTION + of_sum(float(step.y.size))
    return [step.y * relative + step.rounding()]


def indices(step: Step) -> list[Array]:
    """ArgMax, ArgMin: uncertain where two elements along the axis may be in either order."""
    x = step.operand(0)
    if x.error.any():
        gaps = np.diff(np.sort(x.array.astype(np.float64), axis=step.attribute("axis", 0)))
        if not gaps.size or gaps.min() <= 2 * x.error.max():
            return [np.full(step.y.shape, np.inf)]
    return exact(step)


def batch_normalized(step: Step) -> list[Array]:
    """A factor and a summand for each channel."""
    x, scale, bias, mean, variance = (step.operand(i) for i in range(5))
    if any(value.error.any() for value in (scale, bias, mean, variance)):
        return sampled(step)
    shape = (-1, *(1 for _ in x.shape[2:]))
    factor = np.abs(scale.array.astype(np.float64)) / np.sqrt(
        variance.array.astype(np.float64) + step.attribute("epsilon", 1e-5)
    )
    parts = np.abs(x.array.astype(np.float64)) + np.abs(mean.array).reshape(shape)
    sizes = parts * factor.reshape(shape) + np.abs(bias.array).reshape(shape)
    moved = x.error * factor.reshape(shape)
    return [moved + 16 * FLOAT32 * sizes + 4 * step.rounding(sizes.astype(x.array.dtype))]


def _rows(step: Step) -> Array:
    """The operand of a normalization as rows that are normalized by themselves."""
    x = step.operand(0).array.astype(np.float64)
    if step.node.op_type == "GroupNormalization":
        return x.reshape(x.shape[0] * step.attribute("num_groups", 1), -1)
    if step.node.op_type == "InstanceNormalization":
        return x.reshape(prod(x.shape[:2]), -1)
    axis = step.attribute("axis", -1)
    return x.reshape(prod(x.shape[:axis]), -1)


def normalized(step: Step) -> list[Array]:
    """Error bounds of normalised rows: errors and rounding count in deviations of the row."""
    rows, x = _rows(step), step.operand(0)
    if any(value is not None and value.error.any() for value in step.operands[1:]):
        return sampled(step)
    squares = np.square(rows).mean(axis=1)
    is_centred = step.node.op_type != "RMSNormalization"
    variance = (rows.var(axis=1) if is_centred else squares) + step.attribute("epsilon", 1e-5)
    reach = x.error.reshape(rows.shape).max(axis=1)
    of_mean = of_sum(rows.shape[1]) * np.sqrt(squares) + reach
    of_variance = of_sum(rows.shape[1]) * squares + 2 * reach * np.sqrt(variance)
    largest = np.abs(rows - (rows.mean(axis=1, keepdims=True) if is_centred else 0)).max(axis=1)
    relative = 2 * of_mean + largest * of_variance / (2 * variance)
    error = (relative + 8 * FLOAT32 * largest) / np.sqrt(variance)
    scale = float(np.abs(step.operand(1).array.astype(np.float64)).max(initial=0))
    spread = np.broadcast_to((error * scale)[:, np.newaxis], rows.shape).reshape(x.shape)
    return [spread + 2 * step.rounding() + FUNCTION]


def sampled(step: Step) -> list[Array]:
    """A function that has no rule: how far results move if operands move as far as they may.

    Operands move by what they may be off, and at least by some roundings of the largest; the
    largest of some samples counts several times, for all elements of a result alike.
    """
    random = np.random.default_rng(0)
    if any(x is not None and not x.is_float and x.error.any() for x in step.operands):
        return refused_if_uncertain(step)
    moved = [0.0] * len(step.results)
    for _ in range(_SAMPLES):
        operands = [disturbed(random, x) for x in arrays_and_errors(step)]
        results = run_node(step.node, operands, step.opset)
        for i, made in enumerate(step.results):
            if made is not None and made.size:
                other = results[step.node.output[i]].astype(np.float64)
                moved[i] = max(moved[i], float(np.abs(other - made).max()))
    return [
        np.zeros(())
        if made is None
        else _MARGIN * far
        + rounding(made)
        + 4 * FUNCTION * np.abs(made.astype(np.float64)).max(initial=0)
        if made.dtype.kind == "f"
        else np.full(made.shape, far * np.inf if far else 0.0)
        for made, far in zip(step.results, moved, strict=True)
    ]


def recurrent(step: Step) -> list[Array]:
    """LSTM, GRU and RNN: as `sampled`, and by the absolute error of a gate.

    Where all gates of a result are shut, it is tiny, and half a tanh and a half is no share of it.
    """
    return [error + FUNCTION for error in sampled(step)]


def arrays_and_errors(step: Step) -> list[tuple[Array, Array] | None]:
    return [None if x is None else (x.array, x.error) for x in step.operands]


def disturbed(random: np.random.Generator, given: tuple[Array, Array] | None) -> Array | None:
    if given is None:
        return None
    array, error = given
    if array.dtype.kind != "f":
        return array
    values = array.astype(np.float64)
    reach = np.maximum(error, 8 * FLOAT32 * np.abs(values).max(initial=0))
    moved: Array = values + reach * random.choice([-1.0, 1.0], values.shape)
    return moved.astype(np.float32)
