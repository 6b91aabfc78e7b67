"""A BERT of transformers, trained as an ipu_config.json of Optimum says, against PyTorch.

`python -m tools.host_exports.transformers_models` has written its file in tests/recorded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc
import popc_runtime
from popc.hosts.optimum import IPUConfig
from popc.options import resolve_options
from popc_runtime.format import Array

_ROOT: Final = Path(__file__).parents[2]
_FILE: Final = _ROOT / "tests" / "recorded" / "hosts_transformers.npz"
# As Optimum publishes them for BERT, with fewer micro-batches and chips.
_CONFIG: Final[dict[str, Any]] = {
    "device_iterations": 1,
    "embedding_serialization_factor": 1,
    "enable_half_partials": True,
    "executable_cache_dir": "./exe_cache",
    "gradient_accumulation_steps": 4,
    "inference_device_iterations": 5,
    "inference_replication_factor": 1,
    "layers_per_ipu": [2, 2],
    "matmul_proportion": [0.15, 0.25],
    "name": "popc_test",
    "optimizer_state_offchip": True,
    "optimum_version": "1.6.1",
    "output_mode": "all",
    "recompute_checkpoint_every_layer": True,
    "replicated_tensor_sharding": True,
    "replication_factor": 2,
    "seed": 42,
    "transformers_version": "4.25.1",
}
_TRAIN: Final = {
    "loss": {
        "type": "cross_entropy",
        "input": "logits",
        "label": "labels",
        "label_dtype": "int64",
    },
    "optimizer": {"type": "sgd", "learning_rate": 0.1},
}


def _recorded() -> dict[str, Array]:
    with np.load(_FILE) as file:
        return {name: file[name] for name in file.files}


def _config(folder: Path) -> Path:
    file = folder / "ipu_config.json"
    file.write_text(json.dumps(_CONFIG), encoding="utf-8")
    return file


# The number of the layer and of the chip in the print of a product.
_PRODUCT: Final = re.compile(r"%\S*/layer\.(\d)/\S*: .* = MatMul\(.*virtual_graph=(\d)")


def test_losses_are_those_of_pytorch(tmp_path: Path) -> None:
    """Two replicas, four micro-batches, two chips of two layers in a pipeline; two steps."""
    recorded = _recorded()
    config = IPUConfig.from_pretrained(_config(tmp_path).parent)
    prints: dict[str, str] = {}
    archive = popc.compile(
        recorded["model"].tobytes(),
        train=_TRAIN,
        options=config,
        on_artefact=lambda stage, text: prints.update({str(stage): text}),
    )
    places = set(_PRODUCT.findall(prints["transform"]))
    assert places == {("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")}
    program = popc_runtime.load(archive.to_bytes())
    names = ("input_ids", "attention_mask", "labels")
    for step, expected in enumerate(recorded["losses"]):
        loss = program.run({name: recorded[name][step] for name in names})["loss"]
        np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_every_key_has_an_effect_or_its_reason(tmp_path: Path) -> None:
    options = resolve_options(file=_config(tmp_path), trains=True)
    rows = {row.key: row for row in options.foreign.rows}
    assert set(_CONFIG) <= set(rows)
    for name in _CONFIG:
        assert rows[name].options or rows[name].reason, name


@pytest.mark.slow
def test_pytorch_still_says_the_same(tmp_path: Path) -> None:
    """With the interpreter of an environment that has transformers, which a variable names."""
    python = os.environ.get("POPC_TEST_TRANSFORMERS_PYTHON")
    if not python:
        pytest.skip("POPC_TEST_TRANSFORMERS_PYTHON names no interpreter with torch, transformers")
    file = tmp_path / "now.npz"
    command = [python, "-m", "tools.host_exports.transformers_models", str(file)]
    subprocess.run(command, cwd=_ROOT, check=True, timeout=600)
    with np.load(file) as now:
        np.testing.assert_allclose(now["losses"], _recorded()["losses"], rtol=1e-5)
