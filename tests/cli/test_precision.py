"""Precision from the command line: options, and checks that name the op."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from popc.cli.root import run
from tests.training.small import data, linear_model

_MODEL = """<ir_version: 10, opset_import: ["" : 20]>
    m (float16[3] x) => (float16[3] y) { a = Neg(x)  y = Log(a) }"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = parser.parse_model(_MODEL)
    model.graph.node[1].name = "/net/Log"
    onnx.save(model, "model.onnx")
    np.save("x.npy", np.array([-1, 0, 2], np.float16))


def _popc(line: str) -> int:
    return run(line.split())


def test_run_names_the_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert _popc("-q compile model.onnx -o plain.popx") == 0
    assert _popc("run plain.popx -i x=x.npy") == 0
    assert _popc("run plain.popx -i x=x.npy --fp-checks") == 6
    error = capsys.readouterr().err
    assert "floating-point exception (invalid) in Log (/net/Log)" in error
    assert "NaN in 1 of 3 elements, first at [2]" in error
    options = "--set enableFloatingPointChecks=1 --set floating_point_exceptions=div0"
    assert _popc(f"-q compile model.onnx {options} -o checked.popx") == 0
    assert _popc("--format json run checked.popx -i x=x.npy") == 6
    document = json.loads(capsys.readouterr().out)
    assert document["error"]["subject"] == "/net/Log"
    assert "exception (div0)" in document["error"]["message"]
    assert _popc("run checked.popx -i x=x.npy --no-fp-checks") == 0


def test_train_names_the_op(capsys: pytest.CaptureFixture[str]) -> None:
    model = linear_model()
    for node in model.graph.node:
        node.name = f"/net/{node.op_type}"
    onnx.save(model, "linear.onnx")
    huge: dict[str, Any] = {name: 1e15 * array for name, array in data(8).items()}
    np.savez("data.npz", **huge)
    Path("train.toml").write_text(
        '[loss]\ntype = "identity"\ninput = "loss"\n[optimizer]\ntype = "sgd"\nlearning_rate = 1.0'
    )
    compiled = "-q compile linear.onnx --dim batch=2 --train train.toml -o train.popx"
    assert _popc(compiled) == 0
    assert _popc("-q train train.popx -d data.npz -e 3") == 6
    assert "train with --fp-checks to find the first op that goes wrong" in capsys.readouterr().err
    assert _popc("-q train train.popx -d data.npz -e 3 --fp-checks") == 6
    error = capsys.readouterr().err
    assert "floating-point exception (overflow) in " in error
    assert "(/net/" in error


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("partialsTypeMatMuls=quarter", "must be one of float, half"),
        ("floating_point_exceptions=underflow", "contains 'underflow', which does not exist"),
        ("enableStochasticRounding=maybe", "must be true or false"),
        ("floating_point_exceptions=div0", "but enable_floating_point_checks is false"),
    ],
)
def test_wrong_settings(settings: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _popc(f"compile model.onnx --set {settings}") == 2
    assert problem in capsys.readouterr().err
