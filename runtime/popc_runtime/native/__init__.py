"""Native kernels: the same instructions, compiled from C.  The package works without them."""

from popc_runtime.native.encode import encode, native_opcodes
from popc_runtime.native.library import Library, find_library, why_missing
from popc_runtime.native.program import Branch, Item, Loop, NativeProgram
from popc_runtime.native.record import Record

__all__ = [
    "Branch",
    "Item",
    "Library",
    "Loop",
    "NativeProgram",
    "Record",
    "encode",
    "find_library",
    "native_opcodes",
    "why_missing",
]
