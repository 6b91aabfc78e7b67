"""Mistakes and traps that no stage is responsible for end as errors with a class of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popc
import popc_runtime
from popc.cli.root import run
from popc_runtime.errors import (
    DeviceError,
    InputMismatchError,
    ModelError,
    OptionError,
    PopcError,
    ResourceError,
    UsageError,
)


def _model(nodes: list[Any], shape: list[int], outputs: str = "y", **weights: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def _two_results() -> popc_runtime.Executable:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    return popc_runtime.load(popc.compile(_model(nodes, [4], "yz")))


def _relu() -> Any:
    return _model([helper.make_node("Relu", ["x"], ["y"])], [4])


def _state() -> Any:
    return popc_runtime.load(popc.compile(_relu())).state


_PATHS: dict[str, Callable[[str], object]] = {
    "load": popc_runtime.load,
    "compile and load": popc.load,
    "compile": popc.compile,
    "options": popc.make_options,
    "save": lambda path: popc.compile(_relu()).save(path),
    "checkpoint": lambda path: _state().save_checkpoint(path),
    "restore": lambda path: _state().load_checkpoint(path),
    "cache": lambda path: popc.compile(_relu(), cache=path),
}


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
@pytest.mark.parametrize("use", _PATHS)
def test_paths_that_no_file_system_takes(use: str, path: str) -> None:
    with pytest.raises(UsageError, match="is not the path of a file"):
        _PATHS[use](path)


def test_a_name_that_is_too_long_and_none_at_all() -> None:
    with pytest.raises(ResourceError, match=r"cannot read .*File name too long"):
        popc.compile("a" * 5000)
    with pytest.raises(UsageError, match="'' is not the path of a file"):
        popc_runtime.load("")
    with pytest.raises(OptionError, match=r"cannot read the target .*embedded null byte"):
        popc.compile(_relu(), options={"target": "a\0b.toml"})


@pytest.mark.parametrize("option", ["--options", "--train"])
@pytest.mark.parametrize(("name", "start"), [("deep.json", ""), ("deep.toml", "a = ")])
def test_files_that_are_nested_too_deeply(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, start: str, option: str
) -> None:
    model, file = tmp_path / "m.onnx", tmp_path / name
    onnx.save(_model([helper.make_node("Relu", ["x"], ["y"])], [4]), model)
    file.write_text(start + "[" * 20_000 + "]" * 20_000)
    words = ["compile", str(model), "-o", str(tmp_path / "o"), option, str(file)]
    assert run(words) == 2
    assert "nested too deeply" in capfd.readouterr().err


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "0", '"fast"'])
def test_a_baseline_that_is_no_time(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], value: str
) -> None:
    archive, baseline = tmp_path / "m.popx", tmp_path / "base.json"
    popc.compile(_model([helper.make_node("Relu", ["x"], ["y"])], [4])).save(archive)
    baseline.write_text(f'{{"latency_seconds": {{"p50": {value}}}}}')
    words = ["bench", str(archive), "--runs", "1", "--compare", str(baseline)]
    assert run(words) == 7
    assert "does not hold figures" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[1 << 32]), [1, 1, 4]),
        (helper.make_node("Conv", ["x", "w"], ["y"], dilations=[1 << 62]), [1, 1, 4]),
        (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[1 << 21]), [1, 1, 1 << 21]),
        (
            helper.make_node("Attention", ["x"] * 3, ["y", "", "", "q"], qk_matmul_output_mode=4),
            [1, 2, 3, 4],
        ),
    ],
    ids=["stride", "dilation", "taps", "mode"],
)
def test_attributes_that_no_kernel_takes(node: onnx.NodeProto, shape: list[int]) -> None:
    model = _model([node], shape, w=np.ones((1, 1, 1), np.float32))
    if len(node.output) > 1:
        model.graph.output.append(helper.make_tensor_value_info("q", TensorProto.FLOAT, None))
    with pytest.raises(ModelError, match=r"at most|and may have|no scores of mode 4"):
        popc.compile(model)


def test_results_that_share_memory() -> None:
    model, memory = _two_results(), np.zeros(8, np.float32)
    feeds = {"x": np.array([-1, 2, -3, 4], np.float32)}
    with pytest.raises(UsageError, match="'y' and 'z' share memory"):
        model.run(feeds, out={"y": memory[:4], "z": memory[3:7]})
    model.run(feeds, out={"y": memory[::2], "z": memory[1::2]})  # apart, though interleaved
    assert memory.tolist() == [0, 1, 2, -2, 0, 3, 4, -4]


class _Liar:
    __array_interface__: ClassVar = {
        "shape": (-4,),
        "typestr": "<f4",
        "data": (0, False),
        "version": 3,
    }


@pytest.mark.parametrize("way", ["run", "run_buffers"])
def test_array_interfaces_that_lie(way: str) -> None:
    with pytest.raises(InputMismatchError, match="negative dimensions"):
        getattr(_two_results(), way)({"x": _Liar()})


def test_profiles_fail_as_runs_do() -> None:
    gather = helper.make_node("Gather", ["w", "i"], ["y"])
    cast = helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64)
    model = popc_runtime.load(popc.compile(_model([cast, gather], [2], w=np.ones(4, np.float32))))
    for way in (model.run, model.profile):
        with pytest.raises(DeviceError, match=r"Gather.*out of range") as caught:
            way({"x": np.array([9, 0], np.float32)})
        assert isinstance(caught.value, PopcError)


def test_offsets_of_thousands_of_digits(tmp_path: Path) -> None:
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], [4], w=np.ones(4, np.float32))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    read = onnx.load(path, load_external_data=False)
    for entry in read.graph.initializer[0].external_data:
        if entry.key == "offset":
            entry.value = "9" * 5000
    path.write_bytes(read.SerializeToString())
    with pytest.raises(ModelError, match="the offset of its external data is '9999"):
        popc.compile(path)
