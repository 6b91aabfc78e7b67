"""Images, signals and loops of sizes that data decides, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

import popc
from popc_runtime.errors import DataDependentShapeError, DeviceError
from tests.support.sized import compare, draw, model_of

# A signal [1, 5, n + 3], and a picture [1, 1, 5, n + 3].
_SIGNAL: Final = """
    rows = Concat<axis = 0>(r, y)
    turned = Transpose(rows)
    signal = Unsqueeze(turned, l0)
    picture = Unsqueeze(signal, l0)
    kernel = Constant<value = float[2, 5, 3] {1, 2, 3, 4, 5, -6, 7, 8, 9, -1, 2, 3, 4, 5, 6, 7, 8,
        9, 1, 2, -3, 4, 5, 6, 7, -8, 9, 1, 2, 3}>()
    spread = Constant<value = float[5, 1, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, -2, 3, 4, -5, 6}>()
    one = Constant<value_ints = [1]>()
    five = Constant<value_ints = [5]>()
    nine = Constant<value_ints = [9]>()
    many = Add(k1, five)
    k5 = Min(many, nine)
"""

_IMAGES: Final = """
convolution: out = Conv(signal, kernel)
convolution with a border: out = Conv<pads = [2, 1]>(signal, kernel)
convolution by steps: out = Conv<pads = [1, 1], strides = [2]>(signal, kernel)
wide convolution: out = Conv<pads = [2, 2], dilations = [2]>(signal, kernel)
convolution of the same size: out = Conv<auto_pad = "SAME_UPPER">(signal, kernel)
two convolutions: a = Conv<pads = [1, 1]>(signal, kernel) b = Relu(a) m = Constant<value =
    float[3, 2, 3] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9}>() out =
    Conv<pads = [1, 1]>(b, m)
depthwise: out = Conv<group = 5>(signal, spread)
transposed: out = ConvTranspose<group = 5, strides = [2], pads = [1, 0]>(signal, spread)
transposed with more: out = ConvTranspose<group = 5, strides = [3], output_padding = [1]>(signal,
    spread)
convolution of bytes: q, s, z = DynamicQuantizeLinear(signal) w = Cast<to = 3>(kernel) a =
    ConvInteger<pads = [1, 1]>(q, w, z) out = Cast<to = 1>(a)
product of bytes: q, s, z = DynamicQuantizeLinear(r) w = Cast<to = 3>(v) v = Transpose(y) a =
    MatMulInteger(q, w, z) out = Cast<to = 1>(a)
largest: out = MaxPool<kernel_shape = [2], strides = [2]>(signal)
largest with a border: out = MaxPool<kernel_shape = [3], pads = [1, 1]>(signal)
means: out = AveragePool<kernel_shape = [2]>(signal)
means with a border: out = AveragePool<kernel_shape = [3], pads = [1, 1], strides = [2]>(signal)
means of zeros too: out = AveragePool<kernel_shape = [3], pads = [1, 1], count_include_pad =
    1>(signal)
mean: out = GlobalAveragePool(signal)
maximum: out = GlobalMaxPool(signal)
normalised: out = BatchNormalization(signal, a, a, a, a) a = Constant<value_floats = [1.0, 2.0,
    3.0, 4.0, 5.0]>()
enlarged: s = Constant<value_floats = [1.0, 1.0, 2.0]>() e = Constant<value = float[0] {}>() out
    = Resize<mode = "linear">(signal, e, s)
smaller: s = Constant<value_floats = [1.0, 1.0, 0.6]>() out = Resize<nearest_mode = "floor",
    coordinate_transformation_mode = "asymmetric">(signal, , s)
to a size: s = Concat<axis = 0>(one, one, k5, k5) d = Unsqueeze(t, l0) t = Unsqueeze(y, l0) out =
    Resize<mode = "linear">(d, , , s)
to a size by corners: s = Concat<axis = 0>(one, one, five, k5) out = Resize<mode = "linear",
    coordinate_transformation_mode = "align_corners">(picture, , , s)
to a size by PyTorch: s = Concat<axis = 0>(one, one, five, k5) out = Resize<mode = "linear",
    coordinate_transformation_mode = "pytorch_half_pixel">(picture, , , s)
to a size, cubic: s = Concat<axis = 0>(one, one, k5, five) out = Resize<mode = "cubic">(picture,
    , , s)
to a size, nearest: s = Concat<axis = 0>(one, one, k5, k5) out = Resize(picture, , , s)
to a size, nearest above: s = Concat<axis = 0>(one, one, k5, k5) out = Resize<nearest_mode =
    "round_prefer_ceil", coordinate_transformation_mode = "asymmetric">(picture, , , s)
positions: two = Constant<value_ints = [2]>() a = Slice(r, l0, two, l1) b = Unsqueeze(a, l0) d =
    Unsqueeze(b, l0) i = Constant<value = float[1, 2, 2, 3] {1, 2, 3, 4, 5, -6, 7, 8, 9, -1, 2,
    3}>() out = GridSample(i, d)
