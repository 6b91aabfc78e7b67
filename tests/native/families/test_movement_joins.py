"""Joins, parts and triangles of tensors: what numpy's indexing makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeProgram, find_library
from tests.native.bindings import bound, encode
from tests.support.oracles import hidden_operands

_WIDTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 300)
_TYPES = ("uint8", "float16", "float32", "int64", "bool")
_MARGIN = 64  # bytes around what is written, which stay as they are


class _Memory:
    """An array with a margin, whose dimensions lie in some order, perhaps with gaps."""

    def __init__(
        self, shape: Sequence[int], dtype: str, order: Sequence[int], gaps: Sequence[int]
    ) -> None:
        wide = [shape[axis] + gap for axis, gap in zip(order, gaps, strict=True)]
        size = np.dtype(dtype).itemsize
        self.memory = np.full(int(np.prod(wide)) * size + 2 * _MARGIN, 0xA5, np.uint8)
        inner = self.memory[_MARGIN : len(self.memory) - _MARGIN].view(dtype).reshape(wide)
        window = inner[tuple(slice(0, shape[axis]) for axis in order)]
        self.array: Array = window.transpose(np.argsort(order))

    def rest(self) -> bytes:
        """All bytes that do not belong to the array."""
        kept = self.array.copy()
        self.array.view(np.uint8 if self.array.dtype == bool else self.array.dtype)[...] = 0
        rest = self.memory.tobytes()
        self.array[...] = kept
        return rest


def _numbers(array: Array, seed: int) -> None:
    """Any bits, not numbers among them."""
    bits = np.random.default_rng(seed).integers(0, 256, (*array.shape, array.itemsize), np.uint8)
    bits &= np.uint8(1 if array.dtype == bool else 255)
    array[...] = bits.view(array.dtype).reshape(array.shape)


def _run(
    library: Library,
    opcode: str,
    inputs: list[Any],
    outputs: list[Any],
    attributes: dict[str, Any],
    threads: int,
) -> str:
    """The kernel that has computed it."""
    binding = bound(inputs, outputs, attributes)
    with hidden_operands(binding):
        record = encode(opcode, binding, library.numbers)
        assert record is not None
        program = NativeProgram(library, [record], binding, threads)
    program.run()
    return record.kernel


def _same(got: Array, expected: Array) -> bool:
    return got.tobytes() == expected.tobytes()


@st.composite
def _problems(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    return {
        "shape": draw(st.lists(st.integers(1, 7), min_size=rank, max_size=rank)),
        "axis": axis,
        "sizes": draw(st.lists(st.sampled_from(_WIDTHS), min_size=1, max_size=17)),
        "dtype": draw(st.sampled_from(_TYPES)),
        "order": draw(st.permutations(range(rank))),
        "other": draw(st.one_of(st.none(), st.permutations(range(rank)))),
        "gaps": draw(st.lists(st.sampled_from((0, 0, 0, 1, 3)), min_size=rank, max_size=rank)),
        "threads": draw(st.sampled_from((1, 2, 3, 8, 16))),
        "seed": draw(st.integers(0, 1 << 30)),
    }


def _laid(problem: dict[str, Any]) -> tuple[_Memory, list[_Memory]]:
    """The whole, and its parts."""
    axis, sizes, dtype = problem["axis"], problem["sizes"], problem["dtype"]

    def memory(size: int, order: Sequence[int], gaps: Sequence[int]) -> _Memory:
        shape = [size if i == axis else n for i, n in enumerate(problem["shape"])]
        return _Memory(shape, dtype, order, gaps)

    whole = memory(sum(sizes), problem["order"], problem["gaps"])
    other = problem["other"] or problem["order"]
    gaps = [0] * len(other) if problem["seed"] % 2 else problem["gaps"]
    return whole, [memory(size, other, gaps) for size in sizes]


@given(_problems())
def test_joined_and_parted(problem: dict[str, Any]) -> None:
    library = find_library()
    if library is None:
        pytest.skip("no native kernels")
    axis, threads = problem["axis"], problem["threads"]
    whole, parts = _laid(problem)
    for i, part in enumerate(parts):
        _numbers(part.array, problem["seed"] + i)
    expected = np.concatenate([part.array for part in parts], axis)
    if expected.size == 0:
        return
    before = whole.rest()
    inputs = [part.array for part in parts]
    _run(library, "Concat", inputs, [whole.array], {"axis": axis}, threads)
    assert _same(whole.array, expected)
    assert whole.rest() == before

    unwanted = {i for i in range(len(parts)) if problem["seed"] >> i & 3 == 3}
    for i, part in enumerate(parts):
        part.array[...] = 0
        if part.array.size == 0:
            unwanted.add(i)
    if len(unwanted) == len(parts):
        return
    rests = [part.rest() for part in parts]
    outputs = [None if i in unwanted else part.array for i, part in enumerate(parts)]
    attributes = {"axis": axis, "split": tuple(problem["sizes"])}
    _run(library, "Split", [whole.array], outputs, attributes, threads)
    ends = np.cumsum(problem["sizes"])
    for i, (part, end) in enumerate(zip(parts, ends, strict=True)):
        columns = np.arange(end - problem["sizes"][i], end)
        wanted = (
            np.take(expected, columns, axis) if i not in unwanted else np.zeros_like(part.array)
        )
        assert _same(part.array, wanted)
        assert part.rest() == rests[i]


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize(
    "sizes", [(1, 1), (1, 1, 1), (1, 1, 1, 1), (1,) * 16, (2, 2), (80, 5), (31, 33), (100, 300)]
)
@pytest.mark.parametrize("rows", [2, 17, 5000])
def test_columns_are_joined_in_one_pass(
    library: Library, dtype: str, sizes: tuple[int, ...], rows: int
) -> None:
    parts = [np.empty((rows, size), dtype) for size in sizes]
    for i, part in enumerate(parts):
        _numbers(part, i)
    for threads in (1, 2, 3, 8, 16):
        out = np.zeros((rows, sum(sizes)), dtype)
        assert _run(library, "Concat", list(parts), [out], {"axis": 1}, threads) == "Join"
        assert _same(out, np.hstack(parts))
        back = [np.zeros_like(part) for part in parts]
        attributes = {"axis": 1, "split": sizes}
        assert _run(library, "Split", [out], list(back), attributes, threads) == "Join"
        assert all(_same(a, b) for a, b in zip(back, parts, strict=True))


def test_wide_rows_are_left_to_copies_that_threads_share(library: Library) -> None:
    parts = [np.ones((2, 20000), np.float32), np.zeros((2, 3), np.float32)]
    out = np.empty((2, 20003), np.float32)
    assert _run(library, "Concat", list(parts), [out], {"axis": 1}, 2) == "Move"
    assert _same(out, np.hstack(parts))


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (17, 33), (2, 3, 40, 31), (300, 200)])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(library: Library, dtype: str, shape: tuple[int, ...], upper: int) -> None:
    x = np.empty(shape, dtype)
    _numbers(x, upper)
    wide = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
    wide[..., ::2] = x
    rows, columns = np.indices(shape[-2:])
    for diagonal in (-400, -shape[-2], -2, -1, 0, 1, shape[-1] - 1, shape[-1], 1 << 62):
        kept = columns - rows >= diagonal if upper else columns - rows <= diagonal
        expected = x.copy()
        expected.view(np.uint8).reshape(*shape, -1)[..., ~kept, :] = 0
        for operand in (x, wide[..., ::2]):
            for threads in (1, 3, 16):
                out = np.ones(shape, dtype)
                inputs = [operand, np.array(diagonal, np.int64)]
                _run(library, "Trilu", inputs, [out], {"upper": upper}, threads)
                assert _same(out, expected)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("rows", [1, 3, 7, 8, 9, 15, 16, 17, 33, 300])
def test_turned_matrices(library: Library, dtype: str, rows: int) -> None:
    """Some lie in wider rows; those of the result are wider, too, or lie side by side."""
    for columns in (1, 2, 5, 7, 8, 9, 16, 23, 24, 31, 64, 65, 257):
        for gaps in ((0, 0), (0, 1), (3, 5)):
            x = _Memory((2, rows, columns), dtype, (0, 1, 2), (0, *gaps))
            out = _Memory((2, columns, rows), dtype, (0, 1, 2), (0, *gaps[::-1]))
            _numbers(x.array, rows + columns)
            before = out.rest()
            for threads in (1, 3):
                out.array[...] = 0
                _run(library, "Transpose", [x.array], [out.array], {"perm": (0, 2, 1)}, threads)
                assert _same(out.array, np.stack([each.T for each in x.array]))
            assert out.rest() == before
