"""Writing blobs: which chunks they are cut into, and how each is compressed (see `codec`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from zstandard import ZstdCompressionParameters, ZstdCompressor

from popc_runtime.format.codec import CHUNK_BYTES, ITEMSIZES, Compression
from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["ChunkPlan", "Extent", "encode_chunk", "encode_manifest", "plan_chunks"]

# Bytes of chunks that are compressed more than others by default.  It takes milliseconds (256 KiB
# of text 50 in place of 40) and gains little or much: 1 % of a program, half of a list of words.
# What is compressed as much as can be takes half as long again, for 0.2 %.
_SMALL_CHUNK: Final = 256 << 10
_SMALL_LEVEL: Final = 17
_MINOR_BYTES: Final = 4 << 10  # of an array that shares a chunk, and its statistics
# Of large planes where matches are found, by default: 15 takes two and a half times as long, for up
# to 0.06 % of trained models, and 6 % of one whose weights repeat a block of noise.
_LARGE_LEVEL: Final = 9
_LEVELS: Final = {Compression.FAST: 1, Compression.DEFAULT: 15, Compression.MAX: 19}
# Matches of seven bytes, looked up in a table of 64 entries: next to none are found.
_FREQUENCIES: Final = ZstdCompressionParameters(
    window_log=20, hash_log=6, chain_log=6, search_log=1, min_match=7, strategy=1
)
# Tells at hundreds of MB/s whether matches are worth anything: rarely in planes of floats, where
# a search that finds none goes through 10 MB/s.  Archives of trained models are 0 to 0.3 %
# larger than with a search of all planes, and made in a tenth to a third of the time.
_TRIAL: Final = 3
_NOISE: Final = 0.95  # is what takes at least that share of its bytes


@frozen
class Extent:
    """The place of an array in a blob, and the width of its elements."""

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
    planes = [np.ascontiguousarray(raw[plane::itemsize]) for plane in range(itemsize)]
    frequencies = ZstdCompressor(compression_params=_FREQUENCIES)
    frames = [frequencies.compress(plane.data) for plane in planes]
    level: int = _LEVELS[compression]
    searched: Iterable[int] = range(itemsize)
    if compression is Compression.DEFAULT:
        level = _SMALL_LEVEL if raw.nbytes <= _SMALL_CHUNK else _LARGE_LEVEL
        searched = [*_promising(planes, frames, _of_level(_TRIAL, raw.nbytes))]
    search = _of_level(level, raw.nbytes)
    for plane in searched:
        found = search.compress(planes[plane].data)
        frames[plane] = min(frames[plane], found, key=len)  # the first of equals
    return tuple(frames)


def encode_manifest(raw: bytes, compression: Compression) -> bytes:
    """One frame of a manifest, which is long where a program has thousands of inputs."""
    return ZstdCompressor(level=_LEVELS[compression]).compress(raw)


def _of_level(level: int, nbytes: int) -> ZstdCompressor:
    parameters = ZstdCompressionParameters.from_level(level, source_size=nbytes)
    return ZstdCompressor(compression_params=parameters)


def _promising(
    planes: Sequence[Array], frames: Sequence[bytes], trial: ZstdCompressor
) -> Iterator[int]:
    """The planes where a trial finds matches.

    In the last one, which holds the exponents of floats, it takes five times as long as in the
    others together.  Elements that are repeated are so in all planes: it is left out if the others
    are noise.
    """
    last = len(planes) - 1
    smallest = 0
    for number, plane in enumerate(planes):
        if number == last and smallest > _NOISE * last * plane.nbytes:
            return
        size = len(trial.compress(plane.data))
        if size < len(frames[number]):
            yield number
        smallest += min(size, len(frames[number]))
