"""Program, weights and facts -> archive file."""

from popc.archive.archive import Archive
from popc.archive.build import Content, build_archive

__all__ = ["Archive", "Content", "build_archive"]
