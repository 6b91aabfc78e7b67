"""An executable archive in memory, before it is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import popc_runtime
from popc_runtime.display import manifest_html
from popc_runtime.format import (
    Blob,
    Compression,
    KnownSizes,
    Manifest,
    encode_archive,
    measure_archive,
    write_archive,
)

if TYPE_CHECKING:
    from popc_runtime import Executable

__all__ = ["Archive"]


class Archive:
    """The result of `popc.compile`.  `popc_runtime.load` takes it, or the file that `save` writes.

    Attributes:
        manifest: Inputs, outputs, streams, programs, options with their origin, memory.
        notes: What whoever compiled should know; not stored.
    """

    def __init__(self, manifest: Manifest, blobs: Sequence[Blob], compression: Compression) -> None:
        self.manifest = manifest
        self.notes: tuple[str, ...] = ()
        self._blobs = tuple(blobs)
        self._compression = compression

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        on_bytes: Callable[[int, int], None] | None = None,
    ) -> Path:
        """Write the archive: the whole file or nothing.

        ``on_bytes`` is told how many of how many bytes are stored.

        Raises:
            ResourceError: the file exists (and ``force`` is not set) or cannot be written.
        """
        write_archive(
            path,
            self.manifest,
            self._blobs,
            force=force,
            compression=self._compression,
            on_bytes=on_bytes,
        )
        return Path(path)

    def to_bytes(self) -> bytes:
        """The bytes of the file that `save` writes; `popc_runtime.load` takes them too."""
        return encode_archive(self.manifest, self._blobs, self._compression)

    def load(self, **settings: Any) -> Executable:
        """The archive in memory as an executable; ``settings`` are those of `popc_runtime.load`.

        Raises:
            PopcError: see `popc_runtime.load`.
        """
        return popc_runtime.load(self, **settings)

    def size(self, known: KnownSizes | None = None) -> int:
        """The bytes of the file that `save` writes, without writing it.

        ``known`` remembers how well weights are compressed from one archive to the next.
        """
        sizes: KnownSizes = {} if known is None else known
        return measure_archive(self.manifest, self._blobs, self._compression, sizes)

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.manifest.inputs))
        outputs = ", ".join(map(str, self.manifest.outputs))
        return f"Archive({inputs}) -> ({outputs})"

    def _repr_html_(self) -> str:
        return manifest_html("Archive", self.manifest)
