"""Replicas that train together, beside one program with as many more micro-batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import popc
import popc_runtime
from popc_runtime import VariableRole
from popc_runtime.errors import DeviceError, UsageError
from popc_runtime.format import Array
from popc_runtime.trainer import Trainer
from tests.replication.models import compiled, fed, normalised, random_samples
from tests.training.small import data, trainable, training_program

_SAMPLES: Final = 96
_OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "sgd": {},
    "adam": {"type": "adam", "learning_rate": 0.05},
    "sgd1": {"momentum": 0.9, "weight_decay": 0.01},
    "sgd2": {"momentum": 0.9, "accumulator_and_momentum": "separate"},
    "rmsprop": {"type": "rmsprop", "learning_rate": 0.01},
    "clipped": {"clip_norm": [{"max_norm": 0.5}]},
}
_REDUCTIONS: Final = {
    "sum": {"accumulation_and_replication_reduction_type": "sum"},
    "mean": {"accumulation_and_replication_reduction_type": "mean"},
    "running": {
        "accumulation_and_replication_reduction_type": "mean",
        "mean_accumulation_and_replication_reduction_strategy": "running",
    },
}


def _trained(
    folder: Path, optimizer: dict[str, Any], **options: Any
) -> tuple[dict[str, Array], Array, popc_runtime.Executable]:
    """Variables and losses after some steps; and the program."""
    program = training_program(folder, trainable(**optimizer), **options)
    samples = data(_SAMPLES)
    size = int(np.prod(program.inputs[0].shape[:-1]))
    losses = [
        program.run(
            {
                spec.name: samples[spec.name][first : first + size].reshape(spec.shape)
                for spec in program.inputs
            }
        )["loss"].reshape(-1)
        for first in range(0, _SAMPLES, size)
    ]
    program.state.check_equal_across_replicas()
    return program.state.read(), np.concatenate(losses), program


@pytest.mark.parametrize(("steps", "micro", "replicas"), [(1, 1, 2), (3, 2, 2), (2, 1, 4)])
@pytest.mark.parametrize("reduction", _REDUCTIONS)
@pytest.mark.parametrize("optimizer", _OPTIMIZERS)
def test_replicas_are_more_micro_batches(
    optimizer: str, reduction: str, steps: int, micro: int, replicas: int, tmp_path: Path
) -> None:
    chosen = _OPTIMIZERS[optimizer]
    options: dict[str, Any] = {"batches_per_step": steps, **_REDUCTIONS[reduction]}
    found, losses, program = _trained(
        tmp_path, chosen, accumulation_factor=micro, replicated_graph_count=replicas, **options
    )
    expected, expected_losses, _ = _trained(
        tmp_path, chosen, accumulation_factor=micro * replicas, **options
    )
    dims = tuple(count for count in (steps, micro, replicas) if count > 1)
    assert [spec.shape for spec in program.inputs] == [(*dims, 2, 4), (*dims, 2, 3)]
    assert [spec.shape for spec in program.outputs] == [dims]
    assert found.keys() == expected.keys()
    # Gradients of one micro-batch each are added up in the same order in both cases.
    exact = micro == 1 and reduction == "sum" and optimizer in ("sgd", "adam", "sgd2", "rmsprop")
    tolerance = 0 if exact else 3e-5
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance, atol=tolerance)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scaling", ["constant", "automatic"])
def test_loss_scaling(scaling: str, tmp_path: Path) -> None:
    optimizer: dict[str, Any] = {"loss_scaling": 64.0}
    if scaling == "automatic":
        optimizer = {
            "loss_scaling": {"value": 64.0, "const": False},
            "automatic_loss_scaling": {"update_period": 2},
        }
    found, _, _ = _trained(tmp_path, optimizer, replicated_graph_count=2)
    expected, _, _ = _trained(tmp_path, optimizer, accumulation_factor=2)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


@pytest.mark.parametrize(
    "more", [{}, {"prepare_schedule_for_merging_collectives": True}], ids=["neighbours", "all"]
)
@pytest.mark.parametrize("optimizer", ["sgd1", "adam"])
def test_merged_exchanges_change_nothing(
    optimizer: str, more: dict[str, Any], tmp_path: Path
) -> None:
    chosen = _OPTIMIZERS[optimizer]
    options: dict[str, Any] = {"replicated_graph_count": 2, "accumulation_factor": 2}
    plain, losses, _ = _trained(tmp_path, chosen, **options)
    merged, merged_losses, _ = _trained(
        tmp_path,
        chosen,
        merge_all_reduce_collectives=True,
        **more,
        **options,
    )
    np.testing.assert_array_equal(losses, merged_losses)
    for name, value in plain.items():
        np.testing.assert_array_equal(merged[name], value)


def test_anchors_of_each_replica(tmp_path: Path) -> None:
    """Sample i of a micro-batch belongs to replica i; sums and final values are its own too."""
    options: dict[str, Any] = {
        "batches_per_step": 2,
        "accumulation_factor": 3,
        "replicated_graph_count": 2,
    }
    samples = data(24)
    feeds: dict[str, Array] = {}
    programs = {
        kind: training_program(tmp_path, outputs=("y",), default_anchor=kind, **options)
        for kind in ("all", "final", "sum")
    }
    for spec in programs["all"].inputs:
        feeds[spec.name] = samples[spec.name].reshape(spec.shape)
    results = {kind: program.run(feeds)["y"] for kind, program in programs.items()}
    assert results["all"].shape == (2, 3, 2, 2, 3)
    first = programs["all"].state.read()  # after the step; the first batch used the initial ones
    assert first["w"].shape == (4, 3)
    np.testing.assert_array_equal(results["final"], results["all"][-1, -1])
    np.testing.assert_allclose(results["sum"], results["all"].sum(axis=(0, 1)), rtol=1e-5)
    alone = training_program(tmp_path, outputs=("y",), accumulation_factor=6)
    expected = alone.run({name: samples[name][:12].reshape(6, 2, -1) for name in feeds})["y"]
    np.testing.assert_array_equal(results["all"][0].reshape(6, 2, 3), expected)


def test_broadcast_inputs(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batches_per_step": 3, "replicated_graph_count": 2}
    program = training_program(tmp_path, replicated_stream_mode={"tar*": "broadcast"}, **options)
    assert [spec.shape for spec in program.inputs] == [(3, 2, 2, 4), (3, 2, 3)]
    samples = data(12)
    target = samples["target"][:6].reshape(3, 2, 3)
    x = samples["x"].reshape(3, 2, 2, 4)
    found = program.run({"x": x, "target": target})["loss"]
    plain = training_program(tmp_path, **options)
    twice = np.repeat(target[:, None], 2, axis=1)
    np.testing.assert_array_equal(found, plain.run({"x": x, "target": twice})["loss"])
    for name, value in plain.state.read().items():
        np.testing.assert_array_equal(program.state.read()[name], value)


def test_sessions_serve_replicas_in_turn(tmp_path: Path) -> None:
    program = training_program(tmp_path, outputs=("y",), replicated_graph_count=3)
    samples = data(12)
    results: list[Array] = []
    with program.session() as session:
        session.connect("x", samples["x"].reshape(6, 2, 4))
        session.connect("target", samples["target"].reshape(6, 2, 3))
        session.connect("y", results).connect("loss", [])
        session.step(2)
    again = training_program(tmp_path, outputs=("y",), replicated_graph_count=3)
    feeds = {name: array.reshape(2, 3, 2, -1) for name, array in samples.items()}
    expected = [again.run({name: array[step] for name, array in feeds.items()}) for step in (0, 1)]
    np.testing.assert_array_equal(
        np.stack(results), np.concatenate([item["y"] for item in expected])
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_trainer(threads: int, tmp_path: Path) -> None:
    training_program(tmp_path, replicated_graph_count=2, accumulation_factor=2)
    program = popc_runtime.load(tmp_path / "train.popx", threads=threads)
    records = list(Trainer(program, data(48)).run(epochs=4))
    assert records[-1].loss < 0.5 * records[0].loss
    program.state.check_equal_across_replicas()


# -- what replicas do not share --------------------------------------------------------------------

_GROUPS: Final = {
    "none": [[0], [1], [2], [3]],
    "consecutive:2": [[0, 1], [2, 3]],
    "orthogonal:2": [[0, 2], [1, 3]],
}


@pytest.mark.parametrize("groups", _GROUPS)
@pytest.mark.parametrize("optimizer", ["sgd", "sgd1", "adam"])
def test_groups_train_weights_of_their_own(optimizer: str, groups: str, tmp_path: Path) -> None:
    """With all weights apart, each group trains as if the others did not exist."""
    chosen = _OPTIMIZERS[optimizer]
    settings = {"w": groups, "b": groups}
    options: dict[str, Any] = {"accumulation_factor": 2, **_REDUCTIONS["mean"]}
    found, losses, program = _trained(
        tmp_path, chosen, replicated_graph_count=4, variable_settings=settings, **options
    )
    members = _GROUPS[groups]
    x, target = (data(_SAMPLES)[name].reshape(-1, 2, 4, 2, size) for name, size in _WIDTHS)
    shared = losses.reshape(-1, 2, 4)
    for row, group in enumerate(members):
        alone = training_program(
            tmp_path, trainable(**chosen), replicated_graph_count=len(group), **options
        )
        for step in range(len(x)):
            feeds = {"x": x[step][:, group], "target": target[step][:, group]}
            shaped = {spec.name: feeds[spec.name].reshape(spec.shape) for spec in alone.inputs}
            result = alone.run(shaped)["loss"]
            expected = shared[step][:, group].reshape(result.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-5)
        for name, value in alone.state.read(VariableRole.WEIGHT).items():
            assert found[name].shape == (len(members), *value.shape)
            np.testing.assert_allclose(found[name][row], value, rtol=1e-5, atol=1e-6)
    assert program.state.read(every_replica=True)["w"].shape == (4, 4, 3)


_WIDTHS: Final = (("x", 4), ("target", 3))


def test_rows_of_variables_are_written_and_kept_in_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "replicated_graph_count": 4,
        "variable_settings": {"w": "orthogonal:2"},
    }
    program = training_program(tmp_path, **options)
    w = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    program.state.write({"w": w, "b": np.ones(3, np.float32)})
    np.testing.assert_array_equal(program.state.read()["w"], w)
    held = program.state.read(every_replica=True)
    np.testing.assert_array_equal(held["w"], w[[0, 1, 0, 1]])
    np.testing.assert_array_equal(held["b"], np.ones((4, 3)))
    program.state.check_equal_across_replicas()
    program.state.save_checkpoint(tmp_path / "c.safetensors")
    other = training_program(tmp_path, **options)
    other.state.load_checkpoint(tmp_path / "c.safetensors")
    for name, value in program.state.read(every_replica=True).items():
        np.testing.assert_array_equal(other.state.read(every_replica=True)[name], value)
    other.state.reset()
    start = training_program(tmp_path).state.read()["w"]
    np.testing.assert_array_equal(other.state.read()["w"], [start, start])


def test_weights_of_one_replica_are_exported(tmp_path: Path) -> None:
    options: dict[str, Any] = {"replicated_graph_count": 2, "variable_settings": {"w": "none"}}
    program = training_program(tmp_path, **options)
    w = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    program.state.write({"w": w})
    archive = tmp_path / "train.popx"
    model = popc.export_onnx(archive, tmp_path / "m.onnx", state=program, replica=1)
    values = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(model).graph.initializer
    }
    np.testing.assert_array_equal(values["w"], w[1])
    popc.load_weights(program, model)
    np.testing.assert_array_equal(program.state.read()["w"], [w[1], w[1]])
    with pytest.raises(UsageError, match="no replica 2"):
        popc.export_onnx(archive, tmp_path / "m.onnx", replica=2, force=True)


def test_a_difference_between_replicas_is_found(tmp_path: Path) -> None:
    program = training_program(tmp_path, replicated_graph_count=3)
    program.state.check_equal_across_replicas()
    program._engine.replicas[1].variables["w"][0, 0] += 1
    with pytest.raises(DeviceError, match="differ between replicas") as caught:
        program.state.check_equal_across_replicas()
    assert caught.value.details == ("w: float32[4,3]: replicas 1",)


# -- statistics and random numbers -----------------------------------------------------------------


def _normalised(folder: Path, dropout: float = 0.0, **options: Any) -> popc_runtime.Executable:
    train = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    options.setdefault("accumulation_and_replication_reduction_type", "mean")
    return compiled(normalised(dropout), folder, train, **options)


def test_running_statistics_are_averaged(tmp_path: Path) -> None:
    program = _normalised(tmp_path, replicated_graph_count=2)
    x = random_samples(2, (8, 3, 4))
    program.run({"x": x})
    program.state.check_equal_across_replicas()
    single = [_normalised(tmp_path) for _ in range(2)]
    for executable, sample in zip(single, x, strict=True):
        executable.run({"x": sample})
    means = [executable.state.read()["mean"] for executable in single]
    np.testing.assert_allclose(program.state.read()["mean"], np.mean(means, axis=0), rtol=1e-5)


@pytest.mark.parametrize("replicas", [2, 4])
def test_distributed_batch_norm_is_a_larger_batch(replicas: int, tmp_path: Path) -> None:
    """Normalised together, replicas compute what one does with all their samples in one batch."""
    group = {"distributed_batch_norm_replica_group_size": replicas}
    program = _normalised(tmp_path, replicated_graph_count=replicas, **group)
    samples = random_samples(3, (8, 3, 4))
    whole = _normalised(tmp_path)
    parts = 8 // replicas
    small = normalised()
    small.graph.input[0].type.tensor_type.shape.dim[0].dim_value = parts
    train = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    program = compiled(
        small,
        tmp_path,
        train,
        replicated_graph_count=replicas,
        accumulation_and_replication_reduction_type="mean",
        **dict[str, Any](group),
    )
    for sample in samples:
        expected = whole.run({"x": sample})["loss"]
        found = program.run({"x": sample.reshape(replicas, parts, 3, 4)})["loss"]
        np.testing.assert_allclose(found.mean(), expected, rtol=1e-5)
    program.state.check_equal_across_replicas()
    for name, value in whole.state.read().items():
        np.testing.assert_allclose(program.state.read()[name], value, rtol=2e-5, atol=1e-6)


def test_random_numbers_of_replicas(tmp_path: Path) -> None:
    x = np.broadcast_to(random_samples(1, (8, 3, 4)), (2, 8, 3, 4))
    alone = _normalised(tmp_path, dropout=0.5).run({"x": x[0]})["loss"]
    for identical in (False, True):
        program = _normalised(
            tmp_path, dropout=0.5, replicated_graph_count=2, identical_replica_seeds=identical
        )
        first, second = program.run({"x": x})["loss"]
        assert (first == second) == identical
        assert first == alone


def test_checkpoints_continue_the_random_numbers_of_all_replicas(tmp_path: Path) -> None:
    options = {"replicated_graph_count": 2, "accumulation_factor": 2}
    samples = {"x": random_samples(16, (8, 3, 4))}
    program = _normalised(tmp_path, dropout=0.3, **options)
    fed(program, {"x": samples["x"][:8]})
    program.state.save_checkpoint(tmp_path / "c.safetensors")
    expected = fed(program, {"x": samples["x"][8:]})["loss"]
    other = _normalised(tmp_path, dropout=0.3, **options)
    other.state.load_checkpoint(tmp_path / "c.safetensors")
    np.testing.assert_array_equal(fed(other, {"x": samples["x"][8:]})["loss"], expected)
    state = program.state.random_state()
    again = program.run({"x": samples["x"][:4].reshape(2, 2, 8, 3, 4)})["loss"]
    program.state.set_random_state(state)
    repeated = program.run({"x": samples["x"][:4].reshape(2, 2, 8, 3, 4)})["loss"]
    assert again.shape == repeated.shape == (2, 2)
    assert not np.array_equal(again, repeated)  # the weights are others
    program.set_seed(3)
    program.state.reset()
    once = fed(program, samples)["loss"]
    program.set_seed(3)
    program.state.reset()
    np.testing.assert_array_equal(fed(program, samples)["loss"], once)
