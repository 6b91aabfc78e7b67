"""Steps, micro-batches and anchors of a training program, against gradient descent in numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from popc_runtime import VariableRole
from tests.training.small import data, reference, trainable, training_program

_BATCH = 2


@pytest.mark.parametrize("kind", ["sum", "mean", "running"])
@pytest.mark.parametrize(("steps", "accumulate"), [(1, 1), (3, 1), (1, 2), (3, 2)])
def test_weights_and_losses(steps: int, accumulate: int, kind: str, tmp_path: Path) -> None:
    program = training_program(
        tmp_path,
        batches_per_step=steps,
        accumulation_factor=accumulate,
        accumulation_and_replication_reduction_type="sum" if kind == "sum" else "mean",
        mean_accumulation_and_replication_reduction_strategy="running"
        if kind == "running"
        else "post",
    )
    dims = tuple(count for count in (steps, accumulate) if count > 1)
    assert [spec.shape for spec in program.inputs] == [(*dims, 2, 4), (*dims, 2, 3)]
    assert [spec.shape for spec in program.outputs] == [dims]
    samples = data(24)
    losses = []
    per_step = steps * accumulate * _BATCH
    for first in range(0, 24, per_step):
        feeds = {
            spec.name: samples[spec.name][first : first + per_step].reshape(spec.shape)
            for spec in program.inputs
        }
        losses.append(program.run(feeds)["loss"].reshape(-1))
    weights, expected = reference(
        samples["x"].reshape(-1, 2, 4),
        samples["target"].reshape(-1, 2, 3),
        accumulate=accumulate,
        mean=kind != "sum",
    )
    np.testing.assert_allclose(np.concatenate(losses), expected, rtol=1e-5)
    found = program.state.read(VariableRole.WEIGHT)
    for name, value in weights.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("anchor", "shape"), [("all", (3, 2)), ("final", ()), ("sum", ()), ("every_n:3", None)]
)
def test_return_types(anchor: str, shape: tuple[int, ...] | None, tmp_path: Path) -> None:
    from popc_runtime.errors import OptionError

    options: dict[str, Any] = {
        "batches_per_step": 3,
        "accumulation_factor": 2,
        "anchors": {"loss": anchor},
    }
    if shape is None:
        with pytest.raises(OptionError, match="every_n, which leaves open"):
            training_program(tmp_path, **options)
        return
    program = training_program(tmp_path, **options)
    samples = data(12)
    feeds = {spec.name: samples[spec.name].reshape(spec.shape) for spec in program.inputs}
    loss = program.run(feeds)["loss"]
    _, losses = reference(
        samples["x"].reshape(-1, 2, 4), samples["target"].reshape(-1, 2, 3), accumulate=2
    )
    assert loss.shape == shape
    expected = {"all": losses.reshape(3, 2), "final": losses[-1], "sum": losses.sum()}
    np.testing.assert_allclose(loss, expected[anchor], rtol=1e-5)


def test_a_loss_that_the_model_does_not_have_is_anchored_by_its_name(tmp_path: Path) -> None:
    settings = trainable()
    settings["loss"] = {**settings["loss"], "name": "error"}
    options: dict[str, Any] = {"batches_per_step": 3, "accumulation_factor": 2}
    samples = data(12)
    losses: list[Any] = []
    for anchors in ({}, {"error": "sum:float64"}):
        program = training_program(tmp_path, settings, **options, anchors=anchors)
        feeds = {spec.name: samples[spec.name].reshape(spec.shape) for spec in program.inputs}
        losses.append(program.run(feeds)["error"])
    assert (losses[1].dtype, losses[1].shape) == (np.float64, ())
    np.testing.assert_allclose(losses[1], losses[0].sum(dtype=np.float64), rtol=1e-12)


def test_gradients_updates_and_state_can_be_anchored(tmp_path: Path) -> None:
    program = training_program(
        tmp_path,
        trainable(momentum=0.5, accumulator_and_momentum="separate"),
        outputs=["y", "w"],
        anchors={
            "Gradient___y": "all",
            "Gradient___w": "all",
            "UpdatedVar___b": "all",
            "Accl1___w": "all",
        },
    )
    before = program.state.read()
    samples = data(_BATCH)
    results = program.run(samples)
    after = program.state.read()
    error = results["y"] - samples["target"]
    slope = 2 * error / error.size
    np.testing.assert_allclose(results["Gradient___y"], slope, rtol=1e-5)
    np.testing.assert_allclose(results["Gradient___w"], samples["x"].T @ slope, rtol=1e-4)
    np.testing.assert_array_equal(results["w"], after["w"])
    np.testing.assert_array_equal(results["UpdatedVar___b"], after["b"])
    np.testing.assert_array_equal(results["Accl1___w"], after["Accl1___w"])
    assert not np.array_equal(before["w"], after["w"])


def test_the_learning_rate_changes_between_steps(tmp_path: Path) -> None:
    program = training_program(tmp_path)
    program.state.set_hyper_parameters(learning_rate=0.0)
    before = program.state.read()
    program.run(data(_BATCH))
    for name, value in program.state.read().items():
        np.testing.assert_array_equal(value, before[name])
    program.state.set_hyper_parameters({"learning_rate": 0.1})
    program.run(data(_BATCH))
    assert not np.array_equal(program.state.read()["w"], before["w"])


def test_a_step_is_planned_in_place(tmp_path: Path) -> None:
    """Weights are updated where they lie: the arena holds no second copy of them."""
    program = training_program(tmp_path)
    memory = program.manifest.memory
    assert memory["state_bytes"] >= 4 * (12 + 3)
    assert memory["peak_bytes"] <= memory["naive_bytes"]


def test_inference_with_variable_weights(tmp_path: Path) -> None:
    import popc
    import popc_runtime
    from tests.training.small import linear_model

    archive = popc.compile(
        linear_model(), dims={"batch": 2}, options={"constant_weights": False}, outputs=["y"]
    )
    program = popc_runtime.load(archive.save(tmp_path / "eval.popx"))
    x = data(2)["x"]
    feeds = {spec.name: data(2)[spec.name] for spec in program.inputs}
    program.state.write({"w": np.zeros((4, 3), np.float32), "b": np.ones(3, np.float32)})
    np.testing.assert_array_equal(program.run(feeds)["y"], np.ones((2, 3)))
    program.state.write({"w": np.ones((4, 3), np.float32)})
    expected = x.sum(axis=1, keepdims=True) + np.ones((2, 3))
    np.testing.assert_allclose(program.run(feeds)["y"], expected, rtol=1e-5)
