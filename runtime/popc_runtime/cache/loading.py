"""Loading what the cache holds, without the compiler."""

from __future__ import annotations

from popc_runtime.cache.entries import find_entry, require_whole, touch
from popc_runtime.cache.folder import CacheSource, cache_folder
from popc_runtime.executable import Executable
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.loader import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypedDict, Unpack

    from popc_runtime.format import Limits

    class LoadKeywords(TypedDict, total=False):
        """The keyword arguments of `load`."""

        seed: int
        threads: int | None
        floating_point_checks: bool | Iterable[str] | None
        engine: str
        limits: Limits
        host_calls: Mapping[str, Callable[..., Any]] | None


__all__ = ["load_cached"]


def load_cached(
    key_or_name: str, *, cache: CacheSource = True, **settings: Unpack[LoadKeywords]
) -> Executable:
    """Load a program that ``popc.compile`` or ``popc.load`` has stored in the cache.

    Args:
        key_or_name: The key of an entry, its first 8 digits or more, or a name: by default that of
            the model's file, without its suffix.
        cache: The folder; True for POPC_CACHE, or the user's.
        **settings: The keyword arguments of `load`.

    Raises:
        UsageError: there is no such program, or there are several.
        ArchiveError, ResourceError, DeviceError: as `load`.
    """
    folder = cache_folder(cache)
    entry = find_entry(folder, key_or_name)
    executable = load(require_whole(folder, entry), **settings)
    touch(folder, entry.key)
    return executable
