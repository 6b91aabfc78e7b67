"""Whatever happens to an archive: it is refused in words, or its contents are the same."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import (
    ArchiveError,
    CorruptArchiveError,
    IncompatibleArchiveError,
    UsageError,
)
from popc_runtime.format import (
    DEFAULT_LIMITS,
    STRICT_LIMITS,
    ArchiveFile,
    Blob,
    BlobKind,
    Codec,
    Limits,
    decode_program,
)
from tests.format.samples import (
    archive_bytes,
    change,
    flat_bytes,
    manifest_of,
    reseal,
    sample_blobs,
    sample_manifest,
)

_BLOBS: Final = {codec: sample_blobs(codec, 9000) for codec in Codec}
_ARCHIVES: Final = {codec: archive_bytes(blobs) for codec, blobs in _BLOBS.items()}
_ARCHIVE: Final = _ARCHIVES[Codec.ZSTD_SHUFFLE]
_MANIFEST: Final = manifest_of(_ARCHIVE)
# One MiB chunk with its planes, the manifest, and what msgpack reserves at each of its levels.
_MEMORY: Final = 48 << 20


@contextmanager
def bounded(memory: int = _MEMORY) -> Iterator[None]:
    """Check that the block does not take much memory."""
    tracemalloc.start()
    try:
        yield
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < memory


def _check(data: bytes, codec: Codec) -> None:
    """Open ``data`` and read everything: an ArchiveError, or what was written."""
    try:
        archive = ArchiveFile.open(data)
        contents = {name: archive.read(name) for name in archive.blobs}
        decode_program(contents["program"])
    except ArchiveError:
        return
    assert archive.manifest == sample_manifest()
    assert contents == {blob.name: flat_bytes(blob) for blob in _BLOBS[codec]}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(Codec), st.data())
def test_flipped_bits(codec: Codec, data: st.DataObject) -> None:
    archive = bytearray(_ARCHIVES[codec])
    for bit in data.draw(st.lists(st.integers(0, 8 * len(archive) - 1), min_size=1, max_size=3)):
        archive[bit // 8] ^= 1 << bit % 8
    _check(bytes(archive), codec)


def test_every_byte_of_header_and_trailer_is_covered() -> None:
    ends = [*range(64), *range(len(_ARCHIVE) - 64, len(_ARCHIVE))]
    for position in ends:
        spoiled = bytearray(_ARCHIVE)
        spoiled[position] ^= 0x10
        with pytest.raises(ArchiveError):
            ArchiveFile.open(bytes(spoiled))


@settings(deadline=None)
@given(st.sampled_from(Codec), st.data())
def test_truncated(codec: Codec, data: st.DataObject) -> None:
    archive = _ARCHIVES[codec]
    size = data.draw(st.integers(0, len(archive) - 1))
    with pytest.raises(CorruptArchiveError):
        ArchiveFile.open(archive[:size])


@settings(deadline=None)
@given(st.sampled_from(Codec), st.data())
def test_spliced(codec: Codec, data: st.DataObject) -> None:
    """Ranges that are cut out, repeated, moved or replaced."""
    archive = _ARCHIVES[codec]
    positions = st.integers(0, len(archive))
    first, second, third = sorted(data.draw(st.tuples(positions, positions, positions)))
    insert = data.draw(st.one_of(st.binary(max_size=100), st.just(archive[second:third])))
    _check(archive[:first] + insert + archive[second:], codec)


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=100))
def test_trailing_garbage(garbage: bytes) -> None:
    with pytest.raises(CorruptArchiveError, match=f"{len(garbage)} bytes follow its end"):
        ArchiveFile.open(_ARCHIVE + garbage)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_random_manifests(raw: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        ArchiveFile.open(reseal(_ARCHIVE, raw))


# -- forgeries: the hashes fit, the contents do not ------------------------------------------------


def _paths(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    yield path
    nested: Any = ()
    if isinstance(value, dict):
        nested = value.items()
    elif isinstance(value, list):
        nested = enumerate(value)
    for key, item in nested:
        yield from _paths(item, (*path, key))


_PATHS: Final = list(_paths(_MANIFEST))
_JUNK: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=40),
    st.lists(st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(_PATHS), _JUNK)
def test_any_field_may_lie(path: tuple[object, ...], junk: object) -> None:
    forged = reseal(_ARCHIVE, change(_MANIFEST, path, lambda _: junk))
    try:
        archive = ArchiveFile.open(forged)
        for name in archive.blobs:
            archive.read(name)
    except ArchiveError:
        return
    # What cannot be noticed is another name, shape or option; the blobs are what they were.
    assert {info.sha256 for info in archive.blobs.values()} <= {
        info["sha256"] for info in _MANIFEST["blobs"]
    }


def _weights(**fields: object) -> dict[str, Any]:
    """The manifest with changed fields in the row of the weights."""
    forged: dict[str, Any] = change(_MANIFEST, ["blobs", 1], lambda row: {**row, **fields})
    return forged


def _column(*values: int) -> list[object]:
    return ["i8", b"".join(value.to_bytes(8, "little", signed=True) for value in values)]


_ROW: Final = _MANIFEST["blobs"][1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"raw_bytes": _ROW["raw_bytes"] + 1}, "chunks that do not add up to its size"),
        ({"raw_bytes": 1 << 40}, "not in 0 to"),
        ({"raw_bytes": 1 << 35}, "would expand from"),
        ({"raw_bytes": -1}, "not in 0 to"),
        ({"stored_bytes": _ROW["stored_bytes"] - 1}, "frames that do not add up"),
        ({"offset": _ROW["offset"] - 1}, "does not follow the one before it"),
        ({"offset": _ROW["offset"] + 1}, "does not follow the one before it"),
        ({"offset": 0}, "not in 64 to"),
        ({"offset": 1 << 63}, "not in 64 to"),
        ({"sha256": b""}, "has a hash of 0 bytes instead of 32"),
        ({"name": "../../etc/passwd"}, "has an invalid name"),
        ({"name": "program"}, "two blobs have the same name"),
        ({"codec": "lzma"}, "field 'codec' .* is 'lzma'"),
        ({"codec": "raw"}, "is not aligned to 4096"),
        ({"codec": "zstd"}, "has a chunk of"),
        # The weights are two chunks: one of four frames, and one of what is left over.
        ({"chunk_bytes": _column(9)}, "columns of different lengths"),
        ({"chunk_bytes": _column(1 << 62, 1)}, "has a chunk of 4,611"),
        ({"chunk_bytes": _column(2 << 20, 1)}, "has a chunk of 2,097,152"),
        ({"chunk_bytes": _column(0, 1)}, "has a chunk of 0"),
        ({"chunk_bytes": _column(-4, 1)}, "has a chunk of -4"),
        ({"chunk_bytes": _column(9, 1)}, "has a chunk of 9 bytes, not a multiple of 4"),
        ({"chunk_frames": _column(-1, 1)}, "is too short"),
        ({"chunk_frames": _column(1 << 60, 1)}, "is too short"),
        ({"chunk_frames": _column(0, 5)}, "in 0 frames"),
        ({"chunk_frames": _column(3, 2)}, "in 3 frames"),
        ({"chunk_frames": _column(4, 0)}, "is too long"),
        ({"frame_bytes": _column(-1, 1, 1, 1, 1)}, "frame of negative size"),
        ({"required": 1}, "'required' .* not of type bool"),
    ],
)
def test_rows_of_the_blob_table(fields: dict[str, object], message: str) -> None:
    with bounded(), pytest.raises(CorruptArchiveError, match=message):
        ArchiveFile.open(reseal(_ARCHIVE, _weights(**fields)))


def test_a_wrong_hash_is_found_when_the_blob_is_read() -> None:
    archive = ArchiveFile.open(reseal(_ARCHIVE, _weights(sha256=bytes(32))))
    with pytest.raises(CorruptArchiveError, match="do not match their hash"):
        archive.read("weights")


@pytest.mark.parametrize("verify", [True, False])
def test_mapped_blobs_are_verified_unless_told_otherwise(*, verify: bool) -> None:
    archive = _ARCHIVES[Codec.RAW]
    manifest = change(manifest_of(archive), ["blobs", 1, "sha256"], lambda _: bytes(32))
    opened = ArchiveFile.open(reseal(archive, manifest))
    if not verify:
        assert opened.map("weights", verify=False).tobytes() == flat_bytes(_BLOBS[Codec.RAW][1])
        return
    with pytest.raises(CorruptArchiveError, match="do not match their hash"):
        opened.map("weights")


@pytest.mark.parametrize("codec", [Codec.RAW, Codec.ZSTD])
@pytest.mark.parametrize("size", [9000, 100_000])  # hashed at the end, and on another thread
def test_hashes_are_compared_while_blobs_are_used(codec: Codec, size: int) -> None:
    blobs = sample_blobs(codec, size)
    archive = archive_bytes(blobs)
    with ArchiveFile.open(archive).begin("weights") as weights:
        assert weights.data.tobytes() == flat_bytes(blobs[1])
        weights.verify()
    manifest = change(manifest_of(archive), ["blobs", 1, "sha256"], lambda _: bytes(32))
    damaged = ArchiveFile.open(reseal(archive, manifest))
    with (
        pytest.raises(CorruptArchiveError, match="do not match their hash"),
        damaged.begin("weights"),
    ):
        raise ValueError("what follows from damaged bytes")
    with pytest.raises(KeyboardInterrupt), damaged.begin("weights"):
        raise KeyboardInterrupt


def test_hidden_data_between_blobs() -> None:
    archive = bytearray(_ARCHIVES[Codec.RAW])
    archive[manifest_of(bytes(archive))["blobs"][1]["offset"] - 1] = 1
    with pytest.raises(CorruptArchiveError, match="data between its blobs"):
        ArchiveFile.open(bytes(archive))


def test_blobs_of_unknown_kinds() -> None:
    optional = ArchiveFile.open(reseal(_ARCHIVE, _weights(kind="novel", required=False)))
    assert not optional.blobs["weights"].is_known
    with pytest.raises(IncompatibleArchiveError, match="a required blob of kind 'novel'"):
        ArchiveFile.open(reseal(_ARCHIVE, _weights(kind="novel")))


# -- bombs -----------------------------------------------------------------------------------------


_NESTED_LISTS: Final = b"\xdd\x00\x00\x10\x00" * 1000


@pytest.mark.parametrize(
    "raw",
    [
        _NESTED_LISTS,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
        b"\x81\x01\x02",
        b"\x81\xa1\xff\x02",
        bytes(7 << 20),
    ],
)
def test_hostile_msgpack(raw: bytes) -> None:
    forged = reseal(_ARCHIVE, raw)
    with bounded(), pytest.raises(CorruptArchiveError):
        ArchiveFile.open(forged)
    with bounded(), pytest.raises(CorruptArchiveError):
        decode_program(raw)


@pytest.mark.parametrize(
    ("raw_bytes", "message"),
    [(1 << 31, "manifest is larger than"), (700_000, "does not have the declared size")],
)
def test_a_manifest_that_declares_another_size(raw_bytes: int, message: str) -> None:
    forged = reseal(_ARCHIVE, _MANIFEST, manifest_raw_bytes=raw_bytes)
    with bounded(), pytest.raises(CorruptArchiveError, match=message):
        ArchiveFile.open(forged)


def test_a_manifest_that_explodes() -> None:
    forged = reseal(_ARCHIVE, bytes(100 << 20), manifest_raw_bytes=1000)
    with bounded(), pytest.raises(CorruptArchiveError, match="does not have the declared size"):
        ArchiveFile.open(forged)


def test_frames_that_explode() -> None:
    """A frame of 256 MiB where a few bytes are declared."""
    noise = np.random.default_rng(0).integers(0, 256, 60_000).astype(np.uint8)
    archive = archive_bytes([Blob.of_bytes("report", BlobKind.REPORT, noise.tobytes())])
    row = manifest_of(archive)["blobs"][0]
    frame = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 28))
    stored = frame + bytes(row["stored_bytes"] - len(frame))
    start = row["offset"]
    opened = ArchiveFile.open(archive[:start] + stored + archive[start + len(stored) :])
    with bounded(), pytest.raises(CorruptArchiveError, match="does not have the declared size"):
        opened.read("report")


def test_zeros_within_reason_are_fine_and_more_are_not() -> None:
    blob = Blob("weights", BlobKind.WEIGHTS, Codec.ZSTD_SHUFFLE, 5 << 20, ())
    archive = archive_bytes([blob])
    assert len(archive) < 4096
    assert not any(ArchiveFile.open(archive).load("weights"))
    with bounded(), pytest.raises(CorruptArchiveError, match="would expand from"):
        ArchiveFile.open(archive, limits=Limits(ratio_free_bytes=4 << 20))


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (Limits(blobs=2), "3 blobs"),
        (Limits(blob_bytes=5000), "not in 0 to 5000"),
        (Limits(total_bytes=5000), "more than the limit of 5,000 bytes of memory"),
        (Limits(program_bytes=100), "program is larger than 100"),
        (Limits(manifest_bytes=100), "manifest is larger than 100"),
        (Limits(list_items=3), "exceeds max"),
        (Limits(text_bytes=10), "exceeds max"),
        (Limits(manifest_ratio=1, manifest_ratio_free_bytes=1), "manifest would expand"),
        (Limits(program_ratio=0, program_ratio_free_bytes=1), "'program' would expand"),
        (STRICT_LIMITS, ""),
    ],
)
def test_limits_can_be_lowered(limits: Limits, message: str) -> None:
    if not message:
        ArchiveFile.open(_ARCHIVE, limits=limits)
        return
    with pytest.raises(CorruptArchiveError, match=message):
        ArchiveFile.open(_ARCHIVE, limits=limits)


def test_limits_have_names() -> None:
    assert Limits.of("strict") is STRICT_LIMITS
    assert Limits.of("default") is DEFAULT_LIMITS
    with pytest.raises(UsageError, match="no limits called 'loose'") as caught:
        Limits.of("loose")
    assert "default, strict" in caught.value.hint


def test_a_blob_that_compresses_too_well_is_stored_as_it_is() -> None:
    """Readers would take it for a bomb."""
    content = bytes(1 << 20)
    archive = archive_bytes([Blob.of_bytes("program", BlobKind.PROGRAM, content)])
    opened = ArchiveFile.open(archive)
    assert opened.info("program").codec is Codec.RAW
    assert opened.read("program") == content


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(Codec), st.data())
def test_no_damage_takes_memory_or_time(codec: Codec, data: st.DataObject) -> None:
    archive = bytearray(_ARCHIVES[codec])
    start = data.draw(st.integers(0, len(archive) - 9))
    archive[start : start + 8] = data.draw(st.binary(min_size=8, max_size=8))
    with bounded():
        _check(bytes(archive), codec)


def test_columns_do_not_grow_without_bound() -> None:
    """A blob table whose columns are long is refused before chunks are built from them."""
    long, short = (["u1", b"\1" * count] for count in (200_000, 9))
    forged = _weights(chunk_bytes=long, chunk_frames=long, frame_bytes=short)
    with bounded(), pytest.raises(CorruptArchiveError, match="is too short"):
        ArchiveFile.open(reseal(_ARCHIVE, msgpack.packb(forged)))
