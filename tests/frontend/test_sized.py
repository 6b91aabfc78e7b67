"""Sizes that data decides, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import popc
from popc_runtime.errors import DataDependentShapeError, DeviceError, UsageError
from popc_runtime.format import Array
from tests.support.sized import compare, draw, expected_results, is_accepted, model_of

# Name, type of the result, and what follows the tensors of `model_of`; indented lines go on.
_CASES: Final = """
places: int64: out = Identity(places)
coordinates: int64: out = NonZero(positive)
rows: float: out = Identity(r)
shape: int64: out = Shape(r)
size: int64: out = Size(r)
elementwise: float: a = Mul(r, r) out = Sqrt(a)
rows and a row: float: a = Gather<axis = 0>(y, l1) out = Add(r, a)
rows and all rows: float: out = Where(a, r, b) a = Greater(r, zero) b = Neg(r)
two sizes: float: a = Cast<to = 1>(p) b = Unsqueeze(a, l1) d = Cast<to = 1>(c) out = Add(b, d)
transposed: float: out = Transpose(r)
flat: float: out = Flatten<axis = 0>(r)
flat behind: float: a = Unsqueeze(r, l1) out = Flatten<axis = 1>(a)
reshaped: float: s = Constant<value_ints = [-1, 5, 1]>() out = Reshape(r, s)
reshaped by zero: float: s = Constant<value_ints = [0, 1, -1]>() out = Reshape(r, s)
one row: float: s = Constant<value_ints = [1, -1]>() out = Reshape(r, s)
columns flat: float: a = Transpose(r) out = Reshape(a, lm1)
columns as rows: float: a = Transpose(r) s = Constant<value_ints = [-1, 5]>() out = Reshape(a, s)
own shape: float: s = Shape(r) out = Reshape(r, s)
swapped shape: float: s = Shape(r) i = Constant<value_ints = [1, 0]>() t = Gather(s, i) out =
    Reshape(r, t)
squeezed: float: a = Unsqueeze(r, l1) out = Squeeze(a, l1)
joined before: float: out = Concat<axis = 0>(r, y)
joined behind: float: out = Concat<axis = 0>(y, r)
joined thrice: float: out = Concat<axis = 0>(r, y, r, r)
joined columns: float: out = Concat<axis = 1>(r, r)
joined sequence: float: a = SequenceConstruct(y, r) out = ConcatFromSequence<axis = 0>(a)
joined elements: float: a = SequenceEmpty() b = SequenceInsert(a, r) d = Neg(r) e =
    SequenceInsert(b, d) out = ConcatFromSequence<axis = -1>(e)
stacked elements: float: a = SequenceConstruct(r, r) out = ConcatFromSequence<axis = 1,
    new_axis = 1>(a)
split columns: float: a = SplitToSequence<axis = 1>(r) out = ConcatFromSequence<axis = 1>(a)
split columns apart: float: a = SplitToSequence<axis = 1, keepdims = 0>(r) i = Constant<value_int
    = 1>() out = SequenceAt(a, i)
joined sizes: float: a = Gather<axis = 1>(r, c) out = Concat<axis = 1>(r, a, r)
sum: float: out = ReduceSum<keepdims = 0>(r)
sum of rows: float: out = ReduceSum(r, l0)
sum of columns: float: out = ReduceSum<keepdims = 0>(r, l1)
norm: float: out = ReduceL2(r, l0)
product: float: out = ReduceProd(r, l0)
softmax: float: a = Transpose(r) out = Softmax<axis = 1>(a)
softmax of rows: float: out = Softmax<axis = -1>(r)
running sum: float: out = CumSum(r, l0)
running sum from the end: float: out = CumSum<reverse = 1>(r, l0)
counted by running sums: int64: a = Cast<to = 7>(mask) b = CumSum(a, l0) e = Gather<axis = 0>(b,
    lm1) f = Squeeze(e, l0) g = Sub(f, f) h = Constant<value = int64 {1}>() out = Range(g, f, h)
bounded by a function: int64: a = Cast<to = 1>(k) b = Tanh(a) three = Constant<value = float
    {3.0}>() d = Mul(b, three) e = Ceil(d) f = Cast<to = 7>(e) g = Sub(f, f) h = Constant<value =
    int64 {1}>() out = Range(g, f, h)
bounded by a sign: int64: a = Sign(k) g = Sub(a, a) h = Constant<value = int64 {1}>() out =
    Range(g, a, h)
