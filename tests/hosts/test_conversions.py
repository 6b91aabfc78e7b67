"""Models in the formats of their frameworks, converted by the frameworks themselves.

Interpreters are named by variables; without them `tests/frontend/test_conversion.py` is what there
is.  The models come from `tools.host_exports.host_files`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import popc
import popc_runtime
from popc.frontend.hosts import recognise_model

_ROOT: Final = Path(__file__).parents[2]
_FRAMEWORKS: Final = {
    "hdf5": "TENSORFLOW",
    "keras": "TENSORFLOW",
    "paddle": "PADDLE",
    "saved_model": "TENSORFLOW",
    "tensorflow_lite": "TENSORFLOW",
    "torch_export": "TRANSFORMERS",
    "transformers": "TRANSFORMERS",
}


def _interpreter(framework: str) -> str:
    variable = f"POPC_TEST_{framework}_PYTHON"
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no interpreter: see CONTRIBUTING.md")
    return python


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "framework"), sorted(_FRAMEWORKS.items()))
def test_results_are_those_of_the_framework(kind: str, framework: str, tmp_path: Path) -> None:
    python = _interpreter(framework)
    command = [python, "-m", "tools.host_exports.host_files", kind, str(tmp_path)]
    subprocess.run(command, cwd=_ROOT, check=True, timeout=600)
    (model,) = (found for path in sorted(tmp_path.iterdir()) if (found := recognise_model(path)))
    with np.load(tmp_path / "expected.npz") as file:
        *feeds, result = (file[name] for name in file.files)
    options = {"converter_python": python, "onnx_folder": tmp_path / "kept"}
    archive = popc.compile(model.path, options=options | {"batch_size": 2}, dims=_dims(kind))
    executable = popc_runtime.load(archive)
    names = [info.name for info in executable.inputs]
    (got,) = executable.run(dict(zip(names, feeds, strict=True))).values()
    np.testing.assert_allclose(got, result, rtol=1e-4, atol=1e-6)
    assert list((tmp_path / "kept").glob("*.onnx"))


def _dims(kind: str) -> dict[str, int] | None:
    return {"sequence": 7} if kind == "transformers" else None
