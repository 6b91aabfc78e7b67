"""popc without a standard stream, as some daemons start their children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import popc
from tests.support.models import affine

_MAIN = "from popc.cli import main; main()"


def _without(stream: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run popc in a shell that closes ``stream`` (as in ``2>&-``)."""
    shell = f'exec "$0" "$@" {stream}'
    command = ["sh", "-c", shell, sys.executable, "-c", _MAIN, *arguments]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("stream", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_work_is_done(stream: str, tmp_path: Path) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    done = _without(stream, "compile", str(tmp_path / "m.onnx"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.popx").exists()
    ran = _without(stream, "run", str(tmp_path / "m.popx"), "-i", "x=random:0", "-o", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert np.load(tmp_path / "y.npy").shape == (2, 3)


def test_errors_have_their_exit_codes(tmp_path: Path) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    (tmp_path / "m.popx").touch()
    assert _without("<&- >&- 2>&-", "compile", str(tmp_path / "m.onnx")).returncode == 7


@pytest.mark.parametrize(
    ("stream", "arguments", "message"),
    [
        ("<&-", ("run", "m.popx", "-i", "x=-"), "standard input, which is closed"),
        ("<&-", ("compile", "-", "-o", "n.popx"), "standard input, which is closed"),
        (">&-", ("run", "m.popx", "-i", "x=random:0", "-o", "y=-"), "output, which is closed"),
    ],
)
def test_what_needs_the_stream_says_so(
    stream: str,
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    popc.compile(affine()).save("m.popx")
    done = _without(stream, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
