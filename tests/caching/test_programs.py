"""What is compiled once, and what makes a program another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, helper, numpy_helper

import popc
import popc_runtime
from popc.caching import files
from popc.caching.files import file_hash
from popc.cli.root import run
from popc.progress import ProgressEvent
from popc.target import preset_text
from popc_runtime.cache import stored_entries
from popc_runtime.errors import UsageError
from tests.support.models import affine

_X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(affine("N"), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


class _Counter:
    """Counts compilations."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, event: ProgressEvent) -> None:
        self.count += event.stage == "lower" and event.seconds is not None


def test_a_model_is_compiled_once(model: Path, tmp_path: Path) -> None:
    counter, cache = _Counter(), tmp_path / "cache"
    settings: Any = {"dims": {"N": 2}, "cache": cache, "on_progress": counter}
    results = [popc.load(model, **settings).run({"x": _X})["y"] for _ in range(2)]
    archives = [popc.compile(source, **settings) for source in (model, model.read_bytes())]
    assert counter.count == 1
    np.testing.assert_array_equal(results[0], results[1])
    fresh = popc.compile(model, dims={"N": 2})
    for archive in archives:
        assert archive.to_bytes() == fresh.to_bytes()
        assert archive.size() == len(fresh.to_bytes())
    assert archives[0].save(tmp_path / "net.popx").read_bytes() == fresh.to_bytes()
    assert popc_runtime.load_cached("net", cache=cache).outputs == fresh.manifest.outputs
    popc.load(tmp_path / "net.popx").close()
    with pytest.raises(UsageError, match="compiled already"):
        popc.load(tmp_path / "net.popx", dims={"N": 2})
    with pytest.raises(UsageError, match="give cache as well"):
        popc.compile(model, name="net")
    with pytest.raises(UsageError, match="skips"):
        popc.compile(model, cache=cache, on_artefact=lambda stage, text: None)


def _train() -> dict[str, Any]:
    return {"loss": {"type": "identity", "input": "y"}, "optimizer": {"type": "sgd"}}


