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

import zstandard
from zstandard import ZstdDecompressor, ZstdError

from popc_runtime.format.packing import corrupt

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = [
    "CHUNK_BYTES",
    "ITEMSIZES",
    "Codec",
    "Compression",
    "decode_chunk",
    "decompress",
    "default_threads",
    "ordered_map",
]

CHUNK_BYTES: Final = 1 << 20
ITEMSIZES: Final = (1, 2, 4, 8)
_MAX_THREADS: Final = 8
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


def decode_chunk(frames: Sequence[bytes | memoryview], out: memoryview) -> None:
    """Decompress the planes of one chunk into ``out``: bytes.

    Nothing larger than a plane of ``out`` is ever allocated.

    Raises:
        CorruptArchiveError: a frame is damaged or does not have the size that ``out`` asks for.
    """
    itemsize = len(frames)
    for plane, frame in enumerate(frames):
        data = decompress(frame, out.nbytes // itemsize)
        out[plane::itemsize] = data


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
