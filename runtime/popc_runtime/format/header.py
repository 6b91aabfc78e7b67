r"""The first 64 bytes of an archive.

    offset  size  field
    0       8     magic: \x89 P O P X CR LF SUB
    8       2     format, major
    10      2     format, minor
    12      2     the oldest minor of this major that can read the file
    14      2     flags, all reserved
    16      8     offset of the manifest
    24      4     stored size of the manifest
    28      4     size of the manifest after decompression
    32      32    who wrote it, ASCII, padded with zeros

Numbers are little-endian.  The SHA-256 of the header and the stored manifest follows the manifest
and ends the file.  Every future format keeps the magic, the versions and the last 32 bytes where
they are, so that any reader can say what it was given.

The magic works like PNG's: the first byte is lost by a 7-bit transfer, CR LF by a conversion of
line ends, and SUB ends the output of `type` on Windows.
"""

from __future__ import annotations

import os
import struct

from popc_runtime.errors import ArchiveError, CorruptArchiveError, IncompatibleArchiveError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final
from popc_runtime.process.paths import open_regular

__all__ = ["DIGEST_SIZE", "FORMAT_VERSION", "HEADER_SIZE", "MAGIC", "Header", "is_archive"]

MAGIC: Final = b"\x89POPX\r\n\x1a"
# Archives of other major versions are refused; what a minor version adds can mostly be skipped.
FORMAT_VERSION: Final = (1, 8)
DIGEST_SIZE: Final = 32  # SHA-256
_LAYOUT: Final = struct.Struct("<8sHHHHQII32s")
HEADER_SIZE: Final = _LAYOUT.size

_DAMAGES: Final = {
    MAGIC.replace(b"\r\n", b"\n"): "CR LF became LF",
    MAGIC.replace(b"\n", b"\r\n"): "LF became CR LF",
    bytes(byte & 0x7F for byte in MAGIC): "the eighth bit of each byte was lost",
    MAGIC.decode("latin-1").encode(): "the bytes were converted from Latin-1 to UTF-8",
    MAGIC.decode(errors="replace").encode(): "bytes that are not UTF-8 were replaced",
}
_FOREIGN: Final = {
    b"version https://git-lfs": ("a Git LFS pointer", "run `git lfs pull` to fetch the file"),
    b"PK\x03\x04": ("a ZIP file", "unpack it first"),
    b"<": ("a web page or XML", "check the address that it was downloaded from"),
    b"\x08": ("an ONNX model", "compile it first: `popc compile MODEL`"),
}


@frozen
class Header:
    """The fields of the header, except the magic."""

    manifest_offset: int
    manifest_stored_bytes: int
    manifest_raw_bytes: int
    built_by: str
    version: tuple[int, int] = FORMAT_VERSION
    oldest_reader: int = 0
    flags: int = 0

    def pack(self) -> bytes:
        """The 64 bytes."""
        return _LAYOUT.pack(
            MAGIC,
            *self.version,
            self.oldest_reader,
            self.flags,
            self.manifest_offset,
            self.manifest_stored_bytes,
            self.manifest_raw_bytes,
            self.built_by.encode("ascii", "replace")[:32],
        )

    @classmethod
    def parse(cls, data: bytes) -> Header:
        """Read the header; ``data`` are the first bytes of the file.

        Raises:
            ArchiveError: this is some other kind of file.
            CorruptArchiveError: the file is damaged or cut off.
            IncompatibleArchiveError: the format is newer than this reader.
        """
        _check_magic(data)
        if len(data) < HEADER_SIZE:
            raise CorruptArchiveError(
                f"the archive ends after {len(data)} bytes, in the middle of its header",
                hint="copy or compile it again",
            )
        fields = _LAYOUT.unpack_from(data)
        _, major, minor, oldest, flags, offset, stored, raw, builder = fields
        header = cls(
            manifest_offset=offset,
            manifest_stored_bytes=stored,
            manifest_raw_bytes=raw,
            built_by=_printable(builder),
            version=(major, minor),
            oldest_reader=oldest,
            flags=flags,
        )
        header._check_readable()
        return header

    def _check_readable(self) -> None:
        major, minor = self.version
        if major != FORMAT_VERSION[0]:
            raise self.incompatible(f"has format {major}.{minor}")
        if self.oldest_reader > FORMAT_VERSION[1]:
            raise self.incompatible(
                f"has format {major}.{minor} and needs a reader of {major}.{self.oldest_reader}"
            )
        if self.flags:
            raise self.incompatible(f"has format flags {self.flags:#06x}")

    def incompatible(self, found: str) -> IncompatibleArchiveError:
        """The error for an archive that ``found`` (a verb phrase) is true of."""
        major, minor = FORMAT_VERSION
        builder = self.built_by or "an unnamed program"
        newer = self.version >= FORMAT_VERSION
        remedy = "upgrade popc-runtime" if newer else "install the popc-runtime of that version"
        return IncompatibleArchiveError(
            f"the archive {found}, which this runtime cannot read",
            hint=f"{remedy}, or compile the model again with the popc that belongs to this runtime",
            details=(
                f"found: format {self.version[0]}.{self.version[1]}, written by {builder}",
                f"supported: format {major}.0 to {major}.{minor}",
            ),
        )


def is_archive(path: str | os.PathLike[str]) -> bool:
    """True if a file is an archive rather than a model; one cut short still has its suffix.

    Raises:
        OSError: it cannot be read.
    """
    name = os.fspath(path)
    if os.path.isdir(name):  # noqa: PTH112 - as below
        return False
    with open_regular(name) as stream:
        start = stream.read(len(MAGIC))
    return start == MAGIC or (name.endswith(".popx") and MAGIC.startswith(start))


def _check_magic(data: bytes) -> None:
    if data.startswith(MAGIC):
        return
    if not data:
        raise CorruptArchiveError("the file is empty", hint="copy or compile it again")
    if MAGIC.startswith(data[: len(MAGIC)]):
        raise CorruptArchiveError(
            f"the archive ends after {len(data)} bytes, in the middle of its header",
            hint="copy or compile it again",
        )
    for damaged, how in _DAMAGES.items():
        if data.startswith(damaged):
            raise CorruptArchiveError(
                f"the archive was copied as text: {how}",
                hint="copy the original again in binary mode",
            )
    for prefix, (what, hint) in _FOREIGN.items():
        if data.startswith(prefix):
            raise ArchiveError(f"the file is not a popc archive but looks like {what}", hint=hint)
    raise ArchiveError(
        f"the file is not a popc archive: it starts with {data[: len(MAGIC)].hex(' ')}",
        hint="`popc compile MODEL -o FILE` writes archives",
    )


def _printable(text: bytes) -> str:
    """The text before the padding, with anything but printable ASCII as '?'."""
    shown = text.rstrip(b"\0").decode("ascii", "replace")
    return "".join(character if " " <= character <= "~" else "?" for character in shown)
