"""How blobs are compressed: in chunks, and a chunk's bytes sorted by their place in the element.

Trained weights look random except for sign and exponent.  Sorted into planes (all first bytes, all
second bytes, ...) the exponents come together, and each plane is a zstd frame of its own.  Two
kinds of encoder compete for every plane: one that only codes frequencies, because chance matches
cost more than they save in a skewed but otherwise random plane, and one that looks for matches.

Chunks are independent: they are coded on several threads, the result does not depend on how many,
and no more than a few chunks are in memory at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import zstandard
from zstandard import ZstdCompressionParameters, ZstdCompressor, ZstdDecompressor, ZstdError

from popc_runtime.format.dtypes import Array
from popc_runtime.format.packing import corrupt
from popc_runtime.frozen import frozen

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "CHUNK_BYTES",
    "ITEMSIZES",
    "ChunkPlan",
    "Codec",
    "Compression",
    "Extent",
    "decode_chunk",
    "decompress",
    "default_threads",
    "encode_chunk",
    "ordered_map",
    "plan_chunks",
]

CHUNK_BYTES: Final = 1 << 20
ITEMSIZES: Final = (1, 2, 4, 8)
_MAX_THREADS: Final = 8
_SMALL_CHUNK: Final = 256 << 10
_MINOR_BYTES: Final = 4 << 10
_In = TypeVar("_In")
_Out = TypeVar("_Out")


class Codec(StrEnum):
    """How a blob lies in the file."""

    RAW = "raw"  # as it is, on a page boundary, so that it can be mapped
    ZSTD = "zstd"  # chunks of one frame
    ZSTD_SHUFFLE = "zstd-shuffle"  # chunks of one frame per byte of the element


class Compression(StrEnum):
    """How much time to spend on size."""

    FAST = "fast"
    DEFAULT = "default"
    MAX = "max"


_LEVELS: Final = {Compression.FAST: 1, Compression.DEFAULT: 15, Compression.MAX: 19}
# Matches of seven bytes, looked up in a table of 64 entries: next to none are found.
_FREQUENCIES: Final = ZstdCompressionParameters(
    window_log=20, hash_log=6, chain_log=6, search_log=1, min_match=7, strategy=1
)


@frozen
class Extent:
    """Where in a blob an array lies and how wide its elements are."""

    offset: int
    nbytes: int
    itemsize: int


@frozen
class ChunkPlan:
    """A range of a blob that is coded as elements of ``itemsize`` bytes."""

    start: int
    stop: int
    itemsize: int


def plan_chunks(size: int, extents: Iterable[Extent] = ()) -> tuple[ChunkPlan, ...]:
    """Divide ``size`` bytes into chunks of elements of equal width.

    ``extents`` are sorted by offset.  Neighbours of equal width share chunks, and so do small
    arrays with whatever they stand beside: a wrong width costs little, a tiny frame costs more.
    """
    runs = [(0, 1)]  # start and width
    for extent in extents:
        start, width = runs[-1]
        itemsize = extent.itemsize if extent.itemsize in ITEMSIZES else 1
        if extent.offset - start < _MINOR_BYTES:
            runs[-1] = (start, itemsize)
        elif itemsize != width and extent.nbytes >= _MINOR_BYTES:
            runs.append((extent.offset, itemsize))
    stops = [*(start for start, _ in runs[1:]), size]
    return tuple(
        chunk
        for (start, width), stop in zip(runs, stops, strict=True)
        for chunk in _cut(start, stop, width)
    )


def _cut(start: int, stop: int, itemsize: int) -> Iterator[ChunkPlan]:
    """Chunks of the usual size; what is left beyond whole elements is coded as bytes."""
    whole = stop - (stop - start) % itemsize
    for first in range(start, whole, CHUNK_BYTES):
        yield ChunkPlan(first, min(first + CHUNK_BYTES, whole), itemsize)
    if whole < stop:
        yield ChunkPlan(whole, stop, 1)


def encode_chunk(raw: Array, itemsize: int, compression: Compression) -> tuple[bytes, ...]:
    """One frame per byte plane of ``raw`` (uint8, a multiple of ``itemsize`` long)."""
    encoders = _encoders(raw.nbytes, compression)
    return tuple(
        _smallest_frame(np.ascontiguousarray(raw[plane::itemsize]), encoders)
        for plane in range(itemsize)
    )


def _smallest_frame(plane: Array, encoders: Sequence[ZstdCompressionParameters]) -> bytes:
    frames = [ZstdCompressor(compression_params=one).compress(plane.data) for one in encoders]
    return min(frames, key=len)  # the first of equals: the order of encoders is fixed


def _encoders(nbytes: int, compression: Compression) -> list[ZstdCompressionParameters]:
    level = _LEVELS[compression]
    if nbytes <= _SMALL_CHUNK and compression is Compression.DEFAULT:
        level = _LEVELS[Compression.MAX]
    return [_FREQUENCIES, ZstdCompressionParameters.from_level(level, source_size=nbytes)]


def decode_chunk(frames: Sequence[bytes | memoryview], out: Array) -> None:
    """Decompress the planes of one chunk into ``out`` (uint8).

    Nothing larger than a plane of ``out`` is ever allocated.

    Raises:
        CorruptArchiveError: a frame is damaged or does not have the size that ``out`` asks for.
    """
    itemsize = len(frames)
    for plane, frame in enumerate(frames):
        data = decompress(frame, out.nbytes // itemsize)
        out[plane::itemsize] = np.frombuffer(data, np.uint8)


def decompress(frame: bytes | memoryview, size: int) -> bytes:
    """The ``size`` bytes that ``frame`` was made from.

    Raises:
        CorruptArchiveError: the frame is damaged or has another size.
    """
    try:
        # A frame says itself how much to allocate, so that is looked at first.
        if zstandard.get_frame_parameters(frame).content_size != size:
            raise corrupt("a compressed block has another size than declared")
        return ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except ZstdError as error:
        raise corrupt(f"a compressed block cannot be read ({error})") from error


def default_threads() -> int:
    """As many threads as there are processors, within reason."""
    return min(_MAX_THREADS, os.cpu_count() or 1)


def ordered_map(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int
) -> Iterator[_Out]:
    """``map`` on several threads: results in order, few items taken ahead of them."""
    if threads <= 1:
        yield from map(function, items)
        return
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and small blobs go without

    with ThreadPoolExecutor(threads, thread_name_prefix="popc-codec") as pool:
        pending: deque[Future[_Out]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
