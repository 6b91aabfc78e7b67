"""Tensors that are kept off chip or in parts: results stay, memory on the chip goes down."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper

import popc
import popc_runtime
from popc.request import make_options
from popc_runtime.errors import OptionError
from tests.streaming.networks import (
    EVERYTHING,
    MODELS,
    OFF,
    SHARDED,
    assert_same,
    plain_run,
    run,
    training,
)
from tests.training.small import data, linear_model, trainable

_OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"type": "adam", "learning_rate": 0.01},
    "lamb": {"type": "lamb", "learning_rate": 0.01},
}
_PLACES: Final[dict[str, dict[str, Any]]] = {
    "weights": {"weight_tensor_location": OFF},
    "state": {"optimizer_state_tensor_location": OFF},
    "activations": {"activation_tensor_location": OFF},
    "sums": {"accumulator_tensor_location": OFF},
    "everything": EVERYTHING,
}
_PROGRAMS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "loops": {"batches_per_step": 2, "accumulation_factor": 2},
    "replicas": {"replicated_graph_count": 2, "accumulation_factor": 2},
}


@pytest.mark.parametrize("program", _PROGRAMS)
@pytest.mark.parametrize("optimizer", _OPTIMIZERS)
@pytest.mark.parametrize("model", ["transformer"])
def test_training_stays_the_same(model: str, optimizer: str, program: str, tmp_path: Path) -> None:
    train, options = training(**_OPTIMIZERS[optimizer]), _PROGRAMS[program]
    plain = plain_run(model, tmp_path, train, **options)
    away = run(model, tmp_path, train, **options, **EVERYTHING)
    assert_same(away, plain)
    assert away.memory["remote_bytes"] > 0
    assert away.on_chip < 0.7 * plain.on_chip


@pytest.mark.parametrize("place", _PLACES)
def test_each_kind_by_itself(place: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"accumulation_factor": 2}
    train = training(type="adam")
    plain = plain_run("transformer", tmp_path, train, **options)
    away = run("transformer", tmp_path, train, **options, **_PLACES[place])
    assert_same(away, plain)
    assert 0 == plain.memory["remote_bytes"] < away.memory["remote_bytes"]
    assert away.on_chip < plain.on_chip


@pytest.mark.parametrize(
    "other",
    [
        {"auto_recomputation": "standard"},
        {"merge_var_update": "all"},
        {"merge_var_update": "auto_tight", "merge_var_update_mem_threshold": 2000},
        {"enable_inplace": False},
        {"scheduling_algorithm": "post_order"},
        {"enable_floating_point_checks": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_together_with_other_options(other: dict[str, Any], tmp_path: Path) -> None:
    train = training(momentum=0.9)
    plain = plain_run("cnn", tmp_path, train, **other)
    assert_same(run("cnn", tmp_path, train, **other, **EVERYTHING), plain)


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("model", ["cnn", "transformer"])
def test_weights_of_inference(model: str, batches: int, tmp_path: Path) -> None:
    plain = plain_run(model, tmp_path, batches_per_step=batches)
    away = run(model, tmp_path, batches_per_step=batches, weight_tensor_location=OFF)
    assert_same(away, plain)
    kept = run(
        model,
        tmp_path,
        batches_per_step=batches,
        constant_weights=False,
        weight_tensor_location=OFF,
    )
    for found, expected in zip(kept.outputs, plain.outputs, strict=True):
        np.testing.assert_allclose(found["logits"], expected["logits"], 1e-5, 1e-5)
    assert kept.memory["remote_bytes"] > 0


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("storage", ["on_chip", "off_chip"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_divided_weights(optimizer: str, storage: str, replicas: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"replicated_graph_count": replicas, "accumulation_factor": 2}
    train = training(**_OPTIMIZERS[optimizer])
    plain = plain_run("transformer", tmp_path, train, **options)
    location = {**SHARDED, "storage": storage}
    divided = run("transformer", tmp_path, train, **options, weight_tensor_location=location)
    assert_same(divided, plain)
    assert divided.memory["state_bytes"] < 0.75 * plain.memory["state_bytes"]


def test_smaller_tensors_stay(tmp_path: Path) -> None:
    large = {"storage": "off_chip", "min_elements_for_off_chip": 200}
    done = run("transformer", tmp_path, training(), weight_tensor_location=large)
    some = run("transformer", tmp_path, training(), weight_tensor_location=OFF)
    assert 0 < done.memory["remote_bytes"] < some.memory["remote_bytes"]


def test_single_tensors(tmp_path: Path) -> None:
    train = training(type="adam")
    plain = plain_run("mlp", tmp_path, train)
    override = {"Accl*___fc1.weight": "off_chip", "fc1.weight": OFF}
    some = run("mlp", tmp_path, train, tensor_location_override=override)
    assert_same(some, plain)
    assert some.memory["remote_bytes"] == 3 * 4 * 64 * 64
    rest = run(
        "mlp", tmp_path, train, **EVERYTHING, tensor_location_override={"*": {"storage": "on_chip"}}
    )
    assert rest.memory["remote_bytes"] == 0
    with pytest.raises(OptionError) as caught:
        run("mlp", tmp_path, train, tensor_location_override={"fc1.wieght": "off_chip"})
    assert "did you mean fc1.weight" in caught.value.details[0]


def test_checkpoints_fit_both_kinds_of_programs(tmp_path: Path) -> None:
    plain, away = (
        popc_runtime.load(
            popc.compile(
                linear_model(), dims={"batch": 4}, train=trainable(type="adam"), options=options
            ).save(tmp_path / "m.popx", force=True)
        )
        for options in ({}, EVERYTHING)
    )
    samples = data(4)
    away.run({spec.name: samples[spec.name] for spec in away.inputs})
    away.state.save_checkpoint(tmp_path / "c.safetensors")
    plain.state.load_checkpoint(tmp_path / "c.safetensors")
    for name, value in away.state.read().items():
        np.testing.assert_array_equal(plain.state.read()[name], value)
    away.state.write({"w": np.ones((4, 3), np.float32)})
    assert away.state.read()["w"].sum() == 12
    away.state.reset()
    assert away.state.read()["w"].sum() != 12


def test_mistakes_are_listed_together() -> None:
    with pytest.raises(OptionError) as caught:
        make_options(
            {
                "weight_tensor_location": {"storage": "nowhere", "replicated": True},
                "activation_tensor_location": "sharded",
                "optimizer_state_tensor_location": {"load_tile_set": "io"},
                "tensor_location_override": {"w": "sharded"},
            }
        )
    text = "\n".join(caught.value.details)
    assert "of 'storage' is 'nowhere', but must be one of on_chip, off_chip" in text
    assert "has no setting 'replicated'" in text
    assert "activation_tensor_location divides tensors" in text
    assert "tensor_location_override of 'w' divides tensors" in text
    assert "num_io_tiles is 0" in text


def test_options_of_popart() -> None:
    options = make_options(
        {
            "weightTensorLocationSettings": {
                "location": {
                    "storage": "OffChip",
                    "loadTileSet": "Compute",
                    "shardingDomain": {"type": "All", "replicaGroupSize": 0},
                },
                "minElementsForOffChip": 16,
            },
            "activationTensorLocationSettings.location.storage": "OffChip",
            "activationTensorLocationSettings.minElementsForOffChip": 8,
            "tensorLocationSettingsOverride": {"w": {"storage": "OnChip"}},
        }
    )
    assert options.tensor_location("weight", "v").keeps_off_chip(16)
    assert not options.tensor_location("weight", "v").keeps_off_chip(15)
    assert not options.tensor_location("weight", "w").is_off_chip
    assert options.tensor_location("activation").min_elements_for_off_chip == 8


@pytest.mark.parametrize("value", ["off_chip", {"storage": "off_chip"}])
def test_annotated_results(value: Any, tmp_path: Path) -> None:
    train = training()
    plain = plain_run("mlp", tmp_path, train)
    rules = [{"op_type": "Relu", "output_tensor_location": value}]
    some = run("mlp", tmp_path, train, annotate=rules)
    assert_same(some, plain)
    assert 0 < some.memory["remote_bytes"] <= 2 * 4 * 8 * 64
    override = {"*": "on_chip"}
    none = run("mlp", tmp_path, train, annotate=rules, tensor_location_override=override)
    assert none.memory["remote_bytes"] == 0
    with pytest.raises(OptionError) as caught:
        make_options({"annotate": [{"op_type": "Relu", "output_tensor_location": "away"}]})
    assert "must be made of on_chip, off_chip" in caught.value.details[0]


def test_attributes_of_popart() -> None:
    model = MODELS["mlp"][0]()
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.attribute.append(helper.make_attribute("__output_tensor_location", [1, 0, 0, 0]))
    archive = popc.compile(model, dims={"batch": 8}, train=training())
    assert 0 < archive.manifest.memory["remote_bytes"] <= 2 * 4 * 8 * 64


def test_io_tiles_move_tensors(tmp_path: Path) -> None:
    train, options = training(), {"num_io_tiles": 64}
    plain = plain_run("mlp", tmp_path, train, **options)
    location = {**OFF, "load_tile_set": "io", "storage_tile_set": "io"}
    moved = run("mlp", tmp_path, train, **options, weight_tensor_location=location)
    assert_same(moved, plain)
    archive = popc.compile(
        linear_model(),
        dims={"batch": 4},
        train=trainable(),
        options={**options, "weight_tensor_location": location},
    )
    assert archive.manifest.memory["remote_bytes"] > 0
    with pytest.raises(OptionError) as caught:
        make_options({**options, "weight_tensor_location": {"load_tile_set": "io"}})
    assert "storage is on_chip" in caught.value.details[0]
