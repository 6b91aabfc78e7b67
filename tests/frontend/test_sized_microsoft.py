"""Fused and quantised operators of onnxruntime on sizes that data decides, against onnxruntime."""

from __future__ import annotations

from typing import Final

import onnx
import pytest

from popc_runtime.errors import DataDependentShapeError
from tests.support.sized import compare, draw, model_of

# Rows of bytes q [n, 5] and u [3, 5], by the scale s and the zero point z.
_BYTES: Final = """
    s = Constant<value = float {0.05}>()
    z = Constant<value = uint8 {120}>()
    q = com.microsoft.QuantizeLinear(r, s, z)
    u = com.microsoft.QuantizeLinear(y, s, z)
"""
_CASES: Final = {
    "there and back": "out = com.microsoft.DequantizeLinear(q, s, z)",
    "sum": "a = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z) out = DequantizeLinear(a, s, z)",
    "product with a row": "b = Gather<axis = 0>(u, l0) "
    "a = com.microsoft.QLinearMul(b, s, z, q, s, z, s, z) out = DequantizeLinear(a, s, z)",
    "table": "a = com.microsoft.QLinearLeakyRelu<alpha = 0.5>(q, s, z, s, z) "
    "out = DequantizeLinear(a, s, z)",
    "gelu": "out = com.microsoft.Gelu(r)",
    "gelu of a sum": "b = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() "
    "out = com.microsoft.BiasGelu(r, b)",
    "gemm": 'out = com.microsoft.FusedGemm<activation = "Relu", transB = 1>(r, y)',
    "matmul": "t = Transpose(y) out = com.microsoft.FusedMatMul<alpha = 0.5>(r, t)",
    "convolution": "w = Constant<value = float[2, 1, 3] {1, 2, 3, 4, 5, -6}>() "
    "a = Unsqueeze(r, l1) "
    'out = com.microsoft.FusedConv<activation = "Relu", kernel_shape = [3]>(a, w)',
}


def _model(body: str) -> onnx.ModelProto:
    model = model_of(_BYTES + body, opset=19)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


@pytest.mark.parametrize("case", _CASES)
def test_as_the_operators_that_they_stand_for(case: str) -> None:
    """onnxruntime works with rounded factors: a byte may differ by one step."""
    step = 0.0501 if "QLinear" in _CASES[case] else 1e-6
    compare(_model(_CASES[case]), [draw(seed) for seed in (1, 2, 4)], atol=step)


def test_transposed_factors_are_refused() -> None:
    with pytest.raises(DataDependentShapeError, match="is transposed"):
        compare(_model("out = com.microsoft.FusedMatMul<transB = 1>(r, y)"), [draw(1)])
