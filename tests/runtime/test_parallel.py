"""Work that threads share: everything is done once, errors arrive, scratch memory is apart."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime.errors import UsageError
from popc_runtime.format import Array
from popc_runtime.kernels import Call, Scratch
from popc_runtime.kernels.core.parallel import parallel_calls
from popc_runtime.process.threads import thread_count
from tests.support.models import affine, expected_affine


def _squares(scratch: Scratch, x: Array, out: Array) -> Iterator[Call]:
    """Through a temporary, in several calls, so that shared scratch memory would show."""
    spare = scratch.take(x.shape, x.dtype)
    yield partial(np.copyto, spare, x)
    for _ in range(20):
        yield partial(np.add, spare, 1, out=spare)
    yield partial(np.multiply, spare, spare, out=out)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_chunks_do_not_disturb_each_other(threads: int) -> None:
    x, out = np.arange(8 * 20_000.0).reshape(8, -1), np.empty((8, 20_000))
    scratch = Scratch(threads)
    chunks = [partial(_squares, scratch, *rows) for rows in zip(x, out, strict=True)]
    calls = parallel_calls(scratch, chunks)
    assert (len(calls) == 1) is (threads > 1)
    for _ in range(20):
        out.fill(0)
        for call in calls:
            call()
        np.testing.assert_array_equal(out, (x + 20) ** 2)


def _chunk(call: Call) -> tuple[Call, ...]:
    return (call,)


def _shared(*calls: Call) -> Call:
    chunks: list[Callable[[], tuple[Call, ...]]] = [partial(_chunk, call) for call in calls]
    (call,) = parallel_calls(Scratch(2), chunks)
    return call


def test_two_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=300)
    _shared(meeting.wait, meeting.wait)()


def test_an_error_arrives_after_all_chunks_have_ended() -> None:
    done: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    call = _shared(fail, partial(done.append, 1), fail, partial(done.append, 2))
    with pytest.raises(ZeroDivisionError):
        call()
    assert sorted(done) == [1, 2]


def test_programs_in_several_threads_share_the_helpers() -> None:
    results: list[int] = []
    calls = [_shared(*(partial(results.append, 1) for _ in range(10))) for _ in range(4)]
    threads = [threading.Thread(target=lambda c=call: [c() for _ in range(50)]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert len(results) == 4 * 50 * 10


@pytest.mark.parametrize("text", ["0", "-1", "two", "65537", str(1 << 31), "9" * 5000])
def test_the_environment_must_name_a_positive_number(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_count.cache_clear()
    monkeypatch.setenv("POPC_NUM_THREADS", text)
    with pytest.raises(UsageError, match="POPC_NUM_THREADS"):
        thread_count()


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    thread_count.cache_clear()
    monkeypatch.setenv("POPC_NUM_THREADS", "3")
    assert thread_count() == 3
    thread_count.cache_clear()


def test_there_must_be_a_thread() -> None:
    with pytest.raises(UsageError, match="threads must be at least 1, not 0"):
        popc_runtime.load(b"", threads=0)


@pytest.mark.parametrize("threads", [65_537, 1 << 31, 1 << 70, 2.5, "2"])
def test_numbers_of_threads_that_no_machine_has(threads: Any) -> None:
    with pytest.raises(UsageError, match="threads") as refused:
        popc_runtime.load(b"", threads=threads)
    assert "processors" in refused.value.hint


@pytest.mark.parametrize("threads", [np.int64(3), 1000])
def test_more_threads_than_processors(threads: Any, tmp_path: Path) -> None:
    path = popc.compile(affine()).save(tmp_path / "model.popx")
    x = np.ones((2, 3), np.float32)
    assert popc_runtime.load(path, threads=threads).run(x=x)["y"] == expected_affine(x)
