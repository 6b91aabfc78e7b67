"""A program from the cache, which is compiled if it is not there.

This file imports nothing that takes time: what is found needs neither onnx nor the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from popc.caching.quick import QuickKeys
from popc_runtime.cache import (
    CacheEntry,
    CacheSource,
    cache_folder,
    read_entry,
    require_whole,
    touch,
)
from popc_runtime.errors import ArchiveError, ResourceError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.loader import load

if TYPE_CHECKING:
    from popc.archive import Archive
    from popc.progress import Watch
    from popc.requests import Requests
    from popc_runtime import Executable

__all__ = ["CachedProgram", "ProgramCache", "model_name"]


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


class ProgramCache:
    """The cache in a folder, asked for one program.

    Attributes:
        folder: The folder.
        name: What `popc_runtime.load_cached` finds the program by; "" for none.
        quick: What leads to the key without a look at the model.
    """

    def __init__(
        self,
        cache: CacheSource,
        model: object,
        settings: Mapping[str, Any],
        requests: Callable[[], Requests],
        name: str,
    ) -> None:
        self.folder = cache_folder(cache)
        self.name = name or model_name(model)
        self.quick = QuickKeys(self.folder, model, settings)
        self._requests = requests

    def get(
        self,
        watch: Callable[[], Watch],
        on_wait: Callable[[], None] | None = None,
        against: str | os.PathLike[str] | None = None,
    ) -> CachedProgram:
        """The program, compiled and stored if it is not there.

        Args:
            watch: Gives who is told of the compilation.
            on_wait: Called once if another process compiles the same at the moment.
            against: See `popc.compile`.

        Raises:
            PopcError: the model cannot be compiled; see `popc.compile`.
        """
        key = self.quick.recall()
        found = self.look_up(key) if key else None
        if found is not None:
            return found
        from popc.caching.compiling import compile_into

        return compile_into(self, self._requests(), watch(), on_wait, against)

    def load(
        self,
        watch: Callable[[], Watch],
        on_wait: Callable[[], None] | None = None,
        **settings: Any,
    ) -> tuple[Executable, CachedProgram]:
        """The program, loaded with the keywords ``settings`` of `popc_runtime.load`.

        What turns out to be damaged while it is loaded is compiled anew.

        Raises:
            PopcError: see `get` and `popc_runtime.load`.
        """
        program = self.get(watch, on_wait)
        try:
            return load(program.source, **settings), program
        except (ArchiveError, ResourceError):
            if not program.is_hit or not _is_spoilt(program.path):
                raise
            self.discard(program.key)
        program = self.get(watch, on_wait)
        return load(program.source, **settings), program

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


def _is_spoilt(path: str) -> bool:
    """True if an archive is gone or damaged: another error would come again."""
    from popc_runtime.format import ArchiveFile

    if not os.path.exists(path):
        return True
    try:
        with ArchiveFile.open(path) as archive:
            archive.verify()
    except ArchiveError:
        return True
    return False


def model_name(model: object) -> str:
    """The name of a model's file without its suffix; "" if it is in no file."""
    if isinstance(model, str | os.PathLike):
        return os.path.splitext(os.path.basename(os.fspath(model)))[0]
    return ""
