"""Loops whose states become longer or shorter, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest

import popc
from popc_runtime.errors import DataDependentShapeError, DeviceError
from tests.support.oracles import import_graph
from tests.support.sized import compare, draw, model_of

_HEAD: Final = """
    yes = Constant<value = bool {1}>()
    four = Constant<value = int64 {4}>()
    seven = Constant<value = int64 {7}>()
    one = Constant<value = int64 {1}>()
    few = Mod(k, four)
    none = Constant<value = float[0, 5] {}>()
    start = Gather<axis = 0>(y, l1)
    on3 = ReduceSum<keepdims = 0>(y)
"""
_BODY: Final = "<body = each (int64 i, bool go"
_ROWS: Final = "float[n, 5] s"

# A name and the nodes; indented lines go on.
_CASES: Final = f"""
row by row: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = ReduceMean<keepdims = 1>(s, l0) t = Concat<axis = 0>(s, a) }}>
from nothing: out = Loop(few, yes, none){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = ReduceSum<keepdims = 1>(s, l0) b = Add(a, start) t = Concat<axis = 0>(s, b) }}>
in front: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = Gather<axis = 0>(s, lm1) b = Neg(a) t = Concat<axis = 0>(b, s) }}>
columns: out = Loop(few, yes, y){_BODY}, float[3, n] s) => (bool on, float[3, m] t) {{ on =
    Identity(go) a = ReduceMax<keepdims = 1>(s, l1) t = Concat<axis = 1>(s, a, a) }}>
until: out = Loop(seven, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ a =
    ReduceMean<keepdims = 1>(s, l0) t = Concat<axis = 0>(s, a) b = ReduceSum<keepdims = 0>(t) d =
    Abs(b) limit = Constant<value = float {{4.0}}>() on = Less(d, limit) }}>
attention: q, out = Loop(few, yes, start, start){_BODY}, float[n, 5] s, float[o, 5] v) => (bool on,
    float[m, 5] t, float[p, 5] w) {{ on = Identity(go) a = Gather<axis = 0>(s, lm1) b = Transpose(s)
    d = MatMul(a, b) e = Softmax<axis = -1>(d) f = MatMul(e, v) t = Concat<axis = 0>(s, f) g =
    Sin(f) w = Concat<axis = 0>(v, g) }}>
of different length: q, out = Loop(few, yes, start, start){_BODY}, float[n, 5] s, float[o, 5] v) =>
    (bool on, float[m, 5] t, float[p, 5] w) {{ on = Identity(go) a = ReduceMean<keepdims = 1>(s, l0)
    t = Concat<axis = 0>(s, a) w = Concat<axis = 0>(v, a, a) }}>
beside what stays: total, out = Loop(few, yes, zero, start){_BODY}, float u, {_ROWS}) => (bool on,
    float w, float[m, 5] t) {{ on = Identity(go) a = ReduceMean<keepdims = 1>(s, l0) t =
    Concat<axis = 0>(s, a) b = ReduceSum<keepdims = 0>(a) w = Add(u, b) }}>
beside rows: out, rows = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t,
    float[1, 5] a) {{ on = Identity(go) a = ReduceMean<keepdims = 1>(s, l0) t =
    Concat<axis = 0>(s, a) }}>
shorter: out = Loop(few, yes, x){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on = Identity(go)
    a = Slice(s, l0, lm1) t = Neg(a) }}>
selected: out = Loop(few, yes, x){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on = Identity(go)
    a = Gather<axis = 1>(s, i) b = Greater(a, zero) d = Sin(s) t = Compress<axis = 0>(d, b) }}>
as long as before: out = Loop(few, yes, r){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) t = Sin(s) }}>
longer from data: out = Loop(few, yes, r){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = Sin(s) t = Concat<axis = 0>(r, a) }}>
at once: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = ReduceMean<keepdims = 1>(s, l0) t = Concat<axis = 0>(a, y) }}>
twice as long: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = Neg(s) t = Concat<axis = 0>(s, a) }}>
perhaps longer: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) a = Gather<axis = 0>(positive, i) b = Gather<axis = 0>(a, one) t = If(b)
    <then_branch = then () => (float[p, 5] d) {{ d = Concat<axis = 0>(s, start) }}, else_branch =
    other () => (float[q, 5] e) {{ e = Sin(s) }}> }}>
in a loop: out = Loop(few, yes, start){_BODY}, {_ROWS}) => (bool on, float[m, 5] t) {{ on =
    Identity(go) t = Loop(few, yes, s)<body = inner (int64 j, bool go2, float[n2, 5] s2) => (bool
    on2, float[m2, 5] t2) {{ on2 = Identity(go2) a = ReduceMean<keepdims = 1>(s2, l0) t2 =
    Concat<axis = 0>(s2, a) }}> }}>
"""
_BOUNDS: Final = {"twice as long": 8}


def _cases() -> Iterator[tuple[str, str]]:
    for line in _CASES.replace("\n    ", " ").strip().splitlines():
        name, body = line.split(": ", 1)
        yield name, body


@pytest.mark.parametrize(("case", "body"), list(_cases()))
def test_states_of_changing_size(case: str, body: str) -> None:
    """No iteration, some, and as many as there can be."""
    samples = [{**draw(seed), "k": np.array(k, np.int64)} for seed, k in enumerate((2, 0, 3, 1))]
    options = {"bounds": {"out": _BOUNDS[case]}} if case in _BOUNDS else {}
    compare(model_of(_HEAD + body), samples, options=options)


_GROWING: Final = dict(_cases())["row by row"].replace("few", "k")


def test_without_a_bound_a_state_that_grows_is_refused() -> None:
    with pytest.raises(DataDependentShapeError, match="--bound out=N"):
        popc.compile(model_of(_HEAD + _GROWING))


def test_a_state_beyond_its_bound_is_an_error_that_names_it() -> None:
    program = popc.compile(model_of(_HEAD + _GROWING), options={"bounds": {"out": 3}}).load()
    inputs = draw(0)
    assert program.run({**inputs, "k": np.array(2)})["out"].shape == (3, 5)
    with pytest.raises(DeviceError, match=r"'out' has a size of 4, but at most 3"):
        program.run({**inputs, "k": np.array(3)})


def test_a_state_that_begins_beyond_its_bound_is_an_error() -> None:
    body = dict(_cases())["longer from data"]
    program = popc.compile(model_of(_HEAD + body), options={"bounds": {"out": 1}}).load()
    inputs = {**draw(1), "k": np.array(0)}
    inputs["x"][:, 0] = 1
    with pytest.raises(DeviceError, match=r"'out' has a size of 4, but at most 1"):
        program.run(inputs)


def test_rows_of_a_state_that_grows_are_written_behind_the_others() -> None:
    """They are joined, but nothing is moved for it."""
    graph = import_graph(model_of(_HEAD + dict(_cases())["row by row"]))
    (loop,) = (op for op in graph.ops if op.op_type == "Loop")
    kinds = [op.op_type for op in loop.subgraphs["body"].ops]
    assert "DynamicUpdate" in kinds
    assert "Concat" not in kinds


@pytest.mark.parametrize(
    ("result", "reason"),
    [("Cast<to = 7>(s)", "changes from"), ("Unsqueeze(s, l0)", "changes from")],
)
def test_states_of_another_kind_are_refused(result: str, reason: str) -> None:
    head = f"out = Loop(few, yes, start){_BODY}, s)"
    body = f"{head} => (bool on, t) {{ on = Identity(go) t = {result} }}>"
    with pytest.raises(DataDependentShapeError, match=reason):
        popc.compile(model_of(_HEAD + body))
