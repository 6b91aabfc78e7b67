"""Programs that are in the cache: found by their keys, named, thrown away.

This file imports nothing that takes time: what is found needs neither onnx nor the compiler.
"""

from __future__ import annotations

from contextlib import suppress

from popc.caching.quick import QuickKeys
from popc_runtime.cache import CacheEntry, read_entry, require_whole, touch
from popc_runtime.errors import ArchiveError, ResourceError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from popc.archive import Archive

__all__ = ["CachedProgram", "Shelf"]


@frozen
class CachedProgram:
    """A program that was found or compiled.

    Attributes:
        key: Its key.
        path: Its archive in the cache; "" if the cache could not keep it.
        is_hit: Whether it was found.
        notes: What whoever compiles should know, and what is wrong with the cache.
        archive: The archive; ``None`` if it was found.
    """

    key: str
    path: str
    is_hit: bool
    notes: tuple[str, ...] = ()
    archive: Archive | None = None

    @property
    def source(self) -> str | bytes:
        """The argument for `popc_runtime.load`."""
        if self.path:
            return self.path
        assert self.archive is not None, "whatever is not in the cache was compiled"
        return self.archive.to_bytes()


class Shelf:
    """The place of a program in the cache.

    Attributes:
        folder: The folder of the cache.
        name: What `popc_runtime.load_cached` finds the program by; "" for none.
        quick: What leads to the key without a look at the model.
    """

    def __init__(self, folder: str, name: str, quick: QuickKeys) -> None:
        self.folder = folder
        self.name = name
        self.quick = quick

    def look_up(self, key: str) -> CachedProgram | None:
        """The program with a key; ``None`` if it is not there, or damaged."""
        try:
            entry = read_entry(self.folder, key)
            if entry is None:
                return None
            path = require_whole(self.folder, entry)
        except (ArchiveError, ResourceError):
            return None
        return CachedProgram(key, path, is_hit=True, notes=(*entry.notes, *self._named(entry)))

    def _named(self, entry: CacheEntry) -> tuple[str, ...]:
        """Note the use and the name of an entry."""
        if self.name in ("", *entry.names[-1:]):
            touch(self.folder, entry.key)
            return ()
        from popc_runtime.cache import add_name

        try:
            add_name(self.folder, entry, self.name)
        except ResourceError as error:
            return (f"the name {self.name} is not kept: {error.message}",)
        return ()

    def discard(self, key: str) -> None:
        """Remove an entry, as far as possible."""
        from popc_runtime.cache import remove_entry

        with suppress(ResourceError):
            remove_entry(self.folder, key)
