"""Exact products and convolutions of integers, on floating-point units.

numpy multiplies integer matrices without BLAS, a hundred times slower than floats.  But float32
holds every integer up to 2**24 exactly, so a float32 product of integer-valued matrices is exact,
in whatever order BLAS adds, as long as the magnitudes of the terms of no sum add up to more.
Longer sums are cut into pieces that satisfy this, and the pieces are added as int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array, DType
from popc_runtime.kernels import conv, matmul
from popc_runtime.kernels.core.binding import Binding, Call, Calls, Kernel
from popc_runtime.kernels.parts.byte_epilogue import finished

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["KERNELS"]

_EXACT: Final = 1 << 24  # float32 represents all integers up to here
_SPAN: Final = 255  # largest distance of an 8-bit value from a zero point of the same type

# (target, first and last position of the sum) -> calls that put that piece of the sum there
_Product: TypeAlias = Callable[[Array, int, int], tuple[Call, ...]]


@dataclass(frozen=True, slots=True)
class _Centred:
    """An operand less its zero point, as floats; ``calls`` compute it unless it is final."""

    values: Array
    calls: tuple[Call, ...]

    @property
    def is_final(self) -> bool:
        return not self.calls

    @property
    def most(self) -> int:
        """A bound on the magnitudes of the values."""
        return int(np.abs(self.values).max(initial=0)) if self.is_final else _SPAN


def _centred(binding: Binding, index: int, work: npt.DTypeLike) -> _Centred:
    """Operand ``index`` less its zero point, which is operand ``index + 2``."""
    array, zero = binding.input(index), binding.optional(index + 2)
    if zero is not None and binding.is_constant(index + 2) and not zero.any():
        zero = None
    is_final = binding.is_constant(index) and (zero is None or binding.is_constant(index + 2))
    values = np.empty(array.shape, work) if is_final else binding.scratch.take(array.shape, work)
    call: Call
    if zero is None:
        call = partial(np.copyto, values, array)
    else:
        call = partial(np.subtract, array, zero, out=values, dtype=values.dtype)
    if not is_final:
        return _Centred(values, (call,))
    call()
    return _Centred(values, ())


def _pieces(magnitudes: Array) -> list[tuple[int, int]]:
    """The fewest pieces, evenly cut, of a sum such that float32 is exact for each of them.

    ``magnitudes`` bounds the terms: a row for each position of the sum, a column for each result.
    Empty if a single term is too large.
    """
    length = len(magnitudes)
    for count in range(1, length + 1):
        cuts = [length * k // count for k in range(count + 1)]
        sums = np.add.reduceat(magnitudes, cuts[:-1], axis=0, dtype=np.float64)
        if sums.max(initial=0) < _EXACT:
            return list(pairwise(cuts))
    return [] if length else [(0, 0)]


def _summed(
    binding: Binding, pieces: Sequence[tuple[int, int]], product: _Product, work: npt.DTypeLike
) -> tuple[Call, ...]:
    """The sum of the pieces in the output, which is int32 or, rounded once, float32."""
    out = binding.output()
    if len(pieces) == 1 and out.dtype == work:
        return product(out, *pieces[0])
    part = binding.scratch.take(out.shape, work)
    in_place = out.dtype == np.int32 or len(pieces) == 1
    whole = out if in_place else binding.scratch.take(out.shape, np.int32)
    calls: list[Call] = []
    mark = binding.scratch.mark()
    for start, stop in pieces:
        binding.scratch.rewind(mark)
        calls += product(part, start, stop)
        calls.append(_adding(whole, part) if start else _converting(whole, part))
    if whole is not out:
        calls.append(_converting(out, whole))
    return tuple(calls)


def _converting(target: Array, source: Array) -> Call:
    return partial(np.copyto, target, source, casting="unsafe")


def _adding(whole: Array, part: Array) -> Call:
    return partial(np.add, whole, part, out=whole, dtype=whole.dtype, casting="unsafe")


def _floating(
    kernel: Kernel, binding: Binding, operands: Sequence[Array | None], out: Array, *, packed: bool
) -> tuple[Call, ...]:
    """The calls of a floating-point kernel on ``operands`` instead of those of ``binding``.

    ``packed`` says that the second operand is final.
    """
    dtype = DType.of(out.dtype)
    inner = replace(
        binding,
        inputs=tuple(operands),
        outputs=(out,),
        input_dtypes=tuple(None if array is None else dtype for array in operands),
        output_dtypes=(dtype,),
        constant=(False, packed, True)[: len(operands)],
    )
    calls = kernel(inner)
    return calls if isinstance(calls, tuple) else (calls,)


def _matmul(binding: Binding) -> Calls:
    """(a - zero point) @ (b - zero point), by numpy's rules for ``@``."""
    a, b = _centred(binding, 0, np.float32), _centred(binding, 1, np.float32)
    rows = np.abs(b.values) if b.is_final else np.full((a.values.shape[-1], 1), b.most)
    if rows.ndim > 2:
        rows = rows.max(axis=tuple(range(rows.ndim - 2)), initial=0)

    def product(target: Array, start: int, stop: int) -> tuple[Call, ...]:
        right = b.values[..., start:stop, :] if b.values.ndim > 1 else b.values[start:stop]
        operands = (a.values[..., start:stop], right)
        kernel = matmul.KERNELS["MatMul"]
        return _floating(kernel, binding, operands, target, packed=b.is_final)

    calls = _summed(binding, _pieces(rows * a.most), product, np.float32)
    return (*a.calls, *b.calls, *calls)


