"""Models that Keras has exported through tf2onnx, compared with what Keras computes.

`python -m tools.host_exports.keras_models` has written tests/recorded/hosts_keras.npz.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc
import popc_runtime
from popc.hosts import tensorflow
from popc.hosts.attributes import SettingsNode
from popc.options.dialects.tensorflow import TENSORFLOW
from popc.progress import Stage
from popc_runtime.format import Array

_ROOT: Final = Path(__file__).parents[2]
_FILE: Final = _ROOT / "tests" / "recorded" / "hosts_keras.npz"
_STEP, _STEPS = 250, 2

# A value for every attribute, most of them not the default.
_EVERYTHING: Final[dict[str, Any]] = {
    "allow_recompute": True,
    "selection_order": tensorflow.SelectionOrder.SNAKE,
    "serialization_output_folder": "somewhere",
    "auto_select_ipus": 2,
    "select_ipus": [0, 1],
    "device_connection.type": tensorflow.DeviceConnectionType.NEVER,
    "device_connection.version": "ipu2",
    "device_connection.enable_remote_buffers": True,
    "experimental.always_rearrange_copies_on_the_host": True,
    "experimental.enable_remote_buffer_embedding": True,
    "experimental.multi_replica_distribution.process_index": 0,
    "experimental.multi_replica_distribution.process_count": 1,
    "floating_point_behaviour.inv": True,
    "floating_point_behaviour.div0": True,
    "floating_point_behaviour.oflo": True,
    "floating_point_behaviour.esr": tensorflow.StochasticRoundingBehaviour.OFF,
    "experimental.enable_prng_stability": True,
    "floating_point_behaviour.nanoo": True,
    "floating_point_behaviour.set_all": False,
    "io_tiles.num_io_tiles": 128,
    "io_tiles.place_ops_on_io_tiles": True,
    "io_tiles.available_memory_proportion": 0.8,
    "ipu_model.compile_ipu_code": False,
    "ipu_model.tiles_per_ipu": 1216,
    "ipu_model.version": "ipu2",
    "matmuls.clear_pass_type": True,
    "norms.use_stable_statistics": True,
    "norms.experimental.distributed_batch_norm_replica_group_size": 1,
    "optimizations.prefetch_data_streams": False,
    "optimizations.combine_embedding_lookups": True,
    "optimizations.combine_matmuls": True,
    "optimizations.enable_graph_outlining": False,
    "optimizations.merge_infeed_io_copies": True,
    "optimizations.maximum_cross_replica_sum_buffer_size": 1 << 20,
    "optimizations.maximum_reduce_scatter_buffer_size": 1 << 20,
    "optimizations.maximum_all_gather_buffer_size": 1 << 20,
    "optimizations.maximum_reduce_many_buffer_size": 1 << 20,
    "optimizations.enable_dynamic_slice_replacement": False,
    "optimizations.maximum_inter_ipu_copies_buffer_size": 1 << 20,
    "optimizations.maximum_send_recv_cluster_size": 1 << 20,
    "optimizations.minimum_remote_tensor_size": 256,
    "optimizations.merge_remote_buffers": tensorflow.MergeRemoteBuffersBehaviour.MERGE,
    "optimizations.enable_gather_simplifier": False,
    "optimizations.triangular_solve_expander_block_size": 8,
    "optimizations.cholesky_block_size": 8,
    "optimizations.enable_fast_math": True,
    "scheduling.algorithm": tensorflow.SchedulingAlgorithm.POST_ORDER,
    "scheduling.maximum_scheduler_lookahead_depth": 7,
    "scheduling.maximum_scheduler_search_space_size": 32,
}
_FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "compilation_poplar_options": {"debug.allowOutOfMemory": "true", "target.syncMethod": "x"},
    "gcl_poplar_options": {"useSynclessCollectives": "true"},
    "convolutions.poplar_options": {"availableMemoryProportion": "0.3", "partialsType": "float"},
    "matmuls.poplar_options": {"availableMemoryProportion": "0.2", "partialsType": "float"},
    "slices.poplar_options": {"availableMemoryProportion": "0.1"},
    "pooling.poplar_options": {"poolUseIntrospectiveMapping": "false"},
}


@cache
def _recorded() -> dict[str, Array]:
    with np.load(_FILE) as file:
        return {name: file[name] for name in file.files}


def _owner(config: SettingsNode, name: str) -> tuple[Any, str]:
    *categories, last = name.split(".")
    owner: Any = config
    for category in categories:
        owner = getattr(owner, category)
    return owner, last


def test_a_config_with_every_attribute_set() -> None:
    """Each shows what became of it, and results are Keras's."""
    config = tensorflow.IPUConfig()
    for name, value in {**_EVERYTHING, **_FAMILIES}.items():
        owner, last = _owner(config, name)
        setattr(owner, last, value)
    attributes = {key.name for key in TENSORFLOW.keys if "poplar_options" not in key.name}
    assert set(_EVERYTHING) == attributes
    options = {**config, "batch_size": 4, "virtual_graph_mode": "auto"}
    archive = popc.compile(_recorded()["network"].tobytes(), options=options)
    told = " ".join(archive.notes)
    for name in ("select_ipus", "merge_remote_buffers", "syncMethod"):
        assert name in told
    feed = {name: _recorded()[f"network_{name}"] for name in ("image", "word")}
    (found,) = popc_runtime.load(archive).run(feed).values()
    np.testing.assert_allclose(found, _recorded()["network_scores"], rtol=1e-5, atol=1e-6)


