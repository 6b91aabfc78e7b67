"""Random numbers.

An instruction with attribute ``seed`` draws from a sequence of its own that starts when the program
is bound; the others share the device's generator, which the user can seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.core.blocking import blocked, work_dtype
from popc_runtime.kernels.core.random_state import RandomState, state_of

__all__ = ["KERNELS"]

_Fill: TypeAlias = Callable[[RandomState, Array], object]


def _fill_normal(state: RandomState, target: Array) -> None:
    # The generator is looked up on each call: seeding the device replaces it.
    state.generator.standard_normal(dtype=target.dtype, out=target)


def _fill_uniform(state: RandomState, target: Array) -> None:
    state.generator.random(dtype=target.dtype, out=target)


def _filled(binding: Binding, fill: _Fill, offset: float, scale: float) -> Calls:
    """Standard numbers times ``scale`` plus ``offset``; float16 by way of float32."""
    out = binding.output()
    narrow = out.dtype == np.float16
    target = binding.scratch.take(out.shape, np.float32) if narrow else out
    calls: list[Call] = [partial(fill, state_of(binding, binding.random), target)]
    if scale != 1:
        calls.append(partial(np.multiply, target, np.asarray(scale, target.dtype), out=target))
    if offset != 0:
        calls.append(partial(np.add, target, np.asarray(offset, target.dtype), out=target))
    if narrow:
        calls.append(partial(np.copyto, out, target, casting="same_kind"))
    return tuple(calls)


def _normal(binding: Binding) -> Calls:
    return _filled(binding, _fill_normal, binding.number("mean"), binding.number("scale"))


def _uniform(binding: Binding) -> Calls:
    low, high = binding.number("low"), binding.number("high")
    return _filled(binding, _fill_uniform, low, high - low)


def _multinomial(binding: Binding) -> Calls:
    """By inversion: the class whose share of [0, 1) a uniform number falls into."""
    logits, out, state = binding.input(0), binding.output(), state_of(binding, binding.random)
    rows, classes = logits.shape
    row_numbers = np.arange(rows)[:, None]

    def call() -> None:
        shares = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        limits = np.cumsum(shares, axis=1)
        limits /= limits[:, -1:]
        # Rows are searched together: row r's limits lie in (r, r + 1].
        draws = state.generator.random(out.shape) + row_numbers
        found = np.searchsorted((limits + row_numbers).reshape(-1), draws, side="right")
        np.copyto(out, np.clip(found - row_numbers * classes, 0, classes - 1), casting="unsafe")

    return call


def _dropout(binding: Binding) -> Calls:
    """Operands data, ratio, training mode.  Elements are kept with probability 1 - ratio.

    With a seed, the numbers are those of the ONNX reference: numpy's legacy generator.
    """
    return _dropped(binding, _dropout_draw(binding, binding.input(0).shape))


def _seeded_dropout(binding: Binding) -> Calls:
    """Operands data, ratio, training mode, seed: the key of a Philox4x64 that counts from 0."""
    seed = binding.input(3)
    numbers = binding.scratch.take(binding.input(0).shape, np.float32)

    def draw() -> Array:
        key = np.array([int(seed[1]) << 32 | int(seed[0]), 0], np.uint64)
        np.random.Generator(np.random.Philox(key=key)).random(dtype=np.float32, out=numbers)
        return numbers

    return _dropped(binding, draw)


def _dropped(binding: Binding, draw: Callable[[], Any]) -> Calls:
    x, ratio, training = (binding.input(index) for index in range(3))
    out, wanted = binding.output(), binding.optional_output(1)
    mask = binding.scratch.take(x.shape, np.bool_) if wanted is None else wanted
    scale = np.ones((), work_dtype(out))
    drop = blocked(_masked, out, [x, mask, scale], binding.scratch)

    def call() -> None:
        share = _dropped_share(ratio, training)
        if share == 0:
            mask.fill(True)  # noqa: FBT003 - the value
            np.copyto(out, x)
            return
        np.greater_equal(draw(), share, out=mask)
        scale.fill(_scale(share))
        for step in drop:
            step()

    return call


def _masked(out: Array, x: Array, mask: Array, scale: Array) -> Iterator[Call]:
    """Multiplied, not chosen: nans stay, and what is dropped keeps its sign."""
    yield partial(np.multiply, x, mask, out=out)
    yield partial(np.multiply, out, scale, out=out)


def _dropped_share(ratio: Array, training: Array) -> float:
    return float(ratio.reshape(())) if training.any() else 0.0


def _scale(share: float) -> float:
    """The factors of elements where a share of them is dropped."""
    return 1 / (1 - share) if share < 1 else 0.0


def _dropout_grad(binding: Binding) -> Calls:
    """Operands gradient, mask, ratio, training mode; a dropout whose mask is known."""
    g, mask, ratio, training = (binding.input(index) for index in range(4))
    out = binding.output()
    scale = np.ones((), work_dtype(out))
    blocks = blocked(_masked, out, [g, mask, scale], binding.scratch)
    return (lambda: scale.fill(_scale(_dropped_share(ratio, training))), *blocks)


def _dropout_draw(binding: Binding, shape: tuple[int, ...]) -> Callable[[], Any]:
    """Uniform numbers, newly drawn on each call; without a seed in older programs only."""
    if "seed" in binding.attributes:
        legacy = binding.random.legacy_sequence(abs(binding.integer("seed")))
        return partial(legacy.uniform, shape)
    state = binding.random
    numbers = binding.scratch.take(shape, np.float32)

    def draw() -> Array:
        _fill_uniform(state, numbers)
        return numbers

    return draw


def _random_seed(binding: Binding) -> Calls:
    out, state = binding.output(), binding.random
    size, every = out.shape, 1 << 32
    return lambda: np.copyto(out, state.generator.integers(0, every, size, np.uint32))


KERNELS: Final[dict[str, Kernel]] = {
    "Dropout": _dropout,
    "DropoutGrad": _dropout_grad,
    "Multinomial": _multinomial,
    "RandomNormal": _normal,
    "RandomSeed": _random_seed,
    "RandomUniform": _uniform,
    "SeededDropout": _seeded_dropout,
}
