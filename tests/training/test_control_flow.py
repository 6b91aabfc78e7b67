"""Weights that the bodies of loops and branches hold are trained like any others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.format import Array
from tests.support.compiling import CHECKED

_HEADER = '<ir_version: 10, opset_import: ["" : 22]>'
_WEIGHTS = "float[2,2] w = {0.5, -0.5, 0.25, 1.0}, float[2] b = {0.1, -0.1}"
_BRANCH_WEIGHTS = "float[2] v = {1.5, 0.5}"
_START = "float[2] h0 = {0.0, 0.0}"
_FEEDS = {
    "x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2),
    "target": np.asarray([0.5, -0.25], np.float32),
}


def _model(place: str) -> str:
    """A recurrent network with a scaled result; its weights are around, or inside the bodies."""
    inside = place != "around"
    top, body = (_START, f"<{_WEIGHTS}>") if inside else (f"{_START}, {_WEIGHTS}", "")
    branch = f"<{_BRANCH_WEIGHTS}>" if inside else ""
    top = top if inside else f"{top}, {_BRANCH_WEIGHTS}"
    # A loop whose initial states are constants is unrolled.
    start = "h0" if place == "unrolled" else "start"
    return f"""g (float[4,2] x, float[2] target, bool flag) => (float loss) <{top}> {{
        zero = Sub (target, target)  start = Add (zero, h0)
        h = Scan <num_scan_inputs = 1, body = step (float[2] h1, float[2] row) => (float[2] h2)
            {body} {{ a = MatMul (h1, w)  c = Add (row, b)  d = Add (a, c)  h2 = Tanh (d) }}>
            ({start}, x)
        y = If (flag) <
            then_branch = t () => (float[2] r) {branch} {{ r = Mul (h, v) }},
            else_branch = e () => (float[2] h) {{ }}>
        error = Sub (y, target)  square = Mul (error, error)
        loss = ReduceMean <keepdims = 0> (square)
    }}"""


def _trained(
    place: str, folder: Path, *, flag: bool, **options: object
) -> tuple[list[float], dict[str, Array]]:
    """The losses of five steps, and the weights after them."""
    archive = popc.compile(
        parser.parse_model(_HEADER + _model(place)),
        train={
            "loss": {"type": "identity", "input": "loss"},
            "optimizer": {"type": "sgd", "learning_rate": 0.2},
            "weights": {"frozen": ["h0"]},
        },
        options={**CHECKED, **options},
    )
    executable = popc_runtime.load(archive.save(folder / f"{place}.popx", force=True))
    feeds: dict[str, Array] = {**_FEEDS, "flag": np.asarray(flag)}
    steps = 5 if executable.inputs[0].shape == feeds["x"].shape else 1
    for spec in executable.inputs:
        feeds[spec.name] = np.broadcast_to(feeds[spec.name], spec.shape)
    losses = [executable.run(feeds)["loss"] for _ in range(steps)]
    return np.ravel(losses).tolist(), executable.state.read(VariableRole.WEIGHT)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("place", ["inside", "unrolled"])
def test_weights_of_bodies(place: str, tmp_path: Path, *, flag: bool) -> None:
    expected, weights = _trained("around", tmp_path, flag=flag)
    losses, found = _trained(place, tmp_path, flag=flag)
    assert losses[0] > losses[-1]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert found.keys() == weights.keys() == {"w", "b", "v"}
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


@pytest.mark.parametrize("options", [{"batches_per_step": 5}, {"decompose_grad_sum": True}])
def test_options(options: dict[str, object], tmp_path: Path) -> None:
    expected, weights = _trained("around", tmp_path, flag=True)
    losses, found = _trained("around", tmp_path, flag=True, **options)
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)
