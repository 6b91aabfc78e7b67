"""Program, weights and facts -> archive file."""

from typing import TYPE_CHECKING

from popc.archive.archive import Archive
from popc.archive.build import Content, build_archive
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.archive.stored import StoredArchive

__all__ = ["Archive", "Content", "StoredArchive", "build_archive"]

__getattr__ = lazy_names(
    __name__,
    {
        "StoredArchive": "popc.archive.stored",
    },
)
