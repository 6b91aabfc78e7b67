"""Models of which data decides sizes, compared with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import parser

import popc
from popc_runtime.format import Array

__all__ = ["compare", "draw", "expected_results", "is_accepted", "model_of"]

# x [4, 5] and y [3, 5] of floats, k in 0..3: rows r [n, 5], their places p [n], columns c [m].
_HEAD: Final = """<ir_version: 9, opset_import: ["": OPSET]>
sized (float[4, 5] x, float[3, 5] y, int64 k) => (OUTPUTS) {
    zero = Constant<value = float {0.0}>()
    l0 = Constant<value_ints = [0]>()
    l1 = Constant<value_ints = [1]>()
    lm1 = Constant<value_ints = [-1]>()
    positive = Greater(x, zero)
    flags = Gather<axis = 1>(positive, l0)
    mask = Squeeze(flags, l1)
    r = Compress<axis = 0>(x, mask)
    places = NonZero(mask)
    p = Squeeze(places, l0)
    row = Gather<axis = 0>(positive, k)
    columns = NonZero(row)
    c = Squeeze(columns, l0)
    k1 = Unsqueeze(k, l0)
"""


def model_of(body: str, outputs: str = "float out", opset: int = 18) -> onnx.ModelProto:
    """A model that goes on from prepared tensors of sizes that data decides.

    They are rows r [n, 5] of x, their places p [n], and columns c [m]; constants l0, l1, lm1 are
    lists of one number, ``k1`` that of k.
    """
    head = _HEAD.replace("OPSET", str(opset)).replace("OUTPUTS", outputs)
    model = parser.parse_model(f"{head}{body}\n}}")
    for output in model.graph.output:  # any rank
        output.type.tensor_type.ClearField("shape")
    return model


def draw(seed: int) -> dict[str, Array]:
    """Inputs of `model_of`; every third seed selects nothing, every third all."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((4, 5)), rng.standard_normal((3, 5))
    if seed % 3:
        x[:, 0] = np.abs(x[:, 0]) * (1 if seed % 3 == 1 else -1)
    k = np.int64(rng.integers(4))
    return {"x": x.astype(np.float32), "y": y.astype(np.float32), "k": np.array(k)}


def expected_results(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The results of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def is_accepted(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> bool:
    """True unless onnxruntime refuses the inputs: maxima of nothing, for example."""
    try:
        expected_results(model, inputs)
    except Exception as error:  # noqa: BLE001 - its classes are no public names
        return "ONNXRuntimeError" not in str(error)
    return True


def compare(
    model: onnx.ModelProto,
    samples: Sequence[Mapping[str, Array]],
    atol: float = 1e-6,
    **keywords: Any,
) -> None:
    """Run ``model`` on each sample and compare shapes, types and values."""
    program = popc.compile(model, **keywords).load()
    for inputs in samples:
        expected = expected_results(model, inputs)
        found = program.run(dict(inputs))
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name].dtype == value.dtype
            np.testing.assert_allclose(
                found[name], value, rtol=1e-5, atol=atol, err_msg=f"{name} of {inputs}"
            )
            assert found[name].shape == value.shape, name
