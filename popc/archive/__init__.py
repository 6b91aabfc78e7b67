"""Program, weights and facts -> archive file."""

from popc.archive.archive import Archive
from popc.archive.build import build_archive
from popc.archive.stored import StoredArchive

__all__ = ["Archive", "StoredArchive", "build_archive"]
