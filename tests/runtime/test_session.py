"""Sessions: every kind of source and sink, depth, underrun, time-out."""

from __future__ import annotations

import queue
import re
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import (
    InputMismatchError,
    ResourceError,
    StreamError,
    StreamTimeoutError,
    StreamUnderrunError,
    UsageError,
)
from tests.support.models import affine, executable, expected_affine

SAMPLES = np.random.default_rng(1).standard_normal((6, 2, 3)).astype(np.float32)


def _as_queue(samples: Any) -> queue.Queue[Any]:
    result: queue.Queue[Any] = queue.Queue()
    for sample in samples:
        result.put(sample)
    return result


def _as_file(samples: Any, folder: Path) -> Path:
    np.save(folder / "samples.npy", samples)
    return folder / "samples.npy"


def _as_raw_file(samples: Any, folder: Path) -> Path:
    samples.tofile(folder / "samples.bin")
    return folder / "samples.bin"


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize(
    "kind", ["array", "list", "generator", "callable", "queue", "file", "raw file"]
)
def test_sources(kind: str, depth: int, tmp_path: Path) -> None:
    sources: dict[str, Callable[[], Any]] = {
        "array": lambda: SAMPLES,
        "list": lambda: list(SAMPLES),
        "generator": lambda: (sample for sample in SAMPLES),
        "callable": lambda: SAMPLES.__getitem__,
        "queue": lambda: _as_queue(SAMPLES),
        "file": lambda: _as_file(SAMPLES, tmp_path),
        "raw file": lambda: _as_raw_file(SAMPLES, tmp_path),
    }
    results: list[Any] = []
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", sources[kind](), depth=depth).connect("y", results)
        session.step(2)
        session.step(4)
        assert session.steps_done == 6
    for sample, result in zip(SAMPLES, results, strict=True):
        assert result == expected_affine(sample)


def test_sinks(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    array = np.zeros((6, 2, 3), np.float32)
    waiting: queue.Queue[Any] = queue.Queue()
    called: list[Any] = []
    path = tmp_path / "y.npy"
    for sink in (array, waiting, called.append, path):
        with model.session() as session:
            session.connect("x", SAMPLES).connect("y", sink).step(6)
    np.testing.assert_array_equal(np.stack(called), array)
    np.testing.assert_array_equal(np.stack([waiting.get() for _ in range(6)]), array)
    np.testing.assert_array_equal(np.load(path), array)


def test_steps_of_several_batches_take_several_samples(tmp_path: Path) -> None:
    results: list[Any] = []
    model = executable(affine(), tmp_path, batches_per_step=3, anchors={"y": "final"})
    with model.session() as session:
        session.connect("x", SAMPLES).connect("y", results).step(2)
    assert len(results) == 2
    assert results[1] == expected_affine(SAMPLES[5])


@pytest.mark.parametrize("depth", [0, 3])
def test_underrun_names_stream_and_sample(depth: int, tmp_path: Path) -> None:
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", SAMPLES, depth=depth)
        session.step(6)
        for _ in range(2):
            with pytest.raises(StreamUnderrunError, match="'x' has no sample 6"):
                session.step()


def test_repeat_starts_an_array_over(tmp_path: Path) -> None:
    results: list[Any] = []
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", SAMPLES[:2], repeat=True).connect("y", results).step(5)
    np.testing.assert_array_equal(results[0], results[4])


def test_queue_times_out(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    with model.session() as session:
        session.connect("x", queue.Queue(), timeout=0.01)
        with pytest.raises(StreamTimeoutError, match=r"'x': no sample arrived within 0\.01 s"):
            session.step()
    with model.session() as session:
        session.connect("x", SAMPLES).connect("y", queue.Queue(maxsize=1), timeout=0.01)
        with pytest.raises(StreamTimeoutError, match="stayed full"):
            session.step(2)


def test_queue_is_fed_while_the_session_waits(tmp_path: Path) -> None:
    feed: queue.Queue[Any] = queue.Queue(maxsize=1)
    results: list[Any] = []
    producer = threading.Thread(target=lambda: deque(map(feed.put, SAMPLES), 0))
    producer.start()
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", feed, timeout=300).connect("y", results).step(6)
    producer.join()
    assert len(results) == 6


def test_closing_a_session_stops_its_prefetch_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", lambda _: SAMPLES[0], depth=2).step()
    assert threading.active_count() == before


def test_two_sessions_take_turns(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    first: list[Any] = []
    second: list[Any] = []
    with model.session() as one, model.session() as two:
        one.connect("x", SAMPLES).connect("y", first)
        two.connect("x", -SAMPLES).connect("y", second)
        for _ in range(6):
            one.step()
            two.step()
    assert first[3] == expected_affine(SAMPLES[3])
    assert second[3] == expected_affine(-SAMPLES[3])


@pytest.mark.parametrize(
    ("name", "end", "keywords", "error", "message"),
    [
        ("z", SAMPLES, {}, UsageError, "no stream 'z'"),
        ("x", 3.5, {}, UsageError, "cannot read samples from float"),
        ("y", 3.5, {}, UsageError, "cannot write samples to float"),
        ("x", iter(SAMPLES), {"repeat": True}, UsageError, "can be repeated"),
        ("x", SAMPLES[0], {}, InputMismatchError, "input 'x'"),
        ("x", "missing.npy", {}, ResourceError, "cannot read missing.npy"),
    ],
)
def test_wrong_connections(
    name: str,
    end: Any,
    keywords: dict[str, Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
) -> None:
    session = executable(affine(), tmp_path).session()
    with pytest.raises(error, match=message):
        session.connect(name, end, **keywords)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.bin", b"12345", "has 5 bytes, which are not whole samples of float32\\[2,3\\] "),
        ("x.npy", b"no numbers at all", "x.npy is not a .npy file with an array of numbers"),
        ("x.npy", b"", "x.npy is not a .npy file with an array of numbers"),
        ("x.dat", SAMPLES.tobytes(), "raw elements is called .bin or .raw"),
    ],
)
def test_files_that_hold_no_samples(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    session = executable(affine(), tmp_path).session()
    with pytest.raises(ResourceError) as caught:
        session.connect("x", tmp_path / name)
    assert re.search(message, f"{caught.value}\n{caught.value.hint}")
    assert "allow_pickle" not in f"{caught.value}"


def test_an_empty_raw_file_has_no_samples(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"")
    session = executable(affine(), tmp_path).session().connect("x", tmp_path / "x.bin")
    with pytest.raises(StreamUnderrunError):
        session.step()


def test_step_needs_every_input_connected(tmp_path: Path) -> None:
    session = executable(affine(), tmp_path).session()
    with pytest.raises(StreamError, match="not connected: x"):
        session.step()
    session.connect("x", SAMPLES)
    with pytest.raises(UsageError, match="already connected"):
        session.connect("x", SAMPLES)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.step()


def test_wrong_sample_in_a_stream_is_named(tmp_path: Path) -> None:
    with executable(affine(), tmp_path).session() as session:
        session.connect("x", [SAMPLES[0], SAMPLES[1][:1]])
        with pytest.raises(InputMismatchError, match=r"expected float32\[2,3\]"):
            session.step(2)
