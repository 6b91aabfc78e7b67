"""Shapes in the bodies of control flow that weights and constants around these decide."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.errors import DataDependentShapeError
from popc_runtime.format import Array

_ENLARGED: Final = 'Resize <mode = "linear", coordinate_transformation_mode = "asymmetric">'
_KEEP: Final = "else_branch = e () => (float[2,6] no) { no = Concat <axis = 1> (x, x) }"

# From x [2, 3], a flag and a count to y [2, 6], with scales s.
_BODIES: Final = {
    "branch": "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    f'{{ yes = {_ENLARGED} (x, "", s) }}, {_KEEP}>',
    "computed around": "one = Div (s, s) same = Mul (s, one) "
    "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    f'{{ yes = {_ENLARGED} (x, "", same) }}, {_KEEP}>',
    "computed inside": "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    f'{{ one = Div (s, s) same = Mul (s, one) yes = {_ENLARGED} (x, "", same) }}, {_KEEP}>',
    "read by the other branch": "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    f'{{ yes = {_ENLARGED} (x, "", s) }}, else_branch = e () => (float[2,6] no) '
    "{ sum = ReduceSum <keepdims = 0> (s) two = Concat <axis = 1> (x, x) no = Mul (two, sum) }>",
    "read by the branch before": "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    "{ sum = ReduceSum <keepdims = 0> (s) two = Concat <axis = 1> (x, x) yes = Mul (two, sum) }, "
    f'else_branch = e () => (float[2,6] no) {{ no = {_ENLARGED} (x, "", s) }}>',
    "loop": "two = Concat <axis = 1> (x, x) "
    "y = Loop (count, go, two) <body = b (int64 i, bool c, float[2,6] old) => "
    f'(bool d, float[2,6] new) {{ big = {_ENLARGED} (x, "", s) new = Add (old, big) '
    "d = Identity (c) }>",
    "branch in a loop": "two = Concat <axis = 1> (x, x) "
    "y = Loop (count, go, two) <body = b (int64 i, bool c, float[2,6] old) => "
    "(bool d, float[2,6] new) { big = If (flag) <then_branch = t () => (float[2,6] yes) "
    f'{{ yes = {_ENLARGED} (x, "", s) }}, {_KEEP}> new = Add (old, big) d = Identity (c) }}>',
    "loop in a branch": "y = If (flag) <then_branch = t () => (float[2,6] yes) "
    "{ two = Concat <axis = 1> (x, x) "
    "yes = Loop (count, go, two) <body = b (int64 i, bool c, float[2,6] old) => "
    f'(bool d, float[2,6] new) {{ big = {_ENLARGED} (x, "", s) new = Add (old, big) '
    f"d = Identity (c) }}> }}, {_KEEP}>",
    "scan": "y = Scan <num_scan_inputs = 1, body = b (float[3] row) => (float[6] wide) { "
    "twice = Slice (s, at, end) "
    'wide = Resize <mode = "nearest"> (row, "", twice) }> (x)',
}


def _model(body: str) -> onnx.ModelProto:
    halves = ", ".join(["0.5"] * 12)
    return parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]>
        g (float[2,3] x, bool flag, int64 count) => (float[2,6] out, float loss)
        <float[2,6] w = {{{halves}}}, float[2] s = {{1, 2}},
            int64[1] at = {{1}}, int64[1] end = {{2}}> {{
            go = Constant <value = bool {{1}}> ()
            {body}
            out = Mul (y, w)
            square = Mul (out, out)
            loss = ReduceMean <keepdims = 0> (square)
        }}"""
    )


def _feeds(*, flag: bool) -> dict[str, Array]:
    x = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
    return {"x": x, "flag": np.asarray(flag), "count": np.asarray(3, np.int64)}


def _expected(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = {info.name for info in session.get_inputs()}
    results = session.run(None, {name: value for name, value in feeds.items() if name in names})
    return [np.asarray(result) for result in results]


@pytest.mark.parametrize("body", _BODIES.values(), ids=list(_BODIES))
def test_scales_that_are_variables(body: str, tmp_path: Path) -> None:
    """They become constants again; what decides no shape stays a variable."""
    model = _model(body)
    archive = popc.compile(model, options={"constant_weights": False, "verify_ir": True})
    executable = popc_runtime.load(archive.save(tmp_path / "variables.popx"))
    assert executable.state.read().keys() == {"w"}
    for flag in (True, False):
        feeds = _feeds(flag=flag)
        found = executable.run({spec.name: feeds[spec.name] for spec in executable.inputs})
        for name, value in zip(("out", "loss"), _expected(model, feeds), strict=True):
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("body", _BODIES.values(), ids=list(_BODIES))
def test_scales_of_a_model_that_is_trained(body: str, tmp_path: Path) -> None:
    model = _model(body)
    settings = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": 0.25},
    }
    archive = popc.compile(model, train=settings, options={"verify_ir": True})
    executable = popc_runtime.load(archive.save(tmp_path / "trained.popx"))
    feeds = _feeds(flag=True)
    given = {spec.name: feeds[spec.name] for spec in executable.inputs}
    out, loss = _expected(model, feeds)
    np.testing.assert_allclose(executable.run(given)["loss"], loss, rtol=1e-5)
    # The mean of (y w)^2 over 12 elements, with w of 0.5.
    weights = executable.state.read(VariableRole.WEIGHT)
    assert weights.keys() == {"w"}
    np.testing.assert_allclose(weights["w"], 0.5 - 0.25 * out * out / 0.5 / 6, rtol=1e-4)


def test_what_is_computed_from_large_constants(tmp_path: Path) -> None:
    """It is no constant yet when a branch captures it."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 22]>
        g (float[2,1] x, bool flag) => (float[2,4] y) <int64[1] n = {2000}> {
            many = ConstantOfShape <value = int64[1] {4}> (n)
            y = If (flag) <
                then_branch = t () => (float[2,4] yes) {
                    width = ReduceMax <keepdims = 0> (many)
                    minimum = Constant <value = int64[2] {2, 1}> ()
                    shape = Max (minimum, width)
                    rows = Constant <value = int64[2] {2, 4}> ()
                    exact = Min (shape, rows)
                    yes = Expand (x, exact)
                },
                else_branch = e () => (float[2,4] no) { no = Concat <axis = 1> (x, x, x, x) }>
        }"""
    )
    executable = popc_runtime.load(popc.compile(model).save(tmp_path / "large.popx"))
    x = np.asarray([[1.5], [-2.0]], np.float32)
    for flag in (True, False):
        (found,) = executable.run(x=x, flag=np.asarray(flag)).values()
        np.testing.assert_array_equal(found, np.broadcast_to(x, (2, 4)))


@pytest.mark.parametrize("place", ["around", "inside"])
def test_run_time_values_decide_no_shape(place: str) -> None:
    scale = "same = Mul (s, x0)"
    around, inside = (scale, "") if place == "around" else ("", scale)
    body = (
        f"x0 = ReduceMax <keepdims = 0> (x) {around} "
        "y = If (flag) <then_branch = t () => (float[2,6] yes) "
        f'{{ {inside} yes = {_ENLARGED} (x, "", same) }}, {_KEEP}>'
    )
    with pytest.raises(DataDependentShapeError, match="Resize: nothing bounds the size"):
        popc.compile(_model(body), options={"constant_weights": False})
