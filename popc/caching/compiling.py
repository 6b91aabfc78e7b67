"""Compiling what the cache does not hold, once for all processes that want it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from popc.api import compile_requests
from popc.caching.keys import KeyParts, key_parts
from popc.caching.shelf import CachedProgram, Shelf
from popc.progress import Watch
from popc.reporting.estimation import check_target
from popc.requests import Requests
from popc_runtime.cache import CacheBounds, cache_bounds, claimed, key_of, prune, store_entry
from popc_runtime.errors import ResourceError

if TYPE_CHECKING:
    from popc.archive import Archive

__all__ = ["compile_into"]


def compile_into(
    shelf: Shelf,
    requests: Requests,
    watch: Watch,
    on_wait: Callable[[], None] | None,
    against: str | os.PathLike[str] | None,
) -> CachedProgram:
    """The archive of what is asked for: found by its full key, or compiled and stored.

    Raises:
        PopcError: see `popc.compile`.
    """
    first = requests.programs[0]
    check_target(first.options)
    bounds = cache_bounds()
    loaded = first.load(watch)
    parts = key_parts(requests, loaded, shelf.folder)
    key = key_of(parts.parts)
    found = shelf.look_up(key)
    if found is None:
        with claimed(shelf.folder, key, on_wait) as held:
            found = shelf.look_up(key)  # whoever held the lock before may have made it
            if found is None:
                archive = compile_requests(requests.of_model(loaded), watch, against)
                found = _stored(shelf, key, parts, archive, bounds if held else None)
    shelf.quick.keep(key, loaded.sha256, parts.external, parts.files)
    return found


def _stored(
    shelf: Shelf, key: str, parts: KeyParts, archive: Archive, bounds: CacheBounds | None
) -> CachedProgram:
    """The program of a new archive, in the cache if that can be written: it has ``bounds``."""
    folder, path = shelf.folder, ""
    problem = f"the cache {folder} cannot be written"
    if bounds is not None:
        try:
            path = store_entry(
                folder,
                key,
                archive.save,
                names=(shelf.name,) if shelf.name else (),
                parts=parts.parts,
                notes=archive.notes,
            )
        except ResourceError as error:
            problem = error.message
        else:
            with suppress(ResourceError):
                prune(folder, bounds, keep=key)
    if not path:
        archive.notes = (*archive.notes, f"the program is not kept: {problem}")
    return CachedProgram(key, path, is_hit=False, notes=archive.notes, archive=archive)
