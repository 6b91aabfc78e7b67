"""Training with rewrites of lookups and products: the same weights, fewer gradients of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc_runtime.format import Array
from tests.support.compiling import CHECKED
from tests.training.deep import compiled
from tests.training.small import trainable

_RANDOM = np.random.default_rng(0)
_WEIGHTS = {
    "table": _RANDOM.standard_normal((11, 4)).astype(np.float32),
    "w": _RANDOM.standard_normal((4, 4)).astype(np.float32),
}
_FEEDS = {"i": np.array([1, 1, 2, 3, 0]), "j": np.array([1, 4, 2, 10, 0])}
_REWRITES: dict[str, dict[str, Any]] = {
    "lookups": {"combine_embedding_lookups": True},
    "products": {"combine_matmuls": True},
    "all": {"patterns": "all", "combine_matmuls": True, "combine_embedding_lookups": True},
    "none": {"patterns": "no_patterns"},
    "cut": {
        "annotate": [
            {"nodes": "*", "serialize_matmul_mode": "input_channels", "serialize_matmul_factor": 5}
        ]
    },
    "recomputed": {"auto_recomputation": "recompute_all", "patterns": "all"},
    "accumulated": {
        "delay_var_updates": True,
        "schedule_non_weight_update_gradient_consumers_early": True,
        "enable_inplace": False,
    },
}


def _model() -> onnx.ModelProto:
    """loss = mean(table[i] w * table[j])."""
    nodes = [
        helper.make_node("Gather", ["table", "i"], ["a"]),
        helper.make_node("Gather", ["table", "j"], ["b"]),
        helper.make_node("MatMul", ["a", "w"], ["c"]),
        helper.make_node("Mul", ["c", "b"], ["d"]),
        helper.make_node("ReduceMean", ["d"], ["loss"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "siamese",
        [helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [5]) for name in "ij"],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])],
        [numpy_helper.from_array(value, name) for name, value in _WEIGHTS.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _losses(folder: Path, **options: Any) -> Array:
    archive = popc.compile(_model(), train=trainable(), options={**CHECKED, **options})
    executable = popc_runtime.load(archive.save(folder / "train.popx", force=True))
    return np.array([executable.run(_FEEDS)["loss"] for _ in range(4)])


@pytest.mark.parametrize("rewrites", _REWRITES)
def test_training_is_the_same(rewrites: str, tmp_path: Path) -> None:
    expected = _losses(tmp_path)
    np.testing.assert_allclose(_losses(tmp_path, **_REWRITES[rewrites]), expected, rtol=1e-5)


def test_one_lookup_has_one_gradient() -> None:
    def gradients(**options: Any) -> int:
        done = compiled(_model(), trainable(), **options)
        return sum(op.op_type == "GatherGrad" for op in done.graph.ops)

    assert gradients() == 2
    assert gradients(combine_embedding_lookups=True) == 1
    assert gradients(patterns="all") == 1  # the other is added row by row
