"""Convolutions of bytes in each of the forms that products have."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, NativeProgram
from popc_runtime.native.encoders.integer import ByteForm, byte_conv_record
from tests.native.bindings import bound, viewed

__all__ = ["EVERYWHERE", "byte_convolution"]

EVERYWHERE: Final = (ByteForm.FASTEST, ByteForm.PORTABLE, ByteForm.WORDS)
"""Forms that all processors have."""


def byte_convolution(
    library: Library,
    inputs: list[Array | None],
    out: Array,
    form: ByteForm,
    attributes: dict[str, Any],
    constant: tuple[int, ...],
) -> Array | None:
    """The convolution in a given form; ``None`` if this processor does not have it."""
    result = np.full_like(out, 77)
    binding = bound(inputs, [result], attributes, constant)
    record = byte_conv_record(viewed(binding), form, library.numbers)
    assert record is not None
    try:
        program = NativeProgram(library, [record], binding, 1 + form % 2)
    except NativeFailure:
        assert form not in EVERYWHERE, f"{form.name} must be there"
        return None
    program.run()
    return result
