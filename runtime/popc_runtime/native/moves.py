"""Copies of parts of operands to parts of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.record import MAX_RANK, Record, tensor_words
from popc_runtime.native.views import View, is_same_memory, merged_view

__all__ = ["copy_operands", "joined_rows", "moves"]

_WIDEST: Final = 1 << 16  # bytes of a row; threads share a wider one


def moves(pairs: Iterable[tuple[View, View]]) -> Record | None:
    """Copies of the second of each pair to the first, in this order; ``None`` if there are none."""
    wanted = [(to, source) for to, source in pairs if to.size > 0]
    if not wanted or any(to.ndim >= MAX_RANK for to, _ in wanted):
        return None
    *before, last = (move_record(to, source) for to, source in wanted)
    return Record(last.kernel, last.words, last.keeps_alive, before=tuple(before))


def joined_rows(
    whole: View, parts: Sequence[View | None], axis: int, sizes: Sequence[int], *, joins: bool
) -> Record | None:
    """Parts of ``sizes`` along an axis, copied to the whole, or from it to those that are wanted.

    ``None`` unless all lie as rows of which each has its part, several short ones.
    """
    order = sorted(range(whole.ndim), key=lambda each: -whole.strides[each])
    rows = prod(whole.shape[each] for each in order[: order.index(axis)])
    held = [(size, part) for size, part in zip(sizes, parts, strict=True) if size]
    if rows < 2 or len(held) < 2 or whole.nbytes > rows * _WIDEST or whole.size == 0:
        return None
    matrix = _matrix(whole, order, rows)
    matrices = [None if part is None else _matrix(part, order, rows) for _, part in held]
    wanted = [part is not None for _, part in held]
    if matrix is None or not any(wanted) or [each is not None for each in matrices] != wanted:
        return None
    words = [int(joins), *tensor_words(matrix), len(held)]
    beside = matrix.shape[1] // whole.shape[axis]
    for (size, _), each in zip(held, matrices, strict=True):
        words += (size * beside, *tensor_words(each))
    return Record("Join", tuple(words), (matrix, *matrices))


def _matrix(view: View, order: Sequence[int], rows: int) -> View | None:
    """Its rows, dimensions in this order, if elements of a row lie side by side."""
    matrix = merged_view(view.transpose(*order), (rows, -1))
    if matrix is None or (matrix.shape[1] > 1 and matrix.strides[1] != matrix.itemsize):
        return None
    return matrix


def copy_operands(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Each operand to the result of its number, unless that has taken over its memory."""
    del numbers
    pairs = ((binding.output(i), binding.input(i)) for i in range(len(binding.outputs)))
    return moves((to, source) for to, source in pairs if not is_same_memory(to, source))
