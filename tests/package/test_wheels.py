"""All wheels, built and installed as a user would, away from the checkout.

To compile the kernels once more takes minutes where no compiler's cache helps: the wheels of most
tests are those for any platform, and the slow ones build and run those for this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest

import popc
from tests.support.models import affine, expected_affine
from tools.simple_index import write_index

_ROOT: Final = Path(__file__).parents[2]
_INSTALL: Final = ("install", "--quiet", "--no-compile")  # what is imported is compiled then
_OFFLINE: Final = ("No matching distribution", "Could not find a version", "ConnectionError")

_RUN: Final = """
import numpy as np, popc_runtime
model = popc_runtime.load("model.popx")
np.save("y.npy", model.run(x=np.load("x.npy"))["y"])
"""

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("wheels")]


def _call(*command: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    # No PYTHONPATH: what is not installed must not be found.
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | more
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip


def _pip(*arguments: str | Path, cwd: Path, python: Path | None = None, native: str = "") -> str:
    """The output of pip (this environment's, working on that of ``python``).

    ``native``: "none" makes wheels without kernels.
    """
    where: list[str | Path] = ["--python", python] if python else []
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        *where,
        *arguments,
    ]
    done = _call(*command, cwd=cwd, POPC_NATIVE=native)
    if done.returncode and any(sign in done.stderr for sign in _OFFLINE):
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def _built(source: Path, target: Path, native: str = "") -> dict[str, Path]:
    """The wheels by distribution, built from a copy of the sources in the folder ``source``."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in ("facade", "popc", "runtime"):
        shutil.copytree(_ROOT / name, source / name, ignore=ignored)
    packages = ("./runtime", "./facade", ".")
    _pip("wheel", "--quiet", "--no-deps", "-w", target, *packages, cwd=source, native=native)
    return {path.name.split("-")[0]: path for path in target.glob("*.whl")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels for any platform, which compute with numpy."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    return _built(source, target, native="none")


@pytest.fixture(scope="module")
def native_wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels for this machine."""
    return _built(tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an empty environment."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the checkout with a model, its archive and an input."""
    place = tmp_path_factory.mktemp("place")
    onnx.save(affine(), place / "model.onnx")
    popc.compile(place / "model.onnx").save(place / "model.popx")
    np.save(place / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    return place


@pytest.mark.parametrize("name", ["popc", "popc_runtime"])
def test_contents(wheels: dict[str, Path], name: str) -> None:
    with zipfile.ZipFile(wheels[name]) as wheel:
        members = wheel.namelist()
        metadata = next(item for item in members if item.endswith("/METADATA"))
        text = wheel.read(metadata).decode()
    assert f"{name}/py.typed" in members
    assert any(member.endswith("/licenses/LICENSE") for member in members)
    packages = {member.split("/")[0] for member in members}
    assert {item for item in packages if not item.endswith(".dist-info")} == {name}
    sources = {
        path.relative_to(_ROOT).as_posix().removeprefix("runtime/")
        for path in (_ROOT / ("runtime" if name == "popc_runtime" else ".") / name).rglob("*.py")
    }
    assert {member for member in members if member.endswith(".py")} == sources
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text


def test_popc_popart_installs_the_names_of_popart(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["popc_popart"]) as wheel:
        members = {name for name in wheel.namelist() if ".dist-info/" not in name}
    sources = {
        path.relative_to(_ROOT / "facade").as_posix() for path in (_ROOT / "facade").rglob("*.py")
    }
    assert members == sources | {"popart/py.typed"}
    assert {"popart/__init__.py", "popart_core.py", "popart_opset10.py"} <= members


def test_install_and_run(wheels: dict[str, Path], python: Path, folder: Path) -> None:
    """First the runtime alone, then the compiler beside it."""
    assert all(path.name.endswith("-py3-none-any.whl") for path in wheels.values())
    _pip(*_INSTALL, wheels["popc_runtime"], cwd=folder, python=python)
    listed = json.loads(_pip("list", "--format", "json", cwd=folder, python=python))
    names = {item["name"].lower().replace("_", "-") for item in listed}
    assert names == {"popc-runtime", "numpy", "msgpack", "zstandard"}

    done = _call(python, "-c", _RUN, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert np.load(folder / "y.npy") == expected_affine(np.load(folder / "x.npy"))
    done = _call(python, "-c", "import popc", cwd=folder)
    assert "No module named 'popc'" in done.stderr

    _pip(*_INSTALL, wheels["popc"], cwd=folder, python=python)
    command = python.with_name("popc")
    done = _call(command, "compile", "model.onnx", "-o", "again.popx", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "again.popx").read_bytes() == (folder / "model.popx").read_bytes()
    done = _call(
        command, "run", "again.popx", "--input", "x=x.npy", "--output", "y=z.npy", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert (np.load(folder / "z.npy") == np.load(folder / "y.npy")).all()


@pytest.mark.slow
def test_install_from_an_index_without_a_compiler(
    native_wheels: dict[str, Path], folder: Path, tmp_path: Path
) -> None:
    """Everything that the packages need lies in the index too, which is the only one."""
    needed = ("numpy", "msgpack", "zstandard", "onnx", "click")
    _pip("download", "--quiet", "--only-binary", ":all:", "-d", tmp_path, *needed, cwd=folder)
    for wheel in native_wheels.values():
        shutil.copy(wheel, tmp_path)
    index = write_index(tmp_path).as_uri()
    venv.create(tmp_path / "user", with_pip=False)
    python = tmp_path / "user" / "bin" / "python"
    _pip("install", "--isolated", "--quiet", "--index-url", index, "--only-binary", ":all:",
         "popc-popart", cwd=tmp_path, python=python)  # fmt: skip
    for line in (_RUN, "import popart; popart.Builder()"):
        done = _call(python, "-c", line, cwd=folder)
        assert done.returncode == 0, done.stderr
    assert np.load(folder / "y.npy") == expected_affine(np.load(folder / "x.npy"))
    done = _call(python.with_name("popc"), "--format", "json", "doctor", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["engine"] != "numpy"
