"""The deployment script, run as a user would run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import popc
from tests.support.models import affine

_ROOT = Path(__file__).parents[2]
_SCRIPT = _ROOT / "samples" / "serve.py"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "model.popx"
    popc.compile(affine()).save(path)
    return path


def _serve(archive: Path, requests: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(_SCRIPT), str(archive)]
    return subprocess.run(
        command, input=requests, capture_output=True, text=True, check=False, timeout=600
    )


def test_every_request_is_answered_in_order(archive: Path, tmp_path: Path) -> None:
    for number in range(20):  # more than the queue holds
        x = np.full((2, 3), number, np.float32)
        np.savez(tmp_path / f"{number}.npz", x=x)
    paths = [str(tmp_path / f"{number}.npz") for number in range(20)]
    done = _serve(archive, "\n".join(paths))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["request"] for answer in answers] == paths
    assert [answer["y"]["max"] for answer in answers] == [2.0 * n + 1 for n in range(20)]
    assert done.stderr.strip() == "served 20 requests"
    assert done.returncode == 0


def test_a_bad_request_does_not_disturb_the_next(archive: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "good.npz", x=np.ones((2, 3), np.float32))
    np.savez(tmp_path / "shape.npz", x=np.ones((3, 2), np.float32))
    np.savez(tmp_path / "name.npz", z=np.ones((2, 3), np.float32))
    (tmp_path / "text.npz").write_text("not an archive of arrays")
    names = ["shape", "name", "text", "missing", "good"]
    done = _serve(archive, "\n\n".join(str(tmp_path / f"{name}.npz") for name in names))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in answer for answer in answers] == [True, True, True, True, False]
    assert answers[0]["error"] == "expected x: float32[2,3], got float32[3, 2]"
    assert answers[-1]["y"]["max"] == pytest.approx(3.0)


def test_an_unusable_archive_ends_with_its_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "model.popx"
    path.write_text("something else")
    done = _serve(path, "")
    assert done.returncode == 5
    assert "not a popc archive" in done.stderr


def test_without_an_archive_the_usage_is_shown() -> None:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 2
    assert "requests.txt" in done.stderr


def test_it_needs_nothing_but_the_runtime() -> None:
    imports = [
        line.split()[1]
        for line in _SCRIPT.read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]
    foreign = {name for name in imports if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"numpy", "popc_runtime"}
