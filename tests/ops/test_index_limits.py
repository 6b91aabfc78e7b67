"""Integer inputs that are read as indices: how many places there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import popc
from popc.cli.root import run
from popc.inputs.arrays import random_array
from popc_runtime import TensorSpec
from popc_runtime.format import DType


@pytest.mark.parametrize(
    ("body", "limits"),
    [
        ("y = Gather (table, i)", {"i": 6}),
        ("c = Cast <to = 6> (i) y = Gather (table, c)", {"i": 6}),
        ("r = Reshape (i, flat) y = Gather <axis = 1> (table, r)", {"i": 3}),
        ("y = OneHot (i, depth, values)", {"i": 5}),
        ("a = Gather (table, i) o = OneHot (i, depth, values) y = ReduceSum (o)", {"i": 5}),
        ("f = Cast <to = 1> (i) y = Relu (f)", {}),
        ("y = Add (i, i)", {}),
        ("f = Cast <to = 1> (i) y = Sub (one, f)", {"i": 2}),
        ("r = Reshape (i, flat) y = Cast <to = 9> (r)", {"i": 2}),
        ("f = Cast <to = 1> (i) y = Sub (f, one)", {}),
        ("y = GatherElements <axis = 0> (row, i)", {"i": 4}),
    ],
)
def test_readers_of_inputs_limit_them(body: str, limits: dict[str, int]) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 17]> g (int64[2] i) => (y)
        <float one = {{1.0}},
         float[6, 3] table = {{{", ".join(["1.0"] * 18)}}}, int64[1] flat = {{-1}},
         int64 depth = {{5}}, float[2] values = {{0.0, 1.0}}, float[4] row = {{1.0, 2.0, 3.0, 4.0}}>
        {{ {body} }}"""
    model = parser.parse_model(text)
    if "a = Gather" in body:
        model.graph.output.append(onnx.ValueInfoProto(name="a"))
    archive = popc.compile(model)
    assert archive.manifest.index_limits == limits


def test_labels_are_less_than_the_classes() -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (float[4, 2] x) => (float[4, 7] y)
        <float[2, 7] w> { y = MatMul (x, w) }"""
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 7), np.float32), "w"))
    archive = popc.compile(
        model,
        loss={"type": "cross_entropy", "input": "y", "label": "label"},
        optimizer={"type": "sgd", "learning_rate": 0.1},
    )
    assert archive.manifest.index_limits == {"label": 7}


def test_random_numbers_reach_all_places_and_none_beyond() -> None:
    spec = TensorSpec("i", DType.INT64, (2000,))
    assert set(random_array(spec, 0, 3).tolist()) == {0, 1, 2}
    assert random_array(spec, 0, 30_000).max() > 20_000
    assert random_array(TensorSpec("i", DType.INT8, (500,)), 0, 1000).min() >= 0
    assert set(random_array(spec, 0).tolist()) == set(range(10))


def test_verbs_give_the_same_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]> g (int64[2] i) => (y)
        <float[2] row = {1.0, 2.0}, int64 two = {2}> {
        j = Mul (i, two) y = Gather (row, j) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    np.save(tmp_path / "i.npy", np.array([0, 0]))
    model = str(tmp_path / "m.onnx")
    for line in (["run", model, "-i", "i=random:0"], ["bench", model], ["verify", model]):
        assert run(["-q", *line, "--no-cache"]) == 6
        assert "random inputs may not suit it: give --input i=FILE" in capsys.readouterr().err
    assert run(["-q", "run", model, "--no-cache", "-i", f"i={tmp_path / 'i.npy'}"]) == 0
