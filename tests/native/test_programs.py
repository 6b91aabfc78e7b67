"""Programs of the native library: control flow, calls back, failures, times."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import (
    Branch,
    Item,
    Library,
    Loop,
    NativeFailure,
    NativeProgram,
    Record,
)
from popc_runtime.native.record import tensor_words
from popc_runtime.native.views import as_view
from tests.native.bindings import bound, encode, product_program


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _add(library: Library, total: Array, addend: Array) -> Record:
    """``total += addend``."""
    record = encode("Add", bound([total, addend], [total], {}), library.numbers)
    assert record is not None
    return record


def test_items_run_in_order(library: Library) -> None:
    total, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    seen: list[float] = []
    items: list[Item] = []
    for _ in range(3):
        items += [lambda: seen.append(float(total[0])), _add(library, total, one)]
    program = NativeProgram(library, items, (total, one), 2)
    program.run()
    program.run()
    assert seen == [0, 1, 2, 3, 4, 5]
    assert total.tolist() == [6, 6, 6]


@pytest.mark.parametrize(("count", "limit", "stop", "expected"), [
    (4, None, None, 4), (-1, 3, None, 3), (-1, -3, None, 0), (-1, None, 2, 2), (5, None, 2, 2),
    (0, None, None, 0),
])  # fmt: skip
def test_loops(
    library: Library, count: int, limit: int | None, stop: int | None, expected: int
) -> None:
    total, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    limits, condition, counter = np.array(limit or 0), np.ones((), np.bool_), np.zeros((), np.int64)

    def look() -> None:
        if stop is not None and int(counter) + 1 >= stop:
            condition[()] = False

    loop = Loop(
        [_add(library, total, one), look],
        count,
        0 if limit is None else _address(limits),
        0 if stop is None else _address(condition),
        _address(counter),
        (limits, condition, counter),
    )
    NativeProgram(library, [loop], (total, one), 1).run()
    assert total[0] == expected


@pytest.mark.parametrize("way", [True, False])
def test_branches(library: Library, *, way: bool) -> None:
    totals, one = np.zeros((2, 1), np.float32), np.ones(1, np.float32)
    condition = np.array(way)
    items = [_add(library, totals[0], one)], [_add(library, totals[1], one)]
    nested = Branch(_address(condition), *items)
    program = NativeProgram(library, [Loop([nested], 3)], (totals, one, condition), 1)
    program.run()
    assert totals.ravel().tolist() == ([3, 0] if way else [0, 3])


def test_an_exception_of_a_call_ends_the_run(library: Library) -> None:
    total, one = np.zeros(1, np.float32), np.ones(1, np.float32)

    def fail() -> None:
        raise KeyError("mine")

    program = NativeProgram(
        library, [_add(library, total, one), Loop([fail], 2), _add(library, total, one)], total, 2
    )
    for runs in (1, 2):
        with pytest.raises(KeyError, match="mine"):
            program.run()
        assert total[0] == runs


def test_a_kernel_that_cannot_go_on_names_its_owner(library: Library) -> None:
    x, indices = np.zeros((3, 2), np.float32), np.array([5])
    out = np.empty((1, 2), np.float32)
    record = encode("Gather", bound([x, indices], [out], {"axis": 0}), library.numbers)
    assert record is not None
    program = NativeProgram(library, [Loop([record.owned("mine")], 2)], (x, indices, out), 1)
    with pytest.raises(NativeFailure, match="index") as caught:
        program.run()
    assert caught.value.owner == "mine"
    indices[0] = 1
    program.run()


@pytest.mark.parametrize(
    "words",
    [[99999, 0], [-1], [-7, 0], [-2, 9, 1], [0, 2, 1, 2], [0, 4, 1, 2, 3, 4], [1 << 40, 1, 0]],
)
def test_malformed_records_are_refused(library: Library, words: list[int]) -> None:
    with pytest.raises(ValueError, match="record"):
        library.module.Program(library.variant, array("q", words).tobytes(), (), None)


def test_refusals_name_their_instruction(library: Library) -> None:
    total, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    good, wrong = _add(library, total, one), Record("Gather", (), owner="mine")
    for items in ([good, wrong], [Loop([good, good, wrong], 2)]):
        with pytest.raises(NativeFailure, match="record") as caught:
            NativeProgram(library, items, (total, one), 1)
        assert caught.value.owner == "mine"


def test_needs_that_no_memory_holds_are_refused(library: Library) -> None:
    """2^48 bytes of matrices, which nobody reads: each thread needs 2^50 to work with."""
    matrices, results = np.ones((1, 2, 2), np.float32), np.ones(1, np.float32)
    head = (*tensor_words(as_view(matrices))[:3], 3)
    words = (*head, 1, 1 << 23, 1 << 23, 1 << 48, 1 << 25, 4, *tensor_words(as_view(results)))
    record = Record("Determinant_f32", words, owner="mine")
    with pytest.raises(NativeFailure, match="not supported") as caught:
        NativeProgram(library, [record], (matrices, results), 2)
    assert caught.value.owner == "mine"


def test_a_call_that_there_is_not_is_an_error(library: Library) -> None:
    words = array("q", [-1, 1, 5]).tobytes()
    program = library.module.Program(library.variant, words, (), None)
    with pytest.raises(IndexError):
        program.run(1)


def test_times_are_those_of_the_items(library: Library) -> None:
    program, out, expected = product_program(library, 200, 2)
    seconds = program.seconds()
    assert len(seconds) == 3
    assert all(elapsed > 0 for elapsed in seconds)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
