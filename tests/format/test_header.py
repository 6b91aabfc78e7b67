from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from popc_runtime.errors import ArchiveError, CorruptArchiveError, IncompatibleArchiveError
from popc_runtime.format import FORMAT_VERSION, MAGIC, ArchiveFile
from popc_runtime.format.header import HEADER_SIZE, Header
from tests.format.samples import archive_bytes, manifest_of, reseal, sample_blobs

HEADER = Header(64, 100, 200, "popc 0.1.0")


def test_layout() -> None:
    data = HEADER.pack()
    assert len(data) == HEADER_SIZE == 64
    assert data[:8] == MAGIC == b"\x89POPX\r\n\x1a"
    assert data[32:].rstrip(b"\0") == b"popc 0.1.0"
    assert Header.parse(data) == HEADER


def test_builder_is_cut_and_made_printable() -> None:
    assert Header.parse(replace(HEADER, built_by="pöpc " * 9).pack()).built_by == ("p?pc " * 9)[:32]
    data = HEADER.pack()[:32] + b"a\x1b[31m\xff" + bytes(26)
    assert Header.parse(data).built_by == "a?[31m?"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (MAGIC.replace(b"\r\n", b"\n"), "CR LF became LF"),
        (MAGIC.replace(b"\n", b"\r\n"), "LF became CR LF"),
        (bytes(byte & 127 for byte in MAGIC), "eighth bit"),
        (MAGIC.decode("latin-1").encode(), "Latin-1 to UTF-8"),
        (MAGIC.decode("utf-8", "replace").encode(), "not UTF-8 were replaced"),
    ],
)
def test_text_mode_copies_are_recognised(data: bytes, message: str) -> None:
    with pytest.raises(CorruptArchiveError, match=message) as caught:
        ArchiveFile.open(data + HEADER.pack()[8:])
    assert "binary mode" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04zip", "looks like a ZIP file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html>", "web page"),
        (b"\x08\x07\x12\x07pytorch", "ONNX model"),
        (b"\x93NUMPY", "starts with 93 4e 55 4d 50 59"),
    ],
)
def test_other_files_are_named(data: bytes, message: str) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        ArchiveFile.open(data)
    assert not isinstance(caught.value, CorruptArchiveError)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 40, 63])
def test_truncated_headers(size: int) -> None:
    with pytest.raises(CorruptArchiveError, match=r"is empty|ends after"):
        ArchiveFile.open(HEADER.pack()[:size])


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"version": (2, 3)}, "has format 2.3,"),
        ({"version": (0, 9)}, "has format 0.9,"),
        ({"version": (1, 10), "oldest_reader": 9}, "has format 1.10 and needs a reader of 1.9,"),
        ({"flags": 4}, "has format flags 0x0004,"),
    ],
)
def test_incompatible_versions_say_what_to_do(changes: dict[str, Any], found: str) -> None:
    # Behind the header lies nothing that could be parsed: it must not be tried.
    changed = replace(HEADER, built_by="popc 9.1", **changes)
    with pytest.raises(IncompatibleArchiveError) as caught:
        ArchiveFile.open(changed.pack() + b"\xff" * 500)
    error = caught.value
    assert error.message == f"the archive {found} which this runtime cannot read"
    assert error.details[0].endswith("written by popc 9.1")
    assert error.details[1] == "supported: format 1.0 to 1.8"
    assert "compile the model again" in error.hint


def test_a_later_minor_version_with_the_same_oldest_reader_is_read() -> None:
    archive = archive_bytes(sample_blobs())
    later = (FORMAT_VERSION[0], FORMAT_VERSION[1] + 1)
    manifest = {**manifest_of(archive), "format_version": [*later], "schema_hash": "new", "more": 1}
    opened = ArchiveFile.open(reseal(archive, manifest, version=later))
    assert opened.manifest.format_version == later
    assert opened.read("program")


def test_another_layout_of_the_same_version_is_incompatible() -> None:
    archive = archive_bytes(sample_blobs())
    forged = reseal(archive, {**manifest_of(archive), "schema_hash": "0" * 64})
    with pytest.raises(IncompatibleArchiveError, match="by a build with another layout"):
        ArchiveFile.open(forged)
