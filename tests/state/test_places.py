"""Where in a model a state may be written: functions, calls, branches, loops that it controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import parser

import popc
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.replication.models import compiled

_HEADER: Final = (
    '<ir_version: 10, opset_import: ["": 17, "ai.graphcore": 1, "local": 1, '
    '"ai.onnx.preview.training": 1]>\n'
)
_FUNCTIONS: Final = """
<domain: "local", opset_import: ["": 17, "ai.graphcore": 1]>
count (state, x) => (y) { more = Add (state, x) y = ai.graphcore.CopyVarUpdate (state, more) }
<domain: "local", opset_import: ["": 17, "ai.graphcore": 1, "local": 1]>
outer (state, x) => (y) { y = local.count (state, x) }
"""
_LOOP: Final = (
    "go = Constant <value = bool {1}> () y = Loop (n, go, x) <body = b (int64 i, bool c, float t) "
    "=> (bool d, float t2) { d = Identity (c) "
)
_S: Final = "float s = {0.0}"
_N: Final = "int64 n = {1}, int64 one = {1}"


def _program(weights: str, nodes: str, folder: Path, **options: Any) -> Any:
    model = parser.parse_model(
        f"{_HEADER}g (float x) => (float y) <{weights}> {{ {nodes} }} {_FUNCTIONS}"
    )
    return compiled(model, folder, constant_weights=False, **options)


@pytest.mark.parametrize(
    ("weights", "nodes", "expected"),
    [
        pytest.param(_S, "y = local.outer (s, x)", [1, 2, 3, 4], id="nested functions"),
        pytest.param(
            _S,
            "y = ai.graphcore.Call <callee = f (float t, float v) => (float a) "
            "{ n = Add (t, v) a = ai.graphcore.CopyVarUpdate (t, n) }> (s, x)",
            [1, 2, 3, 4],
            id="called graph",
        ),
        pytest.param(
            _S,
            "yes = Constant <value = bool {1}> () y = If (yes) <then_branch = p () => (float a) "
            "{ n = Add (s, x) a = ai.graphcore.CopyVarUpdate (s, n) }, "
            "else_branch = q () => (float b) { b = Identity (x) }>",
            [1, 2, 3, 4],
            id="known branch",
        ),
        pytest.param(
            "float zero = {0.0}",
            "up = Greater (x, zero) y = If (up) <then_branch = p () => (float a) "
            "<float s = {0.0}> { n = Add (s, x) a = ai.graphcore.CopyVarUpdate (s, n) }, "
            "else_branch = q () => (float b) { b = Identity (x) }>",
            [1, 2, 3, 4],
            id="weight of a branch",
        ),
        pytest.param(
            _N,
            f"{_LOOP} t2 = Add (t, x) }}> k = Add (n, one) u = ai.graphcore.CopyVarUpdate (n, k)",
            [2, 3, 4, 5],
            id="trip count",
        ),
        pytest.param(
            _N,
            f"{_LOOP} t2 = Add (t, x) k = Add (n, one) u = ai.graphcore.CopyVarUpdate (n, k) }}>",
            [2, 3, 5, 9],
            id="trip count written inside",
        ),
        pytest.param(
            f"{_S}, int64 n = {{3}}",
            f"{_LOOP} t2 = local.count (s, x) }}>",
            [3, 6, 9, 12],
            id="function in a loop",
        ),
        pytest.param(
            _S, "t = Identity (s) y = local.count (t, x)", [1, 2, 3, 4], id="by another name"
        ),
        pytest.param(
            "float a = {0.0}, float b = {1.0}",
            "zero = Constant <value_ints = [0]> () e = Unsqueeze (a, zero) f = Unsqueeze (b, zero) "
            "c = Concat <axis = 0> (e, f) y = ReduceSum <keepdims = 0> (c) "
            "u = ai.graphcore.CopyVarUpdate (a, b) "
            "n = Add (a, b) v = ai.graphcore.CopyVarUpdate (b, n)",
            [1, 2, 3, 5],
            id="two that follow each other",
        ),
    ],
)
def test_places_of_updates(weights: str, nodes: str, expected: list[int], tmp_path: Path) -> None:
    program = _program(weights, nodes, tmp_path)
    found = [float(program.run(x=np.float32(1))["y"]) for _ in expected]
    assert found == expected
    program = _program(weights, nodes, tmp_path, batches_per_step=len(expected))
    np.testing.assert_array_equal(program.run(x=np.ones(len(expected), np.float32))["y"], expected)


def test_a_function_that_is_called_twice_writes_twice(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        _program(_S, "h = local.count (s, x) y = local.count (s, h)", tmp_path)
    assert "'s' gets more than one new value" in str(caught.value)


def test_a_model_may_train_itself(tmp_path: Path) -> None:
    """Gradients by ONNX's Gradient operator, written by CopyVarUpdate."""
    program = _program(
        "float w = {3.0}, float rate = {0.25}",
        "h = Mul (x, w) y = Mul (h, h) "
        'd = ai.onnx.preview.training.Gradient <xs = ["w"], zs = ["x"], y = "y"> (w, x) '
        "step = Mul (d, rate) n = Sub (w, step) u = ai.graphcore.CopyVarUpdate (w, n)",
        tmp_path,
    )
    w = 3.0
    for x in (1.0, 0.5, 2.0):
        assert program.run(x=np.float32(x))["y"] == (x * w) ** 2
        w -= 0.25 * 2 * x * x * w
    assert program.state.read()["w"] == w


@pytest.mark.parametrize(
    ("dtype", "number", "value"),
    [("float16", 10, 1.0), ("bfloat16", 16, 0x3F80), ("double", 11, 1.0), ("int8", 3, 1)],
)
def test_element_types(dtype: str, number: int, value: float, tmp_path: Path) -> None:
    model = parser.parse_model(
        f"{_HEADER}g ({dtype}[3] x) => ({dtype}[3] y) "
        "{ n = Add (s, x) y = ai.graphcore.CopyVarUpdate (s, n) }"
    )
    zeros = bytes(3 * {"double": 8, "int8": 1}.get(dtype, 2))
    model.graph.initializer.add(name="s", data_type=number, dims=[3], raw_data=zeros)
    program = compiled(model, tmp_path, constant_weights=False)
    storage: Array = np.zeros(3, program.inputs[0].dtype.storage)
    for _ in range(3):
        found = program.run(x=storage + np.array(value, storage.dtype))["y"]
    np.testing.assert_array_equal(found, [0x4040 if dtype == "bfloat16" else 3] * 3)
    np.testing.assert_array_equal(program.state.read()["s"], found)


def test_estimates_know_of_state() -> None:
    model = parser.parse_model(
        f"{_HEADER}g (float x) => (float y) <{_S}> {{ y = local.count (s, x) }} {_FUNCTIONS}"
    )
    assert popc.estimate(model, options={"constant_weights": False}).cycles.total > 0
