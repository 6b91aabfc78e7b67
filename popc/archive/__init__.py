"""Program, weights and facts -> archive file."""

from popc.archive.archive import Archive
from popc.archive.build import Content, build_archive
from popc.archive.stored import StoredArchive

__all__ = ["Archive", "Content", "StoredArchive", "build_archive"]
