"""Rules for single ops: results of what is filled up are those of single-shape archives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import popc
from popc_runtime.errors import UsageError

_X = "float[batch, length, 8] x"
_MASK = "float[batch, length] mask"
_CHANNELS = "float[batch, 8, length] x"
_WEIGHTS = {
    "w": (8, 8),
    "b": (8,),
    "wide": (6, 8, 3),
    "deep": (8, 8, 3),
    "last": (6, 8, 2),
}
_NUMBERS = """one = Constant <value_float = 1.0> () low = Constant <value_float = -10000.0> ()
    high = Constant <value_float = 10000.0> () i1 = Constant <value_ints = [1]> ()
    i2 = Constant <value_ints = [2]> () i12 = Constant <value_ints = [1, 2]> ()
    none = Constant <value_float = 0.0> () rows = Constant <value_ints = [-1, 8]> ()
    m3 = Unsqueeze (mask, i2) c3 = Unsqueeze (mask, i1) visible = Cast <to = 9> (mask)
    gone = Not (visible) m4 = Unsqueeze (mask, i12) b4 = Cast <to = 9> (m4) """
_BACK = """s = Shape (x) y = Reshape (h, s)"""
_HEADS = "q_num_heads = 2, kv_num_heads = 2"

# By name: inputs beside the mask, nodes, and the opset.
_EXACT = {
    "attention under a bool mask": (_X, f"y = Attention <{_HEADS}> (x, x, x, b4)", 23),
    "attention under an added mask": (
        _X,
        f"""out = Sub (one, m4) added = Mul (out, low)
            y = Attention <{_HEADS}, softcap = 5.0> (x, x, x, added)""",
        23,
    ),
    "causal attention": (_X, f"y = Attention <{_HEADS}, is_causal = 1> (x, x, x)", 23),
    "attention of keys that are counted": (
        _X,
        f"""n = ReduceSum <keepdims = 0> (mask, i1) count = Cast <to = 7> (n)
            y = Attention <{_HEADS}> (x, x, x, "", "", "", count)""",
        24,
    ),
    "shares of attention": (
        _X,
        f"""y, pk, pv, p = Attention <{_HEADS}, qk_matmul_output_mode = 3> (x, x, x, b4)""",
        23,
    ),
    "two layers of attention": (
        _X,
        f"""a = Attention <{_HEADS}> (x, x, x, b4) r = Add (a, x)
            y = Attention <{_HEADS}> (r, r, r, b4)""",
        23,
    ),
    "convolution behind a mask": (
        _CHANNELS,
        "k = Mul (x, c3) y = Conv <pads = [1, 1]> (k, wide)",
        17,
    ),
    "two convolutions": (
        _CHANNELS,
        """k = Mul (x, c3) h = Conv <pads = [1, 1]> (k, deep, b) l = Mul (h, c3)
            y = Conv <pads = [2, 2], dilations = [2]> (l, wide)""",
        17,
    ),
    "causal convolution": (_CHANNELS, "y = Conv <pads = [2, 0]> (x, wide)", 17),
    "mean under a mask": (
        _X,
        """k = Mul (x, m3) s = ReduceSum <keepdims = 0> (k, i1)
            n = ReduceSum <keepdims = 1> (mask, i1) y = Div (s, n)""",
        17,
    ),
    "largest": (_X, "k = Where (gone3, low, x) y = ReduceMax <keepdims = 0> (k, i1)", 18),
    "smallest": (_X, "k = Where (gone3, high, x) y = ReduceMin <keepdims = 0> (k, i1)", 18),
    "product": (_X, "k = Where (gone3, one, x) y = ReduceProd <keepdims = 0> (k, i1)", 18),
    "place of the largest": (
        _X,
        "k = Where (gone3, low, x) y = ArgMax <axis = 1, keepdims = 0> (k)",
        18,
    ),
    "place of the smallest": (_X, "k = Where (gone3, high, x) y = ArgMin <axis = 1> (k)", 18),
    "rows of all samples in a matrix": (
        _X,
        f"f = Reshape (x, rows) g = Gemm (f, w, b) a = Relu (g) h = MatMul (a, w) {_BACK}",
        17,
    ),
    "rows of all samples, normalised": (
        _X,
        f"""f = Reshape (x, rows) n = LayerNormalization (f, b, b) p = Softmax (n)
            e = Add (p, f) h = Gemm <transB = 1> (e, w) {_BACK}""",
        17,
    ),
    "masked rows of all samples": (
        _X,
        """flat = Constant <value_ints = [-1, 1]> () f = Reshape (x, rows) m = Reshape (mask, flat)
            k = Mul (f, m) i0 = Constant <value_ints = [0]> ()
            y = ReduceSum <keepdims = 0> (k, i0)""",
        17,
    ),
}


def _model(inputs: str, nodes: str, opset: int) -> onnx.ModelProto:
    gone3 = "" if opset < 18 else "gone3 = Unsqueeze (gone, i2)"
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}, {_MASK}) => (y) {{'
    model = parser.parse_model(f"{text} {_NUMBERS} {gone3} {nodes} }}")
    draw = np.random.default_rng(0)
    for name, shape in _WEIGHTS.items():
        array = (draw.standard_normal(shape) / 2).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _inputs(model: onnx.ModelProto, length: int) -> dict[str, Any]:
    """Three samples, of which one is shorter than the others."""
    draw = np.random.default_rng(length)
    mask = np.ones((3, length), np.float32)
    mask[1, (length + 1) // 2 :] = 0
    sizes = {"batch": 3, "length": length}
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [sizes.get(dim.dim_param, dim.dim_value) for dim in dims]
    return {"x": draw.standard_normal(shape).astype(np.float32), "mask": mask}


@pytest.mark.parametrize("name", _EXACT)
def test_results_are_those_of_single_shapes(name: str) -> None:
    model = _model(*_EXACT[name])
    together = popc.compile(
        model, dims={"batch": 3, "length": [4, 9]}, pad={"length": {"mask": 0}}
    ).load()
    for length in (1, 7):
        given = _inputs(model, length)
        alone = popc.compile(model, dims={"batch": 3, "length": length}).load()
        used = {spec.name: given[spec.name] for spec in alone.inputs}
        found, expected = together(**given)["y"], alone(**used)["y"]
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "nodes", "opset", "message"),
    [
        (_X, f"y = Attention <{_HEADS}> (x, x, x)", 23, "no mask, lengths or order hides"),
        (
            _X,
            f"seen = Cast <to = 9> (one) y = Attention <{_HEADS}> (x, x, x, seen)",
            23,
            "no mask, lengths or order hides",
        ),
        (
            _X,
            f"""n = ReduceSum <keepdims = 0> (mask, i1) count = Cast <to = 7> (n)
                y = Attention <{_HEADS}, is_causal = 1> (x, x, x, "", "", "", count)""",
            24,
            "is counted from its last one",
        ),
        (
            _X,
            f"""k = Mul (x, m3) l = Log (k) y = Attention <{_HEADS}> (x, x, l, b4)""",
            23,
            "no numbers where they are filled up",
        ),
        (_CHANNELS, "y = Conv <pads = [1, 1]> (x, wide)", 17, "multiply by the mask in front"),
        (
            _CHANNELS,
            "k = Mul (x, c3) y = Conv <pads = [1, 1], strides = [2]> (k, wide)",
            17,
            "its stride is not 1",
        ),
        (_CHANNELS, "k = Mul (x, c3) y = Conv (k, last)", 17, "its padding not that of its kernel"),
        (_X, "y = ReduceMean <keepdims = 0, axes = [1]> (x)", 17, "use a sum and mask"),
        (_X, "k = Mul (x, m3) y = ReduceMax <keepdims = 0> (k, i1)", 18, "not known to be low"),
        (_X, "k = Mul (x, m3) y = ReduceMin <keepdims = 0> (k, i1)", 18, "not known to be high"),
        (_X, "k = Mul (x, m3) y = ReduceProd <keepdims = 0> (k, i1)", 18, "not known to be 1"),
        (_X, "k = Mul (x, m3) y = ArgMax <axis = 1> (k)", 18, "not known to be low"),
        (_X, "y = Reshape (x, rows)", 17, "in one axis with other dimensions"),
        (
            _X,
            "f = Reshape (x, rows) i0 = Constant <value_int = 0> () y = CumSum (f, i0)",
            17,
            "an axis that holds positions of several samples",
        ),
        (
            _X,
            """t = Transpose <perm = [1, 0, 2]> (x) f = Reshape (x, rows) g = Reshape (t, rows)
                y = Add (f, g)""",
            17,
            "an axis that holds positions of several samples",
        ),
        (
            _X,
            "f = Reshape (x, rows) t = Transpose (f) y = MatMul (f, t)",
            17,
            "along two axes",
        ),
        (
            _X,
            "f = Reshape (x, rows) t = Transpose (f) y = MatMul (t, f)",
            17,
            "not known to be 0",
        ),
    ],
)
def test_what_may_count_is_refused(inputs: str, nodes: str, opset: int, message: str) -> None:
    model = _model(inputs, nodes, opset)
    with pytest.raises(UsageError, match=message):
        popc.compile(model, dims={"batch": 3, "length": [4, 9]}, pad={"length": {"mask": 0}})
