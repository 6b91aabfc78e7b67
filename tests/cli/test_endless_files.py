"""Pipes that nobody writes to, and devices that never end, in place of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from popc.cli.root import run
from popc_runtime.errors import ResourceError
from popc_runtime.state.checkpoint import content_of, read_checkpoint


@pytest.mark.parametrize("what", ["pipe", "device"])
@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["run"],
        ["inspect"],
        ["compile"],
        ["bench"],
        ["check", "--limits=strict"],
    ],
    ids=" ".join,
)
def test_verbs(
    what: str, command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = _endless(what, tmp_path)
    assert run([*command, str(path)]) == 7
    assert "pipe or a device" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_checkpoints(what: str, tmp_path: Path) -> None:
    path = _endless(what, tmp_path)
    for read in (content_of, read_checkpoint):
        with pytest.raises(ResourceError, match="pipe or a device"):
            read(path)


def _endless(what: str, folder: Path) -> Path:
    path = folder / "model.onnx"
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path
