"""Writing archives: canonical bytes, whole files or none.

What the file contains depends on the manifest, the blobs, the compression and the version of zstd
(which is recorded), and on nothing else: neither on the number of threads nor on path or time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence, Sized
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

import numpy as np
import zstandard

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format.blobs import RAW_ALIGNMENT, BlobInfo, BlobKind, Chunk, is_blob_name
from popc_runtime.format.codec import CHUNK_BYTES, Codec, Compression, default_threads
from popc_runtime.format.compress import (
    ChunkPlan,
    Extent,
    encode_chunk,
    encode_manifest,
    plan_chunks,
)
from popc_runtime.format.digests import sha256
from popc_runtime.format.dtypes import Array
from popc_runtime.format.header import FORMAT_VERSION, HEADER_SIZE, Header
from popc_runtime.format.limits import DEFAULT_LIMITS
from popc_runtime.format.manifest import SCHEMA_HASH, Manifest
from popc_runtime.format.panels import Panels
from popc_runtime.format.serialization import Packable, pack, unpack
from popc_runtime.format.workers import ordered_map
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.process.files import new_file, refuse_to_replace
from popc_runtime.process.paths import usable_path

__all__ = ["Blob", "KnownSizes", "Piece", "measure_archive", "write_archive"]

_Encoded: TypeAlias = "tuple[ChunkPlan, Sequence[bytes | memoryview]]"
# Compressed sizes of what has been compressed before, by the hash of the content and how.
KnownSizes: TypeAlias = "MutableMapping[tuple[bytes, int, Compression], tuple[int, ...]]"


@frozen
class Piece:
    """An array at an offset of a blob; stored little-endian and C-contiguous, or in panels."""

    offset: int
    array: Array | Panels


@frozen
class Blob:
    """A blob to write: ``size`` bytes, zero except for the pieces.

    The pieces are in order and do not overlap.  They are read chunk by chunk, so that weights are
    never copied as a whole.  ``oldest_reader`` is the first minor version of the format whose
    readers understand the content.
    """

    name: str
    kind: BlobKind
    codec: Codec
    size: int
    pieces: tuple[Piece, ...]
    required: bool = True
    oldest_reader: int = 0

    @classmethod
    def of_bytes(
        cls,
        name: str,
        kind: BlobKind,
        data: bytes,
        *,
        required: bool = True,
        oldest_reader: int = 0,
    ) -> Blob:
        """A compressed blob of ``data``."""
        piece = Piece(0, np.frombuffer(data, np.uint8))
        return cls(name, kind, Codec.ZSTD, len(data), (piece,), required, oldest_reader)


def write_archive(
    path: str | os.PathLike[str],
    manifest: Manifest,
    blobs: Sequence[Blob],
    *,
    force: bool = False,
    compression: Compression = Compression.DEFAULT,
    threads: int | None = None,
    on_bytes: Callable[[int, int], None] | None = None,
) -> None:
    """Write an archive to ``path``: all of it, or, whatever happens, nothing.

    Args:
        path: Its folder must exist.
        manifest: Its format version and schema hash are set to those of this package.
        blobs: In the order in which they are to lie in the file.
        force: Replace a file that exists.
        compression: How much time to spend on size.
        threads: How many threads compress; as many as there are processors if not given.
        on_bytes: Told how many of how many bytes are stored.

    Raises:
        ResourceError: the file exists, or the file system refuses or is full.
        ValueError: the manifest contradicts itself, or pieces of a blob overlap.
    """
    target = Path(usable_path(path))
    manifest = replace(manifest, format_version=FORMAT_VERSION, schema_hash=SCHEMA_HASH)
    _check(manifest, blobs)
    refuse_to_replace(target, force=force)
    with new_file(target) as file:
        writer = _Writer(file, compression, threads or default_threads(), on_bytes)
        writer.write(manifest, blobs)


def encode_archive(
    manifest: Manifest, blobs: Sequence[Blob], compression: Compression = Compression.DEFAULT
) -> bytes:
    """The bytes of the file that `write_archive` would write.

    Raises:
        ValueError: see `write_archive`.
    """
    manifest = replace(manifest, format_version=FORMAT_VERSION, schema_hash=SCHEMA_HASH)
    _check(manifest, blobs)
    file = BytesIO()
    _Writer(file, compression, default_threads()).write(manifest, blobs)
    return file.getvalue()


def measure_archive(
    manifest: Manifest, blobs: Sequence[Blob], compression: Compression, known: KnownSizes
) -> int:
    """The size of the file that `write_archive` would write; nothing is written.

    ``known`` saves compressing equal weights of other archives once more; it is added to.
    """
    manifest = replace(manifest, format_version=FORMAT_VERSION, schema_hash=SCHEMA_HASH)
    _check(manifest, blobs)
    scale = _Scale()
    _Measurer(scale, compression, known).write(manifest, blobs)
    return scale.bytes


def _check(manifest: Manifest, blobs: Sequence[Blob]) -> None:
    problem = manifest.problem()
    if problem:
        raise ValueError(f"the manifest cannot be written: {problem}")
    if len({blob.name for blob in blobs}) != len(blobs):
        raise ValueError("two blobs have the same name")
    for blob in blobs:
        ends = [0, *(piece.offset + piece.array.nbytes for piece in blob.pieces)]
        starts = [*(piece.offset for piece in blob.pieces), blob.size]
        if any(end > start for end, start in zip(ends, starts, strict=True)):
            raise ValueError(f"pieces of blob {blob.name!r} overlap or lie outside of it")
        if not is_blob_name(blob.name):
            raise ValueError(f"{blob.name!r} is not a valid name for a blob")


def _check_readable(raw: bytes) -> None:
    """Read the manifest as readers do, so that none is written that they would refuse."""
    if len(raw) > DEFAULT_LIMITS.manifest_bytes:
        raise ValueError(f"a manifest of {len(raw):,} bytes is larger than readers accept")
    try:
        Manifest.from_fields(unpack(raw, "the manifest", DEFAULT_LIMITS))
    except CorruptArchiveError as error:
        raise ValueError(f"readers would not accept the manifest: {error.message}") from error


class _Writer:
    """Writes blobs behind each other, then the manifest, then the header in front."""

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression,
        threads: int,
        on_bytes: Callable[[int, int], None] | None = None,
    ) -> None:
        self._file = file
        self._compression = compression
        self._threads = threads
        self._on_bytes = on_bytes
        self._done = self._total = 0

    def write(self, manifest: Manifest, blobs: Sequence[Blob]) -> None:
        self._file.write(bytes(HEADER_SIZE))
        self._total = sum(blob.size for blob in blobs)
        rows = [self._write_blob(blob).to_dict() for blob in blobs]
        fields: dict[str, Packable] = {
            **manifest.to_dict(),
            "blobs": rows,
            "zstd_version": ".".join(map(str, zstandard.ZSTD_VERSION)),
        }
        raw = pack(fields)
        _check_readable(raw)
        stored = encode_manifest(raw, self._compression)
        header = Header(
            manifest_offset=self._file.tell(),
            manifest_stored_bytes=len(stored),
            manifest_raw_bytes=len(raw),
            built_by=f"popc {manifest.compiler_version}",
            oldest_reader=max((blob.oldest_reader for blob in blobs), default=0),
        ).pack()
        self._file.write(stored + sha256(header + stored).digest())
        self._file.seek(0)
        self._file.write(header)

    def _write_blob(self, blob: Blob) -> BlobInfo:
        start = self._file.tell()
        info = self._write_encoded(blob)
        if not info.is_too_dense(DEFAULT_LIMITS):
            return info
        self._file.seek(start)  # what readers would take for a bomb, they get as it is
        self._file.truncate()
        return self._write_encoded(replace(blob, codec=Codec.RAW))

    def _write_encoded(self, blob: Blob) -> BlobInfo:
        if blob.codec is Codec.RAW:
            self._file.write(bytes(-self._file.tell() % RAW_ALIGNMENT))
        offset = self._file.tell()
        digest = sha256(size=blob.size)
        chunks: list[Chunk] = []
        for chunk, frames in self._encoded(blob, digest.update):
            if blob.codec is not Codec.RAW:
                sizes = tuple(len(frame) for frame in frames)
                chunks.append(Chunk(chunk.stop - chunk.start, sizes))
            self._file.writelines(frames)
            self._done += chunk.stop - chunk.start
            if self._on_bytes is not None:
                self._on_bytes(self._done, self._total)
        return BlobInfo(
            name=blob.name,
            kind=blob.kind.value,
            codec=blob.codec,
            offset=offset,
            stored_bytes=self._file.tell() - offset,
            raw_bytes=blob.size,
            sha256=digest.digest(),
            required=blob.required,
            chunks=tuple(chunks),
        )

    def _encoded(self, blob: Blob, inspect: Callable[[memoryview], None]) -> Iterator[_Encoded]:
        """Each chunk of ``blob`` with its frames; ``inspect`` sees all uncompressed bytes."""
        encode = partial(_encode, codec=blob.codec, compression=self._compression)
        threads = self._threads if blob.size > CHUNK_BYTES else 1
        yield from ordered_map(encode, _gathered(blob, inspect), threads)


class _Scale:
    """Stands for a file, and counts what is written."""

    def __init__(self) -> None:
        self.bytes = 0
        self._at = 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int) -> None:
        self._at = offset

    def truncate(self) -> None:
        self.bytes = self._at

    def write(self, data: Sized) -> None:
        self._at += len(data)
        self.bytes = max(self.bytes, self._at)

    def writelines(self, lines: Iterable[Sized]) -> None:
        for line in lines:
            self.write(line)


class _Measurer(_Writer):
    """A writer to whom compressed data is nothing but a size."""

    def __init__(self, scale: _Scale, compression: Compression, known: KnownSizes) -> None:
        super().__init__(cast("BinaryIO", scale), compression, default_threads())
        self._known = known

    def _encoded(self, blob: Blob, inspect: Callable[[memoryview], None]) -> Iterator[_Encoded]:
        encode = partial(self._sizes, codec=blob.codec)
        threads = self._threads if blob.size > CHUNK_BYTES else 1
        for plan, sizes in ordered_map(encode, _gathered(blob, inspect), threads):
            yield plan, cast("Sequence[bytes]", [range(size) for size in sizes])

    def _sizes(
        self, item: tuple[ChunkPlan, Array], *, codec: Codec
    ) -> tuple[ChunkPlan, tuple[int, ...]]:
        plan, raw = item
        if codec is Codec.RAW:
            return plan, (raw.nbytes,)
        key = (sha256(raw.data).digest(), plan.itemsize, self._compression)
        if key not in self._known:
            frames = encode_chunk(raw, plan.itemsize, self._compression)
            self._known[key] = tuple(len(frame) for frame in frames)
        return plan, self._known[key]


def _encode(item: tuple[ChunkPlan, Array], *, codec: Codec, compression: Compression) -> _Encoded:
    plan, raw = item
    if codec is Codec.RAW:
        return plan, (raw.data,)
    return plan, encode_chunk(raw, plan.itemsize, compression)


def _gathered(
    blob: Blob, inspect: Callable[[memoryview], None]
) -> Iterator[tuple[ChunkPlan, Array]]:
    """The chunks of ``blob`` as bytes, one after another."""
    extents = [
        Extent(piece.offset, piece.array.nbytes, piece.array.itemsize) for piece in blob.pieces
    ]
    shuffled = blob.codec is Codec.ZSTD_SHUFFLE
    pieces = iter([*blob.pieces, Piece(blob.size, np.empty(0, np.uint8))])
    piece, data = next(pieces), None
    for plan in plan_chunks(blob.size, extents if shuffled else ()):
        raw: Array | None = None
        while piece.offset < plan.stop:
            data = _as_bytes(piece.array) if data is None else data
            start, end = plan.start - piece.offset, plan.stop - piece.offset
            if raw is None and start >= 0 and end <= data.nbytes:  # most of many weights: no copy
                raw = _part(data, start, end)
            else:
                raw = np.zeros(plan.stop - plan.start, np.uint8) if raw is None else raw
                _copy_overlap(raw, plan.start, data, piece.offset)
            if end < data.nbytes:
                break
            piece, data = next(pieces), None
        raw = np.zeros(plan.stop - plan.start, np.uint8) if raw is None else raw
        inspect(raw.data)
        yield plan, raw


def _as_bytes(array: Array | Panels) -> Array | Panels:
    if isinstance(array, Panels):
        return array
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8)


def _part(data: Array | Panels, start: int, stop: int) -> Array:
    """The bytes of ``data`` from ``start`` to ``stop``."""
    return data.bytes_between(start, stop) if isinstance(data, Panels) else data[start:stop]


def _copy_overlap(
    target: Array, target_start: int, source: Array | Panels, source_start: int
) -> None:
    """Copy what two ranges of the blob have in common."""
    start = max(target_start, source_start)
    stop = min(target_start + target.nbytes, source_start + source.nbytes)
    part = _part(source, start - source_start, stop - source_start)
    target[start - target_start : stop - target_start] = part
