"""Records in which a word is not what it should be, on memory that ends where its tensor does.

A kernel refuses such a record, or keeps to the memory of the tensors that the record describes: it
may come from an archive that lies.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from math import prod
from typing import Final

import numpy as np

from popc_runtime.native import Library, NativeFailure, NativeProgram, Record
from popc_runtime.native.record import MAX_RANK
from popc_runtime.native.views import row_major
from tests.native.children import Tell, in_a_child
from tests.native.recorded import ADDRESSES, HEAD, SIZES, Sample, Tensor

__all__ = ["complaints"]

_ABSENT: Final = -1  # in the place of a type
_AS_IT_IS: Final = "as it is"
_NUMBERS: Final = (-1, 0, 1, 1 << 31, 1 << 62, 1 - (1 << 63))
_IMPOSSIBLE: Final = (-1, -(1 << 63), 1 << 50, 1 << 62)  # dimensions
# Their tensors are parts of larger ones, which records do not describe.
_WINDOWS: Final = frozenset({"MoveAt"})
_ROOM: Final = 1 << 20  # bytes of a tensor
_MOST: Final = 12  # complaints about a kernel


class _Memory:
    """Places for tensors, each of which ends where no memory is."""

    def __init__(self, count: int) -> None:
        page = mmap.PAGESIZE
        self._map = mmap.mmap(-1, count * (_ROOM + page))
        start: int = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        self._ends = [start + (number + 1) * (_ROOM + page) - page for number in range(count)]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for end in self._ends:
            assert protect(ctypes.c_void_p(end), ctypes.c_size_t(page), 0) == 0

    def hold(self, number: int, tensor: Tensor, before: int = 0) -> int:
        """Where the first element of ``tensor`` is, in place ``number``.

        ``before``: bytes from the end of the tensor to that of the place.
        """
        below, above = tensor.extent
        start = self._ends[number] - below - above - before
        assert below + above + before <= _ROOM
        contents = (tensor.contents or b"\x01")[: below + above]
        ctypes.memset(start, 1, below + above)
        ctypes.memmove(start, contents, len(contents))
        return start + below


# -- what is made of them --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spoilt:
    """Another record.

    Attributes:
        hopeless: It must be refused.
        pair: Numbers of tensors of which the first lies over the second.
        at_start: They begin at the same address; else they end there.
    """

    label: str
    words: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    hopeless: bool = False
    pair: tuple[int, int] | None = None
    at_start: bool = False


def _spoilt(sample: Sample) -> Iterator[_Spoilt]:
    yield _Spoilt(_AS_IT_IS, sample.words, sample.tensors)
    for count in range(len(sample.words)):
        kept = tuple(item for item in sample.tensors if item.place + HEAD + 2 * item.rank <= count)
        cut = sample.words[:count]
        yield _Spoilt(f"{count} words", cut, kept, hopeless=True)
    for number, tensor in enumerate(sample.tensors):
        yield from _with_another_head(sample, number, tensor)
        for label, other in _others(tensor):
            tensors = (*sample.tensors[:number], other, *sample.tensors[number + 1 :])
            yield _Spoilt(f"tensor {number} {label}", sample.words, tensors)
    yield from _with_other_numbers(sample)
    for pair in permutations(range(len(sample.tensors)), 2):
        for at_start in (False, True):
            label = f"tensor {pair[0]} over {pair[1]}, at its {'start' if at_start else 'end'}"
            yield _Spoilt(label, sample.words, sample.tensors, pair=pair, at_start=at_start)


def _with_other_numbers(sample: Sample) -> Iterator[_Spoilt]:
    inside = {
        place
        for tensor in sample.tensors
        for place in range(tensor.place, tensor.place + HEAD + 2 * tensor.rank)
    }
    for place in sorted(set(range(len(sample.words))) - inside):
        word = sample.words[place]
        if word in ADDRESSES or sample.words[place : place + HEAD] == (0,) * HEAD:
            continue  # an absent operand has no memory to keep to
        for number in sorted({*_NUMBERS, word - 1, word + 1} - {word}):
            if number.bit_length() < 64:
                words = (*sample.words[:place], number, *sample.words[place + 1 :])
                yield _Spoilt(f"word {place}, {word}, is {number}", words, sample.tensors)


def _with_another_head(sample: Sample, number: int, tensor: Tensor) -> Iterator[_Spoilt]:
    """What `next_tensor` refuses."""
    rest = tuple(item for item in sample.tensors if item is not tensor)
    words = list(sample.words)
    words[tensor.place] = 1 << 21  # nobody may look there

    def with_word(place: int, value: int) -> tuple[int, ...]:
        return (*words[:place], value, *words[place + 1 :])

    for dtype in (-1, 13, 127, 1 << 32, 1 << 40):
        changed = with_word(tensor.place + 1, dtype)
        yield _Spoilt(f"tensor {number} of type {dtype}", changed, rest, hopeless=True)
    for rank in (-1, MAX_RANK + 1, 1 << 32, (1 << 32) + tensor.rank):
        changed = with_word(tensor.place + 3, rank)
        yield _Spoilt(f"tensor {number} of rank {rank}", changed, rest, hopeless=True)
    for axis in range(tensor.rank):
        for dim in _IMPOSSIBLE:
            changed = with_word(tensor.place + HEAD + axis, dim)
            label = f"tensor {number} with {dim} along axis {axis}"
            yield _Spoilt(label, changed, rest, hopeless=True)


def _others(tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Tensors that might stand in the place of ``tensor``."""
    shape, item = tensor.shape, SIZES[tensor.dtype]
    for changed in _other_shapes(shape):
        if changed != shape and len(changed) <= MAX_RANK:
            plain = replace(tensor, shape=changed, strides=row_major(changed, item))
            yield f"{changed} for {shape}", plain
    for dtype, size in enumerate(SIZES):
        if dtype != tensor.dtype:
            other = replace(tensor, dtype=dtype, strides=row_major(shape, size))
            yield f"of type {dtype} for {tensor.dtype}", other
    for strides in _other_strides(tensor):
        yield f"with strides {strides}", replace(tensor, strides=strides)
    yield "absent", replace(tensor, shape=(), strides=(), constant=0, dtype=_ABSENT)
    yield f"constant {1 - tensor.constant}", replace(tensor, constant=1 - tensor.constant)


