"""Steps of optimizers that adapt the size of each weight's step to that of its gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf, sqrt
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.passes import Factor, factors_of, passes, sum_of

__all__ = ["KERNELS"]

_WITH_BIAS_CORRECTION: Final = ("adam", "adamax", "lamb")
_ZERO: Final = {char: np.zeros((), char) for char in "fd"}


# -- Adam ----------------------------------------------------------------------------------------
#
# With the bias corrections c, a step goes along m / c1 / (sqrt(v / c2) + epsilon).  That is
# m / (sqrt(v) * c1 / sqrt(c2) + epsilon * c1), a pass less.  A learning rate goes into the same
# factors, another pass less.


def _size_factors(
    beta1: float, beta2: float, epsilon: float, step: float | None, mode: str
) -> tuple[float, float]:
    """Factor of the (root of the) second moment, and what is added to it."""
    first = second = 1.0
    if mode in _WITH_BIAS_CORRECTION and step is not None:
        first = 1 - beta1**step
        second = 1.0 if mode == "adamax" else float(np.sqrt(1 - beta2**step))
    return float(np.divide(first, second)), epsilon * first


def _size_steps(
    moment: Array, spare: Array, scale: Factor, epsilon: Factor, mode: str
) -> Iterator[Call]:
    """The divisor of the first moment, into ``spare``."""
    size = moment
    if mode != "adamax":
        yield partial(np.sqrt, moment, out=spare)
        size = spare
    if scale.value != 1:
        yield partial(np.multiply, size, scale.array, out=spare)
        size = spare
    yield partial(np.add, size, epsilon.array, out=spare)


def _adam_var_update(binding: Binding) -> Calls:
    mode = binding.text("mode")
    factors, before = factors_of(binding, 3, partial(_adam_factors, mode=mode))
    operands = [binding.input(index) for index in range(3)]
    steps = partial(_adam_steps, factors=factors, mode=mode)
    return (*before, *passes(steps, binding, operands))


def _adam_factors(
    rate: float,
    keep: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: float | None = None,
    *,
    mode: str,
) -> tuple[float, float, float]:
    if rate == 0:  # no step, even where the second moment is 0
        return keep, 0.0, inf
    scale, added = _size_factors(beta1, beta2, epsilon, step, mode)
    return keep, scale / rate, added / rate


def _adam_steps(
    out: Array,
    weight: Array,
    first: Array,
    second: Array,
    spare: Array,
    *,
    factors: Sequence[Factor],
    mode: str,
) -> Iterator[Call]:
    keep, scale, epsilon = factors
    yield from _size_steps(second, spare, scale, epsilon, mode)
    yield partial(np.divide, first, spare, out=spare)
    kept = weight
    if keep.value != 1:
        yield partial(np.multiply, weight, keep.array, out=out)
        kept = out
    yield partial(np.subtract, kept, spare, out=out)


def _adam_updater(binding: Binding) -> Calls:
    """The direction alone, with the weight decay: Lamb needs its norm."""
    mode = binding.text("mode")
    factors, before = factors_of(binding, 3, partial(_updater_factors, mode=mode))
    operands = [binding.input(index) for index in range(3)]
    steps = partial(_updater_steps, factors=factors, mode=mode)
    return (*before, *passes(steps, binding, operands))


def _updater_factors(
    decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: float | None = None,
    *,
    mode: str,
) -> tuple[float, float, float]:
    return decay, *_size_factors(beta1, beta2, epsilon, step, mode)


def _updater_steps(
    out: Array,
    first: Array,
    second: Array,
    weight: Array,
    spare: Array,
    *,
    factors: Sequence[Factor],
    mode: str,
) -> Iterator[Call]:
    decay, scale, epsilon = factors
    yield from _size_steps(second, spare, scale, epsilon, mode)
    yield partial(np.divide, first, spare, out=out)
    if decay.value != 0:
        yield partial(np.multiply, weight, decay.array, out=spare)
        yield partial(np.add, out, spare, out=out)


def _lamb_step(
    rate: float, weight: float, update: float, limit: float | None = None
) -> tuple[float, float]:
    """The factors of w - x * rate * min(|w|, limit) / |x|; the norms are given squared."""
    trust = 1.0
    if weight != 0 and update != 0:
        trust = min(sqrt(weight), inf if limit is None else limit) / sqrt(update)
    return 1.0, -rate * trust


# -- adaptive methods ----------------------------------------------------------------------------


def _epsilon_and_scale(epsilon: float, scale: float | None = None) -> tuple[float, float]:
    return epsilon, 1.0 if scale is None else scale


def _rmsprop_updater(binding: Binding) -> Calls:
    """Gradient over the root of its mean square, or of its variance."""
    factors, before = factors_of(binding, 3, _epsilon_and_scale)
    operands = [binding.input(0), binding.input(1)]
    mean = binding.optional(2)
    if mean is not None:
        operands.append(mean)
    inside = bool(binding.integer("tf_variant"))
    steps = partial(_rmsprop_steps, factors=factors, epsilon_inside=inside)
    return (*before, *passes(steps, binding, operands))


def _rmsprop_steps(
    out: Array,
    gradient: Array,
    square: Array,
    *rest: Array,
    factors: Sequence[Factor],
    epsilon_inside: bool,
) -> Iterator[Call]:
    *mean, spare = rest
    epsilon, scale = factors
    size = square
    if mean:
        yield partial(np.multiply, mean[0], mean[0], out=spare)
        yield partial(np.subtract, square, spare, out=spare)
        # A variance is not negative; rounding may make it so.
        yield partial(np.maximum, spare, _ZERO[spare.dtype.char], out=spare)
        size = spare
    if epsilon_inside:
        yield partial(np.add, size, epsilon.array, out=spare)
        yield partial(np.sqrt, spare, out=spare)
    else:
        yield partial(np.sqrt, size, out=spare)
        yield partial(np.add, spare, epsilon.array, out=spare)
    yield partial(np.divide, gradient, spare, out=out)
    if scale.value != 1:
        yield partial(np.multiply, out, scale.array, out=out)


def _adadelta_updater(binding: Binding) -> Calls:
    """Gradient times the root of the mean square of the steps over that of the gradients."""
    factors, before = factors_of(binding, 3, _epsilon_and_scale)
    operands = [binding.input(index) for index in range(3)]
    steps = partial(_adadelta_steps, factors=factors)
    return (*before, *passes(steps, binding, operands, temporaries=2))


def _adadelta_steps(
    out: Array,
    gradient: Array,
    square: Array,
    steps: Array,
    ratio: Array,
    spare: Array,
    *,
    factors: Sequence[Factor],
) -> Iterator[Call]:
    epsilon, scale = factors
    yield partial(np.add, steps, epsilon.array, out=ratio)
    yield partial(np.add, square, epsilon.array, out=spare)
    yield partial(np.divide, ratio, spare, out=ratio)
    yield partial(np.sqrt, ratio, out=ratio)
    yield partial(np.multiply, gradient, ratio, out=out)
    if scale.value != 1:
        yield partial(np.multiply, out, scale.array, out=out)


KERNELS: Final[dict[str, Kernel]] = {
    "AdaDeltaUpdater": _adadelta_updater,
    "AdamUpdater": _adam_updater,
    "AdamVarUpdate": _adam_var_update,
    "LambVarUpdate": sum_of(2, _lamb_step),
    "RMSPropUpdater": _rmsprop_updater,
}