product of matrices: float: t = Transpose(y) out = MatMul(r, t)
product along: float: t = Transpose(r) out = MatMul(t, r)
product of rows: float: t = Transpose(r) out = MatMul(r, t)
gemm: float: out = Gemm<transB = 1>(r, y)
gathered: float: out = Gather<axis = 0>(x, p)
gathered columns: float: out = Gather<axis = 1>(r, c)
gathered of both: float: a = Gather<axis = 1>(r, c) out = Gather<axis = 1>(a, l) l =
    Constant<value = int64[0] {}>()
gathered last: float: a = Concat<axis = 0>(y, r) out = Gather<axis = 0>(a, lm1)
gathered tuples: float: t = NonZero(positive) i = Transpose(t) out = GatherND(x, i)
gathered elements: float: a = Gather<axis = 1>(r, l0) i = Cast<to = 7>(b) b = Mul(a, zero) out =
    GatherElements<axis = 1>(r, i)
scattered tuples: float: t = NonZero(positive) i = Transpose(t) v = GatherND(x, i) w = Neg(v)
    out = ScatterND(x, i, w)
scattered rows: float: i = Unsqueeze(p, l1) w = Neg(r) out = ScatterND(x, i, w)
added rows: float: i = Unsqueeze(p, l1) out = ScatterND<reduction = "add">(x, i, r)
scattered elements: float: i = Unsqueeze(p, l1) w = Gather<axis = 1>(r, l1) out =
    ScatterElements<axis = 0>(x, i, w)
slice to k: float: out = Slice(x, l0, k1, l0)
slice from k: float: e = Constant<value_ints = [9223372036854775807]>() out = Slice(x, k1, e)
slice to end of rows: float: out = Slice(r, l1, e) e = Constant<value_ints = [3]>()
slice of rows: float: out = Slice(r, lm1, e) e = Constant<value_ints = [99]>()
slice without last: float: out = Slice(r, l0, lm1)
slice backwards: float: e = Constant<value_ints = [-9223372036854775807]>() out = Slice(r, lm1,
    e, l0, lm1)
every second: float: e = Constant<value_ints = [99]>() s = Constant<value_ints = [2]>() a =
    Concat<axis = 0>(r, y) out = Slice(a, l1, e, l0, s)
split: float: d = Sub(q, k1) q = Constant<value_ints = [4]>() s = Concat<axis = 0>(k1, d) a, out
    = Split<axis = 0>(x, s)
range: int64: a = Constant<value = int64 {0}>() b = Constant<value = int64 {1}>() out = Range(a,
    k, b)
range of size: int64: n = Size(r) a = Constant<value = int64 {-3}>() b = Constant<value = int64
    {2}>() out = Range(a, n, b)
expanded: float: s = Concat<axis = 0>(k1, q) q = Constant<value_ints = [3, 5]>() out = Expand(y,
    s)
expanded like: float: a = Gather<axis = 0>(y, l1) s = Shape(r) out = Expand(a, s)
expanded by itself: float: s = Shape(r) out = Expand(r, s)
filled: float: s = Shape(r) out = ConstantOfShape<value = float[1] {3.0}>(s)
tiled: float: s = Concat<axis = 0>(k1, l1) out = Tile(y, s)
tiled rows: float: s = Constant<value_ints = [3, 2]>() out = Tile(r, s)
padded: float: s = Constant<value_ints = [1, 0, 2, 1]>() out = Pad(r, s)
padded and cut: float: s = Constant<value_ints = [1, -1, -2, 1]>() out = Pad(r, s, y1) y1 =
    Constant<value = float {0.5}>()
padded by k: float: s = Concat<axis = 0>(k1, l0, l1, k1) out = Pad(x, s)
rows padded by k: float: s = Concat<axis = 0>(k1, l0, l1, k1) out = Pad(r, s)
padded by k of an axis: float: s = Concat<axis = 0>(l1, k1) out = Pad(x, s, , lm1)
cut by k: float: s = Concat<axis = 0>(m, l0, l1, l1) m = Neg(k1) out = Pad(x, s, zero)
padded by less than k: float: s = Concat<axis = 0>(m, l0, k1, l1) q = Constant<value_ints = [2]>()
    m = Sub(k1, q) out = Pad(x, s)
padded by edges: float: s = Concat<axis = 0>(k1, l0, l1, k1) out = Pad<mode = "edge">(x, s)
padded by reflection: float: s = Concat<axis = 0>(k1, l1, l1, k1) out = Pad<mode = "reflect">(x, s)
padded by repetition: float: s = Concat<axis = 0>(k1, l1, m, k1) m = Sub(k1, q) q =
    Constant<value_ints = [2]>() out = Pad<mode = "wrap">(x, s)
all rows padded by edges: float: a = Concat<axis = 0>(y, r) s = Constant<value_ints = [1, 0, 2,
    1]>() out = Pad<mode = "edge">(a, s)