def _other_shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for axis, dim in enumerate(shape):
        for size in {0, 1, dim - 1, dim + 1} - {-1}:
            yield (*shape[:axis], size, *shape[axis + 1 :])
    yield from (shape[1:], (1, *shape), (prod(shape),), ())


def _other_strides(tensor: Tensor) -> Iterator[tuple[int, ...]]:
    strides = tensor.strides
    for axis, step in enumerate(strides):
        for other in {0, -step, 2 * step} - {step}:
            if tensor.shape[axis] > 1:
                yield (*strides[:axis], other, *strides[axis + 1 :])


def _placed(spoilt: _Spoilt, memory: _Memory) -> tuple[int, ...]:
    """The words, with addresses of memory that holds the tensors."""
    words: list[int] = []
    at = 0
    held = [
        0 if tensor.dtype == _ABSENT else memory.hold(number, tensor)
        for number, tensor in enumerate(spoilt.tensors)
    ]
    if spoilt.pair:
        _overlap(spoilt, memory, held)
    for tensor, address in zip(spoilt.tensors, held, strict=True):
        words += spoilt.words[at : tensor.place]
        words += tensor.words(address) if address else (0, 0, 0, 0)
        at = tensor.place + HEAD + 2 * tensor.rank
    return (*words, *spoilt.words[at:])


def _overlap(spoilt: _Spoilt, memory: _Memory, held: list[int]) -> None:
    """Put one tensor of a pair where the other one is; the contents are those of the second."""
    assert spoilt.pair is not None
    first, second = spoilt.pair
    pair = [spoilt.tensors[number] for number in spoilt.pair]
    sizes = [sum(tensor.extent) for tensor in pair]
    room = -(-max(sizes) // max(SIZES)) * max(SIZES)  # elements of all types begin there
    behind = [room - size if spoilt.at_start else 0 for size in sizes]
    held[first] = memory.hold(second, pair[0], behind[0])
    held[second] = memory.hold(second, pair[1], behind[1])


# -- trying them out -------------------------------------------------------------------------------


def complaints(library: Library, found: Mapping[str, Sequence[Sample]]) -> Iterator[str]:
    """What is wrong with how kernels take records that were made of ``found``."""
    for kernel, listed in found.items():
        for problem in _problems(library, listed):
            yield f"{kernel}: {problem}"


def _problems(library: Library, listed: Sequence[Sample]) -> Iterator[str]:
    """Goes on after a record that ends the process."""
    begin = 0
    for _ in range(_MOST):
        problem, last = in_a_child(partial(_try_all, library, listed, begin))
        if not problem:
            return
        yield problem
        begin = last + 1


def _try_all(library: Library, listed: Sequence[Sample], first: int, tell: Tell) -> str:
    """All that is made of ``listed`` from number ``first`` on, up to the first problem."""
    number = 0
    for sample in listed:
        memory = _Memory(len(sample.tensors))
        for spoilt in _spoilt(sample):
            if number >= first and (spoilt.hopeless or sample.kernel not in _WINDOWS):
                tell(number, spoilt.label)
                problem = _try(library, sample, spoilt, memory)
                if problem:
                    return problem
            number += 1
    return ""


def _try(library: Library, sample: Sample, spoilt: _Spoilt, memory: _Memory) -> str:
    try:
        record = Record(sample.kernel, _placed(spoilt, memory))
        program = NativeProgram(library, [record], sample.kept, 1)
    except NativeFailure as failure:
        return f"refused: {failure}" if spoilt.label == _AS_IT_IS else ""
    if spoilt.hopeless:
        return "taken"
    with suppress(NativeFailure):
        program.run()
    return ""
