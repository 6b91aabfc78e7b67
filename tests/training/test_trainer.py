"""The driver: data in steps, epochs, resumption, evaluation, export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.trained.evaluation import Evaluation
from popc.trained.log import write_csv, write_png
from popc_runtime.data.batches import Batches
from popc_runtime.errors import DeviceError, InputMismatchError, UsageError
from popc_runtime.state.checkpoint import Checkpoint, write_checkpoint
from popc_runtime.trainer import Checkpoints, EpochRecord, Trainer
from tests.training.small import data, linear_model, trainable, training_program

_ADAM = trainable(type="adam", learning_rate={"value": 0.05, "const": False})


def test_training_learns_and_resumes_bit_identically(tmp_path: Path) -> None:
    whole = Trainer(training_program(tmp_path, _ADAM), data(25), seed=4)
    records = list(whole.run(6))
    assert [record.epoch for record in records] == [1, 2, 3, 4, 5, 6]
    assert records[-1].loss < records[0].loss / 2

    class Stop(Exception):
        pass

    def stop(step: int, steps: int, loss: float) -> None:
        del steps, loss
        if len(first.progress.history) == 2 and step == 5:
            raise Stop

    first = Trainer(training_program(tmp_path, _ADAM), data(25), seed=4, on_step=stop)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    with pytest.raises(Stop):
        list(first.run(6))
    checkpoints.save(first.executable, "latest", first.progress)
    resumed = training_program(tmp_path, _ADAM)
    second = Trainer(resumed, data(25), progress=checkpoints.load(resumed))
    assert (second.progress.epoch, second.progress.step) == (2, 5)
    rest = list(second.run(6))
    assert [record.loss for record in rest] == [record.loss for record in records[2:]]
    for name, value in whole.executable.state.read().items():
        np.testing.assert_array_equal(value, resumed.state.read()[name])


def test_the_middle_of_an_epoch_over_other_samples_is_refused(tmp_path: Path) -> None:
    first = Trainer(training_program(tmp_path), data(25))
    next(first.batches.steps())
    first._losses.append(1.0)
    Trainer(first.executable, data(25), progress=first.progress)
    with pytest.raises(UsageError, match="over 25 samples in steps of 2, but the data has 27"):
        Trainer(first.executable, data(27), progress=first.progress)
    first._losses.clear()
    Trainer(first.executable, data(27), progress=first.progress)  # whole epochs may differ


def test_checkpoints_are_prepared(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    checkpoints = Checkpoints(folder)
    checkpoints.prepare()
    (folder / ".latest.safetensors.0123.tmp").write_bytes(b"killed")
    (folder / ".other.safetensors.0123.tmp").write_bytes(b"no checkpoint")
    checkpoints.prepare()
    assert [path.name for path in folder.iterdir()] == [".other.safetensors.0123.tmp"]


def test_a_failing_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(training_program(tmp_path), data(8))

    def fail(*_: Any) -> None:
        raise DeviceError("something failed", details=("here",))

    next(iter(trainer.run(1)))
    monkeypatch.setattr(trainer.executable, "run", fail)
    with pytest.raises(DeviceError) as why:
        list(trainer.run(2))
    assert why.value.details == ("here", "in step 1 of epoch 2")
    assert trainer.within_step


def test_a_loss_that_is_not_finite_stops_the_training(tmp_path: Path) -> None:
    trainer = Trainer(training_program(tmp_path), data(8), shuffle=False)
    trainer.executable.state.set_hyper_parameters(learning_rate=1e30)
    with pytest.raises(DeviceError, match=r"the loss became (nan|inf) in step 2 of epoch 1") as why:
        list(trainer.run(1))
    assert "lower the learning rate" in why.value.hint


def test_an_archive_that_does_not_train(tmp_path: Path) -> None:
    archive = popc.compile(linear_model(), dims={"batch": 2})
    program = popc_runtime.load(archive.save(tmp_path / "m.popx"))
    with pytest.raises(UsageError, match="does not train"):
        Trainer(program, data())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"x": None}, "input 'x' is missing"),
        ({"z": np.zeros(3)}, "there is no input 'z'"),
        ({"x": np.zeros((24, 4))}, "input 'x' takes float32, not float64"),
        ({"x": np.zeros((24, 5), np.float32)}, r"\[samples, 4\], not \[24, 5\]"),
        ({"x": np.zeros((23, 4), np.float32)}, "different numbers of samples: x 23, target 24"),
    ],
)
def test_data_that_does_not_fit(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    given = {name: array for name, array in {**data(), **change}.items() if array is not None}
    with pytest.raises(InputMismatchError, match=problem):
        Batches(training_program(tmp_path), given)


def test_too_few_samples(tmp_path: Path) -> None:
    with pytest.raises(InputMismatchError, match="the data has 3 samples, but a step takes 4"):
        Batches(training_program(tmp_path, batches_per_step=2), data(3))


def test_every_sample_is_used_once_per_epoch(tmp_path: Path) -> None:
    batches = Batches(training_program(tmp_path, batches_per_step=3), data(24))
    assert len(batches) == 4
    steps = list(batches.steps(np.random.default_rng(0)))
    rows = np.concatenate([step["x"].reshape(-1, 4) for step in steps])
    assert not np.array_equal(rows, data(24)["x"])
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(data(24)["x"], axis=0))


def _evaluation_archive(folder: Path, *, constant: bool = False) -> Path:
    archive = popc.compile(
        linear_model(), dims={"batch": 1}, options={"constant_weights": constant}
    )
    return archive.save(folder / "eval.popx", force=True)


def test_evaluation_sees_the_trained_weights(tmp_path: Path) -> None:
    samples = data(24)
    labels = samples["target"].argmax(axis=1)
    evaluate = Evaluation(
        _evaluation_archive(tmp_path), {**samples, "label": labels}, ("y", "label")
    )
    trainer = Trainer(training_program(tmp_path, _ADAM), samples, evaluate=evaluate)
    untrained = evaluate(trainer.executable)
    *_, last = trainer.run(40)
    assert last.metrics["loss"] < untrained["loss"] / 10
    assert last.metrics["accuracy"] > 0.9


@pytest.mark.parametrize(
    ("accuracy", "problem"),
    [
        (("nothing", "label"), "no output 'nothing'"),
        (("y", "nothing"), "no array 'nothing'"),
        (("loss", "label"), "no axis of classes"),
    ],
)
def test_evaluations_that_make_no_sense(
    accuracy: tuple[str, str], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=problem):
        Evaluation(_evaluation_archive(tmp_path), {**data(), "label": np.zeros(24)}, accuracy)


def test_constant_weights_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="are constant, so it cannot evaluate trained weights"):
        Evaluation(_evaluation_archive(tmp_path, constant=True), data())


def test_the_exported_model_has_the_trained_weights(tmp_path: Path) -> None:
    program = training_program(tmp_path, _ADAM)
    list(Trainer(program, data()).run(3))
    path = popc.export_onnx(
        tmp_path / "train.popx", tmp_path / "trained.onnx", state=program, optimizer_state=True
    )
    onnx.checker.check_model(path, full_check=True)
    state = program.state.read()
    exported = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(path).graph.initializer
    }
    np.testing.assert_array_equal(exported["w"], state["w"])
    np.testing.assert_array_equal(exported["Accl1___w"], state["Accl1___w"])
    other = training_program(tmp_path, _ADAM)
    written = popc.load_weights(other, path)
    assert {"w", "b", "Accl1___w", "Accl2___b"} <= set(written)
    for name in written:
        np.testing.assert_array_equal(other.state.read()[name], state[name])


def test_checkpoints_of_another_model_are_not_exported(tmp_path: Path) -> None:
    program = training_program(tmp_path)
    (archive,) = tmp_path.glob("*.popx")
    name = next(spec.name for spec in program.state.specs if spec.shape)
    held = program.state.read()
    held[name] = held[name][..., :1]
    dtypes = {spec.name: spec.dtype for spec in program.state.specs}
    write_checkpoint(tmp_path / "other.safetensors", Checkpoint(held, dtypes))
    with pytest.raises(InputMismatchError, match="1 variables do not fit") as why:
        popc.export_onnx(archive, tmp_path / "no.onnx", state=tmp_path / "other.safetensors")
    assert name in why.value.details[0]
    assert not (tmp_path / "no.onnx").exists()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    model = linear_model()
    del model.graph.initializer[1]
    model.graph.node[1].input[1] = "target"
    model.graph.initializer[0].name = "v"
    model.graph.node[0].input[1] = "v"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(InputMismatchError, match="do not fit the program") as raised:
        popc.load_weights(training_program(tmp_path), tmp_path / "other.onnx")
    assert len(raised.value.details) == 3  # w and b are missing, v is unknown
    assert "ignore_unknown" in raised.value.hint


def test_the_log(tmp_path: Path) -> None:
    history = [EpochRecord(1, 0.5, 1.0), EpochRecord(2, 0.25, 1.0, {"accuracy": 0.75})]
    write_csv(tmp_path / "log.csv", history)
    assert (tmp_path / "log.csv").read_text().splitlines() == [
        "epoch,loss,seconds,accuracy",
        "1,0.5,1.000,",
        "2,0.25,1.000,0.75",
    ]
    write_png(tmp_path / "log.png", history)
    first = (tmp_path / "log.png").read_bytes()
    write_png(tmp_path / "log.png", history)
    assert first.startswith(b"\x89PNG")
    assert (tmp_path / "log.png").read_bytes() == first
