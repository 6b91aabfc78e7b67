"""Native kernels: the same instructions, compiled from C.  The package works without them."""

from __future__ import annotations

from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.native.binding import NativeBinding, Space
    from popc_runtime.native.direct import DirectRun, Transfer
    from popc_runtime.native.encoding import encode, native_opcodes
    from popc_runtime.native.library import (
        Library,
        fast_sha256,
        find_library,
        variants,
        wanted_variant,
        why_missing,
    )
    from popc_runtime.native.program import Branch, Item, Loop, NativeFailure, NativeProgram
    from popc_runtime.native.record import Record
    from popc_runtime.native.translation import translate

__all__ = [
    "Branch",
    "DirectRun",
    "Item",
    "Library",
    "Loop",
    "NativeBinding",
    "NativeFailure",
    "NativeProgram",
    "Record",
    "Space",
    "Transfer",
    "encode",
    "fast_sha256",
    "find_library",
    "native_opcodes",
    "translate",
    "variants",
    "wanted_variant",
    "why_missing",
]

# The compiler asks about the library and runs nothing; calls of numpy functions are looked at where
# there are such.
__getattr__ = lazy_names(
    __name__,
    {
        "Branch": "popc_runtime.native.program",
        "DirectRun": "popc_runtime.native.direct",
        "Item": "popc_runtime.native.program",
        "Library": "popc_runtime.native.library",
        "Loop": "popc_runtime.native.program",
        "NativeBinding": "popc_runtime.native.binding",
        "NativeFailure": "popc_runtime.native.program",
        "NativeProgram": "popc_runtime.native.program",
        "Record": "popc_runtime.native.record",
        "Space": "popc_runtime.native.binding",
        "Transfer": "popc_runtime.native.direct",
        "encode": "popc_runtime.native.encoding",
        "fast_sha256": "popc_runtime.native.library",
        "find_library": "popc_runtime.native.library",
        "native_opcodes": "popc_runtime.native.encoding",
        "translate": "popc_runtime.native.translation",
        "variants": "popc_runtime.native.library",
        "wanted_variant": "popc_runtime.native.library",
        "why_missing": "popc_runtime.native.library",
    },
)
