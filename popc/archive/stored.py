"""An executable archive that was found in a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from popc.archive.archive import Archive
from popc_runtime.format import ArchiveFile, Compression, KnownSizes
from popc_runtime.process.files import new_file, refuse_to_replace

__all__ = ["StoredArchive"]


class StoredArchive(Archive):
    """An archive in a file; it stays usable when the file is removed."""

    def __init__(self, path: str) -> None:
        """Open the file, and compare all hashes.

        Raises:
            ArchiveError: it is damaged, or no archive that this version reads.
            ResourceError: it cannot be read.
        """
        self._file = Path(path).open("rb")  # noqa: SIM115 - for as long as the archive lives
        with ArchiveFile.open(path) as archive:
            archive.verify()
            super().__init__(archive.manifest, (), Compression.DEFAULT)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        on_bytes: Callable[[int, int], None] | None = None,
    ) -> Path:
        """See `Archive.save`; a copy, which tells nothing of its progress."""
        del on_bytes
        target = Path(path)
        refuse_to_replace(target, force=force)
        self._file.seek(0)
        with new_file(target) as file:
            shutil.copyfileobj(self._file, file)
        return target

    def to_bytes(self) -> bytes:
        """See `Archive.to_bytes`."""
        self._file.seek(0)
        return self._file.read()

    def size(self, known: KnownSizes | None = None) -> int:
        """See `Archive.size`."""
        del known
        return os.fstat(self._file.fileno()).st_size

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()
