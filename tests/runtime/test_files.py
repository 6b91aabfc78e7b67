"""Files that other processes leave behind, or change while they are mapped."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import popc
import popc_runtime
from popc_runtime.errors import ResourceError
from popc_runtime.process.files import new_file
from tests.native.panels import model_of, saved

_STALE = ".model.popx.0123456789abcdef.tmp"
_KEPT = (".model.popx.0123.tmp", "model.popx.0123456789abcdef.tmp", ".model.0123456789abcdeX.tmp")


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    """A product whose weights are mapped."""
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return saved(model_of(nodes, {"w": weights}, 4, 64), tmp_path, weights="mmap")


_FEEDS = {"x": np.ones((4, 64), np.float32)}


# -- what killed processes leave -------------------------------------------------------------------


@pytest.mark.parametrize("how", ["load", "save"])
def test_stale_files_go_and_others_stay(mapped: Path, how: str) -> None:
    for name in (_STALE, *_KEPT):
        (mapped.parent / name).write_bytes(b"x")
    if how == "load":
        popc_runtime.load(mapped)
    else:
        popc.compile(model_of([helper.make_node("Relu", ["x"], ["y"])], {}, 4, 64)).save(
            mapped.parent / "other.popx"
        )
    found = {path.name for path in mapped.parent.iterdir()}
    assert _STALE not in found
    assert found >= set(_KEPT)


def _write_for_ever(target: Path, started: str) -> None:
    with new_file(target) as file:
        file.write(b"x")
        Path(started).touch()
        while True:
            os.read(os.pipe()[0], 1)


def test_what_another_process_writes_stays_until_it_is_killed(mapped: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    writer = multiprocessing.get_context("spawn").Process(
        target=_write_for_ever, args=(mapped.parent / "new", str(started))
    )
    writer.start()
    while not started.exists():
        assert writer.is_alive()
        writer.join(0.01)
    popc_runtime.load(mapped)
    assert len(list(mapped.parent.glob(".new.*.tmp"))) == 1
    writer.kill()
    writer.join()
    popc_runtime.load(mapped)
    assert not list(mapped.parent.glob(".new.*.tmp"))


# -- what is mapped --------------------------------------------------------------------------------


def _cut_off(path: Path) -> None:
    os.truncate(path, 100)


def _overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with path.open("r+b") as file:  # the same file, as editors and copies write it
        file.write(bytes(byte ^ 1 for byte in data))
    os.utime(path, ns=(1, 1))  # however coarse the clock of the file system is


def _touch(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    _overwrite(path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [(_cut_off, "was cut off"), (_overwrite, "was overwritten"), (_touch, ""), (_replace, "")],
)
def test_a_mapped_file_that_changes(
    mapped: Path, change: Callable[[Path], None], message: str
) -> None:
    executable = popc_runtime.load(mapped)
    expected = executable.run(_FEEDS)["y"].copy()
    change(mapped)
    for run in (executable.run, executable.run_buffers, executable.profile):
        if message:
            with pytest.raises(ResourceError, match=f"{message} while its weights were mapped"):
                run(_FEEDS)
        else:
            run(_FEEDS)
    if not message:
        np.testing.assert_array_equal(executable.run(_FEEDS)["y"], expected)


@pytest.mark.parametrize("change", [_cut_off, _overwrite])
def test_a_copy_does_not_mind(mapped: Path, change: Callable[[Path], None]) -> None:
    executable = popc_runtime.load(mapped, copy_weights=True)
    expected = executable.run(_FEEDS)["y"].copy()
    change(mapped)
    np.testing.assert_array_equal(executable.run(_FEEDS)["y"], expected)
