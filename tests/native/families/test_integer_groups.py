"""Products of bytes in narrow groups, and with zero points of 0, are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import find_library
from popc_runtime.native.encoders.integer import ByteForm, byte_conv_record
from popc_runtime.native.library import variants
from tests.native.bindings import numpy_results
from tests.native.byte_forms import run_in_form


def _bytes(dtype: str, *shape: int, seed: int = 0) -> Array:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(seed)
    return random.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("constant", [(), (1, 2, 3)])
@pytest.mark.parametrize("zeros", ["none", "0", "of each", "of the last"])
@pytest.mark.parametrize(
    ("groups", "of_group", "times"),
    [(2, 1, 1), (17, 1, 1), (40, 1, 1), (64, 1, 1), (3, 2, 5), (2, 12, 16), (2, 13, 16), (4, 1, 9)],
)
def test_narrow_groups_and_zero_points_of_0(
    variant: str, groups: int, of_group: int, times: int, zeros: str, constant: tuple[int, ...]
) -> None:
    """How bytes are multiplied depends on both."""
    library = find_library(variant)
    assert library is not None
    outs = groups * times
    of_each = np.zeros((outs, 1, 1, 1), np.int8)
    if zeros == "of the last":
        of_each[-1] = -3
    inputs: list[Array | None] = [
        _bytes("uint8", 2, groups * of_group, 6, 7),
        _bytes("int8", outs, of_group, 3, 3, seed=1),
        np.zeros((), np.uint8) if zeros == "of each" else np.array(200, np.uint8),
        {"none": None, "0": np.zeros((), np.int8)}.get(zeros, of_each),
        None,
    ]
    attributes = {"dtype": "int32", "group": groups, "kernel_shape": (3, 3), "pads": (1,) * 4}
    out = np.empty((2, outs, 6, 7), np.int32)
    expected = numpy_results("ConvInteger", inputs, [out], attributes, constant)[0]
    for form in ByteForm:
        result = run_in_form(
            byte_conv_record, library, inputs, out, form, attributes, constant, 1 + form % 2
        )
        if result is not None:
            np.testing.assert_array_equal(result, expected, form.name)
