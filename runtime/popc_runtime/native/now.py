"""Records that run once, while a program is prepared."""

from __future__ import annotations

from popc_runtime.native.library import find_library
from popc_runtime.native.program import NativeProgram
from popc_runtime.native.record import Record

__all__ = ["run_now"]


def run_now(record: Record) -> None:
    """Run a record whose operands are final."""
    library = find_library()
    assert library is not None, "encoders are asked where there is a library"
    NativeProgram(library, [record], record, 1).run()