# What is asked for instead, and the part of the key that tells.
_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "dims": ({"dims": {"N": 3}}, "dims.N"),
    "several": ({"dims": {"N": [2, 4]}}, "programs.2.dims.N"),
    "split": ({"split": ["N"]}, "split"),
    "pad": ({"pad": ["N"]}, "pad"),
    "shapes": ({"dims": None, "shapes": {"x": (2, 3)}}, "shapes.x"),
    "options": ({"options": {"enable_inplace": False}}, "options.enable_inplace"),
    "table": ({"options": {"anchors": {"r": "final"}}}, "options.anchors"),
    "default": ({"options": {"enable_inplace": True}}, "options.enable_inplace"),
    "outputs": ({"outputs": ["r"]}, "outputs"),
    "bind": ({"bind": {"x": _X}}, "bind.x.sha256"),
    "training": ({"train": _train()}, "training.loss.is"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_every_setting_is_part_of_the_key(change: str, model: Path, tmp_path: Path) -> None:
    from popc.caching.why import explain_key
    from popc.requests import several_requests

    changed, part = _CHANGES[change]
    cache = str(tmp_path / "cache")
    settings: dict[str, Any] = {"dims": {"N": 2}}
    popc.compile(model, cache=cache, **settings)
    settings |= changed
    requests = several_requests(model, **settings)
    answer = explain_key(requests, "net", cache)
    assert not answer.is_hit
    assert part in [difference.part for difference in answer.differences]
    for _ in range(2):
        popc.compile(model, cache=cache, **settings)
        assert len(stored_entries(cache)) == 2
    assert explain_key(requests, "net", cache).is_hit


def test_an_archive_of_several_shapes_is_compiled_once(model: Path, tmp_path: Path) -> None:
    counter, cache = _Counter(), tmp_path / "cache"
    settings: Any = {"dims": {"N": range(1, 4)}, "split": ["N"], "on_progress": counter}
    for _ in range(2):
        loaded = popc.load(model, cache=cache, **settings)
        assert len(loaded.programs) == 3
        assert loaded(np.ones((5, 3), np.float32))["y"].shape == (5, 3)
    assert counter.count == 3
    assert len(popc_runtime.load_cached("net", cache=cache).programs) == 3


def test_verbs_keep_archives_of_several_shapes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POPC_CACHE", str(tmp_path / "cache"))
    np.save(tmp_path / "x.npy", np.ones((3, 3), np.float32))
    shapes = [str(model), "--dim", "N=1,2", "--split", "N"]
    assert run(["cache", "why", *shapes]) == 1
    assert run(["run", *shapes, "-i", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "float32[3,3]" in capsys.readouterr().out
    assert run(["cache", "why", *shapes]) == 0
    assert run(["bench", *shapes, "--program", "main.2", "--runs", "1", "--warmup", "0"]) == 0
    assert run(["verify", *shapes, "--program", "main.2"]) == 0
    assert "float32[2,3]" in capsys.readouterr().out
    assert len(stored_entries(str(tmp_path / "cache"))) == 1
    assert run(["cache", "why", str(model), "--dim", "N=2"]) == 1
    assert "programs.2.dims.N" in capsys.readouterr().out


def _external(folder: Path, values: list[float]) -> Path:
    weight = numpy_helper.from_array(np.array(values, np.float32), "w")
    external_data_helper.set_external_data(weight, "weights.bin")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [weight],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, folder / "net.onnx")
    return folder / "net.onnx"


def _change_weights(folder: Path) -> None:
    _external(folder, [4, 5, 6])


def _change_target(folder: Path) -> None:
    path = folder / "mine.toml"
    path.write_text(path.read_text().replace('description = "', 'description = "changed '))


def _change_options(folder: Path) -> None:
    (folder / "options.json").write_text('{"target": "mine.toml", "verify_ir": true}')


@pytest.mark.parametrize(
    "change",
    [
        _change_weights,
        _change_target,
        _change_options,
        lambda folder: os.environ.update(POPC_ENABLE_INPLACE="false"),
    ],
)
def test_files_that_are_read_are_part_of_the_key(
    change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPC_ENABLE_INPLACE", "true")
    monkeypatch.chdir(tmp_path)
    path = _external(tmp_path, [1, 2, 3])
    (tmp_path / "mine.toml").write_text(preset_text("ipu2"))
    (tmp_path / "options.json").write_text('{"target": "mine.toml"}')
    counter = _Counter()
    for expected in (1, 1, 2, 2):
        if expected == 2 and counter.count == 1:
            change(tmp_path)
        loaded = popc.load(
            path, cache=tmp_path / "cache", options="options.json", on_progress=counter
        )
        assert counter.count == expected
    assert loaded.run({"x": np.zeros(3, np.float32)})["y"][0] in (1, 4)


def test_large_files_are_read_again_only_when_they_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(2 << 20))
    os.utime(path, (1_000_000_000, 1_000_000_000))
    monkeypatch.setattr(files, "_SETTLED_NS", 0)
    read: list[str] = []
    hashed = files._hashed

    def note(path: str) -> bytes:
        read.append(path)
        return hashed(path)

    monkeypatch.setattr(files, "_hashed", note)
    first = [file_hash(str(path), str(tmp_path / "cache")) for _ in range(2)]
    assert len(read) == 1
    path.write_bytes(b"\1" * (2 << 20))
    os.utime(path, (1_000_000_000, 1_000_000_000))  # same size and time: the inode's time tells
    assert file_hash(str(path), str(tmp_path / "cache")) != first[0] == first[1]
    monkeypatch.setattr(files, "_SETTLED_NS", 10**15)
    path.write_bytes(b"\2" * (2 << 20))
    for _ in range(2):
        file_hash(str(path), str(tmp_path / "cache"))
    assert len(read) == 4


def test_damage_is_compiled_anew(model: Path, tmp_path: Path) -> None:
    counter, cache = _Counter(), tmp_path / "cache"
    for number in range(3):
        loaded = popc.load(model, dims={"N": 2}, cache=cache, on_progress=counter)
        assert loaded.run({"x": _X})["y"].shape == (2, 3)
        assert counter.count == number + 1
        (program,) = (cache / "entries").glob("*/program.popx")
        data = bytearray(program.read_bytes())
        data[80 if number else -1] ^= 1  # what the entry knows, and what only loading shows
        program.write_bytes(data)


def test_what_cannot_be_kept_is_loaded_with_a_warning(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="not kept"):
        loaded = popc.load(model, dims={"N": 2}, cache=tmp_path / "file")
    assert loaded.run({"x": _X})["y"].shape == (2, 3)
    archive = popc.compile(model, dims={"N": 2}, cache=tmp_path / "file")
    assert any("not kept" in note for note in archive.notes)


_HIT = """
import sys, popc
model = popc.load(sys.argv[1], dims={"N": 2}, cache=sys.argv[2])
model.warmup()
print(sorted({"onnx", "numpy", "dataclasses", "click", "popc.api"} & sys.modules.keys()))
"""


def test_a_hit_imports_neither_onnx_nor_the_compiler(model: Path, tmp_path: Path) -> None:
    popc.load(model, dims={"N": 2}, cache=tmp_path / "cache")
    program = [sys.executable, "-c", _HIT, str(model), str(tmp_path / "cache")]
    assert subprocess.check_output(program, text=True).strip() == "[]"


def _load_in_child(model: Path, cache: Path, log: Path, *, dies: bool) -> int:
    """The number of a process that loads a model, and notes when it compiles."""

    def note(event: ProgressEvent) -> None:
        if event.stage == "lower" and event.seconds is None:
            with log.open("a") as file:
                file.write("compiles ")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child:
        return child
    try:
        popc.load(model, dims={"N": 2}, cache=cache, on_progress=note, engine="numpy")
    except BaseException:  # noqa: BLE001 - pytest must not go on in the child
        os._exit(1)
    os._exit(0)


def test_processes_compile_once_together_although_one_was_killed(
    model: Path, tmp_path: Path
) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    killed = _load_in_child(model, cache, log, dies=True)
    assert os.WTERMSIG(os.waitpid(killed, 0)[1]) == signal.SIGKILL
    assert stored_entries(str(cache)) == []
    assert log.read_text() == "compiles "
    children = [_load_in_child(model, cache, log, dies=False) for _ in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert log.read_text() == "compiles compiles "
    assert len(stored_entries(str(cache))) == 1


# -- the command line ------------------------------------------------------------------------------


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["--format", "json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_verbs_take_models(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("POPC_CACHE", str(tmp_path / "cache"))
    for verb, more in (("run", ["-i", "x=random:0"]), ("bench", ["--runs", "1"]), ("verify", [])):
        assert run([verb, str(model), "--dim", "N=2", *more]) == 0
        assert len(stored_entries(str(tmp_path / "cache"))) == 1
    assert capsys.readouterr().err.count("lower") == 1
    for verb in ("run", "bench"):
        assert run(["-q", verb, str(model), "--no-cache", "--dim", "N=4", "-i", "x=random:0"]) == 0
    assert len(stored_entries(str(tmp_path / "cache"))) == 1
    assert run(["-q", "compile", str(model), "--dim", "N=2"]) == 0
    assert run(["run", str(model.with_suffix(".popx")), "--dim", "N=2"]) == 2
    assert "compiled" in capsys.readouterr().err


def test_the_cache_is_looked_after(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("POPC_CACHE", str(tmp_path / "cache"))
    why = ["cache", "why", str(model), "--dim", "N=2", "--set", "enable_inplace=false"]
    assert _json(why, capsys, code=1)["nearest"] is None
    assert run(["run", str(model), "--dim", "N=2", "-i", "x=random:0"]) == 0
    document = _json(why, capsys, code=1)
    assert document["differences"] == [
        {"part": "options.enable_inplace", "entry": "-", "asked": "False"}
    ]
    assert _json(why[:5], capsys)["hit"]
    (entry,) = _json(["cache", "list"], capsys)["entries"]
    assert (entry["names"], entry["parts"]["dims"]) == (["net"], {"N": 2})
    status = _json(["cache", "status"], capsys)
    assert (status["schema"], status["entries"]) == ("popc.cache-status/1", 1)
    package = str(tmp_path / "package.zip")
    assert _json(["cache", "export", package, "net"], capsys)["keys"] == [entry["key"]]
    prune = ["cache", "prune", "--max-size", "0"]
    for arguments in (["cache", "clear", "--dry-run"], prune, ["cache", "prune"]):
        removed = _json(arguments, capsys)["removed"]
        assert removed == ([] if arguments == ["cache", "prune"] else [entry["key"]])
    assert _json(["cache", "import", package], capsys)["keys"] == [entry["key"]]
    assert _json(["cache", "clear", "net"], capsys)["removed"] == [entry["key"]]
    assert _json(["cache", "clear", "net"], capsys, code=2)["schema"] == "popc.cache-clear/1"
    assert run(["cache", "list"]) == 0
    assert "is empty" in capsys.readouterr().out
    assert run(why) == 1
    assert "the cache is empty" in capsys.readouterr().out
