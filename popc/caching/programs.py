"""A program from the cache, which is compiled if it is not there.

This file imports nothing that takes time: what is found needs neither onnx nor the compiler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from popc.caching.quick import QuickKeys
from popc.caching.shelf import CachedProgram, Shelf
from popc.collector import importing
from popc_runtime.cache import CacheSource, cache_folder
from popc_runtime.errors import ArchiveError, ResourceError
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.loader import load

if TYPE_CHECKING:
    from popc.progress import Watch
    from popc.requests import Requests
    from popc_runtime import Executable

__all__ = ["ProgramCache", "model_name"]


class ProgramCache(Shelf):
    """The cache in a folder, asked for one program, which it compiles if it does not have it."""

    def __init__(
        self,
        cache: CacheSource,
        model: object,
        settings: Mapping[str, Any],
        requests: Callable[[], Requests],
        name: str,
    ) -> None:
        folder = cache_folder(cache)
        quick = QuickKeys(folder, model, settings)
        super().__init__(folder, name or model_name(model), quick)
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
        with importing("popc.api"):
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
