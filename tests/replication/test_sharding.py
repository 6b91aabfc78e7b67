"""Optimizer state that replicas divide among them: nothing changes but where it lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popc
import popc_runtime
from popc.request import make_options
from popc_runtime import VariableRole
from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from tests.training.small import data, trainable, training_program

_SHARDED: Final[dict[str, Any]] = {
    "optimizer_state_tensor_location": {
        "replicated_tensor_sharding": True,
        "min_elements_for_replicated_tensor_sharding": 1,
    },
}
_OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "sgd1": {"momentum": 0.9},
    "sgd2": {"momentum": 0.9, "weight_decay": 0.1, "accumulator_and_momentum": "separate"},
    "nesterov": {"momentum": 0.9, "nesterov": True},
    "adam": {"type": "adam", "weight_decay": 0.1},
    "adamax": {"type": "adamax"},
    "lamb": {"type": "lamb", "weight_decay": 0.1},
    "rmsprop": {"type": "rmsprop", "momentum": 0.5},
    "centered": {"type": "centered_rmsprop"},
    "adagrad": {"type": "adagrad"},
    "adadelta": {"type": "adadelta"},
    "decayed": {"momentum": 0.9, "weight_decay": 0.1},  # a velocity that does not start as zeros
    "ones": {"type": "rmsprop", "rmsprop_tf_variant": True},
    "clipped": {"type": "adam", "clip_norm": [{"max_norm": 0.2}]},
}
# Norms are added up part by part; velocities of replicas are not averaged but added up before.
_INEXACT: Final = ("lamb", "clipped", "sgd1", "decayed")


def _train(program: popc_runtime.Executable, samples: dict[str, Array]) -> Array:
    size = int(np.prod(program.inputs[0].shape[:-1]))
    count = len(samples["x"])
    losses = [
        program.run(
            {
                spec.name: samples[spec.name][first : first + size].reshape(spec.shape)
                for spec in program.inputs
            }
        )["loss"].reshape(-1)
        for first in range(0, count, size)
    ]
    program.state.check_equal_across_replicas()
    return np.concatenate(losses)


@pytest.mark.parametrize(("micro", "replicas"), [(2, 2), (1, 3)])
@pytest.mark.parametrize("optimizer", _OPTIMIZERS)
def test_training_stays_the_same(optimizer: str, micro: int, replicas: int, tmp_path: Path) -> None:
    """Parts of 12 and of 3 elements among 2 replicas, and among 3: some are padded."""
    options: dict[str, Any] = {
        "replicated_graph_count": replicas,
        "accumulation_factor": micro,
        "batches_per_step": 2,
    }
    train = trainable(**_OPTIMIZERS[optimizer])
    plain = training_program(tmp_path, train, **options)
    sharded = training_program(tmp_path, train, **options, **_SHARDED)
    samples = data(96)
    tolerance = 2e-5 if optimizer in _INEXACT else 0
    losses, expected = _train(sharded, samples), _train(plain, samples)
    np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
    found = sharded.state.read()
    for name, value in plain.state.read().items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance)


def _divided(domain: str, *kinds: str) -> dict[str, Any]:
    table = {**_SHARDED["optimizer_state_tensor_location"], "sharding_domain": domain}
    return {f"{kind}_tensor_location": table for kind in kinds}


@pytest.mark.parametrize("domain", ["consecutive:2", "orthogonal:2"])
@pytest.mark.parametrize("optimizer", ["sgd2", "adam"])
def test_groups_that_hold_all_parts(optimizer: str, domain: str, tmp_path: Path) -> None:
    """Of 12 and of 3 elements, among 4 replicas in groups of 2."""
    options: dict[str, Any] = {"replicated_graph_count": 4, "accumulation_factor": 2}
    train = trainable(**_OPTIMIZERS[optimizer])
    kinds = ("weight", "optimizer_state")
    plain = training_program(tmp_path, train, **options)
    sharded = training_program(tmp_path, train, **options, **_divided(domain, *kinds))
    samples = data(96)
    np.testing.assert_array_equal(_train(sharded, samples), _train(plain, samples))
    sharded.state.save_checkpoint(tmp_path / "c.safetensors")
    sharded.state.reset()
    sharded.state.load_checkpoint(tmp_path / "c.safetensors")
    found = sharded.state.read()
    for name, value in plain.state.read().items():
        np.testing.assert_array_equal(found[name], value)
    specs = {spec.name: spec for spec in sharded.manifest.variables}
    assert (specs["w"].shape, specs["w"].whole) == ((6,), (4, 3))
    assert specs["w"].rows == ((0, 1, 0, 1) if domain == "consecutive:2" else (0, 0, 1, 1))


@pytest.mark.parametrize("domain", ["all", "orthogonal:2"])
@pytest.mark.parametrize("others", [(), ("weight", "optimizer_state")])
def test_sums_of_gradients_are_divided(
    others: tuple[str, ...], domain: str, tmp_path: Path
) -> None:
    """Replicas are added up for each micro-batch, so that sums may be rounded otherwise."""
    options: dict[str, Any] = {"replicated_graph_count": 4, "accumulation_factor": 2}
    train = trainable(type="adam", clip_norm=[{"max_norm": 0.2}])
    plain = training_program(tmp_path, train, **options)
    kinds = _divided(domain, "accumulator", *others)
    sharded = training_program(tmp_path, train, **options, **kinds)
    samples = data(96)
    losses, expected = _train(sharded, samples), _train(plain, samples)
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    found = sharded.state.read()
    for name, value in plain.state.read().items():
        np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-5)
    states = [item.manifest.memory["arena_bytes"] for item in (plain, sharded)]
    assert states[1] <= states[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight_tensor_location": "sharded,sharding_domain=consecutive:3"}, "groups of 3"),
        ({"weight_tensor_location": "sharded,sharding_domain=none"}, "would hold a whole"),
        ({"activation_tensor_location": "sharded"}, "activations of its own"),
        ({"weight_tensor_location": "sharding_domain=consecutive:2"}, "has no effect without"),
    ],
)
def test_divisions_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options({"replicated_graph_count": 4, **options})
    assert message in "; ".join(caught.value.details)


def test_each_replica_holds_a_part(tmp_path: Path) -> None:
    train = trainable(type="adam")
    options: dict[str, Any] = {"replicated_graph_count": 3, **_SHARDED}
    plain = training_program(tmp_path, train, replicated_graph_count=3)
    program = training_program(tmp_path, train, **options)
    specs = {spec.name: spec for spec in program.manifest.variables}
    assert (specs["Accl1___w"].shape, specs["Accl1___w"].whole) == ((4,), (4, 3))
    assert (specs["Step___w"].shape, specs["Step___w"].rows) == ((), ())
    assert program.state.read(every_replica=True)["Accl1___w"].shape == (3, 4)
    states = [item.manifest.memory["state_bytes"] for item in (plain, program)]
    assert states[1] <= states[0]


def test_only_large_weights_are_divided(tmp_path: Path) -> None:
    program = training_program(
        tmp_path,
        trainable(type="adam"),
        replicated_graph_count=2,
        optimizer_state_tensor_location="sharded,min_elements_for_replicated_tensor_sharding=10",
    )
    divided = {spec.name for spec in program.manifest.variables if spec.whole}
    assert divided == {"Accl1___w", "Accl2___w"}


def test_weights_that_not_all_share_are_not_divided(tmp_path: Path) -> None:
    program = training_program(
        tmp_path,
        trainable(type="adam"),
        replicated_graph_count=2,
        variable_settings={"w": "none"},
        **_SHARDED,
    )
    divided = {spec.name for spec in program.manifest.variables if spec.whole}
    assert divided == {"Accl1___b", "Accl2___b"}


def test_checkpoints_fit_both_kinds_of_programs(tmp_path: Path) -> None:
    train = trainable(type="adam")
    options: dict[str, Any] = {"replicated_graph_count": 2}
    plain = training_program(tmp_path, train, **options)
    sharded = training_program(tmp_path, train, **options, **_SHARDED)
    samples = data(48)
    _train(sharded, samples)
    sharded.state.save_checkpoint(tmp_path / "c.safetensors")
    plain.state.load_checkpoint(tmp_path / "c.safetensors")
    again = training_program(tmp_path, train, **options, **_SHARDED)
    again.state.load_checkpoint(tmp_path / "c.safetensors")
    expected = _train(sharded, samples)
    np.testing.assert_array_equal(_train(plain, samples), expected)
    np.testing.assert_array_equal(_train(again, samples), expected)


def test_state_is_exported_whole(tmp_path: Path) -> None:
    train = trainable(type="adam")
    program = training_program(tmp_path, train, replicated_graph_count=2, **_SHARDED)
    _train(program, data(24))
    model = popc.export_onnx(
        tmp_path / "train.popx", tmp_path / "m.onnx", state=program, optimizer_state=True
    )
    held = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer
    }
    expected = program.state.read(VariableRole.OPTIMIZER_STATE)
    np.testing.assert_array_equal(held["Accl1___w"], expected["Accl1___w"])
    other = training_program(tmp_path, train, replicated_graph_count=2, **_SHARDED)
    popc.load_weights(other, model)
    for name, value in program.state.read().items():
        np.testing.assert_array_equal(other.state.read()[name], value)


def test_together_with_merged_exchanges_and_updates(tmp_path: Path) -> None:
    train = trainable(type="adam")
    samples = data(48)
    options: dict[str, Any] = {"replicated_graph_count": 2, **_SHARDED}
    plain = training_program(tmp_path, train, **options)
    merged = training_program(
        tmp_path,
        train,
        merge_all_gather_collectives=True,
        merge_reduce_scatter_collectives=True,
        prepare_schedule_for_merging_collectives=True,
        **options,
    )
    np.testing.assert_array_equal(_train(merged, samples), _train(plain, samples))
    for name, value in plain.state.read().items():
        np.testing.assert_array_equal(merged.state.read()[name], value)


def test_options_of_popart() -> None:
    options = make_options(
        {
            "replicatedGraphCount": 2,
            "optimizerStateTensorLocationSettings": {
                "location": {"replicatedTensorSharding": "On"},
                "minElementsForReplicatedTensorSharding": 4,
            },
        }
    )
    location = options.tensor_location("optimizer_state")
    assert location.replicated_tensor_sharding
    assert location.min_elements_for_replicated_tensor_sharding == 4
    with pytest.raises(OptionError) as caught:
        make_options({"optimizer_state_tensor_location": "sharded"})
    assert "replicated_graph_count is 1" in caught.value.details[0]
