"""Sources of the bytes of an archive: a file or memory."""

from __future__ import annotations

import mmap
import os
from _thread import allocate_lock  # what `threading` has more is not needed, and takes its time

from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format.mapped import Unchanged
from popc_runtime.format.serialization import corrupt
from popc_runtime.ground.hints import Any, Protocol, TypeAlias
from popc_runtime.process.paths import is_url, opened_at_once, usable_path

__all__ = ["ArchiveSource", "BlobSource", "FileSource", "MemorySource", "open_source"]

# A path, a URL, bytes, an open file, or an archive in memory as `popc.compile` gives it.
ArchiveSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | Readable | HasBytes"
)


class Readable(Protocol):
    """A file that was opened for reading bytes."""

    def read(self) -> bytes:
        """The bytes that are left in it."""


class HasBytes(Protocol):
    """An archive that is not in a file yet."""

    def to_bytes(self) -> bytes:
        """The bytes of the file that it would be."""


def open_source(source: Any) -> BlobSource:
    """The bytes of an archive, from wherever they are.

    Raises:
        UsageError: ``source`` is nothing of what `ArchiveSource` says, or at a URL that nothing
            that is installed opens.
        ResourceError: the file cannot be read.
    """
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        if is_url(path):
            return _elsewhere(str(path))
        return FileSource(path if isinstance(path, str) else os.fsdecode(path))
    if hasattr(source, "read"):
        source = source.read()
        if isinstance(source, str):
            raise UsageError("the archive was opened as text", hint='open it with mode "rb"')
    elif hasattr(source, "to_bytes") and not isinstance(source, int):
        source = source.to_bytes()
    if isinstance(source, (bytes, bytearray, memoryview)):
        return MemorySource(bytes(source))
    raise UsageError(
        f"an archive is not an object of type {type(source).__name__}",
        hint="pass a path, a file opened for reading bytes, bytes or what popc.compile returns",
    )


def _elsewhere(url: str) -> BlobSource:
    from popc_runtime.format.remote import RemoteSource, local_path  # rarely used

    path = local_path(url)
    return FileSource(path) if path else RemoteSource(url)


class BlobSource(Protocol):
    """Random access to bytes that do not change; methods may be called from several threads."""

    @property
    def size(self) -> int:
        """Number of bytes."""

    @property
    def begins_on_a_page(self) -> bool:
        """True if what is aligned in the archive is aligned in `view`."""

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes.

        Raises:
            CorruptArchiveError: there are fewer.
            ResourceError: the file system fails.
        """

    def view(self) -> memoryview:
        """All bytes, without reading them.

        Raises:
            ResourceError: the file system fails.
        """

    def unchanged(self, end: int) -> Unchanged | None:
        """A check that views up to ``end`` stay the same; ``None`` if they do by themselves."""

    def close(self) -> None:
        """Release the file; views stay valid."""


class FileSource:
    """A file that is read piece by piece.

    Reading, unlike mapping, survives a file that is cut off meanwhile: that ends in an error and
    not in a signal.
    """

    begins_on_a_page = True

    def __init__(self, path: str) -> None:
        self._path = usable_path(path)
        self._lock = allocate_lock()
        try:
            self._file = open(path, "rb", opener=opened_at_once)  # noqa: SIM115 - closed by `close`; pathlib is slow to import
        except OSError as error:
            raise self._failed(error) from error
        try:
            self.size = self._file.seek(0, 2)
        except OSError as error:
            self._file.close()
            raise self._failed(error) from error

    def read(self, offset: int, count: int) -> bytes:
        """See `BlobSource`."""
        try:
            with self._lock:
                self._file.seek(offset)
                data = self._file.read(count)
        except OSError as error:
            raise self._failed(error) from error
        except MemoryError as error:
            raise ResourceError(f"not enough memory to read {count:,} bytes") from error
        if len(data) != count:
            raise corrupt(f"the file ends {count - len(data):,} bytes too early")
        return data

    def view(self) -> memoryview:
        """See `BlobSource`; the map lives as long as views of it."""
        try:
            return memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise ResourceError(f"cannot map {self._path}: {error}") from error

    def unchanged(self, end: int) -> Unchanged:
        """See `BlobSource`."""
        return Unchanged(self._file.fileno(), self._path, end)

    def close(self) -> None:
        """See `BlobSource`."""
        self._file.close()

    def _failed(self, error: OSError) -> ResourceError:
        return ResourceError(
            f"cannot read {self._path}: {error.strerror or error}", subject=self._path
        )


class MemorySource:
    """An archive that is in memory already, wherever that begins."""

    begins_on_a_page = False

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, count: int) -> bytes:
        """See `BlobSource`."""
        data = self._data[offset : offset + count]
        if len(data) != count:
            raise corrupt(f"it ends {count - len(data):,} bytes too early")
        return data

    def view(self) -> memoryview:
        """See `BlobSource`."""
        return memoryview(self._data)

    def unchanged(self, end: int) -> None:
        """See `BlobSource`; nobody else has these bytes."""
        del end

    def close(self) -> None:
        """See `BlobSource`; there is nothing to release."""
