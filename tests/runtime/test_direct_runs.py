"""Runs on arrays that are exactly what a program takes: one call, with no Python on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from popc_runtime import Executable
from popc_runtime.errors import DeviceError, InputMismatchError, UsageError
from popc_runtime.native import find_library
from tests.support.models import affine, executable, expected_affine

pytestmark = pytest.mark.skipif(find_library() is None, reason="there are no native kernels here")

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
_TYPES = (
    *("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
    *("FLOAT16", "FLOAT", "DOUBLE", "BFLOAT16"),
)


def _model(text: str, tmp_path: Path, **options: Any) -> Executable:
    header = '<ir_version: 10, opset_import: ["" : 18]> g '
    return executable(parser.parse_model(header + text), tmp_path, **options)


def _runs_directly(model: Executable, given: Any, out: Any = None) -> bool:
    direct = model._direct
    return direct is not None and direct(given, out) is not None


def test_arrays_that_fit_need_no_python(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    target = np.zeros_like(X)
    assert _runs_directly(model, {"x": X})
    assert _runs_directly(model, {"x": X}, {})
    assert _runs_directly(model, {"x": X}, {"y": target})
    assert target == expected_affine(X)


@pytest.mark.parametrize(
    "given",
    [
        {"x": X.tolist()},
        {"x": X.astype(np.float64)},
        {"x": X.astype(">f4")},
        {"x": X[:1].copy()},
        {"x": np.asfortranarray(X)},
        {"x": np.repeat(X, 2, axis=1)[:, ::2]},
        {"x": X.view(np.recarray)},
        {"x": X, "z": X},
        {"z": X},
        {},
        {"x": np.zeros((2, 3), "M8[s]")},
    ],
)
def test_other_inputs_are_left_to_python(given: Any, tmp_path: Path) -> None:
    assert not _runs_directly(executable(affine(), tmp_path), given)


@pytest.mark.parametrize(
    "target",
    [
        np.asfortranarray(X),
        np.broadcast_to(X[0], X.shape),
        X.astype(np.float64),
        np.zeros((2, 6), np.float32)[:, ::2],
        X.tolist(),
    ],
)
def test_other_targets_are_left_to_python(target: Any, tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    assert not _runs_directly(model, {"x": X}, {"y": target})
    assert not _runs_directly(model, {"x": X}, {"z": X.copy()})


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_all_types(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.DataType.Value(dtype), shape)
        for name in "xy"
    )
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = [helper.make_opsetid("", 18)]
    model = executable(helper.make_model(graph, ir_version=10, opset_imports=opset), tmp_path)
    storage = model.inputs[0].dtype.storage
    given = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(storage)
    assert _runs_directly(model, {"x": given})
    result = model.run({"x": given})["y"]
    assert result.dtype == storage
    np.testing.assert_array_equal(result, given)


def test_many_arrays_in_the_order_of_the_model(tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(12)]
    inputs = ", ".join(f"float[2] {name}" for name in names)
    outputs = ", ".join(f"float[2] y{name}" for name in reversed(names))
    body = "\n".join(f"y{name} = Neg({name})" for name in names)
    model = _model(f"({inputs}) => ({outputs}) {{ {body} }}", tmp_path)
    given = {name: np.full(2, number, np.float32) for number, name in enumerate(names)}
    assert _runs_directly(model, given)
    results = model.run(given)
    assert list(results) == [spec.name for spec in model.outputs]
    for name, array in given.items():
        np.testing.assert_array_equal(results[f"y{name}"], -array)


def test_results_that_share_memory_are_left_to_python(tmp_path: Path) -> None:
    model = _model("(float[2] x) => (float[2] a, float[2] b) { a = Neg(x) b = Exp(x) }", tmp_path)
    x, target = np.array([1, 2], np.float32), np.zeros(2, np.float32)
    assert not _runs_directly(model, {"x": x}, {"a": target, "b": target})
    with pytest.raises(UsageError, match="share memory"):
        model.run({"x": x}, out={"a": target, "b": target})
    memory = np.zeros(4, np.float32)
    apart = {"a": memory[:2], "b": memory[2:]}
    assert model.run({"x": x}, out=apart)["b"] is apart["b"]
    np.testing.assert_allclose(memory, [*-x, *np.exp(x)], rtol=1e-6)


def test_an_input_may_be_where_the_result_goes(tmp_path: Path) -> None:
    model, x = executable(affine(), tmp_path), X.copy()
    model.run({"x": x}, out={"y": x})
    assert x == expected_affine(X)


def test_failures_tell_what_python_tells(tmp_path: Path) -> None:
    text = "(float[4] x, int64[2] i) => (float[2] y) { y = Gather(x, i) }"
    model = _model(text, tmp_path)
    x, target = np.arange(4, dtype=np.float32), np.zeros(2, np.float32)
    told = []
    for wrong in (np.array([1, 9]), [1, 9]):  # a list goes by way of Python
        with pytest.raises(DeviceError) as raised:
            model.run({"x": x, "i": wrong}, out={"y": target}, cast="safe")
        told.append(str(raised.value))
    assert told[0] == told[1]
    np.testing.assert_array_equal(target, 0)
    np.testing.assert_array_equal(model.run({"x": x, "i": np.array([1, 3])})["y"], [1, 3])


def test_steps_of_several_batches_are_left_to_python(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path, batches_per_step=2)
    x = np.stack([X, X + 1])
    assert not _runs_directly(model, {"x": x})
    assert len(model.run(x=x)["y"]) == 2
    with pytest.raises(InputMismatchError):
        model.run(x=X)
