"""Classes that stand for those of other systems: `popc.compile` takes what they hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import popc
import popc_runtime
from popc.hosts import optimum, paddle, tensorflow
from popc.options.dialects.known import DIALECTS
from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import Array

_RNG = np.random.default_rng(0)
_WEIGHTS = {name: _RNG.standard_normal((4, 4)).astype(np.float32) for name in ("w0", "w1")}


def _two_layers(batch: int | str = 2) -> onnx.ModelProto:
    """y = tanh(tanh(x w0) w1), in layers that names of nodes tell."""
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 17]> g (float[{batch},4] x) => (float[{batch},4] y) '
        "{ [net_layer] a = MatMul (x, w0) h = Tanh (a) b = MatMul (h, w1) y = Tanh (b) }"
    )
    for number, node in enumerate(model.graph.node):
        node.name = f"/net/layer.{number // 2}/{node.op_type}"
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in _WEIGHTS.items())
    return model


def _expected(x: Array) -> Any:
    return np.tanh(np.tanh(x @ _WEIGHTS["w0"]) @ _WEIGHTS["w1"])


# -- TensorFlow ------------------------------------------------------------------------------------


def _leaves() -> list[tuple[str, Any]]:
    (found,) = (dialect for dialect in DIALECTS if dialect.name == "tensorflow")
    return [(key.name, key.default) for key in found.keys if "poplar_options" not in key.name]


@pytest.mark.parametrize(("name", "default"), _leaves())
def test_every_attribute_is_there_with_its_default_and_can_be_set(name: str, default: Any) -> None:
    config = tensorflow.IPUConfig()
    *categories, last = name.split(".")
    owner: Any = config
    for category in categories:
        owner = getattr(owner, category)
    found = getattr(owner, last)
    assert getattr(found, "name", found) == default
    setattr(owner, last, found)
    assert config[name] == found
    metadata = config.get_attribute_metadata(name)
    assert (metadata.name, metadata.default, metadata.deprecated) == (name, found, False)
    assert metadata.check_type(found)
    assert owner.get_attribute_metadata(last).type == metadata.type


def test_a_config_of_tensorflow_compiles() -> None:
    config = tensorflow.IPUConfig()
    config.auto_select_ipus = 2
    config.selection_order = tensorflow.SelectionOrder.HOOF
    config.scheduling.algorithm = tensorflow.SchedulingAlgorithm.POST_ORDER
    config.optimizations.combine_matmuls = True
    config.matmuls.poplar_options["availableMemoryProportion"] = 0.2
    archive = popc.compile(_two_layers(), options=config)
    values = {option.name: option.value for option in archive.manifest.options}
    assert values["ipu_selection_order"] == "hoof"
    assert values["scheduling_algorithm"] == "post_order"
    assert values["combine_matmuls"] is True
    assert values["num_ipus"] == 2
    assert values["available_memory_by_op_type"] == (("Gemm", 0.2), ("MatMul", 0.2))
    x = np.ones((2, 4), np.float32)
    found = popc_runtime.load(archive).run(x=x)["y"]
    np.testing.assert_allclose(found, _expected(x), rtol=1e-5)


def test_mistakes_are_refused_where_they_are_made() -> None:
    config: Any = tensorflow.IPUConfig()
    with pytest.raises(TypeError, match=r"io_tiles.num_io_tiles is 'many', but must be"):
        config.io_tiles.num_io_tiles = "many"
    with pytest.raises(AttributeError, match=r"did you mean optimizations\.combine_matmuls"):
        config.optimizations.combine_matmul = True
    with pytest.raises(AttributeError, match="has no 'optimisations'"):
        config.optimisations.combine_matmuls = True
    with pytest.raises(TypeError, match="must be a dict"):
        config.matmuls.poplar_options = 3
    with pytest.raises(TypeError, match="availableMemoryProportion is 7"):
        config.matmuls.poplar_options = {"availableMemoryProportion": 7}
    with pytest.raises(ValueError, match=r"has no 'scheduling\.algoritm'"):
        config.scheduling.get_attribute_metadata("algoritm")
    with pytest.raises(TypeError, match="is a category"):
        config.get_attribute_metadata("scheduling").check_type(1)
    with pytest.raises(UsageError, match="no system that could be configured"):
        config.configure_ipu_system()
    assert list(config) == ["dialect"]
    assert {"combine_matmuls"} <= set(dir(config.optimizations))


# -- Optimum ---------------------------------------------------------------------------------------


def _pods() -> optimum.IPUConfig:
    return optimum.IPUConfig(
        replication_factor={"pod4": 1, "default": 2},
        gradient_accumulation_steps=4,
        device_iterations=3,
        inference_device_iterations=5,
    )


def test_a_config_of_optimum_is_saved_and_read(tmp_path: Path) -> None:
    config = _pods()
    config.update_from_string("seed=7,layers_per_ipu=[1 1],matmul_proportion=0.3")
    file = config.save_pretrained(tmp_path / "model")
    assert json.loads(file.read_text())["layers_per_ipu"] == [1, 1]
    for place in (file, file.parent):
        again = optimum.IPUConfig.from_pretrained(place, seed=8)
        assert dict(again) == {**config, "seed": 8}
    assert again.to_dict()["output_mode"] == "final"
    with pytest.raises(ResourceError, match="cannot read"):
        optimum.IPUConfig.from_pretrained(tmp_path / "nothing")


def test_values_for_pods() -> None:
    config = _pods()
    assert config.for_pod_type("pod4").replication_factor == 1
    assert config.batch_size_factor() == 2 * 4 * 3
    assert config.batch_size_factor(pod_type="pod4") == 1 * 4 * 3
    assert config.batch_size_factor(for_inference=True) == 5
    with pytest.raises(UsageError, match="there is no pod 'pod5'"):
        config.for_pod_type("pod5")
    config.layers_per_ipu = {"pod16": [1, 1]}
    with pytest.raises(UsageError, match="layers_per_ipu has values for pod16, and none for pod4"):
        config.for_pod_type("pod4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sed=3", "'sed=3' changes no setting"),
        ("seed", "'seed' changes no setting"),
        ("auto_loss_scaling=perhaps", "neither true nor false"),
        ("device_iterations=0", "must be at least 1"),
    ],
)
def test_strings_that_change_nothing(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _pods().update_from_string(text)


def test_options_are_for_training_or_for_inference() -> None:
    config = _pods()
    assert config.to_options().accumulation_factor == 4
    options = config.to_options(for_inference=True)
    assert options.batches_per_step == 5
    popc.compile(_two_layers(), options=options)
    with pytest.raises(UsageError, match="made of those of optimum for training"):
        popc.compile(_two_layers(), options=config.to_options())


def test_a_config_of_optimum_trains_by_layers() -> None:
    """Two replicas, a pipeline of two chips: one step of gradient descent, as numpy does it."""
    config = optimum.IPUConfig(
        replication_factor=2,
        gradient_accumulation_steps=4,
        layers_per_ipu=[1, -1],
        matmul_proportion=[0.2, 0.6],
        enable_half_partials=False,
        recompute_checkpoint_every_layer=True,
    )
    loss = {"type": "mse", "input": "y", "label": "target"}
    archive = popc.compile(
        _two_layers(), options=config, loss=loss, optimizer={"type": "sgd", "learning_rate": 0.1}
    )
    values = {option.name: option.value for option in archive.manifest.options}
    assert values["layers_per_ipu"] == (1, -1)
    program = popc_runtime.load(archive)
    samples = _RNG.standard_normal((config.batch_size_factor() * 2, 4)).astype(np.float32)
    feeds = {spec.name: samples.reshape(spec.shape) for spec in program.inputs}
    program.run(feeds)
    assert program.state.read()["w1"] == pytest.approx(_after_a_step(samples), rel=1e-4, abs=1e-5)


def test_every_key_of_a_published_file_trains() -> None:
    """Automatic loss scaling in a pipeline as well: each stage counts its own gradients."""
    config = optimum.IPUConfig(
        auto_loss_scaling=True,
        gradient_accumulation_steps=4,
        layers_per_ipu=[1, 1],
        embedding_serialization_factor=1,
        executable_cache_dir="./exe_cache",
        optimum_version="1.0.0",
    )
    loss = {"type": "mse", "input": "y", "label": "target"}
    optimizer = {"type": "adam", "learning_rate": 0.01}
    archive = popc.compile(_two_layers(), options=config, loss=loss, optimizer=optimizer)
    (note,) = (note for note in archive.notes if "executable_cache_dir" in note)
    assert "docs/caching.md" in note
    program = popc_runtime.load(archive)
    samples = _RNG.standard_normal((8, 4)).astype(np.float32)
    feeds = {spec.name: samples.reshape(spec.shape) for spec in program.inputs}
    losses = [float(program.run(feeds)["loss"]) for _ in range(20)]
    assert losses[-1] < losses[0]


def _after_a_step(samples: Array) -> Array:
    """w1 after a step of gradient descent, when inputs are targets."""
    w0, w1 = (_WEIGHTS[name].astype(np.float64) for name in ("w0", "w1"))
    h = np.tanh(samples @ w0)
    y = np.tanh(h @ w1)
    slope = 2 * (y - samples) / y.size * (1 - y**2)
    moved: Array = w1 - 0.1 * h.T @ slope
    return moved


# -- Paddle ----------------------------------------------------------------------------------------


def test_a_strategy_of_paddle_compiles() -> None:
    strategy = paddle.IpuStrategy()
    strategy.set_graph_config(num_ipus=2, is_training=False, micro_batch_size=3)
    strategy.set_pipelining_config(enable_pipelining=True, batches_per_step=4)
    strategy.set_precision_config(enable_fp16=False)
    assert (strategy.num_ipus, strategy.enable_pipelining) == (2, True)
    for batch in ("N", "?"):
        model = _two_layers("N")
        if batch == "?":
            model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("value")
        program = paddle.IpuCompiledProgram(model, ipu_strategy=strategy).compile(["x"], ["y"])
        x = _RNG.standard_normal((4, 3, 4)).astype(np.float32)
        found = popc_runtime.load(program).run(x=x)["y"]
        np.testing.assert_allclose(found, _expected(x), rtol=1e-4, atol=1e-6)


def test_a_program_of_paddle_has_the_inputs_of_its_model() -> None:
    with pytest.raises(UsageError, match="feed_list is z, but the inputs are x"):
        paddle.IpuCompiledProgram(_two_layers()).compile(["z"], ["y"])


def test_data_parallel_programs_of_paddle() -> None:
    build, run = paddle.BuildStrategy(), paddle.ExecutionStrategy()
    build.fuse_all_reduce_ops = True
    run.num_iteration_per_run = 2
    with pytest.raises(AttributeError, match=r"did you mean build_strategy\.fuse_bn_act_ops"):
        build.fuse_bn_act_op = True
    program = paddle.CompiledProgram(_two_layers(), build).with_data_parallel(
        "error", build, run, places=["cpu", "cpu"]
    )
    archive = program.compile(["x"], ["y"])
    values = {option.name: option.value for option in archive.manifest.options}
    assert values["merge_all_reduce_collectives"] is True
    assert values["batches_per_step"] == 2
    assert archive.manifest.replicas == 2
