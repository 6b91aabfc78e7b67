"""An output may have the name of an input: where it is that input, it has no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc.cli.root import run
from popc_runtime.errors import UsageError
from popc_runtime.format import StreamDirection
from popc_runtime.format.header import Header
from popc_runtime.groups import ReplicaShare, local_manifest
from popc_runtime.serving.tensors import results_of

_TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3] x) => (float[n, 3] x, float[n, 3] y) { y = Neg (x) }"""
_X = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)


def _archive(**options: Any) -> Any:
    return popc.compile(parser.parse_model(_TEXT), dims={"n": 2}, options=options)


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 3)),
        ({"batches_per_step": 2}, (2, 2, 3)),
        ({"replicated_graph_count": 2}, (2, 2, 3)),
        (
            {"batches_per_step": 2, "exchange_strategies": {"x": "overlap_inner_loop"},
             "tile_sets": {"x": "io"}, "num_io_tiles": 32},
            (2, 2, 3),
        ),
    ],
    ids=["one", "batches", "replicas", "overlapped"],
)  # fmt: skip
def test_runs_return_it(options: dict[str, Any], shape: tuple[int, ...], engine: str) -> None:
    program = popc_runtime.load(_archive(**options).to_bytes(), engine=engine)
    x = _X.reshape(-1)[: int(np.prod(shape))].reshape(shape)
    for results in (program.run(x=x), program.run_buffers(x=x)):
        assert list(results) == ["x", "y"]
        assert (np.asarray(results["x"]) == x).all()
        assert (np.asarray(results["y"]) == -x).all()


def test_a_session_is_told_which_stream() -> None:
    program, seen = _archive().load(), list[Any]()
    with program.session() as session:
        with pytest.raises(UsageError, match="both an input and an output are called 'x'"):
            session.connect("x", seen)
        with pytest.raises(UsageError, match="there is no input stream 'y'"):
            session.connect("y", seen, direction="input")
        with pytest.raises(UsageError, match='"input" or "output", not \'up\''):
            session.connect("y", seen, direction="up")
        session.connect("x", _X, direction="input").connect("x", seen, direction="output")
        with pytest.raises(UsageError, match="already connected"):
            session.connect("x", seen, direction="output")
        session.step(2)
    assert (np.array(seen) == _X).all()
    assert program.stream("x").direction is StreamDirection.INPUT
    assert program.stream("x", "output").direction is StreamDirection.OUTPUT
    with pytest.raises(KeyError):
        program.stream("y", "input")


def test_sizes_are_put_together() -> None:
    model = parser.parse_model(_TEXT)
    program = popc.compile(model, dims={"n": [1, 2]}, split=["n"]).load()
    x = _X.reshape(4, 3)[:3]
    results = program.run(x=x)
    assert (results["x"] == x).all()
    assert (results["y"] == -x).all()


def test_each_process_returns_what_its_replicas_were_given() -> None:
    """All get the same sample; what each returns is its own."""
    options = {"replicated_graph_count": 2, "replicated_stream_mode": {"x": "broadcast"}}
    manifest = _archive(**options).manifest
    local = local_manifest(manifest, ReplicaShare(0, 1, 2, frozenset("x")))
    assert [spec.shape for spec in (*local.inputs, *local.outputs)] == [
        (2, 3),
        (1, 2, 3),
        (1, 2, 3),
    ]
    assert [stream.samples_per_step for stream in local.streams] == [1, 1, 1]


def test_only_readers_that_know_such_names_are_let_in() -> None:
    other = popc.compile(parser.parse_model(_TEXT), dims={"n": 2}, outputs=["y"])
    headers = [Header.parse(archive.to_bytes()) for archive in (_archive(), other)]
    assert headers[0].oldest_reader == 7
    assert headers[1].oldest_reader < 7


def test_a_server_answers_with_it() -> None:
    program = _archive().load()
    answers = results_of(program.run(x=_X[0]), program.outputs, [])
    assert [spec.name for spec, _ in answers] == ["x", "y"]


def test_the_command_line_tells_them_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, out = tmp_path / "a.popx", tmp_path / "out"
    _archive().save(archive)
    np.save(tmp_path / "x.npy", _X[0])
    assert run(["run", str(archive), "-i", f"x={tmp_path / 'x.npy'}", "-o", str(out)]) == 0
    assert (np.load(out / "x.npy") == _X[0]).all()
    capsys.readouterr()
    assert run(["inspect", str(archive), "--section", "streams"]) == 0
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["x", "input"], ["x", "output"], ["y", "output"]]
