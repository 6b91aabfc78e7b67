"""Reading archives: believe nothing before it is checked, load nothing before it is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format.blobs import BlobInfo, BlobKind, check_layout
from popc_runtime.format.buffers import aligned_bytes
from popc_runtime.format.codec import CHUNK_BYTES, Codec, decode_chunk, decompress, default_threads
from popc_runtime.format.digests import FEW_BYTES, sha256
from popc_runtime.format.header import DIGEST_SIZE, FORMAT_VERSION, HEADER_SIZE, Header
from popc_runtime.format.limits import DEFAULT_LIMITS, Limits
from popc_runtime.format.manifest import SCHEMA_HASH, Manifest
from popc_runtime.format.mapped import Unchanged
from popc_runtime.format.serialization import Fields, corrupt, unpack
from popc_runtime.format.sources import ArchiveSource, BlobSource, open_source
from popc_runtime.format.workers import begin_call, ordered_map
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final, Self

__all__ = ["ArchiveFile", "PendingBlob", "probe"]

# Up to here, threads would wait for each other's turns at the interpreter for too long.
_ALONE_BYTES: Final = 16 * CHUNK_BYTES


class ArchiveFile:
    """An open archive: header and manifest are checked, blobs are read on demand.

    Methods may be called from several threads.  Close it, or use it in a ``with`` statement;
    mapped blobs stay valid after that.

    Attributes:
        header: The header.
        manifest: The manifest.
        digest: The hash of header and manifest, and so of all that is in the file.
        zstd_version: The library that compressed the blobs.
        blobs: The blob table by name, in the order of the file.
    """

    def __init__(self, source: BlobSource, limits: Limits = DEFAULT_LIMITS) -> None:
        self._source = source
        self.header = Header.parse(source.read(0, min(HEADER_SIZE, source.size)))
        fields = _read_manifest(source, self.header, limits)
        self.digest = source.read(source.size - DIGEST_SIZE, DIGEST_SIZE)
        schema = fields.text("schema_hash")
        if self.header.version == FORMAT_VERSION and schema != SCHEMA_HASH:
            raise self.header.incompatible("was written by a build with another layout")
        self.manifest = Manifest.from_fields(fields)
        if self.manifest.format_version != self.header.version:
            raise corrupt("its header and its manifest disagree about the format")
        self.zstd_version = fields.text("zstd_version")
        self.blobs: Mapping[str, BlobInfo] = MappingProxyType(
            _read_table(source, self.header, fields, limits)
        )

    @classmethod
    def open(cls, source: ArchiveSource, *, limits: Limits = DEFAULT_LIMITS) -> Self:
        """Open a file, or an archive that is in memory already.

        Raises:
            UsageError: ``source`` is nothing that could be an archive.
            ArchiveError: this is no archive.
            CorruptArchiveError: it is damaged, or larger than ``limits``.
            IncompatibleArchiveError: it needs another version of the runtime.
            ResourceError: the file cannot be read.
        """
        opened = open_source(source)
        try:
            return cls(opened, limits)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def info(self, name: str) -> BlobInfo:
        """The row of a blob that has to be there.

        Raises:
            CorruptArchiveError: it is not.
        """
        if name not in self.blobs:
            raise corrupt(f"it has no blob {name!r}")
        return self.blobs[name]

    def read(self, name: str) -> bytes:
        """The bytes of a blob.

        Raises:
            CorruptArchiveError: the blob is missing or damaged.
            ResourceError: the file cannot be read, or there is not enough memory.
        """
        return self.load(name).tobytes()

    def load(self, name: str, *, threads: int | None = None) -> memoryview:
        """A blob as read-only bytes, aligned for any element type.

        Raises:
            CorruptArchiveError: the blob is missing or damaged.
            ResourceError: the file cannot be read, or there is not enough memory.
        """
        out = aligned_bytes(self.info(name).raw_bytes, at_once=True)
        self.load_into(name, out, threads=threads)
        return out.toreadonly()

    def begin(
        self,
        name: str,
        digest: Callable[[memoryview], bytes] | None = None,
        *,
        copies: bool = False,
    ) -> PendingBlob:
        """A blob whose hash is compared while it is used: mapped if it is raw, else decompressed.

        It begins on a page: of bytes that were opened, which lie anywhere, a raw blob is copied; so
        is that of a file if it ``copies``.

        ``digest`` gives the SHA-256 of many bytes, if there is something better than hashlib.

        Raises:
            CorruptArchiveError: the blob is missing, or what can be seen at once is damaged.
            ResourceError: the file cannot be read or mapped, or there is not enough memory.
        """
        info = self.info(name)
        if info.codec is Codec.RAW and self._source.begins_on_a_page and not copies:
            unchanged = self._source.unchanged(info.offset + info.stored_bytes)
            return PendingBlob(info, self.map(name, verify=False), digest, unchanged)
        out = aligned_bytes(info.raw_bytes, at_once=True)
        for _ in self._decoded(info, out, None):
            pass
        return PendingBlob(info, out.toreadonly(), digest)

    def verify(self) -> None:
        """Compare the hashes of all blobs.

        Raises:
            CorruptArchiveError: a blob is damaged.
            ResourceError: the file cannot be read, or there is not enough memory.
        """
        for name in self.blobs:
            self.load(name)

    def load_into(self, name: str, out: memoryview, *, threads: int | None = None) -> None:
        """Decompress a blob into ``out``: contiguous bytes of its size.

        Raises:
            CorruptArchiveError: the blob is missing or damaged; ``out`` then holds rubbish.
            ResourceError: the file cannot be read.
            ValueError: ``out`` has another size or type.
        """
        info = self.info(name)
        if out.format != "B" or out.shape != (info.raw_bytes,) or not out.c_contiguous:
            raise ValueError(f"blob {name!r} needs {info.raw_bytes} contiguous bytes")
        _check_content(info, self._decoded(info, out, threads))

    def map(self, name: str, *, verify: bool = True) -> memoryview:
        """A raw blob as a read-only view of the file, or of the bytes that were opened.

        Pages are read when they are touched; with ``verify`` that is at once.  The file must not
        be changed while the view exists.

        Raises:
            CorruptArchiveError: the blob is missing, compressed or damaged.
            ResourceError: the file cannot be mapped.
        """
        info = self.info(name)
        if info.codec is not Codec.RAW:
            raise corrupt(f"blob {name!r} is compressed and cannot be mapped")
        view = self._source.view()[info.offset : info.offset + info.stored_bytes]
        if len(view) != info.stored_bytes:
            raise corrupt(f"the file was cut off in blob {name!r}")
        if verify:
            _check_content(info, (view[part.start : part.stop] for part in _parts(info)))
        return view

    def _decoded(
        self, info: BlobInfo, out: memoryview, threads: int | None
    ) -> Iterator[memoryview]:
        """Fill ``out``, and give each range of it that has been."""
        count = 1 if info.raw_bytes <= _ALONE_BYTES else threads or default_threads()
        return ordered_map(partial(self._decode, out, []), _parts(info), count)

    def _decode(self, out: memoryview, spare: list[bytearray], part: _Part) -> memoryview:
        """Fill the range of ``out`` that is ``part``; that range."""
        target = out[part.start : part.stop]
        stored = memoryview(self._source.read(part.offset, sum(part.sizes)))
        if not part.is_compressed:
            target[:] = stored
            return target
        frames: list[memoryview] = []
        for size in part.sizes:
            frames.append(stored[:size])
            stored = stored[size:]
        decode_chunk(frames, target, spare)
        return target


class PendingBlob:
    """A blob that may be used before its hash has been compared, on another thread meanwhile.

    In a ``with`` statement; at its end the hash has been compared, whatever has happened in it.

    Attributes:
        data: Read-only bytes.
        guard: Checks that they are still the same, before each run; ``None`` if nobody else can
            change them.
    """

    def __init__(
        self,
        info: BlobInfo,
        data: memoryview,
        digest: Callable[[memoryview], bytes] | None = None,
        unchanged: Unchanged | None = None,
    ) -> None:
        self.data = data
        self.guard = None if unchanged is None else partial(unchanged, self._is_damaged)
        self._info = info
        self._digest: Callable[[], bytes] | None = None
        if info.raw_bytes > FEW_BYTES:
            self._digest = begin_call(digest or _digest, data)

    def verify(self) -> None:
        """Wait until the hash has been compared.

        Raises:
            CorruptArchiveError: the blob is damaged.
        """
        digest = _digest(self.data) if self._digest is None else self._digest()
        if digest != self._info.sha256:
            raise _damaged(self._info)

    def _is_damaged(self) -> bool:
        return _digest(self.data) != self._info.sha256

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):  # of what damaged bytes may have led to
            self.verify()


def _digest(data: memoryview) -> bytes:
    digest: bytes = sha256(data).digest()
    return digest


def probe(source: ArchiveSource) -> Manifest:
    """An archive's own description; of a file, reads header and manifest only.

    Raises:
        UsageError: ``source`` is nothing that could be an archive.
        ArchiveError: it cannot be loaded by this runtime, and why.
        ResourceError: the file cannot be read.
    """
    with ArchiveFile.open(source) as archive:
        return archive.manifest


@frozen
class _Part:
    """A range of a blob, where it lies in the file, and the sizes of its pieces there."""

    start: int
    stop: int
    offset: int
    sizes: tuple[int, ...]
    is_compressed: bool


def _parts(info: BlobInfo) -> Iterator[_Part]:
    """The chunks of a blob, or steps of a similar size through a raw one."""
    if info.codec is Codec.RAW:
        for start in range(0, info.raw_bytes, CHUNK_BYTES):
            stop = min(start + CHUNK_BYTES, info.raw_bytes)
            yield _Part(start, stop, info.offset + start, (stop - start,), is_compressed=False)
        return
    start, offset = 0, info.offset
    for chunk in info.chunks:
        stop = start + chunk.raw_bytes
        yield _Part(start, stop, offset, chunk.frames, is_compressed=True)
        start, offset = stop, offset + sum(chunk.frames)


def _check_content(info: BlobInfo, parts: Iterable[memoryview]) -> None:
    """Compare the hash of a blob, fed part by part."""
    digest = sha256(size=info.raw_bytes)
    for part in parts:
        digest.update(part)
    if digest.digest() != info.sha256:
        raise _damaged(info)


def _damaged(info: BlobInfo) -> CorruptArchiveError:
    return corrupt(f"the contents of blob {info.name!r} do not match their hash")


def _read_manifest(source: BlobSource, header: Header, limits: Limits) -> Fields:
    """Check size and hash of the manifest, then decompress and unpack it."""
    start, stored_bytes = header.manifest_offset, header.manifest_stored_bytes
    end = start + stored_bytes + DIGEST_SIZE
    if start < HEADER_SIZE or source.size < end:
        raise corrupt(f"it ends after {source.size:,} of {end:,} bytes")
    if source.size > end:
        raise corrupt(f"{source.size - end:,} bytes follow its end")
    if max(header.manifest_raw_bytes, stored_bytes) > limits.manifest_bytes:
        raise corrupt(f"its manifest is larger than {limits.manifest_bytes:,} bytes")
    most = max(limits.manifest_ratio * stored_bytes, limits.manifest_ratio_free_bytes)
    if header.manifest_raw_bytes > most:
        raise corrupt(
            f"its manifest would expand from {stored_bytes:,} bytes to more than {most:,}"
        )
    stored = source.read(start, stored_bytes)
    digest = sha256(source.read(0, HEADER_SIZE) + stored).digest()
    if source.read(start + stored_bytes, DIGEST_SIZE) != digest:
        raise corrupt("its header or manifest was changed after it was written")
    return unpack(decompress(stored, header.manifest_raw_bytes), "the manifest", limits)


def _read_table(
    source: BlobSource, header: Header, fields: Fields, limits: Limits
) -> dict[str, BlobInfo]:
    """The blob table, checked against the layout of the file and the kinds that are known."""
    rows = fields.items("blobs", partial(BlobInfo.from_fields, limits=limits))
    for gap in check_layout(rows, header.manifest_offset, limits):
        if any(source.read(gap.start, len(gap))):
            raise corrupt("it has data between its blobs")
    for row in rows:
        if row.required and not row.is_known:
            raise header.incompatible(f"has a required blob of kind {row.kind!r:.40}")
        if row.kind == BlobKind.PROGRAM and row.raw_bytes > limits.program_bytes:
            raise corrupt(f"its program is larger than {limits.program_bytes:,} bytes")
    return {row.name: row for row in sorted(rows, key=lambda row: row.offset)}
