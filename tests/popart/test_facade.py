"""The distribution that installs `popart`."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_FACADE: Final = _ROOT / "facade"

_SCRIPT: Final = """
import popart, popart_core, popart_opset10
assert popart.builder.Opset and popart.session and popart.tensorinfo.TensorInfo
import popart._internal.ir as ir
import popc.popart
assert set(popc.popart.__all__) <= set(dir(popart)), "names"
assert popart.Builder is popart.builder.Builder is popc.popart.Builder
assert popart_core._BuilderCore and popart_core._TensorInfoCore is ir.TensorInfo
assert popart_opset10.AiOnnxOpset10 is popart.AiOnnxOpset10
popart.getLogger().setLevel("OFF")
try:
    popart_core._throw_recoverable_runtime_error("why")
except popart.poplar_recoverable_runtime_error as error:
    assert (error.args, error.recoveryAction.name) == (("why",), "IPU_RESET")
popart.getLogger().setLevel("TRACE")
builder = popart.Builder()
builder.aiOnnx.abs([builder.addInputTensor("FLOAT", [2])])
"""


def test_popart_is_popc() -> None:
    environment = {**os.environ, "PYTHONPATH": str(_FACADE), "POPART_LOG_LEVEL": "WARN"}
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "Adding ai.onnx.Abs" in done.stderr


def test_the_distribution_is_of_the_same_version() -> None:
    facade, own = (
        tomllib.loads((folder / "pyproject.toml").read_text()) for folder in (_FACADE, _ROOT)
    )
    version = own["project"]["version"]
    assert facade["project"]["version"] == version
    assert facade["project"]["dependencies"] == [f"popc=={version}"]
    assert (_FACADE / "LICENSE").read_bytes() == (_ROOT / "LICENSE").read_bytes()


def test_popc_claims_no_foreign_name() -> None:
    include = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert include["packages"]["find"]["include"] == ["popc", "popc.*"]