padded to a multiple: float: s = Shape(r) n = Slice(s, l0, l1) q = Constant<value_ints = [3]>()
    a = Neg(n) m = Mod(a, q) t = Concat<axis = 0>(l0, l0, m, l0) out = Pad(r, t)
largest of a row: float: v, i = TopK<axis = -1>(r, q) q = Constant<value_ints = [2]>() out =
    Concat<axis = 1>(v, f) f = Cast<to = 1>(i)
largest of rows: float: v, i = TopK<axis = 0>(r, n) s = Shape(r) n = Slice(s, l0, l1) out =
    Concat<axis = 1>(v, f) f = Cast<to = 1>(i)
smallest of rows: float: v, i = TopK<axis = 0, largest = 0>(r, n) s = Shape(r) n = Slice(s, l0,
    l1) out = Concat<axis = 1>(v, f) f = Cast<to = 1>(i)
largest k: float: out, i = TopK<axis = 0>(x, k1)
smallest of k and size: float: s = Shape(r) n = Slice(s, l0, l1) m = Min(n, k1) out, i =
    TopK<axis = 0>(r, m)
unique: int64: a = Cast<to = 7>(x) out, i, j, n = Unique(a)
unique places: int64: a = Cast<to = 7>(x) v, out, j, n = Unique<sorted = 0>(a)
unique inverse: int64: a = Cast<to = 7>(r) v, i, out, n = Unique<axis = 0>(a)
unique counts: int64: a = Gather<axis = 1>(r, l1) b = Reshape(a, lm1) d = Cast<to = 7>(b) v, i,
    j, out = Unique(d)
compressed again: float: a = Gather<axis = 1>(r, l1) b = Reshape(a, lm1) d = Greater(b, zero)
    out = Compress<axis = 0>(r, d)
non-zero again: int64: a = Greater(r, y1) y1 = Constant<value = float {0.5}>() out = NonZero(a)
einsum: float: out = Einsum<equation = "nd,md->mn">(r, y)
einsum along: float: out = Einsum<equation = "nd,ne->de">(r, r)
one-hot: float: d = Constant<value = int64 {4}>() v = Constant<value_floats = [0.0, 1.0]>() out
    = OneHot(p, d, v)
one-hot of k: float: d = Constant<value_floats = [2.0, 3.0]>() i = Constant<value_ints = [0, 2, -1,
    -2, -4, 9]>() out = OneHot<axis = 0>(i, k1, d)
one-hot of rows: float: d = Constant<value_floats = [0.0, 1.0]>() out = OneHot(p, k1, d)
one-hot of a size: int64: n = Size(r) d = Constant<value_ints = [0, 1]>() i =
    Constant<value_floats = [0.0, 2.0, -1.0]>() out = OneHot(i, n, d)
normalised: float: a = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() out =
    LayerNormalization(r, a)
triangle: float: t = Transpose(r) a = MatMul(r, t) j = Constant<value_int = -1>() out =
    Trilu<upper = 0>(a, j)
triangle above: float: out = Trilu(r)
expanded as PyTorch does: float: a = Shape(r) m = Equal(t, lm1) t = Concat<axis = 0>(n, q) n =
    Slice(a, l0, l1) q = Constant<value_ints = [5]>() s = Shape(t) o = ConstantOfShape<value =
    int64[1] {1}>(s) u = Where(m, o, t) w = Gather<axis = 0>(y, l1) out = Expand(w, u)
