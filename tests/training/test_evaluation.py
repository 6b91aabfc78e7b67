"""The program that evaluates a model, beside the one that trains it in one archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

import popc
import popc_runtime
from popc.cli.root import run
from popc.trained.evaluation import Evaluation
from popc.trained.export import export_onnx
from popc_runtime.errors import UsageError
from popc_runtime.trainer import Trainer

_MODEL = """<ir_version: 9, opset_import: ["" : 17]>
net (float[N, 8] x) => (float[N, 4] y) {
    h = MatMul (x, w)
    b, nm, nv = BatchNormalization <training_mode = 1> (h, s, o, m, v)
    r = Relu (b)
    ratio = Constant <value_float = 0.5> ()
    t = Constant <value = bool {1}> ()
    d, mask = Dropout (r, ratio, t)
    y = MatMul (d, u)
}"""
_TRAIN: dict[str, Any] = {
    "loss": {"type": "cross_entropy", "input": "y", "label": "label"},
    "optimizer": {"type": "adam", "learning_rate": 0.05},
}


def _model() -> onnx.ModelProto:
    model = parser.parse_model(_MODEL)
    draw = np.random.default_rng(0)
    shapes = {"w": (8, 6), "s": (6,), "o": (6,), "m": (6,), "v": (6,), "u": (6, 4)}
    for name, shape in shapes.items():
        array = np.abs(draw.standard_normal(shape)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _data(count: int = 8) -> dict[str, Any]:
    draw = np.random.default_rng(1)
    x = draw.standard_normal((count, 8)).astype(np.float32)
    return {"x": x, "label": draw.integers(0, 4, count, np.int32)}


def test_it_computes_what_the_model_does_with_the_weights_as_they_are(tmp_path: Path) -> None:
    archive = popc.compile(_model(), dims={"N": 4}, train=_TRAIN, evaluate=True)
    path = archive.save(tmp_path / "train.popx")
    executable = popc_runtime.load(path)
    assert [program.name for program in executable.programs] == ["main", "evaluation"]
    data = _data()
    for record in Trainer(executable, data).run(2):
        assert record.loss > 0
    before = executable.state.read()
    found = executable.run(x=data["x"][:4])["y"]  # it alone takes no label
    np.testing.assert_array_equal(executable.program("evaluation")(data["x"][:4])["y"], found)
    after = executable.state.read()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    trained = export_onnx(path, tmp_path / "trained.onnx", state=executable, inference=True)
    session = onnxruntime.InferenceSession(trained.read_bytes())
    (expected,) = session.run(["y"], {"x": data["x"][:4]})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_an_evaluation_uses_the_weights_in_place() -> None:
    executable = popc.compile(_model(), dims={"N": 4}, train=_TRAIN, evaluate=True).load()
    metrics = Evaluation(executable, _data(), ("y", "label"))(executable)
    scores = np.concatenate([executable.run(x=_data()["x"][i : i + 4])["y"] for i in (0, 4)])
    assert metrics["accuracy"] == np.mean(scores.argmax(1) == _data()["label"])


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(_model(), tmp_path / "m.onnx")
    (tmp_path / "t.toml").write_text(
        '[loss]\ntype = "cross_entropy"\ninput = "y"\nlabel = "label"\n'
        '[optimizer]\ntype = "sgd"\nlearning_rate = 0.1\n'
    )
    np.savez(tmp_path / "d.npz", **_data())
    model, train, archive = (str(tmp_path / name) for name in ("m.onnx", "t.toml", "t.popx"))
    shape = ["--dim", "N=4", "-o", archive]
    assert run(["-q", "compile", model, "--train", train, "--evaluate", *shape]) == 0
    data = ["--data", str(tmp_path / "d.npz"), "--epochs", "1", "--accuracy", "y=label"]
    assert run(["-q", "train", archive, *data]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert run(["-q", "compile", model, "--train", train, "--force", *shape]) == 0
    assert run(["-q", "train", archive, *data]) == 2
    assert "compile the archive with --evaluate" in capsys.readouterr().err


def test_options_of_training_alone_do_not_matter_to_it() -> None:
    options = {"accumulation_factor": 2, "auto_recomputation": "standard"}
    archive = popc.compile(_model(), dims={"N": 2}, train=_TRAIN, evaluate=True, options=options)
    assert archive.load().program("evaluation")(_data()["x"][:2])["y"].shape == (2, 4)


def test_a_model_that_is_not_trained_has_no_evaluation() -> None:
    with pytest.raises(UsageError, match="is not trained"):
        popc.compile(_model(), dims={"N": 2}, evaluate=True)


def test_archives_keep_their_copies(tmp_path: Path) -> None:
    path = popc.compile(_model(), dims={"N": 4}, train=_TRAIN, evaluate=True).save(
        tmp_path / "a.popx"
    )
    program = popc_runtime.load(path).program("evaluation")
    assert program.manifest.training is None
