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
# A matrix b [5, 3] of bytes.
_MATRIX: Final = "b = Transpose(u)"

_CASES: Final = {
    "there and back": "out = com.microsoft.DequantizeLinear(q, s, z)",
    "sum": "a = com.microsoft.QLinearAdd(q, s, z, q, s, z, s, z) out = DequantizeLinear(a, s, z)",
    "product with a row": "b = Gather<axis = 0>(u, l0) "
    "a = com.microsoft.QLinearMul(b, s, z, q, s, z, s, z) out = DequantizeLinear(a, s, z)",
    "table": "a = com.microsoft.QLinearLeakyRelu<alpha = 0.5>(q, s, z, s, z) "
    "out = DequantizeLinear(a, s, z)",
    "padded by k": "a = Concat<axis = 0>(l1, l0, p2, l1) p2 = Mod(k1, q2) q2 = Constant<value_ints "
    "= [3]>() out = com.microsoft.Pad(y, a)",
    "gelu": "out = com.microsoft.Gelu(r)",
    "gelu of a sum": "b = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() "
    "out = com.microsoft.BiasGelu(r, b)",
    "gemm": 'out = com.microsoft.FusedGemm<activation = "Relu", transB = 1>(r, y)',
    "matmul": "t = Transpose(y) out = com.microsoft.FusedMatMul<alpha = 0.5>(r, t)",
    "matmul by rows": "out = com.microsoft.FusedMatMul<alpha = 0.5, transB = 1>(r, y)",
    "matmul of columns": "h = Mul(r, r) out = com.microsoft.FusedMatMul<transA = 1>(h, r)",
    "matmul of batches": "a = Unsqueeze(r, l0) b = Neg(a) out = "
    "com.microsoft.FusedMatMul<transBatchA = 1, transBatchB = 1, transB = 1>(a, b)",
    "attention across": "a = Concat<axis = 0>(y, r) key = Unsqueeze(a, l0) value = Neg(key) "
    "query = Unsqueeze(x, l0) "
    "out = com.microsoft.MultiHeadAttention<num_heads = 5>(query, key, value)",
    "biased attention across": "a = Concat<axis = 0>(y, r) key = Unsqueeze(a, l0) "
    "value = Neg(key) query = Unsqueeze(x, l0) t = Transpose(a) m = MatMul(x, t) "
    "b = Unsqueeze(m, l0) d = Unsqueeze(b, l0) "
    "out = com.microsoft.MultiHeadAttention<num_heads = 1>(query, key, value, , , d)",
    "four bits": "w = Constant<value = uint8[2, 1, 8] {1, 32, 254, 3, 4, 5, 67, 8, 9, 1, 2, 3, 4, "
    "5, 6, 7}>() e = Constant<value_floats = [0.5, 0.25]>() "
    "out = com.microsoft.MatMulNBits<K = 5, N = 2, bits = 4, block_size = 16>(r, w, e)",
    "gathered four bits": "w = Constant<value = uint8[4, 8] {1, 32, 254, 3, 4, 5, 67, 8, 9, 1, 2, "
    "3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7, 8, 12, 23, 34, 45, 56, 67, 78, 89}>() "
    "e = Constant<value = float[4, 1] {0.5, 0.25, 1.0, 2.0}>() "
    "out = com.microsoft.GatherBlockQuantized<bits = 4, block_size = 16, quantize_axis = 1>(w, p, "
    "e)",
    "product of bytes": f"{_MATRIX} a = QLinearMatMul(q, s, z, b, s, z, s, z) "
    "out = DequantizeLinear(a, s, z)",
    "product of bytes to floats": f"{_MATRIX} "
    "out = com.microsoft.MatMulIntegerToFloat(q, b, s, s, z, z)",
    "product of what becomes bytes": f"{_MATRIX} "
    "out = com.microsoft.DynamicQuantizeMatMul(r, b, s, z)",
    "gemm of bytes": f"{_MATRIX} out = com.microsoft.QGemm(q, s, z, b, s, z, , , )",
    "normalised sum": "g = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() a = Neg(r) "
    "h = Mul(r, r) out, m, v, t = com.microsoft.SkipLayerNormalization(a, h, g, g)",
    "sum that is normalised": "g = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() a = Neg(r) "
    "h = Mul(r, r) "
    "n, m, v, out = com.microsoft.SkipSimplifiedLayerNormalization(a, h, g)",
    "normalised by squares": "g = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() "
    "out = SimplifiedLayerNormalization(r, g)",
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


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("out = com.microsoft.QGemm<transA = 1>(q, s, z, q, s, z)", "first operand only"),
        ("out = com.microsoft.QGemm<transA = 1>(q, s, z, u, s, z)", "rows of its first operand"),
        ("t = Transpose(r) out = com.microsoft.DynamicQuantizeMatMul(t, u, s, z)", "rows of its"),
        ("b = Unsqueeze(u, l0) out = MatMulInteger(q, b, z, z)", "products by one matrix"),
        (
            "t = Transpose(r) out = com.microsoft.SkipLayerNormalization(t, t, l1)",
            "in front of its last axis",
        ),
        (
            (
                "a = Unsqueeze(r, l0) "
                "out = com.microsoft.MultiHeadAttention<num_heads = 1, unidirectional = 1>(a, a, a)"
            ),
            "beside a bias, a past or scores",
        ),
        ("out = com.microsoft.GatherBlockQuantized(q, p, r)", "for its indices only"),
    ],
)
def test_sizes_elsewhere_are_refused(body: str, reason: str) -> None:
    with pytest.raises(DataDependentShapeError, match=reason):
        compare(_model(body), [draw(1)])
