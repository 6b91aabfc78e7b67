"""Who may run an executable when: within its own run, while it closes, in forked children."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.format import Array
from tests.support.models import affine, executable, expected_affine

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
_ENGINES = pytest.mark.parametrize("engine", ["auto", "numpy"])
_forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
_DRAWS = """<ir_version: 10, opset_import: ["" : 22]> g (float[1000,1000] x) => (float[1000,1000] y)
    { r = RandomNormalLike(x)  y = Add(x, r) }"""


def _loaded(engine: str, folder: Path) -> popc_runtime.Executable:
    path = popc.compile(affine()).save(folder / "model.popx", force=True)
    return popc_runtime.load(path, engine=engine)


# -- within a run ----------------------------------------------------------------------------------


@_ENGINES
def test_a_source_cannot_run_what_asks_it(engine: str, tmp_path: Path) -> None:
    model = _loaded(engine, tmp_path)
    inner: list[Callable[[], object]] = [
        lambda: model.run(x=X + 1),
        lambda: model.run_buffers(x=X + 1),
        lambda: model.profile({"x": X + 1}),
    ]

    def source(number: int) -> Array:
        with pytest.raises(UsageError, match="cannot run the executable that calls it") as caught:
            inner[number]()
        assert caught.value.hint
        return X

    results: list[Array] = []
    with model.session() as session:
        session.connect("x", source, depth=0).connect("y", results.append).step(len(inner))
    for result in results:
        assert result == expected_affine(X)
    assert len(results) == len(inner)
    assert model.run(x=X + 1)["y"] == expected_affine(X + 1)


@_ENGINES
def test_after_a_run_that_failed_there_may_be_another(engine: str, tmp_path: Path) -> None:
    model = _loaded(engine, tmp_path)
    with pytest.raises(DeviceError):
        model.run_connected({"x": iter((X,))}, {"y": lambda _: 1 // 0})
    assert model.run(x=X)["y"] == expected_affine(X)


def test_a_signal_handler_cannot_run_what_it_interrupts(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    refused: list[UsageError] = []

    def handle(*_: object) -> None:
        try:
            model.run(x=X + 1)
        except UsageError as error:
            refused.append(error)

    def source() -> Iterator[Array]:
        signal.raise_signal(signal.SIGUSR1)
        yield X

    before = signal.signal(signal.SIGUSR1, handle)
    results: list[Array] = []
    try:
        model.run_connected({"x": source()}, {"y": results.append})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == len(results) == 1
    assert results[0] == expected_affine(X)


# -- while it closes -------------------------------------------------------------------------------


def test_pending_runs_end_well_when_an_executable_is_closed(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    inputs = [np.full((2, 3), number, np.float32) for number in range(200)]
    futures = [model.run_async(x=x) for x in inputs]
    model.close()
    for x, future in zip(inputs, futures, strict=True):
        assert future.done()
        assert future.result()["y"] == expected_affine(x)
    for call in (model.run, model.run_buffers, model.run_async):
        with pytest.raises(DeviceError, match="closed"):
            call(x=X)
    model.close()


def test_a_run_cannot_wait_for_those_behind_it(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    pending: list[Future[dict[str, Array]]] = []

    def source() -> Iterator[Array]:
        pending.append(model.run_async(x=X))
        with pytest.raises(UsageError, match="cannot close the executable"):
            model.close()
        yield X

    model.run_connected({"x": source()}, {})
    model.close()
    assert pending[0].result()["y"] == expected_affine(X)


# -- in forked children ----------------------------------------------------------------------------


def _succeeds_in_child(check: Callable[[], bool]) -> bool:
    """Whether ``check`` holds in a forked process, in time."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(15)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def _repeated(call: Callable[[], object]) -> Iterator[None]:
    """Meanwhile another thread makes a call, again and again."""
    ended, begun = threading.Event(), threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            call()
            begun.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    begun.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join()


@_forks
@_ENGINES
def test_a_child_runs_what_another_thread_is_running(engine: str, tmp_path: Path) -> None:
    path = popc.compile(affine(rows=20_000, columns=300)).save(tmp_path / "model.popx")
    model = popc_runtime.load(path, engine=engine, threads=2)
    x = np.random.default_rng(0).standard_normal((20_000, 300)).astype(np.float32)
    expected = model.run(x=x)["y"]
    with _repeated(lambda: model.run(x=x)):
        for _ in range(5):
            assert _succeeds_in_child(lambda: np.array_equal(model.run(x=x - 0)["y"], expected))


@_forks
@_ENGINES
def test_a_child_draws_numbers_that_another_thread_is_drawing(engine: str, tmp_path: Path) -> None:
    path = popc.compile(parser.parse_model(_DRAWS)).save(tmp_path / "model.popx")
    model = popc_runtime.load(path, engine=engine)
    x = np.zeros((1000, 1000), np.float32)
    with _repeated(lambda: model.run(x=x)):
        for _ in range(3):
            assert _succeeds_in_child(lambda: bool(abs(model.run(x=x)["y"].std() - 1) < 0.1))


@_forks
def test_a_child_has_a_background_of_its_own(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    assert model.run_async(x=X).result()["y"] == expected_affine(X)
    time.sleep(0.01)  # the thread is idle, which the child must not believe of one of its own

    def check() -> bool:
        future = model.run_async(x=X)
        model.close()
        return bool(future.result()["y"] == expected_affine(X))

    assert _succeeds_in_child(check)


@_forks
@_ENGINES
def test_a_run_that_forks_goes_on_in_both(engine: str, tmp_path: Path) -> None:
    model = _loaded(engine, tmp_path)
    parent, children = os.getpid(), []

    def source() -> Iterator[Array]:
        children.append(os.fork())
        yield X

    results: list[Any] = []
    try:
        model.run_connected({"x": source()}, {"y": results.append})
        again = model.run(x=X)["y"] == expected_affine(X)
    finally:
        if os.getpid() != parent:
            os._exit(0 if again and results[0] == expected_affine(X) else 1)
    assert os.waitpid(children[0], 0)[1] == 0
    assert results[0] == expected_affine(X)
