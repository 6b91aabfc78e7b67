from __future__ import annotations

import _thread
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import Array, Compression, compress, workers
from popc_runtime.format.codec import (
    CHUNK_BYTES,
    ITEMSIZES,
    decode_chunk,
    decompress,
)
from popc_runtime.format.compress import Extent, encode_chunk, plan_chunks
from popc_runtime.format.workers import begin_call, ordered_map
from tests.support.work import counted_calls


@settings(deadline=None)
@given(
    st.sampled_from(ITEMSIZES),
    st.integers(0, 300),
    st.sampled_from(Compression),
    st.integers(1, 256),
)
def test_chunks_round_trip(itemsize: int, count: int, level: Compression, values: int) -> None:
    raw = np.random.default_rng(count).integers(0, values, count * itemsize).astype(np.uint8)
    frames = encode_chunk(raw, itemsize, level)
    assert len(frames) == itemsize
    out = np.full_like(raw, 7)
    decode_chunk(frames, out.data, [])
    assert (out == raw).all()


def test_planes_of_weights_compress_close_to_their_entropy() -> None:
    raw = np.random.default_rng(0).normal(size=CHUNK_BYTES // 4).astype("<f4").view(np.uint8)
    counts = np.bincount(raw[3::4], minlength=256)
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log2(shares)).sum() / 8
    high_plane = encode_chunk(raw, 4, Compression.DEFAULT)[3]
    assert len(high_plane) < 1.03 * entropy * CHUNK_BYTES / 4


def test_repetition_is_found_as_well() -> None:
    rows = np.random.default_rng(0).normal(size=2048).astype("<f4")
    raw = np.tile(rows, 16).view(np.uint8)
    assert sum(map(len, encode_chunk(raw, 4, Compression.DEFAULT))) < 1.1 * rows.nbytes


def test_matches_are_searched_only_where_a_trial_finds_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Counted:
        """A compressor that notes its level."""

        def __init__(self, level: int, nbytes: int) -> None:
            self.level, self.inner = level, inner(level, nbytes)

        def compress(self, data: memoryview) -> bytes:
            levels.append(self.level)
            return self.inner.compress(data)

    def tried(values: Array, compression: Compression) -> list[int]:
        levels.clear()
        encode_chunk(values.view(np.uint8), 4, compression)
        return sorted(levels)

    levels: list[int] = []
    inner = compress._of_level
    monkeypatch.setattr(compress, "_of_level", Counted)
    noise = np.random.default_rng(0).normal(size=CHUNK_BYTES // 4).astype("<f4")
    again = np.tile(noise[: 1 << 14], 16)
    assert tried(noise, Compression.DEFAULT) == [3] * 3
    assert {3, 9} == {*tried(again, Compression.DEFAULT)}
    assert tried(noise, Compression.MAX) == [19] * 4


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 9000), st.integers(0, 3 << 20), st.sampled_from([1, 2, 4, 8, 3])),
        max_size=8,
    ),
    st.integers(0, 100),
)
def test_plans_cover_everything_once(parts: list[tuple[int, int, int]], tail: int) -> None:
    extents: list[Extent] = []
    position = 0
    for gap, nbytes, itemsize in parts:
        extents.append(Extent(position + gap, nbytes, itemsize))
        position += gap + nbytes
    size = position + tail
    plan = plan_chunks(size, extents)
    assert [0, *(chunk.stop for chunk in plan)] == [*(chunk.start for chunk in plan), size]
    for chunk in plan:
        length = chunk.stop - chunk.start
        assert 0 < length <= CHUNK_BYTES
        assert chunk.itemsize in ITEMSIZES
        assert length % chunk.itemsize == 0


