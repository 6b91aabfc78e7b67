"""Hashes of files.  Of large ones they are remembered, with the state of the file.

This file imports nothing that takes time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from popc_runtime.errors import CorruptArchiveError, ResourceError
from popc_runtime.format.digests import FEW_BYTES, sha256
from popc_runtime.format.limits import DEFAULT_LIMITS
from popc_runtime.format.serialization import Fields, Packable, pack, unpack
from popc_runtime.format.sources import FileSource
from popc_runtime.ground.hints import Final
from popc_runtime.native import fast_sha256
from popc_runtime.process.paths import read_regular, usable_path

__all__ = ["Records", "file_hash", "hash_of"]

_LARGE: Final = 1 << 20  # bytes; hashing so many takes 0.7 ms
# A file that was changed as late as that before it was read may change again within one tick of
# the file system's clock, and look the same.
_SETTLED_NS: Final = 2 * 10**9


class Records:
    """Small records in a folder of the cache, by key; whoever cannot write there goes without."""

    def __init__(self, folder: str, kind: str) -> None:
        self._folder = os.path.join(folder, kind)

    def recall(self, key: str) -> Fields | None:
        """A record; ``None`` if there is none, or it is damaged."""
        try:
            data = read_regular(self._path(key), _LARGE)
            return unpack(data, "a record of the cache", DEFAULT_LIMITS)
        except (OSError, CorruptArchiveError):
            return None

    def keep(self, key: str, record: dict[str, Packable]) -> None:
        """Write a record, whole or not at all."""
        path = self._path(key)
        temporary = f"{path}.{os.urandom(8).hex()}"
        with suppress(OSError):
            os.makedirs(self._folder, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(pack(record))
                os.replace(temporary, path)
            finally:
                with suppress(OSError):
                    os.unlink(temporary)

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, key)


def file_hash(path: str, folder: str) -> bytes:
    """SHA-256 of a file; ``folder`` is the cache that remembers those of large files; "" for none.

    Raises:
        ResourceError: it cannot be read.
    """
    try:
        before = os.stat(usable_path(path))
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror}", subject=path) from error
    if before.st_size < _LARGE or not folder:
        return _hashed(path)
    memory = Records(folder, "files")
    key: str = sha256(os.path.abspath(path).encode(errors="surrogateescape")).hexdigest()
    state = _state(before)
    known = memory.recall(key)
    if known is not None and known.any("state") == state:
        with suppress(CorruptArchiveError):
            return known.data("sha256")
    found = _hashed(path)
    settled = max(before.st_mtime_ns, before.st_ctime_ns) < time.time_ns() - _SETTLED_NS
    if settled and _state(os.stat(path)) == state:
        memory.keep(key, {"state": state, "sha256": found})
    return found


def _state(stat: os.stat_result) -> list[int]:
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev % (1 << 62)]


def _hashed(path: str) -> bytes:
    source = FileSource(path)
    try:
        if source.size <= FEW_BYTES:
            return hash_of(source.read(0, source.size))
        return hash_of(source.view())
    finally:
        source.close()


def hash_of(data: bytes | memoryview) -> bytes:
    """SHA-256 of bytes."""
    fast = fast_sha256() if len(data) > FEW_BYTES else None
    found: bytes = sha256(data).digest() if fast is None else fast(memoryview(data))
    return found
