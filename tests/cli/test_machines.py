"""What programs read of what popc prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popc
from popc.cli.root import _FLAGS, _WITH_VALUE, root, run
from popc.cli.verbs import VERBS
from tests.support.models import affine


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(affine("N"), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_results_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Log", ["x"], ["y"])],
        "log",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "log.onnx")
    x = np.array([[1, 1, 0], [-1, 1, 1]], np.float32)
    np.save(tmp_path / "x.npy", x)
    arguments = ["run", str(tmp_path / "log.onnx"), "-i", f"x={tmp_path / 'x.npy'}"]
    (row,) = _json(arguments, capsys)["outputs"]
    assert row == {
        "name": "y",
        "dtype": "float32",
        "shape": [2, 3],
        "min": "nan",
        "mean": "nan",
        "max": "nan",
        "first_values": [0.0, 0.0, "-inf", "nan"],
    }
    (row,) = _json([*arguments, "--values"], capsys)["outputs"]
    assert row["values"] == [[0.0, 0.0, "-inf"], ["nan", 0.0, 0.0]]
    assert run([*arguments, "--values"]) == 2


def test_global_options_may_follow_the_verb(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(model), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["supported"]
    assert run(["compile", str(model), "--dim", "N=2", "--format=json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["archive"] == "model.popx"
    assert run(["check", "--", "--format"]) == 2


def test_no_verb_has_an_option_of_the_root_command() -> None:
    context = click.Context(root, obj=[])
    for verb in VERBS:
        command = root.get_command(context, verb)
        commands = [*command.commands.values()] if isinstance(command, click.Group) else [command]
        for each in commands:
            assert each is not None
            names = {name for param in each.params for name in param.opts + param.secondary_opts}
            assert not names & {*_WITH_VALUE, *_FLAGS}, verb


def test_check_says_whether_a_model_compiles(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "compiles" not in _json(["check", str(model)], capsys)
    assert _json(["check", str(model), "--dim", "N=2"], capsys)["compiles"]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [6]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])
    node = helper.make_node("Expand", ["x", "shape"], ["y"])
    opset = [helper.make_opsetid("", 17)]
    graph = helper.make_graph([node], "reshape", infos, [output])
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), model)
    assert _json(["check", str(model)], capsys)["supported"]
    document = _json(["check", str(model), "--set", "verify_ir=true"], capsys, code=1)
    assert not document["compiles"]
    assert document["problem"]["code"] == "model.data-dependent-shape"
    assert _json(["check", str(model), "--bind", "shape=2,6"], capsys)["compiles"]


def test_an_archive_says_where_it_comes_from(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.load(model)
    helper.set_model_props(proto, {"author": "somebody", "names": "n" * 3000})
    onnx.save(proto, model)
    popx = model.with_suffix(".popx")
    given = ["--shape", "x=1,3", "--meta", "ticket=17"]
    assert run(["-q", "compile", str(model), *given]) == 0
    facts = _json(["inspect", str(popx)], capsys)["provenance"]
    assert facts["metadata.names"].endswith("(2,000 characters more)")
    expected = {
        "file": "model.onnx",
        "metadata.author": "somebody",
        "shape.x": "1,3",
        "meta.ticket": "17",
    }
    assert expected.items() <= facts.items()
    assert run(["-q", "compile", str(model), "--dim", "N=2", "--force"]) == 0
    facts = _json(["inspect", str(popx)], capsys)["provenance"]
    assert facts["dim.N"] == "2"
    assert "meta.ticket" not in facts
    assert run(["compile", str(model), "--dim", "N=2", "--force", "--meta", "ticket"]) == 2
    with pytest.raises(popc.errors.UsageError, match="meta"):
        popc.compile(model, dims={"N": 2}, meta={"ticket": 17})  # type: ignore[dict-item]
    large = popc.compile(model, bind={"x": np.zeros((9, 3), np.float32)})
    assert large.manifest.provenance["bind.x"].startswith("float32[9,3] sha256 ")