def test_large_arrays_keep_their_width_and_small_ones_join() -> None:
    extents = [
        Extent(0, 8, 8),
        Extent(64, 1 << 20, 4),
        Extent(64 + (1 << 20), 80, 8),
        Extent(192 + (1 << 20), 1 << 15, 2),
    ]
    plan = plan_chunks(192 + (1 << 20) + (1 << 15) + 1, extents)
    widths = [(chunk.start, chunk.itemsize) for chunk in plan]
    start = 192 + (1 << 20)
    assert widths == [(0, 4), (1 << 20, 4), (start, 2), (start + (1 << 15), 1)]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"not zstd",
        zstandard.compress(b"abcd")[:-1],
        zstandard.compress(b"abcd") + b"!",
        zstandard.compress(b"abcde"),
        zstandard.ZstdCompressor(write_content_size=False).compress(b"abcd"),
        zstandard.compress(bytes(1 << 24)),
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd",  # a skippable frame of four bytes
    ],
)
def test_frames_that_do_not_hold_what_is_expected(frame: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        decompress(frame, 4)


def test_ordered_map_is_map() -> None:
    for threads in (1, 3):
        assert list(ordered_map(abs, range(-50, 0), threads)) == [*range(50, 0, -1)]


def test_ordered_map_runs_ahead_a_little_only() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1000):
            taken.append(item)
            yield item

    results = ordered_map(abs, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 6


def test_ordered_map_passes_errors_on_and_leaves_no_threads() -> None:
    def fail(item: int) -> int:
        if item == 3:
            raise KeyboardInterrupt
        return item

    before = _thread._count()
    with pytest.raises(KeyboardInterrupt):
        list(ordered_map(fail, range(100), 2))
    while _thread._count() > before:
        time.sleep(0.001)


def test_ordered_map_goes_on_with_the_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []

    def start(function: Callable[..., object], arguments: tuple[Any, ...]) -> int:
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(function)
        return _thread.start_new_thread(function, arguments)

    before = _thread._count()
    monkeypatch.setattr(workers, "start_new_thread", start)
    assert list(ordered_map(abs, range(-50, 0), 4)) == [*range(50, 0, -1)]
    assert len(begun) == 1
    while _thread._count() > before:
        time.sleep(0.001)


def test_a_call_is_begun_on_another_thread_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = _thread.get_ident()
    assert begin_call(lambda _: _thread.get_ident(), None)() != own
    with pytest.raises(ZeroDivisionError):
        begin_call(lambda divisor: 1 // divisor, 0)()

    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers, "start_new_thread", refuse)
    assert begin_call(lambda _: _thread.get_ident(), None)() == own


def test_spare_memory_that_another_thread_takes() -> None:
    class Taken(list[bytearray]):
        def __bool__(self) -> bool:
            return True

    raw = np.arange(64, dtype="<u2").view(np.uint8)
    out = np.empty_like(raw)
    decode_chunk(encode_chunk(raw, 2, Compression.FAST), out.data, Taken())
    assert (out == raw).all()


def test_no_element_is_touched_by_itself() -> None:
    """A large chunk takes as many calls as a small one, in both directions."""
    counts: list[int] = []
    for size in (CHUNK_BYTES // 64, CHUNK_BYTES):
        raw = np.random.default_rng(0).normal(size=size // 4).astype("<f4").view(np.uint8)
        out = np.empty(size, np.uint8)
        with counted_calls() as calls:
            decode_chunk(encode_chunk(raw, 4, Compression.DEFAULT), out.data, [])
        counts.append(calls())
        assert out.tobytes() == raw.tobytes()
    assert counts[0] == counts[1]


def test_zstandard_itself_is_not_needed_and_may_come_later() -> None:
    code = (
        "import sys; from popc_runtime.format import codec; assert 'zstandard' not in sys.modules;"
        "import zstandard; frame = zstandard.ZstdCompressor().compress(b'text');"
        "assert codec.decompress(frame, 4) == b'text';"
        "assert codec.ZstdError is zstandard.ZstdError"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("threads", [True, False])
def test_what_a_call_was_given_is_gone_when_its_result_is_there(
    monkeypatch: pytest.MonkeyPatch, *, threads: bool
) -> None:
    """However long the other thread takes to end."""
    if not threads:
        monkeypatch.setattr(workers, "start_new_thread", _refuse)
    item = np.zeros(3)
    seen = weakref.ref(item)
    result = begin_call(np.size, item)
    del item
    assert result() == 3
    assert seen() is None


def _refuse(*_arguments: Any) -> None:
    raise RuntimeError
