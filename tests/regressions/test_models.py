"""Models that once were compiled wrongly, or refused without need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.errors import (
    DataDependentShapeError,
    DoesNotFitError,
    OptionError,
    SpokenHint,
    UsageError,
)
from popc_runtime.format import Array
from tests.support.oracles import run_onnxruntime

_HEADER = '<ir_version: 9, opset_import: ["" : 17]>'


def _run(text: str, path: Path, feeds: dict[str, Array], **options: object) -> dict[str, Array]:
    archive = popc.compile(parser.parse_model(_HEADER + text), options=options)
    return popc_runtime.load(archive.save(path / "model.popx")).run(feeds)


def test_loop_over_a_sequence_that_a_counter_ends(tmp_path: Path) -> None:
    """PyTorch writes embedding bags like this: no trip count, a condition on a counter."""
    text = """g (float[3, 2] x) => (float[3, 2] y)
    <int64 zero = {0}, int64 three = {3}, bool go = {1}> {
        none = SequenceEmpty ()
        end, rows = Loop (, go, zero, none)
        <body = b (int64 i, bool c, int64 n, s) => (again, next, longer) {
            shape = Constant <value_ints = [1]> ()
            index = Reshape (n, shape)
            row = Gather (x, index)
            minus = Neg (row)
            longer = SequenceInsert (s, minus)
            one = Constant <value_int = 1> ()
            next = Add (n, one)
            again = Less (next, three)
        }>
        y = ConcatFromSequence <axis = 0> (rows)
    }"""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(_run(text, tmp_path, {"x": x})["y"], -x)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("big = ReduceMax <keepdims = 0> (t) again = Less (big, limit)", "run-time value"),
        ("again = Identity (c)", "nothing bounds the number of its iterations"),
    ],
)
def test_stacking_loops_without_a_known_end(end: str, message: str, tmp_path: Path) -> None:
    text = f"""g (float[2] x) => (float[K, 2] y) <bool go = {{1}}, float limit = {{9.0}}> {{
        last, y = Loop (, go, x) <body = b (int64 i, bool c, a) => (again, t, t) {{
            t = Add (a, a)
            {end}
        }}>
    }}"""
    with pytest.raises(DataDependentShapeError) as caught:
        _run(text, tmp_path, {})
    assert message in str(caught.value)


@pytest.mark.parametrize("trips", [5, 2**63 - 1])
@pytest.mark.parametrize("limit", [-1.0, 2.5, 99.0])
def test_loops_that_start_from_constants_and_end_by_what_they_read(
    trips: int, limit: float, tmp_path: Path
) -> None:
    """PyTorch writes ``break`` like this: no input is a state, and the largest trip count."""
    text = f"""g (float[8] x, float limit) => (float[1] y)
    <int64 trips = {{{trips}}}, int64 zero = {{0}}, float[1] none = {{0}}, bool go = {{1}}> {{
        y, end = Loop (trips, go, none, zero)
        <body = b (int64 i, bool c, float[1] sum, int64 n) => (again, longer, next) {{
            item = Gather (x, n)
            longer = Add (sum, item)
            one = Constant <value_int = 1> ()
            next = Add (n, one)
            last = Constant <value_int = 8> ()
            left = Less (next, last)
            big = ReduceMax <keepdims = 0> (longer)
            small = Less (big, limit)
            again = And (left, small)
        }}>
    }}"""
    feeds = {"x": np.arange(1, 9, dtype=np.float32), "limit": np.array(limit, np.float32)}
    (expected,) = run_onnxruntime(parser.parse_model(_HEADER + text), feeds)
    np.testing.assert_array_equal(_run(text, tmp_path, feeds)["y"], expected)


def test_indices_across_memory(tmp_path: Path) -> None:
    text = """g (float[9, 70] x, int64[40, 6] i) => (float[6, 40, 70] y) {
        j = Transpose (i)
        y = Gather (x, j)
    }"""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((9, 70)).astype(np.float32)
    i = rng.integers(-9, 9, (40, 6))
    np.testing.assert_array_equal(_run(text, tmp_path, {"x": x, "i": i})["y"], x[i.T])


def test_updates_across_memory(tmp_path: Path) -> None:
    text = """g (float[5, 3, 4] x, int64[2, 1] i, float[3, 2, 4] u) => (float[5, 3, 4] y) {
        v = Transpose <perm = [1, 0, 2]> (u)
        y = ScatterND (x, i, v)
    }"""
    rng = np.random.default_rng(0)
    x, u = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3, 4), (3, 2, 4)))
    y = _run(text, tmp_path, {"x": x, "i": np.array([[3], [1]]), "u": u})["y"]
    x[[3, 1]] = u.transpose(1, 0, 2)
    np.testing.assert_array_equal(y, x)


def test_views_of_another_type_pass_the_checkers(tmp_path: Path) -> None:
    text = "g (float[2, 3] x) => (int32[2, 3] y) { y = BitCast <to = 6> (x) }"
    model = parser.parse_model('<ir_version: 12, opset_import: ["" : 26]>' + text)
    archive = popc.compile(model, options={"verify_ir": True})
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = popc_runtime.load(archive.save(tmp_path / "model.popx")).run({"x": x})["y"]
    np.testing.assert_array_equal(y, x.view(np.int32))


def test_sums_of_bool_are_refused_by_name(tmp_path: Path) -> None:
    text = """g (float[2] x) => (bool[2] nan, bool[2] inf, float[2] y) {
        nan = IsNaN (x) inf = IsInf (x) y = Neg (x)
    }"""
    with pytest.raises(OptionError, match="of nan, inf is sum") as caught:
        _run(text, tmp_path, {}, batches_per_step=2, default_anchor="sum")
    hint = caught.value.hint
    assert isinstance(hint, SpokenHint)
    assert hint == "options={\"anchors\": {'nan': 'all', 'inf': 'all'}}"
    assert hint.command_line == "--set anchors.nan=all --set anchors.inf=all"


def test_sizes_that_no_memory_holds_are_refused(tmp_path: Path) -> None:
    model = parser.parse_model(_HEADER + "g (float[N] x) => (float[N] y) {y = Relu (x)}")
    for size in (1 << 40, 1 << 80):
        with pytest.raises(UsageError, match=r"can be addressed|more than 4,398"):
            popc.compile(model, dims={"N": size})
    text = """g (float[1] x) => (float[1] y) <int64[2] s = {1000000, 1000000}> {
        wide = Expand (x, s)
        z = Exp (wide)
        y = ReduceMax <keepdims = 0> (z)
    }"""
    with pytest.raises(DoesNotFitError, match="bytes for tensors"):
        _run(text, tmp_path, {})
