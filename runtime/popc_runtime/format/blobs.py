"""The table of blobs: where each lies in the file and how to check it."""

from __future__ import annotations

from enum import StrEnum

from popc_runtime.format.codec import CHUNK_BYTES, ITEMSIZES, Codec
from popc_runtime.format.header import DIGEST_SIZE, HEADER_SIZE
from popc_runtime.format.limits import Limits
from popc_runtime.format.serialization import Columns, Fields, Packable, corrupt, pack_column
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = ["RAW_ALIGNMENT", "BlobInfo", "BlobKind", "Chunk", "check_layout", "is_blob_name"]

_FIRST: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_REST: Final = _FIRST + "_.-"
_NAME_LENGTH: Final = 64  # characters
RAW_ALIGNMENT: Final = 4096  # pages begin here; what is only decompressed needs no alignment
_CHUNK_COLUMNS: Final = ("chunk_bytes", "chunk_frames", "frame_bytes")


class BlobKind(StrEnum):
    """The content of a blob."""

    PROGRAM = "program"
    WEIGHTS = "weights"
    MODEL = "model"  # the ONNX model without its variables, for exporting trained weights
    REPORT = "report"


@frozen
class Chunk:
    """A part of a blob: its size, and the sizes of the frames it is compressed to."""

    raw_bytes: int
    frames: tuple[int, ...]


@frozen
class BlobInfo:
    """One row of the blob table.

    ``kind`` is text because later formats may add kinds; a reader skips the blobs of a kind that
    it does not know unless they are ``required``.  ``sha256`` is that of the decompressed bytes:
    it names the content, whatever codec and version of zstd were used.
    """

    name: str
    kind: str
    codec: Codec
    offset: int
    stored_bytes: int
    raw_bytes: int
    sha256: bytes
    required: bool
    chunks: tuple[Chunk, ...] = ()

    @property
    def alignment(self) -> int:
        """The alignment of the offset in the file."""
        return RAW_ALIGNMENT if self.codec is Codec.RAW else 1

    @property
    def is_known(self) -> bool:
        """True if this version of the format defines the kind."""
        return self.kind in BlobKind.__members__.values()

    def to_dict(self) -> dict[str, Packable]:
        """The row as it is written to the manifest."""
        frames = [size for chunk in self.chunks for size in chunk.frames]
        return {
            "name": self.name,
            "kind": self.kind,
            "codec": self.codec.value,
            "offset": self.offset,
            "stored_bytes": self.stored_bytes,
            "raw_bytes": self.raw_bytes,
            "sha256": self.sha256,
            "required": self.required,
            "chunk_bytes": pack_column([chunk.raw_bytes for chunk in self.chunks]),
            "chunk_frames": pack_column([len(chunk.frames) for chunk in self.chunks]),
            "frame_bytes": pack_column(frames),
        }

    @classmethod
    def from_fields(cls, source: Fields, limits: Limits) -> BlobInfo:
        """Read a row, checking that its sizes agree with each other and with ``limits``.

        Raises:
            CorruptArchiveError: they do not.
        """
        name = source.text("name")
        info = cls(
            name=name,
            kind=source.text("kind"),
            codec=source.choice("codec", Codec),
            offset=source.integer("offset", low=HEADER_SIZE),
            stored_bytes=source.integer("stored_bytes"),
            raw_bytes=source.integer("raw_bytes", high=limits.blob_bytes),
            sha256=source.data("sha256"),
            required=source.flag("required"),
            chunks=_read_chunks(source),
        )
        problem = info._problem(limits)
        if problem:
            raise corrupt(f"blob {name!r:.80} {problem}")
        return info

    def is_too_dense(self, limits: Limits) -> bool:
        """True if the blob would become larger than one of its stored size may."""
        if self.codec is Codec.RAW:
            return False
        ratio, free = limits.ratio, limits.ratio_free_bytes
        if self.kind == BlobKind.PROGRAM:
            ratio, free = limits.program_ratio, limits.program_ratio_free_bytes
        return self.raw_bytes > max(free, ratio * self.stored_bytes)

    def _problem(self, limits: Limits) -> str:
        if not is_blob_name(self.name):
            return "has an invalid name"
        if len(self.sha256) != DIGEST_SIZE:
            return f"has a hash of {len(self.sha256)} bytes instead of {DIGEST_SIZE}"
        if self.offset % self.alignment:
            return f"is not aligned to {self.alignment}"
        if self.is_too_dense(limits):
            return f"would expand from {self.stored_bytes:,} to {self.raw_bytes:,} bytes"
        return self._chunk_problem()

    def _chunk_problem(self) -> str:
        if self.codec is Codec.RAW:
            plain = not self.chunks and self.raw_bytes == self.stored_bytes
            return "" if plain else "is stored raw, but not in as many bytes as it has"
        widths = ITEMSIZES if self.codec is Codec.ZSTD_SHUFFLE else (1,)
        for chunk in self.chunks:
            width = len(chunk.frames)
            if width not in widths or not 0 < chunk.raw_bytes <= CHUNK_BYTES:
                return f"has a chunk of {chunk.raw_bytes:,} bytes in {width} frames"
            if chunk.raw_bytes % width:
                return f"has a chunk of {chunk.raw_bytes:,} bytes, not a multiple of {width}"
        if sum(chunk.raw_bytes for chunk in self.chunks) != self.raw_bytes:
            return "has chunks that do not add up to its size"
        if sum(size for chunk in self.chunks for size in chunk.frames) != self.stored_bytes:
            return "has frames that do not add up to its stored size"
        return ""


def is_blob_name(name: str) -> bool:
    """True if a blob may have this name."""
    # Patterns take longer to compile than all names to check.
    return 0 < len(name) <= _NAME_LENGTH and name[0] in _FIRST and not name.strip(_REST)


def _read_chunks(source: Fields) -> tuple[Chunk, ...]:
    columns = Columns(source, _CHUNK_COLUMNS, "the chunk table")
    chunks = tuple(
        Chunk(size, tuple(columns.take("frame_bytes", width)))
        for size, width in columns.rows("chunk_bytes", "chunk_frames")
    )
    columns.finish()
    if any(size < 0 for chunk in chunks for size in chunk.frames):
        raise corrupt("a chunk table has a frame of negative size")
    return chunks


def check_layout(blobs: tuple[BlobInfo, ...], end: int, limits: Limits) -> tuple[range, ...]:
    """Check that blobs fill the file up to ``end`` without overlap; the gaps that alignment left.

    Raises:
        CorruptArchiveError: they overlap, leave larger gaps, or are too many or too large.
    """
    if len(blobs) > limits.blobs:
        raise corrupt(f"it has {len(blobs):,} blobs, more than the limit of {limits.blobs:,}")
    if len({blob.name for blob in blobs}) != len(blobs):
        raise corrupt("two blobs have the same name")
    if sum(blob.raw_bytes for blob in blobs) > limits.total_bytes:
        raise corrupt(f"it needs more than the limit of {limits.total_bytes:,} bytes of memory")
    position = HEADER_SIZE
    gaps: list[range] = []
    for blob in sorted(blobs, key=lambda info: (info.offset, info.stored_bytes)):
        if not 0 <= blob.offset - position < blob.alignment:
            raise corrupt(f"blob {blob.name!r} does not follow the one before it")
        gaps.append(range(position, blob.offset))
        position = blob.offset + blob.stored_bytes
    if position != end:
        raise corrupt("its blobs do not end where the manifest begins")
    return tuple(gap for gap in gaps if gap)
