"""Functions of the host that a program calls: against numpy, and Mul and Add of ONNX itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc.cli.root import run as popc_command
from popc_runtime.errors import DeviceError, ModelError, UsageError

_W = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
_X = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)


def _call(inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("HostCall", inputs, outputs, domain="ai.graphcore", **attributes)


def _model(
    nodes: list[onnx.NodeProto], x: tuple[int, ...], y: tuple[int, ...], w: Any = _W
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(w, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.graphcore", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _outside() -> onnx.ModelProto:
    """The example of outside_compilation_scope: b = a a, c = b + 2 on the host, d = b + c."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["b"]),
        _call(["b"], ["c"], function="add_two"),
        _call(["c"], [], function="log"),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    return _model(nodes, (2,), (2,))


@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize("options", [{}, {"batches_per_step": 2}, {"replicated_graph_count": 2}])
def test_outside_compilation(engine: str, options: dict[str, int]) -> None:
    seen: list[Any] = []
    program = popc_runtime.load(
        popc.compile(_outside(), options={"verify_ir": True, **options}).to_bytes(),
        engine=engine,
        host_calls={"add_two": lambda b: b + 2, "log": lambda c: seen.append(c.copy())},
    )
    a = np.array([[1, 2], [3, 4]], np.float32)[: 2 if options else 1].reshape(-1, 2)
    a = a if options else a[0]
    np.testing.assert_array_equal(program.run(x=a)["y"], 2 * a * a + 2)
    np.testing.assert_array_equal(np.reshape(seen, a.shape), a * a + 2)


