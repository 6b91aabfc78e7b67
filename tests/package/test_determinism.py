"""The same model and options give the same bytes, wherever and however they are compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx

from tests.support.models import affine

_SCRIPT = """
import os, sys, popc
for weights in ("compressed", "mmap"):
    os.environ["POPC_WEIGHTS"] = weights
    popc.compile(sys.argv[1], options={"batches_per_step": 2}).save(f"{weights}.popx")
"""


def test_archives_are_byte_identical(tmp_path: Path) -> None:
    onnx.save(affine(), tmp_path / "m.onnx")
    contents: list[list[bytes]] = []
    for number, (seed, locale) in enumerate([("0", "C"), ("1", "C.UTF-8"), ("random", "de_DE")]):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "LC_ALL": locale,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [sys.executable, "-c", _SCRIPT, str(tmp_path / "m.onnx")]
        subprocess.run(command, check=True, env=env, cwd=folder)
        contents.append(
            [(folder / f"{weights}.popx").read_bytes() for weights in ("compressed", "mmap")]
        )
    assert contents[0] == contents[1] == contents[2]
    assert contents[0][0] != contents[0][1]
