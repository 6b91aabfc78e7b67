"""Native kernels: the same instructions, compiled from C.  The package works without them."""

from __future__ import annotations

from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names
from popc_runtime.native.binding import NativeBinding, Space
from popc_runtime.native.direct import DirectRun, Transfer
from popc_runtime.native.encode import encode, native_opcodes
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

if TYPE_CHECKING:
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

# Calls of numpy functions are looked at where there are such.
__getattr__ = lazy_names(__name__, {"translate": "popc_runtime.native.translation"})
