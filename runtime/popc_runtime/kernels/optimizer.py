"""Steps of optimizers: updates of weights and of the state that goes with each weight.

All are a few elementwise passes, bound by memory: they run block by block, in float32 at least, and
round once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel, Scratch
from popc_runtime.kernels.core.blocking import BLOCK_BYTES, conversion, split
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.kernels.core.passes import (
    Derive,
    Factor,
    factors_of,
    passes,
    sum_of,
    sum_steps,
    work_dtype_of,
)
from popc_runtime.kernels.core.sharing import even_slices, share_count

__all__ = ["KERNELS"]

# A dot product reads each element once: long ones leave threads less to wait for each other.
_DOT_BYTES: Final = 4 * BLOCK_BYTES


def _step(rate: float, keep: float | None = None) -> tuple[float, float]:
    """The factors of w * keep - x * rate."""
    return 1.0 if keep is None else keep, -rate


def _nesterov_step(rate: float, velocity_rate: float, keep: float) -> tuple[float, float, float]:
    return keep, -velocity_rate, -rate


def _as_given(*factors: float) -> tuple[float, ...]:
    return factors


# -- moments -------------------------------------------------------------------------------------


def _average(keep: float, scale: float | None = None) -> tuple[float, float]:
    return keep, (1 - keep) * _or_one(scale)


def _decay_add(keep: float, scale: float | None = None) -> tuple[float, float]:
    return keep, _or_one(scale)


def _average_of_squares(keep: float, scale: float | None = None) -> tuple[float, float]:
    return keep, (1 - keep) * _or_one(scale) * _or_one(scale)


def _decay_add_square(keep: float, scale: float | None = None) -> tuple[float, float]:
    return keep, _or_one(scale) * _or_one(scale)


def _or_one(scale: float | None) -> float:
    return 1.0 if scale is None else scale


def _square_steps(
    out: Array, moment: Array, x: Array, spare: Array, *, factors: Sequence[Factor]
) -> Iterator[Call]:
    """The moment times factor 0 plus the square of x times factor 1."""
    keep, new = factors
    if new.value == 1:
        yield partial(np.multiply, x, x, out=spare)
    else:
        yield partial(np.multiply, x, new.array, out=spare)
        yield partial(np.multiply, spare, x, out=spare)
    if keep.value == 1:
        yield partial(np.add, moment, spare, out=out)
    else:
        yield partial(np.multiply, moment, keep.array, out=out)
        yield partial(np.add, out, spare, out=out)


def _infinity_steps(
    out: Array, moment: Array, x: Array, spare: Array, *, factors: Sequence[Factor]
) -> Iterator[Call]:
    """The larger of the moment times factor 0 and the size of x times factor 1."""
    keep, new = factors
    yield partial(np.absolute, x, out=spare)
    if new.value != 1:
        yield partial(np.multiply, spare, new.array, out=spare)
    yield partial(np.multiply, moment, keep.array, out=out)
    yield partial(np.maximum, out, spare, out=out)


# kind -> factors and passes
_MOMENTS: Final[dict[str, tuple[Derive, Callable[..., Iterator[Call]]]]] = {
    "decay_add": (_decay_add, sum_steps),
    "decay_add_square": (_decay_add_square, _square_steps),
    "infinity": (_decay_add, _infinity_steps),
    "moving_average": (_average, sum_steps),
    "moving_average_square": (_average_of_squares, _square_steps),
}


def _accumulate_moment(binding: Binding) -> Calls:
    derive, steps = _MOMENTS[binding.text("kind")]
    factors, before = factors_of(binding, 2, derive)
    operands = [binding.input(0), binding.input(1)]
    return (*before, *passes(partial(steps, factors=factors), binding, operands))


# -- norms ---------------------------------------------------------------------------------------


def _lamb_square(binding: Binding) -> Calls:
    """The sum of squares: dot products of blocks, which are added up in float64."""
    x, out, dtype = binding.input(0), binding.output(), work_dtype_of(binding)
    pieces = [arrays[0] for arrays in split(x, [], _DOT_BYTES // dtype.itemsize)]
    sums = binding.scratch.take((len(pieces),), dtype)
    targets = [sums[index : index + 1].reshape(()) for index in range(len(pieces))]
    build = partial(_dots, binding.scratch, dtype)
    parts = even_slices(len(pieces), share_count(elements=2 * x.size))
    calls = parallel_calls(
        binding.scratch, [partial(build, pieces[part], targets[part]) for part in parts]
    )

    def add_up() -> None:
        out[...] = sums.sum(dtype=np.float64)

    return (*calls, add_up)


def _dots(
    scratch: Scratch,
    dtype: np.dtype[np.generic],
    pieces: Sequence[Array],
    targets: Sequence[Array],
) -> Iterator[Call]:
    for piece, target in zip(pieces, targets, strict=True):
        flat = piece
        if piece.dtype != dtype or piece.ndim != 1 or not piece.flags.c_contiguous:
            mark = scratch.mark()
            flat = scratch.take((piece.size,), dtype)
            yield from conversion(flat.reshape(piece.shape), piece, scratch)
            scratch.rewind(mark)
        yield partial(np.dot, flat, flat, out=target)


# -- loss scale ----------------------------------------------------------------------------------


def _histogram(binding: Binding) -> Calls:
    """Counts of elements by size; nan counts as larger than any level."""
    x, out, levels = binding.input(0), binding.output(), binding.numbers("levels")
    dtype = work_dtype_of(binding)
    pieces = [arrays[0] for arrays in split(x, [], BLOCK_BYTES // dtype.itemsize)]
    capacity = max((piece.size for piece in pieces), default=0)
    size, within = (binding.scratch.take((capacity,), item) for item in (dtype, np.bool_))

    def call() -> None:
        up_to = np.zeros(len(levels) + 2)  # cumulative, from "nothing is up to minus infinity"
        up_to[-1] = x.size
        for piece in pieces:
            block = size[: piece.size].reshape(piece.shape)
            mask = within[: piece.size].reshape(piece.shape)
            np.absolute(piece, out=block)
            for index, level in enumerate(levels):
                up_to[index + 1] += np.count_nonzero(np.less_equal(block, level, out=mask))
        np.subtract(up_to[1:], up_to[:-1], out=out, casting="same_kind")

    return call


def _loss_scale_update(binding: Binding) -> Calls:
    factor, counts, scale = (binding.input(index) for index in range(3))
    before, out = binding.optional(3), binding.output()
    largest = binding.number("largest")
    threshold, period = binding.number("threshold"), binding.integer("period")

    def call() -> None:
        below, above = counts
        change = 2.0 if 2 * float(scale) <= largest else 1.0
        if above > threshold * (below + above) or float(scale) > largest:
            change = 0.5
        if before is not None and float(before) % period:
            change = 1.0
        out[...] = factor * change

    return call


KERNELS: Final[dict[str, Kernel]] = {
    "AccumulateMoment": _accumulate_moment,
    "Histogram": _histogram,
    "LambSquare": _lamb_square,
    "LossScaleUpdate": _loss_scale_update,
    "SGD0VarUpdate": sum_of(2, _step),
    "SGD1AcclUpdate": sum_of(2, _as_given),
    "SGD1VarUpdate": sum_of(2, _step),
    "SGD2AcclUpdate": sum_of(3, _as_given),
    "SGDNesterovVarUpdate": sum_of(3, _nesterov_step),
    "ScaledGradient": sum_of(2, _as_given),
    "ScaledVarUpdate": sum_of(2, _step),
}
