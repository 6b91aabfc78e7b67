"""The same model and options give the same bytes, wherever and however they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.support.models import affine

_SCRIPT = """
import sys, popc
popc.compile(sys.argv[1], options={"batches_per_step": 2}).save(sys.argv[2])
"""


@pytest.mark.parametrize("weights", ["compressed", "mmap"])
def test_archives_are_byte_identical(weights: str, tmp_path: Path) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    contents: list[bytes] = []
    for number, (seed, locale) in enumerate([("0", "C"), ("1", "C.UTF-8"), ("random", "de_DE")]):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "POPC_WEIGHTS": weights,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        target = folder / "m.popx"
        command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "m.onnx"), str(target)]
        subprocess.run(command, check=True, env=env, cwd=folder)
        contents.append(target.read_bytes())
    assert contents[0] == contents[1] == contents[2]
