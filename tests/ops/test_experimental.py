"""Operators of early versions of ONNX, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc_runtime.errors import PopcError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_op


def _image() -> Array:
    return np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("opset", [1, 7, 9])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("Affine", {"alpha": 2.0, "beta": -0.5}),
        ("Crop", {"border": [1, 2, 3, 0]}),
        ("Crop", {"border": [1, 2, 0, 0], "scale": [3, 4]}),
        ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0, 3.0]}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("Scale", {"scale": 3.0}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
    ],
)
def test_of_images(op_type: str, attributes: dict[str, Any], opset: int) -> None:
    assert_matches_onnxruntime(op_type, [_image()], attributes, opset=opset)


def test_slices() -> None:
    starts, ends, axes = (np.array(numbers) for numbers in ([1, 0], [9, -1], [3, 1]))
    operands = [_image(), starts, ends, axes]
    assert_matches_onnxruntime("DynamicSlice", operands, opset=1, constants=(1, 2, 3))


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("Crop", {"border": [1, 2, 3]}, "3 numbers"),
        ("Crop", {"border": [1, 2, 5, 0]}, "leaves nothing"),
        ("ImageScaler", {"bias": [1.0]}, "1 biases for 3 channels"),
    ],
)
def test_refusals(op_type: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(PopcError) as caught:
        run_op(op_type, [_image()], attributes, opset=1)
    assert message in str([caught.value.message, *caught.value.details])
