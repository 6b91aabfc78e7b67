"""Compression of blobs: in chunks, with a chunk's bytes sorted by their place in the element.

Trained weights look random except for sign and exponent.  Sorted into planes (all first bytes, all
second bytes, ...) the exponents come together, and each plane is a zstd frame of its own.  Two
kinds of encoder compete for every plane: one that only codes frequencies, because chance matches
cost more than they save in a skewed but otherwise random plane, and one that looks for matches.

Chunks are independent: they are coded on several threads, the result does not depend on how many,
and no more than a few chunks are in memory at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum

from popc_runtime.format.serialization import corrupt
from popc_runtime.format.zstd import ZstdDecompressor, ZstdError, get_frame_parameters
from popc_runtime.ground.hints import Final

__all__ = [
    "CHUNK_BYTES",
    "ITEMSIZES",
    "Codec",
    "Compression",
    "decode_chunk",
    "decompress",
    "default_threads",
]

CHUNK_BYTES: Final = 1 << 20  # compressed by themselves, so that threads share a blob
ITEMSIZES: Final = (1, 2, 4, 8)  # in bytes; those of equal significance stand together
_MAX_THREADS: Final = 8  # a guess: each holds tables of some MiB


class Codec(StrEnum):
    """The form in which a blob lies in the file."""

    RAW = "raw"  # as it is, on a page boundary, so that it can be mapped
    ZSTD = "zstd"  # chunks of one frame
    ZSTD_SHUFFLE = "zstd-shuffle"  # chunks of one frame per byte of the element


class Compression(StrEnum):
    """The amount of time to spend on size."""

    FAST = "fast"
    DEFAULT = "default"
    MAX = "max"


def decode_chunk(
    frames: Sequence[bytes | memoryview], out: memoryview, spare: list[bytearray]
) -> None:
    """Decompress the planes of one chunk into ``out``: bytes.

    Nothing larger than a chunk is ever allocated.  ``spare`` holds memory for chunks, which is
    taken from there and put back: new memory takes the system longer than the chunk does.

    Raises:
        CorruptArchiveError: a frame is damaged or does not have the size that ``out`` asks for.
    """
    itemsize, size = len(frames), out.nbytes
    if itemsize == 1:
        out[:] = decompress(frames[0], size)
        return
    # The bytes of a bytearray are put apart several times as fast as those of a view.
    try:
        chunk = spare.pop()
    except IndexError:  # other threads may have taken the last
        chunk = bytearray(CHUNK_BYTES)
    for plane, frame in enumerate(frames):
        chunk[plane:size:itemsize] = decompress(frame, size // itemsize)
    out[:] = memoryview(chunk)[:size]
    spare.append(chunk)


def decompress(frame: bytes | memoryview, size: int) -> bytes:
    """The ``size`` bytes that ``frame`` was made from.

    Raises:
        CorruptArchiveError: the frame is damaged or has another size.
    """
    try:
        # A frame says itself how much to allocate, so that is looked at first.
        if get_frame_parameters(frame).content_size != size:
            raise corrupt("a compressed block does not have the declared size")
        return ZstdDecompressor().decompress(frame, allow_extra_data=False)
    except ZstdError as error:
        raise corrupt(f"a compressed block cannot be read ({error})") from error


def default_threads() -> int:
    """The number of threads to compress with: one for each processor, within reason."""
    return min(_MAX_THREADS, os.cpu_count() or 1)
