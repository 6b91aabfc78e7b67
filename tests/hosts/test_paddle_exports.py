"""Programs that Paddle has exported, compared with what Paddle computes.

`python -m tools.host_exports.paddle_models` has written tests/recorded/hosts_paddle.npz.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

import popc_runtime
from popc.hosts import paddle
from popc.options import Options
from popc_runtime.format import Array

_ROOT: Final = Path(__file__).parents[2]
_FILE: Final = _ROOT / "tests" / "recorded" / "hosts_paddle.npz"
_LOSS: Final = {
    "type": "cross_entropy",
    "input": "fetch_name_0",
    "label": "label",
    "label_dtype": "int64",
}
_SGD: Final = {"type": "sgd", "learning_rate": 0.1}


@cache
def _recorded() -> dict[str, Array]:
    with np.load(_FILE) as file:
        return {name: file[name] for name in file.files}


def _model(name: str) -> bytes:
    return _recorded()[name].tobytes()


def _ends(model: bytes) -> tuple[list[str], list[str]]:
    graph = onnx.load_from_string(model).graph
    return [info.name for info in graph.input], [info.name for info in graph.output]


def _strategy(**config: Any) -> paddle.IpuStrategy:
    """The strategy of Paddle's example, with other numbers."""
    strategy = paddle.IpuStrategy()
    strategy.set_graph_config(
        num_ipus=config.get("num_ipus", 1), is_training=False, micro_batch_size=config["batch"]
    )
    strategy.set_pipelining_config(
        enable_pipelining=config.get("num_ipus", 1) > 1,
        batches_per_step=config.get("steps", 1),
        enable_gradient_accumulation=False,
        accumulation_factor=1,
    )
    strategy.set_precision_config(enable_fp16=config.get("half", False))
    return strategy


def test_the_example_of_ipu_compiled_program() -> None:
    """Data + 1."""
    model = _model("plus")
    feeds, fetches = _ends(model)
    program = paddle.IpuCompiledProgram(model, ipu_strategy=_strategy(batch=5))
    executable = popc_runtime.load(program.compile(feeds, fetches))
    (found,) = executable.run({feeds[0]: _recorded()["plus_data"]}).values()
    np.testing.assert_array_equal(found, _recorded()["plus_results"])


@pytest.mark.parametrize(("half", "tolerance"), [(False, 1e-6), (True, 5e-3)])
def test_a_pipeline_of_two_chips(half: bool, tolerance: float) -> None:  # noqa: FBT001
    """Eight micro-batches of two images in a step; in half precision too."""
    model = _model("lenet")
    feeds, fetches = _ends(model)
    strategy = _strategy(num_ipus=2, batch=2, steps=8, half=half)
    program = paddle.IpuCompiledProgram(model, ipu_strategy=strategy)
    executable = popc_runtime.load(program.compile(feeds, fetches))
    images = _recorded()["lenet_image"].reshape(8, 2, 1, 12, 12)
    (found,) = executable.run({feeds[0]: images}).values()
    expected = _recorded()["lenet_results"]
    bound = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=bound)
    assert (np.abs(found.reshape(expected.shape) - expected).max() > 1e-5) == half


def test_data_parallel_training() -> None:
    """Two places, each with half of the samples: the mean of their losses is Paddle's."""
    model = _model("lenet")
    feeds, fetches = _ends(model)
    compiled = paddle.CompiledProgram(model).with_data_parallel(places=["cpu:0", "cpu:1"])
    archive = compiled.compile(
        feeds, fetches, loss=_LOSS, optimizer=_SGD, dims={"DynamicDimension.0": 4}
    )
    executable = popc_runtime.load(archive)
    image = _recorded()["lenet_image"][:8].reshape(2, 4, 1, 12, 12)
    losses = [
        float(executable.run({feeds[0]: image, "label": label.reshape(2, 4)})["loss"].mean())
        for label in _recorded()["lenet_label"]
    ]
    np.testing.assert_allclose(losses, _recorded()["lenet_losses"], rtol=1e-5)


def test_gradients_of_places_are_averaged_unless_told_otherwise() -> None:
    from popc.options import resolve_options

    def reduction(**build: str) -> str:
        table = {"dialect": "paddle", "with_data_parallel": {"places": 2}, "build_strategy": build}
        options: Options = resolve_options(values=table, trains=True)
        return options.reduction_of_replicas

    assert reduction() == "mean"
    assert reduction(gradient_scale_strategy="One") == "sum"


@pytest.mark.slow
def test_paddle_still_says_the_same(tmp_path: Path) -> None:
    """With the interpreter of an environment that has Paddle, which a variable names."""
    python = os.environ.get("POPC_TEST_PADDLE_PYTHON")
    if not python:
        pytest.skip("POPC_TEST_PADDLE_PYTHON names no interpreter with paddlepaddle, paddle2onnx")
    file = tmp_path / "now.npz"
    command = [python, "-m", "tools.host_exports.paddle_models", str(file)]
    subprocess.run(command, cwd=_ROOT, check=True, timeout=600)
    with np.load(file) as now:
        for name, value in _recorded().items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(now[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