def _conv(binding: Binding) -> Calls:
    """Convolution of x and w less their zero points, plus an int32 bias (operand 4)."""
    mark = binding.scratch.mark()
    x, w = _centred(binding, 0, np.float32), _centred(binding, 1, np.float32)
    pieces = _pieces(_term_magnitudes(binding, x, w))
    grouped = binding.integer("group", 1) > 1
    if len(pieces) == 1 or (pieces and not grouped):
        return _conv_by_pieces(binding, x, w, pieces)
    binding.scratch.rewind(mark)  # float64 is exact for every sum
    x, w = _centred(binding, 0, np.float64), _centred(binding, 1, np.float64)
    return _conv_by_pieces(binding, x, w, [(0, w.values.shape[1])])


def _term_magnitudes(binding: Binding, x: _Centred, w: _Centred) -> Array:
    """Bounds by input channel and output channel; the bias comes with input channel 0."""
    outputs, channels, *kernel = w.values.shape
    if w.is_final:
        sizes = np.abs(w.values).reshape(outputs, channels, prod(kernel))
        taps = sizes.sum(axis=-1, dtype=np.float64).T
    else:
        taps = np.full((channels, outputs), float(w.most * prod(kernel)))
    magnitudes: Array = taps * x.most
    bias = binding.optional(4)
    if bias is not None and channels:
        known = binding.is_constant(4)
        magnitudes[0] += np.abs(bias.astype(np.float64)) if known else np.inf
    return magnitudes


def _conv_by_pieces(
    binding: Binding, x: _Centred, w: _Centred, pieces: Sequence[tuple[int, int]]
) -> tuple[Call, ...]:
    """Pieces are ranges of input channels; with groups there must be one."""
    work = w.values.dtype
    bias, prepare = _bias(binding, work)

    def product(target: Array, start: int, stop: int) -> tuple[Call, ...]:
        channels = x.values if len(pieces) == 1 else x.values[:, start:stop]
        operands = (channels, w.values[:, start:stop], None if start else bias)
        return _floating(conv.KERNELS["Conv"], binding, operands, target, packed=w.is_final)

    return (*x.calls, *w.calls, *prepare, *_summed(binding, pieces, product, work))


def _bias(binding: Binding, work: npt.DTypeLike) -> tuple[Array | None, tuple[Call, ...]]:
    bias = binding.optional(4)
    if bias is None or binding.is_constant(4):
        return (None if bias is None else bias.astype(work)), ()
    values = binding.scratch.take(bias.shape, work)
    return values, (_converting(values, bias),)


KERNELS: Final[dict[str, Kernel]] = {
    "ConvInteger": finished(_conv, lambda binding: 1 - binding.output().ndim),
    "MatMulInteger": finished(_matmul, lambda _: -1),
}