def test_calls_with_a_memory_happen_once_each_in_the_order_of_the_model() -> None:
    """Equal calls are not merged, and neither is repeated for the backward pass."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        _call([], ["first"], function="count", types=["float32[]"]),
        _call([], ["second"], function="count", types=["float32[]"]),
        helper.make_node("Sub", ["second", "first"], ["step"]),
        helper.make_node("Mul", ["h", "step"], ["k"]),
        helper.make_node("Tanh", ["k"], ["y"]),
    ]
    counted: list[int] = []

    def count() -> Any:
        counted.append(len(counted) ** 2)
        return np.float32(counted[-1])

    program = popc_runtime.load(
        popc.compile(
            _model(nodes, (3, 4), (3, 2)),
            options={"auto_recomputation": "recompute_all", "verify_ir": True},
            loss={"type": "l1", "input": "y"},
            optimizer={"type": "sgd", "learning_rate": 0.1},
        ).to_bytes(),
        host_calls={"count": count},
    )
    for _ in range(3):
        program.run(x=_X[0])
    assert counted == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("options", [{}, {"replicated_graph_count": 2}, {"accumulation_factor": 2}])
def test_trains_as_the_standard_operator_does(options: dict[str, Any]) -> None:
    first = helper.make_node("MatMul", ["x", "w"], ["h"])
    trained: list[Any] = []
    for node in (
        _call(["h"], ["y"], function="square", gradient="square_gradient"),
        helper.make_node("Mul", ["h", "h"], ["y"]),
    ):
        ours = node.op_type == "HostCall"
        program = popc_runtime.load(
            popc.compile(
                _model([first, node], (3, 4), (3, 2)),
                options={"verify_ir": True, **options},
                loss={"type": "l1", "input": "y"},
                optimizer={"type": "sgd", "learning_rate": 0.1},
            ).to_bytes(),
            host_calls={"square": np.square, "square_gradient": lambda h, _, dy: 2 * h * dy}
            if ours
            else None,
        )
        for _ in range(2):
            program.run(x=_X if options else _X[0])
        trained.append(program.state.read()["w"])
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-6)
    assert abs(trained[0] - _W).max() > 0.01


def test_everything_that_is_wrong_with_the_functions_is_told_at_once() -> None:
    archive = popc.compile(_outside()).to_bytes()
    with pytest.raises(UsageError) as caught:
        popc_runtime.load(archive, host_calls={"log": 3, "lgo": print})  # type: ignore[dict-item]
    assert caught.value.details == (
        "add_two(float32[2]) -> float32[2] is missing",
        "the program calls no lgo",
        "log is no function",
    )


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda b: b[:1], r"add_two: result 0 of the function has the shape \[1\]"),
        (lambda b: b.astype(np.complex64), "add_two: result 0 of the function is complex64"),
        (lambda b: 1 / 0, "add_two: the function raised ZeroDivisionError"),
        (lambda b: (b, b), "add_two: the function gave 2 results"),
    ],
)
def test_functions_that_give_something_else(function: Any, says: str) -> None:
    calls = {"add_two": function, "log": lambda c: None}
    program = popc.load(_outside(), cache=False, host_calls=calls)
    with pytest.raises(DeviceError, match=says):
        program.run(x=np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"function": "f", "types": ["float33[2]"]}, "'float33\\[2\\]' is no type such as"),
        ({"function": "f"}, "list their types"),
        ({"function": ""}, "names the function that is called"),
        ({"function": "f", "typ": ["float32[]"]}, "attribute 'typ' is unknown"),
    ],
)
def test_nodes_that_do_not_say_what_is_called(attributes: dict[str, Any], says: str) -> None:
    model = _model([_call([], ["y"], **attributes)], (2,), (2,))
    with pytest.raises(ModelError, match=says):
        popc.compile(model)


def test_training_needs_the_second_function() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), _call(["h"], ["y"], function="square")]
    with pytest.raises(ModelError, match="the host call square has no gradient"):
        popc.compile(
            _model(nodes, (3, 4), (3, 2)),
            loss={"type": "l1", "input": "y"},
            optimizer={"type": "sgd", "learning_rate": 0.1},
        )


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    popc.compile(_outside()).save(tmp_path / "m.popx")
    (tmp_path / "functions_of_a_host.py").write_text(
        "def add_two(b):\n    return b + 2\ndef log(c):\n    print('seen', c.tolist())\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    given = ["run", str(tmp_path / "m.popx"), "--input", f"x={tmp_path / 'x.npy'}"]
    assert popc_command([*given, "--host-call", "add_two=functions_of_a_host:add_two"]) != 0
    assert "log(float32[2]) -> nothing is missing" in capsys.readouterr().err
    both = [f"--host-call={name}=functions_of_a_host:{name}" for name in ("add_two", "log")]
    assert popc_command([*given, *both]) == 0
    assert "seen [3.0, 3.0]" in capsys.readouterr().out
    assert popc_command([*given, "--host-call", "log=functions_of_a_host:lgo"]) == 2
    assert popc_command(["inspect", str(tmp_path / "m.popx")]) == 0
    assert "add_two(float32[2]) -> float32[2]" in capsys.readouterr().out


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_an_infeed_inside_a_loop(engine: str) -> None:
    """While the sum is below ten, the loop takes one more sample: the program decides how many."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 17, "ai.graphcore": 1]>
        while_loop (float[1] x) => (float[1] y) {
          t = Constant <value = bool {1}> ()
          y = Loop ("", t, x)
            <body = b (int64 i, bool c, float[1] s) => (bool below, float[1] sum) {
            sample = ai.graphcore.HostCall <function = "feed", types = ["float32[1]"]> ()
            sum = Add (s, sample)
            ten = Constant <value = float[1] {10}> ()
            less = Less (sum, ten)
            axes = Constant <value = int64[1] {0}> ()
            below = Squeeze (less, axes)
          }>
        }"""
    )
    samples = iter(np.arange(100, dtype=np.float32).reshape(100, 1))
    program = popc_runtime.load(
        popc.compile(model), engine=engine, host_calls={"feed": lambda: next(samples)}
    )
    x = np.zeros(1, np.float32)
    results = [float(program.run({"x": x})["y"][0]) for _ in range(3)]
    assert results == [0 + 1 + 2 + 3 + 4, 5 + 6, 7 + 8]
