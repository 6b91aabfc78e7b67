"""Instructions on bytes, run in each of the forms that products of bytes have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, NativeProgram
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.encoders.integer import ByteForm
from popc_runtime.native.record import Record
from tests.native.bindings import bound, viewed

__all__ = ["run_in_form"]

_EVERYWHERE: Final = (ByteForm.FASTEST, ByteForm.PORTABLE, ByteForm.WORDS)
"""Forms that all processors have."""


def run_in_form(
    encode: Callable[[NativeBinding, ByteForm, Mapping[str, int]], Record | None],
    library: Library,
    inputs: list[Array | None],
    out: Array,
    form: ByteForm,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
    threads: int,
) -> Array | None:
    """The result in a given form; ``None`` if this processor does not have it."""
    result = np.full_like(out, 77)
    binding = bound(inputs, [result], attributes, constant)
    record = encode(viewed(binding), form, library.numbers)
    assert record is not None
    try:
        program = NativeProgram(library, [record], binding, threads)
    except NativeFailure:
        assert form not in _EVERYWHERE, f"{form.name} must be there"
        return None
    program.run()
    return result