def test_the_pipeline_of_the_document() -> None:
    """Stages on chips 3 and 1, 250 micro-batches, twice; what comes out in order is Keras's."""
    config = tensorflow.IPUConfig()
    config.auto_select_ipus = 4
    config.optimizations.enable_graph_outlining = True
    config.scheduling.algorithm = tensorflow.SchedulingAlgorithm.POST_ORDER
    config.io_tiles.num_io_tiles = 128
    config.io_tiles.place_ops_on_io_tiles = True
    config.matmuls.poplar_options = {"availableMemoryProportion": "0.1"}
    texts: dict[Stage, str] = {}
    archive = popc.compile(
        _recorded()["pipeline"].tobytes(),
        options={
            **config,
            "virtual_graph_mode": "auto",
            "enable_pipelining": True,
            "device_mapping": [3, 1],
            "batches_per_step": _STEP,
            "default_buffering_depth": 3,
        },
        on_artefact=texts.__setitem__,
    )
    lines = texts[Stage.TRANSFORM].splitlines()
    assert {chip for chip in range(4) for line in lines if f"virtual_graph={chip}" in line} == {
        1,
        3,
    }
    feed = (image.astype(np.float32)[None] / 255 for image in _recorded()["pipeline_images"])
    found: dict[str, list[Array]] = {"probabilities": [], "classes": []}
    with popc_runtime.load(archive).session() as session:
        session.connect("image", feed)
        for name, kept in found.items():
            session.connect(name, kept)
        session.step(_STEPS)
    for name, kept in found.items():
        assert len(kept) == _STEP * _STEPS
        np.testing.assert_allclose(
            np.stack(kept), _recorded()[f"pipeline_{name}"], rtol=1e-5, atol=1e-6
        )


def test_training_takes_the_weights_of_layers_alone() -> None:
    """Among them a kernel that tf2onnx has turned and renamed, but no constant of a formula."""
    loss = {"type": "nll", "input": "scores", "label": "label"}
    archive = popc.compile(
        _recorded()["network"].tobytes(),
        options={"batch_size": 4},
        train={"loss": loss, "optimizer": {"type": "sgd", "learning_rate": 0.1}},
    )
    assert sorted(variable.name for variable in archive.manifest.variables) == [
        "const_fold_opt__75",
        "model_1/batch_normalization/ReadVariableOp_1:0",
        "model_1/conv2d/Conv2D/ReadVariableOp:0",
        "model_1/dense/MatMul/ReadVariableOp:0",
        "model_1/dense_1/MatMul/ReadVariableOp:0",
        "model_1/embedding/embedding_lookup/9534:0",
        "model_1/scores/MatMul/ReadVariableOp:0",
    ]
    (note,) = archive.notes
    assert "layer_normalization/ones/Const" in note


@pytest.mark.slow
def test_keras_still_says_the_same(tmp_path: Path) -> None:
    """With the interpreter of an environment that has TensorFlow, which a variable names."""
    python = os.environ.get("POPC_TEST_TENSORFLOW_PYTHON")
    if not python:
        pytest.skip("POPC_TEST_TENSORFLOW_PYTHON names no interpreter with tensorflow-cpu, tf2onnx")
    file = tmp_path / "now.npz"
    command = [python, "-m", "tools.host_exports.keras_models", str(file)]
    subprocess.run(command, cwd=_ROOT, check=True, timeout=600)
    with np.load(file) as now:
        for name, value in _recorded().items():
            if value.dtype.kind == "f":
                np.testing.assert_allclose(now[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