rows of images: a = Unsqueeze(r, l1) s = Constant<value_floats = [1.0, 1.0, 2.0]>() out =
    Resize<mode = "linear">(a, , s)
"""

_YES: Final = "yes = Constant<value = bool {1}>() "
_BODY: Final = "<body = each (int64 i, bool go"

_LOOPS: Final = f"""
rows: out = Loop(k, yes){_BODY}) => (bool on, float[5] row) {{ on = Identity(go) row =
    Gather<axis = 0>(x, i) }}>
rows of rows: n = Shape<start = 0, end = 1>(r) m = Squeeze(n) out = Loop(m, yes){_BODY}) =>
    (bool on, float[5] row) {{ on = Identity(go) row = Gather<axis = 0>(r, i) }}>
rows and a sum: a, b = Loop(k, yes, zero){_BODY}, float s) => (bool on, float t, float u) {{
    on = Identity(go) c = Cast<to = 1>(i) t = Add(s, c) u = Mul(t, c) }}> out = Add(a, b)
rows until: a, b = Loop(k, yes, zero){_BODY}, float s) => (bool on, float t, float u) {{
    c = Cast<to = 1>(i) t = Add(s, c) limit = Constant<value = float {{1.0}}>() on =
    Less(t, limit) u = Mul(t, c) }}> out = Add(a, b)
joined rows: e = Constant<value = float[0, 5] {{}}>() out = Loop(k, yes, e){_BODY},
    float[n, 5] s) => (bool on, float[m, 5] t) {{ on = Identity(go) a = Gather<axis = 0>(x, i)
    b = Unsqueeze(a, l0) t = Concat<axis = 0>(s, b) }}>
joined rows of scripts: e = Constant<value = float[0, 5] {{}}>() out = Loop(k, yes, e){_BODY},
    float[n, 5] s) => (bool on, float[m, 5] t) {{ on = Identity(go) a = Gather<axis = 0>(x, i)
    b = Unsqueeze(a, l0) c = Cast<to = 1>(s) t = Concat<axis = 0>(c, b) }}>
joined columns: out = Loop(k, yes, x){_BODY}, float[4, n] s) => (bool on, float[4, m] t) {{
    on = Identity(go) a = Constant<value_ints = [0, 2]>() b = Gather<axis = 1>(x, a) c = Cast<to =
    1>(i) d = Mul(b, c) t = Concat<axis = 1>(s, d) }}>
joined rows of parts: e = Constant<value = float[1, 5] {{1, 2, 3, 4, 5}}>() four = Sub(v, h) v =
    Constant<value_ints = [5]>() g = Min(k1, v) h = Max(g, l0) out =
    Loop(k, yes, e){_BODY}, float[n, 5] s) => (bool on, float[m, 5] t) {{
    on = Identity(go) a = Gather<axis = 0>(x, i) b = Slice(a, l0, h) c =
    ConstantOfShape(four) d = Concat<axis = 0>(b, c) f = Unsqueeze(d, l0) t = Concat<axis = 0>(s,
    f) }}>
"""


def _cases(text: str) -> Iterator[tuple[str, str]]:
    for line in text.replace("\n    ", " ").strip().splitlines():
        name, body = line.split(": ", 1)
        yield name, body


@pytest.mark.parametrize(("case", "body"), list(_cases(_IMAGES)))
def test_images_and_signals(case: str, body: str) -> None:
    seeds = (0, 1, 4) if case in ("rows of images", "product of bytes") else (0, 1, 2, 4)
    compare(model_of(_SIGNAL + body, opset=19), [draw(seed) for seed in seeds])


@pytest.mark.parametrize(("case", "body"), list(_cases(_LOOPS)))
def test_rows_that_loops_collect(case: str, body: str) -> None:
    """No iteration, some, and as many as there can be."""
    del case
    samples = [{**draw(seed), "k": np.array(k, np.int64)} for seed, k in enumerate((2, 0, 3, 1))]
    bound = {"b": 4} if "a, b = Loop" in body else {} if "Loop(m" in body else {"out": 12}
    options = {"bounds": bound}
    compare(model_of(_YES + body), samples, options=options)


def test_more_iterations_than_planned_are_an_error() -> None:
    (body,) = (body for name, body in _cases(_LOOPS) if name == "rows")
    program = popc.compile(model_of(_YES + body), options={"bounds": {"out": 2}}).load()
    inputs = draw(0)
    assert program.run({**inputs, "k": np.int64(2)})["out"].shape == (2, 5)
    with pytest.raises(DeviceError, match=r"'out' has a size of 3, but at most 2"):
        program.run({**inputs, "k": np.int64(3)})
    with pytest.raises(DataDependentShapeError, match="--bound out=N"):
        popc.compile(model_of(_YES + body))


def test_as_many_random_numbers_as_data_says() -> None:
    body = "out = RandomUniformLike(r)"
    program = popc.compile(model_of(body)).load()
    for seed in range(3):
        inputs = draw(seed)
        found = program.run(inputs)["out"]
        assert found.shape == ((inputs["x"][:, 0] > 0).sum(), 5)
        assert ((found >= 0) & (found < 1)).all()
