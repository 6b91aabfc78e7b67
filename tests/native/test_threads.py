"""Programs on several threads, in forked processes, and that somebody interrupts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from popc_runtime.native import Library, Loop, NativeProgram
from tests.native.bindings import bound, encode, product_program, steady_results

_HERE = Path(__file__).parent
_SOURCES = _HERE.parents[1] / "runtime" / "csrc"
_forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def _in_child(check: Callable[[], bool]) -> bool:
    """Whether ``check`` holds in a forked process."""
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    end = time.monotonic() + 600
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _multiplies(library: Library, size: int, threads: int) -> bool:
    program, out, expected = product_program(library, size, threads)
    for _ in range(20):
        out.fill(0)
        program.run()
        if not np.allclose(out, expected, rtol=1e-3, atol=1e-3):
            return False
    return True


def _start(count: int, work: Callable[[int], None]) -> list[threading.Thread]:
    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    return workers


def test_programs_run_from_several_threads(library: Library) -> None:
    right: list[bool] = []
    for worker in _start(
        4, lambda number: right.append(_multiplies(library, 150 + 10 * number, 2 + number % 2))
    ):
        worker.join()
    assert right == [True] * 4


@_forks
def test_a_forked_child_has_threads_of_its_own(library: Library) -> None:
    assert _multiplies(library, 200, 2)  # the parent's threads exist now
    assert _in_child(lambda: _multiplies(library, 200, 2))
    assert _multiplies(library, 200, 2)


@_forks
def test_forked_children_while_programs_run(library: Library) -> None:
    made = [product_program(library, 180 + 20 * number, 2) for number in range(2)]
    ended = threading.Event()

    def run(number: int) -> None:
        while not ended.is_set():
            made[number][0].run()

    workers = _start(2, run)
    try:
        for _ in range(10):
            assert _in_child(lambda: _multiplies(library, 130, 2))
    finally:
        ended.set()
        for worker in workers:
            worker.join()
    for _, out, expected in made:
        np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)


@_forks
def test_a_run_that_forks_goes_on_in_both(library: Library) -> None:
    total, one = np.zeros((300, 300), np.float32), np.ones((300, 300), np.float32)
    record = encode("Add", bound([total, one], [total], {}), library.numbers)
    assert record is not None
    parent, children = os.getpid(), []

    def fork() -> None:
        children.append(os.fork())

    program = NativeProgram(library, [record, fork, record, record], (total, one), 2)
    program.run()
    if os.getpid() != parent:  # in the child
        os._exit(0 if np.all(total == 3) and _multiplies(library, 150, 2) else 1)
    assert os.waitpid(children[0], 0)[1] == 0
    assert np.all(total == 3)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_a_long_run(library: Library, threads: int) -> None:
    total, one = np.zeros(100_000, np.float32), np.ones(100_000, np.float32)
    record = encode("Add", bound([total, one], [total], {}), library.numbers)
    assert record is not None
    program = NativeProgram(library, [Loop([record], 1 << 40)], (total, one), threads)
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        program.run()
    total[:] = 0  # and the next run is a run like any other
    NativeProgram(library, [record, record], (total, one), threads).run()
    assert np.all(total == 2)


def test_an_interrupt_ends_a_long_run_without_loops(library: Library) -> None:
    left, one = np.ones((600, 600), np.float32), np.ones(1, np.float32)
    product, more = np.empty_like(left), np.zeros(1, np.float32)
    multiply = encode("MatMul", bound([left, left], [product], {}), library.numbers)
    count = encode("Add", bound([more, one], [more], {}), library.numbers)
    assert multiply is not None
    assert count is not None
    program = NativeProgram(library, [multiply, count] * 3000, (left, product, more, one), 1)
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        program.run()
    assert more[0] < 3000  # of what takes many seconds


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("watched", [True, False])
def test_the_pool_hands_out_every_chunk_once(tmp_path: Path, *, watched: bool) -> None:
    program = tmp_path / "stress"
    flags = ["-std=gnu11", "-g", *(["-O1", "-fsanitize=thread"] if watched else ["-O2"])]
    sources = [
        str(_HERE / "pool_stress.c"),
        *(str(_SOURCES / f"{name}.c") for name in ("pool", "cores")),
    ]
    command = ["gcc", *flags, f"-I{_SOURCES}", *sources, "-pthread", "-o", str(program)]
    subprocess.run(command, check=True)
    # What a sanitizer of threads knows does not survive a fork.
    arguments = [] if watched else ["fork"]
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_ends_of_chunks_are_rounded_like_all_else(library: Library) -> None:
    x = [np.random.default_rng(n).standard_normal((4, 1024)).astype(np.float32) for n in (0, 1)]
    steady_results(library, "MishGrad", x, [np.empty_like(x[0])], {})
