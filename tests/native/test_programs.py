"""Programs of the native library: control flow, calls back, failures, threads."""

from __future__ import annotations

import multiprocessing
import threading
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
from tests.native.bindings import bound, encode


def _address(one: Array) -> int:
    address: int = one.__array_interface__["data"][0]
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
    (4, None, None, 4), (-1, 3, None, 3), (-1, None, 2, 2), (5, None, 2, 2), (0, None, None, 0),
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


def test_an_interrupt_ends_a_long_run(library: Library) -> None:
    import signal

    total, one = np.zeros(1, np.float32), np.ones(1, np.float32)
    program = NativeProgram(library, [Loop([_add(library, total, one)], 1 << 40)], total, 1)
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        program.run()


@pytest.mark.parametrize(
    "words",
    [[99999, 0], [-1], [-7, 0], [-2, 9, 1], [0, 2, 1, 2], [0, 4, 1, 2, 3, 4], [1 << 40, 1, 0]],
)
def test_malformed_records_are_refused(library: Library, words: list[int]) -> None:
    with pytest.raises(ValueError, match="record"):
        library.module.Program(library.variant, array("q", words).tobytes(), (), None)


def _product(library: Library, size: int, threads: int) -> tuple[NativeProgram, Array, Array]:
    random = np.random.default_rng(size)
    left, right = (random.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    out = np.empty((size, size), np.float32)
    record = encode("MatMul", bound([left, right], [out], {}), library.numbers)
    assert record is not None
    program = NativeProgram(library, [record] * 3, (left, right, out), threads)
    return program, out, left @ right


def test_programs_run_from_several_threads(library: Library) -> None:
    made = [_product(library, 150 + 10 * number, 2) for number in range(4)]

    def run(program: NativeProgram) -> None:
        for _ in range(20):
            program.run()

    workers = [threading.Thread(target=run, args=(program,)) for program, _, _ in made]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _, out, expected in made:
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)


def _run_in_child(variant: str, queue: multiprocessing.Queue[float]) -> None:
    from popc_runtime.native import find_library

    library = find_library(variant)
    assert library is not None
    program, out, expected = _product(library, 200, 2)
    program.run()
    queue.put(float(np.abs(out - expected).max()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(library: Library) -> None:
    program, _, _ = _product(library, 200, 2)
    program.run()  # the parent's threads exist now
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[float] = context.Queue()
    child = context.Process(target=_run_in_child, args=(library.variant, queue))
    child.start()
    assert queue.get(timeout=20) < 1e-3
    child.join(20)
    assert child.exitcode == 0


def test_times_are_those_of_the_items(library: Library) -> None:
    program, out, expected = _product(library, 200, 2)
    seconds = program.seconds()
    assert len(seconds) == 3
    assert all(one > 0 for one in seconds)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
