"""Filling a dimension up under a mask: what is proven, what is refused, and that results stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import popc
from popc_runtime.errors import CorruptArchiveError, InputMismatchError, UsageError
from popc_runtime.format import FitMode, Manifest
from popc_runtime.format.serialization import Fields

_HEADER = '<ir_version: 10, opset_import: ["" : 18]> '
_ENCODER = """encoder (int64[batch, length] ids, int64[batch, length] mask) =>
        (float[batch, length, 8] tokens, float[batch, 8] mean, float[batch, 8] first) {
    shape = Shape (ids)
    i1 = Constant <value_ints = [1]> ()
    i0 = Constant <value_ints = [0]> ()
    length = Gather (shape, i1)
    position = Slice (positions, i0, length, i1)
    word = Gather (words, ids)
    x = Add (word, position)
    heads = Constant <value_ints = [0, 0, 2, 4]> ()
    q0 = MatMul (x, wq)
    q1 = Reshape (q0, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k0 = MatMul (x, wk)
    k1 = Reshape (k0, heads)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v0 = MatMul (x, wv)
    v1 = Reshape (v0, heads)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    s = MatMul (q, k)
    two = Constant <value_float = 2.0> ()
    scaled = Div (s, two)
    i12 = Constant <value_ints = [1, 2]> ()
    m4 = Unsqueeze (mask, i12)
    MASKED
    p = Softmax <axis = -1> (masked)
    o = MatMul (p, v)
    ot = Transpose <perm = [0, 2, 1, 3]> (o)
    flat = Constant <value_ints = [0, 0, 8]> ()
    of = Reshape (ot, flat)
    r = Add (x, of)
    tokens = LayerNormalization <axis = -1> (r, gamma, beta)
    i2 = Constant <value_ints = [2]> ()
    m3 = Unsqueeze (mask, i2)
    mf = Cast <to = 1> (m3)
    counted = Mul (tokens, mf)
    sum = ReduceSum <keepdims = 0> (counted, i1)
    count = ReduceSum <keepdims = 0> (mf, i1)
    mean = Div (sum, count)
    zero = Constant <value_int = 0> ()
    first = Gather <axis = 1> (tokens, zero)
}"""
_MASKS = {
    "added": """f = Cast <to = 1> (m4) one = Constant <value_float = 1.0> ()
        out = Sub (one, f) low = Constant <value_float = -10000.0> ()
        more = Mul (out, low) masked = Add (scaled, more)""",
    "lowest": """f = Cast <to = 1> (m4) one = Constant <value_float = 1.0> ()
        out = Sub (one, f) low = Constant <value_float = -3.4028234663852886e38> ()
        more = Mul (out, low) masked = Add (scaled, more)""",
    "chosen": """zero64 = Constant <value_int = 0> () gone = Equal (m4, zero64)
        low = Constant <value_float = -1e38> () masked = Where (gone, low, scaled)""",
}


def _encoder(masked: str) -> onnx.ModelProto:
    model = parser.parse_model(_HEADER + _ENCODER.replace("MASKED", masked))
    draw = np.random.default_rng(0)
    shapes = {"words": (50, 8), "positions": (1, 64, 8), "gamma": (8,), "beta": (8,)}
    shapes |= dict.fromkeys(("wq", "wk", "wv"), (8, 8))
    for name, shape in shapes.items():
        array = draw.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _requests(batch: int, length: int) -> dict[str, Any]:
    draw = np.random.default_rng(batch + 10 * length)
    mask = np.ones((batch, length), np.int64)
    mask[0, length // 2 + 1 :] = 0
    return {"ids": draw.integers(0, 50, (batch, length)), "mask": mask}


@pytest.mark.parametrize("kind", _MASKS)
def test_what_a_mask_leaves_out_may_be_filled_up(kind: str) -> None:
    model = _encoder(_MASKS[kind])
    pad: dict[str, Mapping[str, float]] = {"batch": {}, "length": {"mask": 0}}
    archive = popc.compile(model, dims={"batch": [1, 4], "length": [8, 16]}, pad=pad)
    fits = {fit.dimension: fit for fit in archive.manifest.fits}
    assert fits["length"].modes == (FitMode.FILL,)
    assert fits["length"].outputs == {"tokens": 1}
    assert fits["length"].fills == {"mask": "0"}
    executable = archive.load()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for batch, length in ((1, 8), (1, 3), (2, 5), (3, 16), (4, 11), (1, 1)):
        given = _requests(batch, length)
        expected = dict(zip(("tokens", "mean", "first"), session.run(None, given), strict=True))
        found = executable(**given)
        buffers = executable.run_buffers(given)
        for name, array in expected.items():
            assert found[name].shape == array.shape
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(np.asarray(buffers[name]), found[name])


def test_a_sample_in_which_nothing_counts_is_refused() -> None:
    archive = popc.compile(
        _encoder(_MASKS["lowest"]), dims={"batch": 2, "length": [8]}, pad={"length": {"mask": 0}}
    )
    given = _requests(2, 5)
    given["mask"][1] = 0
    executable = archive.load()
    for run in (executable.run, executable.run_buffers):
        with pytest.raises(InputMismatchError, match="'mask' is 0 everywhere along length"):
            run(given)


_CAUSAL = """causal (float[batch, length, 4] x) => (float[batch, length, 4] y) {
    t = Transpose <perm = [0, 2, 1]> (x)
    s = MatMul (x, t)
    shape = Shape (x)
    i1 = Constant <value_ints = [1]> ()
    n = Gather (shape, i1)
    nn = Concat <axis = 0> (n, n)
    one = Constant <value_float = 1.0> ()
    ones = Expand (one, nn)
    after = Constant <value_int = 1> ()
    above = Trilu <upper = 1> (ones, after)
    low = Constant <value_float = -1e9> ()
    more = Mul (above, low)
    masked = Add (s, more)
    p = Softmax <axis = -1> (masked)
    y = MatMul (p, x)
}"""
_LAYERS = """layers (float[length, batch, 4] x, int32[batch] lengths) => (float[k, l, m, n] y, h) {
    y, h = LSTM <hidden_size = 3, direction = "bidirectional"> (x, w, r, "", lengths)
}"""


def test_a_causal_mask_needs_no_input() -> None:
    model = parser.parse_model(_HEADER + _CAUSAL)
    executable = popc.compile(model, dims={"batch": 2, "length": [4, 8]}, pad=["length"]).load()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for length in (1, 3, 7):
        x = np.random.default_rng(length).standard_normal((2, length, 4)).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(executable(x)["y"], expected, rtol=1e-5, atol=1e-6)


def test_recurrent_layers_need_lengths() -> None:
    model = parser.parse_model(_HEADER + _LAYERS)
    draw = np.random.default_rng(0)
    for name, shape in {"w": (2, 12, 4), "r": (2, 12, 3)}.items():
        array = draw.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    executable = popc.compile(model, dims={"batch": 2, "length": [4, 8]}, pad=["length"]).load()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for length in (2, 3, 7):
        given = {
            "x": draw.standard_normal((length, 2, 4)).astype(np.float32),
            "lengths": np.array([length, length - 1], np.int32),
        }
        for name, expected in zip(("y", "h"), session.run(None, given), strict=True):
            np.testing.assert_allclose(executable(**given)[name], expected, rtol=1e-5, atol=1e-6)
    del model.graph.node[0].input[4:]
    with pytest.raises(UsageError, match="LSTM"):
        popc.compile(model, dims={"batch": 2, "length": [4, 8]}, pad=["length"])


@pytest.mark.parametrize(
    ("body", "fills", "message"),
    [
        ("y = Softmax <axis = 1> (x)", {}, "Softmax"),
        ("y = ReduceMean <keepdims = 0> (x, axes)", {"x": 0}, "divides by the number"),
        ("y = ReduceMax <keepdims = 0> (x, axes)", {"x": 0}, "looks at positions"),
        ("y = ReduceSum <keepdims = 0> (x, axes)", {"x": 1}, "not known to be 0"),
        ("e = Exp (x) y = ReduceSum <keepdims = 0> (e, axes)", {"x": 0}, "not known to be 0"),
        ("l = Log (x) p = Mul (l, x) y = ReduceSum (p, axes)", {"x": 0}, "not known to be 0"),
        ("y = Reshape (x, flat)", {"x": 0}, "in one axis with other dimensions"),
        ("y = Gather <axis = 1> (x, last)", {"x": 0}, "reads from the end"),
        ("y, i = TopK <axis = 1> (x, axes)", {"x": 0}, "nothing is known"),
        ("s = Size (x) f = Cast <to = 1> (s) y = Mul (x, f)", {"x": 0}, "depend on the size"),
        ("y = Relu (x)", {"z": 0}, "input 'z' does not have this dimension"),
    ],
)
def test_what_may_count_is_refused(body: str, fills: dict[str, float], message: str) -> None:
    text = f"""{_HEADER} g (float[2, length] x, float[2] z) => (y) {{
        axes = Constant <value_ints = [1]> () flat = Constant <value_ints = [-1]> ()
        last = Constant <value_int = -1> () {body} }}"""
    with pytest.raises(UsageError, match=message):
        popc.compile(parser.parse_model(text), dims={"length": [4, 8]}, pad={"length": fills})


@pytest.mark.parametrize("body", ["e = Exp (x) y = ReduceSum <keepdims = 0> (e, axes)"])
def test_what_is_low_is_nothing_in_an_exponential(body: str) -> None:
    text = f"""{_HEADER} g (float[2, length] x) => (y) {{
        axes = Constant <value_ints = [1]> () {body} }}"""
    archive = popc.compile(
        parser.parse_model(text), dims={"length": 8}, pad={"length": {"x": -10000}}
    )
    x = np.ones((2, 5), np.float32)
    np.testing.assert_allclose(archive.load()(x)["y"], np.exp(x).sum(1), rtol=1e-6)


def test_numbers_that_masks_cannot_hold_are_refused() -> None:
    archive = popc.compile(
        _encoder(_MASKS["lowest"]), dims={"batch": 1, "length": 8}, pad={"length": {"mask": 0}}
    )
    plain: Any = archive.manifest.to_dict()
    plain["fits"][0]["fills"]["mask"] = "zero"
    with pytest.raises(CorruptArchiveError, match="which is no number"):
        Manifest.from_fields(Fields(plain, "the manifest"))
    for pad in ({"length": {"mask": "0"}}, {"length": 3}):
        wrong: Any = pad
        with pytest.raises(UsageError, match="pad of 'length' is"):
            popc.compile(_encoder(_MASKS["lowest"]), dims={"batch": 1, "length": 8}, pad=wrong)
