"""Samples read ahead: how far, in which order, what comes of errors, and that threads end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest

import popc_runtime
from popc_runtime.errors import DeviceError, StreamUnderrunError
from tests.support.models import affine, executable, expected_affine

SAMPLES = np.random.default_rng(1).standard_normal((8, 2, 3)).astype(np.float32)


def _wait_until(holds: Callable[[], bool]) -> None:
    end = monotonic() + 300
    while not holds():
        assert monotonic() < end, "it never came to that"
        sleep(0.002)


def _threads() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread.name.startswith("popc-prefetch")
    ]


def _counting(taken: list[int]) -> Iterator[Any]:
    for number, sample in enumerate(SAMPLES):
        taken.append(number)
        yield sample


def test_depth_of_the_archive_is_never_exceeded(tmp_path: Path) -> None:
    program = executable(affine(), tmp_path, buffering_depth_map={"x": 3})
    assert program.stream("x").depth == 3
    taken: list[int] = []
    results: list[Any] = []
    with program.session() as session:
        session.connect("x", _counting(taken)).connect("y", results)
        _wait_until(lambda: len(taken) == 3)
        sleep(0.02)
        assert len(taken) == 3
        session.step(2)
        _wait_until(lambda: len(taken) == 5)
        session.step(6)
        with pytest.raises(StreamUnderrunError, match="no sample 8"):
            session.step()
    assert not _threads()
    for sample, result in zip(SAMPLES, results, strict=True):
        assert result == expected_affine(sample)


def test_nothing_is_read_ahead_unless_someone_says_so(tmp_path: Path) -> None:
    plain = executable(affine(), tmp_path)
    taken: list[int] = []
    with plain.session() as session:
        session.connect("x", _counting(taken))
        session.step(2)
        assert taken == [0, 1]
    deep = executable(affine(), tmp_path, default_buffering_depth=4)
    taken.clear()
    with deep.session() as session:
        session.connect("x", _counting(taken), depth=0)
        session.step(2)
        assert taken == [0, 1]
    with deep.session() as session:
        session.connect("x", list(SAMPLES))
        assert not _threads()


def test_a_source_may_use_one_array_again_and_again(tmp_path: Path) -> None:
    buffer = np.empty_like(SAMPLES[0])

    def same() -> Iterator[Any]:
        for sample in SAMPLES:
            buffer[:] = sample
            yield buffer

    results: list[Any] = []
    with executable(affine(), tmp_path, default_buffering_depth=4).session() as session:
        session.connect("x", same()).connect("y", results).step(8)
    for sample, result in zip(SAMPLES, results, strict=True):
        assert result == expected_affine(sample)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_errors_come_at_their_sample(tmp_path: Path, depth: int) -> None:
    def failing(number: int) -> Any:
        if number == 2:
            raise ZeroDivisionError("sample two")
        return SAMPLES[number]

    results: list[Any] = []
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", failing, depth=depth).connect("y", results)
        session.step(2)
        for _ in range(2 if depth else 1):
            with pytest.raises(DeviceError, match=r"HostLoad \(x\) failed: sample two") as caught:
                session.step()
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert len(results) == 2
    assert not _threads()


def test_a_callable_may_have_nothing_yet(tmp_path: Path) -> None:
    """When it is asked ahead; asked again for the same sample, it must have one."""
    calls: list[tuple[int, bool]] = []

    def source(number: int, *, prefetch: bool) -> Any:
        calls.append((number, prefetch))
        return None if prefetch and number % 2 else SAMPLES[number]

    results: list[Any] = []
    with executable(affine(), tmp_path, default_buffering_depth=2).session() as session:
        session.connect("x", source).connect("y", results)
        session.step(6)
    asked = [number for number, prefetch in calls if not prefetch]
    assert asked == [1, 3, 5]
    for sample, result in zip(SAMPLES, results, strict=False):
        assert result == expected_affine(sample)


@pytest.mark.parametrize("depth", [0, 2])
def test_nothing_when_it_is_needed_is_an_error(tmp_path: Path, depth: int) -> None:
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", lambda _, prefetch: None, depth=depth)
        with pytest.raises(StreamUnderrunError, match="its source returned None"):
            session.step()
    assert not _threads()


def test_several_streams_and_replicas(tmp_path: Path) -> None:
    """Each replica gets the next sample, as without reading ahead."""
    program = executable(
        affine(), tmp_path, replicated_graph_count=2, batches_per_step=2, default_buffering_depth=3
    )
    results: list[Any] = []
    with program.session() as session:
        session.connect("x", iter(SAMPLES)).connect("y", results).step(2)
    for sample, result in zip(SAMPLES, results, strict=True):
        assert result == expected_affine(sample)


def test_a_queue_keeps_what_comes_after_the_end(tmp_path: Path) -> None:
    samples: queue.Queue[Any] = queue.Queue()
    results: list[Any] = []
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", samples, depth=2).connect("y", results)
        for sample in SAMPLES[:3]:
            samples.put(sample)
        session.step(3)
    assert not _threads()
    samples.put(SAMPLES[3])
    sleep(0.02)
    assert samples.qsize() == 1
    for sample, result in zip(SAMPLES, results, strict=False):
        assert result == expected_affine(sample)


_INTERRUPTED = """
    import threading, time
    import popc_runtime
    def source(number):
        print("asked", number, flush=True)
        time.sleep(600)
    with popc_runtime.load({path!r}).session() as session:
        session.connect("x", source)
        try:
            session.step()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals work in another way")
def test_ctrl_c_while_waiting_for_a_sample(tmp_path: Path) -> None:
    executable(affine(), tmp_path, default_buffering_depth=2)
    code = textwrap.dedent(_INTERRUPTED.format(path=str(tmp_path / "model.popx")))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked 0\n"
        sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)  # it would wait forever
    assert output == "interrupted\n"
    assert process.returncode == 0, errors


def test_archives_that_know_no_depth(tmp_path: Path) -> None:
    """Archives of the first version of the format have no field for it."""
    from popc_runtime.format.serialization import Fields
    from popc_runtime.format.streams import read_stream

    spec = popc_runtime.load(_saved(tmp_path)).stream("x")
    row = {
        "name": spec.name,
        "direction": spec.direction.value,
        "dtype": spec.dtype.value,
        "shape": list(spec.shape),
        "samples_per_step": 1,
        "return_type": None,
    }
    assert read_stream(Fields(row, "a stream")) == spec


def _saved(folder: Path) -> Path:
    executable(affine(), folder)
    return folder / "model.popx"
