"""Limits on what a reader accepts before it believes a file's word about itself."""

from __future__ import annotations

from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = [
    "DEFAULT_LIMITS",
    "LIMITS",
    "MAX_DIMENSION",
    "MAX_RANK",
    "MAX_REPLICAS",
    "STRICT_LIMITS",
    "Limits",
]

MAX_RANK: Final = 32  # what numpy 1 could do; nobody has asked for more
MAX_DIMENSION: Final = 1 << 48  # also of the product of dimensions: what can be addressed
MAX_TAPS: Final = 1 << 20  # of a window: numpy's kernels make some calls for each
MAX_BORDER_RUNS: Final = 1 << 16  # that Pad copies: a call of a kernel for each
MAX_RESIZED: Final = 1 << 22  # elements of an axis that is resized: tables have a row for each
MAX_REPLICAS: Final = 1024  # each has memory of its own

_MIB: Final = 1 << 20  # bytes
_GIB: Final = 1 << 30


@frozen
class Limits:
    """Upper bounds for sizes that an archive declares.

    The defaults are for archives of one's own: they leave room for models of tens of gigabytes.
    `STRICT_LIMITS` are for those of strangers.  Either way, work and memory of loading are bounded
    by the size of the file and by these.

    Attributes:
        manifest_bytes: The manifest after decompression.
        manifest_ratio: How many times larger than in the file the manifest may become...
        manifest_ratio_free_bytes: ... unless it stays below this size.
        program_bytes: The program blob after decompression.
        program_ratio: How many times larger than in the file the program may become...
        program_ratio_free_bytes: ... unless it stays below this size.
        blobs: Number of blobs.
        blob_bytes: One blob after decompression.
        total_bytes: All blobs after decompression.
        ratio: How many times larger than in the file another blob may become...
        ratio_free_bytes: ... unless it stays below this size (zeros compress without bound).
        list_items: Elements of one list in the manifest.
        text_bytes: One string in the manifest or the program.
        memory_bytes: One memory region of the program, that of all replicas together.
        depth: Blocks and calls nested into each other.
        expanded_items: Items of one program with all its calls written out.
        expanded_text_bytes: The names of these items.
    """

    manifest_bytes: int = 32 * _MIB
    manifest_ratio: int = 256  # 10 to 90 with 100 to 4,000 inputs of the same type
    manifest_ratio_free_bytes: int = 1 * _MIB
    program_bytes: int = 64 * _MIB
    program_ratio: int = 64  # 3 to 9 in programs of 100 to 20,000 equal ops, whose names differ
    program_ratio_free_bytes: int = 128 << 10  # read in a few hundredths of a second
    blobs: int = 1024
    blob_bytes: int = 64 * _GIB
    total_bytes: int = 64 * _GIB
    ratio: int = 1000
    ratio_free_bytes: int = 64 * _MIB
    list_items: int = 1 << 16  # msgpack reserves them before it has seen any, at each level
    text_bytes: int = 64 << 10
    memory_bytes: int = 64 * _GIB
    depth: int = 64
    expanded_items: int = 2_000_000  # binding takes some 40 microseconds for each
    expanded_text_bytes: int = 64 * _MIB

    @classmethod
    def of(cls, limits: Limits | str) -> Limits:
        """Limits by their names: "default" or "strict".

        Raises:
            UsageError: there are none of this name.
        """
        if not isinstance(limits, str):
            return limits
        if limits not in LIMITS:
            raise UsageError(
                f"there are no limits called {limits!r:.40}", hint=f"known: {', '.join(LIMITS)}"
            )
        return LIMITS[limits]


DEFAULT_LIMITS: Final = Limits()

# For archives of strangers: what stays below them loads within seconds and a few gigabytes.
STRICT_LIMITS: Final = Limits(
    manifest_bytes=1 * _MIB,
    manifest_ratio=128,
    manifest_ratio_free_bytes=128 << 10,
    program_bytes=4 * _MIB,
    program_ratio=32,
    blobs=64,
    blob_bytes=1 * _GIB,
    total_bytes=1 * _GIB,
    ratio=100,
    ratio_free_bytes=1 * _MIB,
    list_items=4096,
    text_bytes=4 << 10,
    memory_bytes=1 * _GIB,
    depth=16,
    expanded_items=100_000,
    expanded_text_bytes=8 * _MIB,
)

LIMITS: Final = {"default": DEFAULT_LIMITS, "strict": STRICT_LIMITS}