"""


_BOUNDS: Final = {
    **dict.fromkeys(("range", "expanded", "one-hot of k", "one-hot of rows"), 3),
    **dict.fromkeys(("padded by k", "rows padded by k", "cut by k", "padded by k of an axis"), 9),
    **dict.fromkeys(("padded by less than k", "padded by edges", "padded by reflection"), 9),
    **dict.fromkeys(("padded by repetition", "tiled"), 9),
}


# Where onnxruntime refuses an empty operand.
_NOT_EMPTY: Final = (
    *("one-hot of k", "one-hot of rows", "one-hot of a size", "padded and cut"),
    *("reshaped by zero", "swapped shape"),
)


def _cases() -> Iterator[tuple[str, str, str]]:
    """Name, type and nodes of each case."""
    for line in _CASES.replace("\n    ", " ").strip().splitlines():
        name, dtype, body = line.split(": ", 2)
        yield name, dtype, body


@pytest.mark.parametrize(("case", "dtype", "body"), list(_cases()))
def test_matches_onnxruntime(case: str, dtype: str, body: str) -> None:
    options = {"bounds": {"out": _BOUNDS[case]}} if case in _BOUNDS else {}
    model = model_of(body, f"{dtype} out")
    samples = [draw(seed) for seed in range(6)]
    if case in _NOT_EMPTY:
        samples = [inputs for inputs in samples if is_accepted(model, inputs)]
    assert len(samples) > 2
    compare(model, samples, options=options)


def test_all_problems_are_told_at_once_with_what_would_help() -> None:
    body = """
        z = Constant<value = int64 {0}>() s = Constant<value = int64 {1}>()
        a = Range(z, k, s)
        u = Concat<axis = 0>(k1, l1) t = Tile(y, u)
        e = Det(r)
    """
    model = model_of(body, "int64 a, float t, float e")
    with pytest.raises(DataDependentShapeError) as caught:
        popc.compile(model)
    details = "\n".join(caught.value.details)
    assert "Range: nothing bounds the size of its result" in details
    assert "--bound a=N" in details
    assert "--bound t=N" in details
    assert "Det: an operand has a size that data decides" in details


@pytest.mark.parametrize(
    "body",
    [
        "out = Gather<axis = 0>(r, i) i = Constant<value = int64 {2}>()",
        "out = Add(r, y)",
        "out, i = TopK<axis = 0>(r, q) q = Constant<value_ints = [3]>()",
        "s = Constant<value_ints = [10, 1]>() out = Reshape(r, s)",
        'out = Pad<mode = "edge">(r, s) s = Constant<value_ints = [1, 0, 0, 0]>()',
        "out = Pad(r, s) s = Constant<value_ints = [-1, 0, 0, 0]>()",
    ],
)
def test_what_does_not_fit_at_run_time_is_an_error(body: str) -> None:
    """Where onnxruntime refuses an operand, padding must not take its place."""
    program = popc.compile(model_of(body)).load()
    inputs = draw(2)  # selects nothing
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        expected_results(model_of(body), inputs)
    with pytest.raises(DeviceError):
        program.run(inputs)


def test_data_decides_the_sizes_of_results_in_every_way_to_run() -> None:
    model = model_of("t = Transpose(r) out = Identity(t)", "float out, int64 p")
    program = popc.compile(model).load()
    inputs = draw(4)
    expected = expected_results(model, inputs)
    out = np.empty((5, 4), np.float32)
    found = program.run(inputs, out={"out": out})
    assert np.shares_memory(found["out"], out)
    buffers = program.run_buffers({name: np.ascontiguousarray(x) for name, x in inputs.items()})
    steps: dict[str, list[Array]] = {"out": [], "p": []}
    with program.session() as session:
        for name, array in inputs.items():
            session.connect(name, array[None], repeat=True)
        session.connect("out", steps["out"])
        session.connect("p", steps["p"])
        session.step(2)
    for name, value in expected.items():
        for each in (found[name], np.asarray(buffers[name]), *steps[name]):
            np.testing.assert_array_equal(each, value)
            assert each.shape == value.shape
    assert [str(spec) for spec in program.outputs] == ["out: float32[5,<=4]", "p: int64[<=4]"]


@pytest.mark.parametrize("option", ["batches_per_step", "replicated_graph_count"])
def test_samples_of_different_sizes_do_not_lie_side_by_side(option: str) -> None:
    with pytest.raises(UsageError, match=f"'out'.*{option} is 2"):
        popc.compile(model_of("out = Identity(r)"), options={option: 2})
    popc.compile(model_of("out = ReduceSum<keepdims = 0>(r)"), options={option: 2})


def test_padding_counts_for_nothing_when_a_model_is_trained() -> None:
    """The gradient of the sum of squares of selected rows is that of the rows, 0 elsewhere."""
    text = """<ir_version: 9, opset_import: ["": 18]>
    trained (float[4, 5] x) => (float loss) <float[4, 5] w = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1}> {
        zero = Constant<value = float {0.0}>()
        m = Greater(x, zero)
        p = NonZero(m)
        t = Transpose(p)
        v = Mul(x, w)
        s = GatherND(v, t)
        loss = ReduceSumSquare<keepdims = 0>(s)
    }"""
    model = onnx.parser.parse_model(text)
    optimizer = {"type": "sgd", "learning_rate": 0.5}
    program = popc.compile(model, loss="loss", optimizer=optimizer).load()
    x = draw(0)["x"][:4]
    program.run({"x": x})
    found = program.state.read()["w"]
    np.testing.assert_allclose(found, 1 - 0.5 * 2 * np.where(x > 0, x * x, 0), rtol=1e-5)


_SELECTION: Final = """
    boxes = Gather<axis = 1>(r, four)
    four = Constant<value_ints = [0, 1, 2, 3]>()
    scores = Gather<axis = 1>(r, l1)
    n = Size(boxes)
    none = Equal(n, nought)
    nought = Constant<value = int64 {0}>()
    kept = If (none) <
        then_branch = empty () => (int64[] nothing) { nothing = Constant<value = int64[0] {}>() },
        else_branch = some () => (int64[] best) {
            b = Unsqueeze(boxes, l0)
            t = Transpose(scores)
            s = Unsqueeze(t, l0)
            limit = Constant<value = int64 {3}>()
            overlap = Constant<value = float {0.2}>()
            rows = NonMaxSuppression(b, s, limit, overlap)
            two = Constant<value_ints = [2]>()
            last = Gather<axis = 1>(rows, two)
            best = Squeeze(last, l1)
        }
    >
    two2 = Constant<value_ints = [2]>()
    cut = Slice(kept, l0, two2)
    found = Gather<axis = 0>(boxes, cut)
