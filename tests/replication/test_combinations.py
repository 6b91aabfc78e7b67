"""Replicas together with options about other things."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import numpy_helper

from popc.transforms import optional_passes
from popc_runtime.format import Array
from tests.replication.models import compiled, fed, graphcore, normalised, random_samples
from tests.training.small import trainable

_TRAIN: Final = trainable(momentum=0.9)
_BASE: Final[dict[str, Any]] = {
    "replicated_graph_count": 2,
    "batches_per_step": 2,
    "accumulation_factor": 2,
    "accumulation_and_replication_reduction_type": "mean",
}
_SHARDED: Final = "sharded,min_elements_for_replicated_tensor_sharding=1"
_OTHERS: Final[dict[str, dict[str, Any]]] = {
    "merged_updates": {"merge_var_update": "all"},
    "recomputation": {"auto_recomputation": "standard"},
    "recompute_all": {"auto_recomputation": "recompute_all"},
    "tie_breaker": {"kahn_tie_breaker": "fifo"},
    "no_inplace": {"enable_inplace": False},
    "no_passes": {"disabled_passes": list(optional_passes())},
    "checks": {"enable_floating_point_checks": True},
    "merged_exchanges": {
        "merge_all_reduce_collectives": True,
        "prepare_schedule_for_merging_collectives": True,
        "merge_var_update": "all",
    },
    "raw_weights": {"weights": "mmap"},
    "divided": {"weight_tensor_location": f"off_chip,{_SHARDED}"},
    "streaming": {
        "weight_tensor_location": "off_chip",
        "optimizer_state_tensor_location": "off_chip",
        "activation_tensor_location": "off_chip",
        "accumulator_tensor_location": "off_chip",
        "auto_recomputation": "standard",
        "enable_floating_point_checks": True,
    },
}


def _trained(folder: Path, **options: Any) -> tuple[dict[str, Array], list[Array]]:
    given = {**_BASE, **options, "engine": "numpy"}  # which floating-point checks need
    program = compiled(normalised(dropout=0.25), folder, _TRAIN, **given)
    losses = fed(program, {"x": random_samples(24, (8, 3, 4))})["loss"]
    program.state.check_equal_across_replicas()
    return program.state.read(), losses


@pytest.mark.parametrize("other", _OTHERS)
def test_results_stay_the_same(other: str, tmp_path: Path) -> None:
    """Up to what the order of operations changes: without passes, and in divided updates."""
    expected, expected_losses = _trained(tmp_path)
    found, losses = _trained(tmp_path, **_OTHERS[other])
    tolerance = 1e-5 if other in ("no_passes", "divided") else 0
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance, atol=tolerance)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "sharded",
    [
        {},
        {"optimizer_state_tensor_location": _SHARDED},
        {"weight_tensor_location": f"off_chip,{_SHARDED}"},
    ],
    ids=["whole", "parts", "parts off chip"],
)
def test_weights_that_are_rounded_at_random_stay_equal(
    sharded: dict[str, Any], tmp_path: Path
) -> None:
    model = graphcore(
        "g (float16[4,8] x) => (float16 loss) { p = Mul (x, w) q = Tanh (p) s = Mul (q, p) "
        "loss = ReduceMean <keepdims = 0> (s) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(np.arange(8, dtype=np.float16), "w"))
    program = compiled(
        model,
        tmp_path,
        trainable(momentum=0.9, learning_rate=0.01),
        replicated_graph_count=3,
        enable_stochastic_rounding=True,
        **sharded,
    )
    start = program.state.read()["w"]
    samples = random_samples(30, (4, 8)).astype(np.float16)
    losses = np.stack(fed(program, {"x": samples})["loss"])
    program.state.check_equal_across_replicas()
    assert not np.array_equal(program.state.read()["w"], start)
    assert len(np.unique(losses)) > 3


@pytest.mark.parametrize("replicas", [2, 3])
def test_inference_is_the_same_on_every_replica(replicas: int, tmp_path: Path) -> None:
    model = graphcore(
        "g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, 2.0, 3.0}> "
        "{ a = Mul (x, w) b = Softmax (a) y = Add (b, x) }"
    )
    x = random_samples(4 * replicas, (2, 3)).reshape(4, replicas, 2, 3)
    program = compiled(model, tmp_path, replicated_graph_count=replicas, batches_per_step=4)
    alone = compiled(model, tmp_path, batches_per_step=4 * replicas)
    expected = alone.run({"x": x.reshape(-1, 2, 3)})["y"]
    np.testing.assert_array_equal(program.run({"x": x})["y"], expected.reshape(x.shape))
