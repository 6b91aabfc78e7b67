"""Native kernels: the same instructions, compiled from C.  The package works without them."""

from popc_runtime.native.binding import Binding, Space
from popc_runtime.native.encode import encode, native_opcodes
from popc_runtime.native.library import Library, find_library, variants, why_missing
from popc_runtime.native.program import Branch, Item, Loop, NativeFailure, NativeProgram
from popc_runtime.native.record import Record
from popc_runtime.native.translate import translate

__all__ = [
    "Binding",
    "Branch",
    "Item",
    "Library",
    "Loop",
    "NativeFailure",
    "NativeProgram",
    "Record",
    "Space",
    "encode",
    "find_library",
    "native_opcodes",
    "translate",
    "variants",
    "why_missing",
]