"""


def test_boxes_are_selected_as_torchvision_does() -> None:
    """No boxes are a case of its own, of which a branch returns an empty list."""
    model = model_of(_SELECTION, "int64 kept, float found, bool none")
    compare(model, [draw(seed) for seed in range(12)], options={"verify_ir": True})


def test_branches_of_different_sizes_that_data_does_not_decide() -> None:
    body = """big = Greater(k, two)
    two = Constant<value = int64 {1}>()
    out = If (big) <
        then_branch = a () => (float[] s) { s = Identity(y) },
        else_branch = b () => (float[] t) { t = Neg(x) }
    >
    total = ReduceSum<keepdims = 0>(out)"""
    model = model_of(body, "float out, float total")
    compare(model, [{**draw(0), "k": np.array(k)} for k in range(4)])


# Nodes of random graphs: from rows [n, 5] of some size to such rows, with fresh names %0, %1, ...
_STEPS: Final = (
    "%0 = Relu(@)",
    "%1 = Mul(@, @) %0 = Add(%1, @)",
    "%0 = Concat<axis = 0>(@, @)",
    "%0 = Concat<axis = 0>(y, @)",
    "%0 = Concat<axis = 0>(@, r)",
    "%0 = Slice(@, l1, %1) %1 = Constant<value_ints = [3]>()",
    "%0 = Slice(@, l0, lm1)",
    "%0 = Slice(@, l0, k1)",
    "%0 = Softmax<axis = 0>(@)",
    "%0 = CumSum(@, l0)",
    (
        "%1 = Greater(@, zero) %2 = Gather<axis = 1>(%1, l1) %3 = Squeeze(%2, l1)"
        " %0 = Compress<axis = 0>(@, %3)"
    ),
    (
        "%1 = Greater(@, zero) %2 = NonZero(%1) %3 = Gather<axis = 0>(%2, l0) %4 = Squeeze(%3, l0)"
        " %0 = Gather<axis = 0>(@, %4)"
    ),
    "%1 = Shape(@) %2 = Slice(%1, l0, l1) %3 = Min(%2, k1) %0, %4 = TopK<axis = 0>(@, %3)",
    "%1 = ReduceMax(@a, l0) %2 = Shape(@) %0 = Expand(%1, %2) @a = Concat<axis = 0>(y, @)",
    (
        "%1 = Constant<value_ints = [-1]>() %2 = Reshape(@, %1)"
        " %3 = Constant<value_ints = [5, -1]>() %4 = Reshape(%2, %3) %0 = Transpose(%4)"
    ),
    "%1 = Constant<value_ints = [2, 1]>() %0 = Tile(@, %1)",
    "%0, %1, %2, %3 = Unique<axis = 0>(@)",
    "%1 = Transpose(@) %2 = MatMul(@, %1) %0 = MatMul(%2, @)",
    "%1 = Transpose(y) %2 = MatMul(@, %1) %0 = MatMul(%2, y)",
)


def _chain(steps: Sequence[int]) -> str:
    """Nodes of a graph, one step behind the other."""
    body, last = "", "r"
    for number, step in enumerate(steps):
        text = _STEPS[step].replace("@a", f"a{number}").replace("@", last)
        body += text.replace("%", f"v{number}_") + "\n"
        last = f"v{number}_0"
    return f"{body} out = Identity({last}) rank = Shape({last})"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(_STEPS) - 1), min_size=2, max_size=5), st.integers(0, 99))
def test_chains_of_nodes(steps: list[int], seed: int) -> None:
    model = model_of(_chain(steps), "float out, int64 rank")
    samples = [draw(seed + number) for number in range(3)]
    compare(model, [sample for sample in samples if is_accepted(model, sample)])
