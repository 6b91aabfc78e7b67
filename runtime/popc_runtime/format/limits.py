"""Limits on what a reader accepts before it believes a file's word about itself."""

from __future__ import annotations

from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = ["DEFAULT_LIMITS", "MAX_DIMENSION", "MAX_RANK", "MAX_REPLICAS", "Limits"]

MAX_RANK: Final = 32  # what numpy 1 could do; nobody has asked for more
MAX_DIMENSION: Final = 1 << 48  # also of the product of dimensions: what can be addressed
MAX_REPLICAS: Final = 1024  # each has memory of its own

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


@frozen
class Limits:
    """Upper bounds for sizes that an archive declares.

    The defaults leave room for models of tens of gigabytes.  A service that loads archives of
    strangers passes its own, lower ones.

    Attributes:
        manifest_bytes: The manifest after decompression.
        program_bytes: The program blob after decompression.
        blobs: Number of blobs.
        blob_bytes: One blob after decompression.
        total_bytes: All blobs after decompression.
        ratio: How many times larger than in the file a blob may become...
        ratio_free_bytes: ... unless it stays below this size (zeros compress without bound).
        list_items: Elements of one list in the manifest.
        text_bytes: One string in the manifest or the program.
        memory_bytes: One memory region of the program, that of all replicas together.
        depth: Blocks and calls nested into each other.
        expanded_items: Items of one program with all its calls written out.
    """

    manifest_bytes: int = 8 * _MIB
    program_bytes: int = 64 * _MIB
    blobs: int = 1024
    blob_bytes: int = 64 * _GIB
    total_bytes: int = 64 * _GIB
    ratio: int = 1000
    ratio_free_bytes: int = 64 * _MIB
    list_items: int = 4096
    text_bytes: int = 64 << 10
    memory_bytes: int = 64 * _GIB
    depth: int = 64
    expanded_items: int = 10_000_000


DEFAULT_LIMITS: Final = Limits()
