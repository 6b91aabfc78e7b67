"""Program, weights and facts -> archive file."""

from popc.archive.archive import Archive
from popc.archive.build import build_archive

__all__ = ["Archive", "build_archive"]
