"""Compiled programs that are found by what they were made of."""

from __future__ import annotations

from popc_runtime.cache.entries import (
    CacheEntry,
    find_entry,
    key_of,
    program_path,
    read_entry,
    require_whole,
    touch,
)
from popc_runtime.cache.folder import (
    CacheBounds,
    CacheSource,
    cache_bounds,
    cache_folder,
    parse_age,
    parse_size,
)
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.cache.loading import load_cached
    from popc_runtime.cache.packages import NOT_ZIP, export_entries, import_entries, stored_member
    from popc_runtime.cache.store import (
        Stored,
        add_name,
        claimed,
        clear,
        prune,
        remove_entry,
        store_entry,
        stored_entries,
    )

__all__ = [
    "NOT_ZIP",
    "CacheBounds",
    "CacheEntry",
    "CacheSource",
    "Stored",
    "add_name",
    "cache_bounds",
    "cache_folder",
    "claimed",
    "clear",
    "export_entries",
    "find_entry",
    "import_entries",
    "key_of",
    "load_cached",
    "parse_age",
    "parse_size",
    "program_path",
    "prune",
    "read_entry",
    "remove_entry",
    "require_whole",
    "store_entry",
    "stored_entries",
    "stored_member",
    "touch",
]

# A process that finds what it wants need not wait for what writes.
__getattr__ = lazy_names(
    __name__,
    {
        "NOT_ZIP": "popc_runtime.cache.packages",
        "Stored": "popc_runtime.cache.store",
        "add_name": "popc_runtime.cache.store",
        "claimed": "popc_runtime.cache.store",
        "clear": "popc_runtime.cache.store",
        "export_entries": "popc_runtime.cache.packages",
        "import_entries": "popc_runtime.cache.packages",
        "load_cached": "popc_runtime.cache.loading",
        "prune": "popc_runtime.cache.store",
        "remove_entry": "popc_runtime.cache.store",
        "store_entry": "popc_runtime.cache.store",
        "stored_entries": "popc_runtime.cache.store",
        "stored_member": "popc_runtime.cache.packages",
    },
)
