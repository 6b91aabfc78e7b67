"""Both images, built without a daemon and run: `buildah` and `mmdebstrap`, of Debian's packages.

The base is made here, so that no registry of images is needed.  POPC_TEST_PIP_CONF names a file for
pip inside of the build, if it needs one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from tests.support.models import affine, expected_affine

_ROOT: Final = Path(__file__).parents[2]
_TOOLS: Final = ("buildah", "mmdebstrap")
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_MISSING: Final = [tool for tool in _TOOLS if shutil.which(tool) is None]
_BASE: Final = "FROM scratch\nADD base.tar /\nCOPY ca.crt /etc/ssl/certs/ca-certificates.crt\n"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(bool(_MISSING), reason=f"needs {', '.join(_MISSING)}"),
    pytest.mark.xdist_group("images"),
]


class _Buildah:
    """buildah on a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._store = [
            *("--root", str(folder / "store"), "--runroot", str(folder / "run")),
            *("--storage-driver", "vfs"),
        ]

    def __call__(self, *words: str | Path, fails: bool = False) -> str:
        done = subprocess.run(
            ["buildah", *self._store, *map(str, words)],
            capture_output=True, text=True, check=False, timeout=3600,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def run(self, image: str, data: Path, user: str, *command: str) -> str:
        """What an image prints that runs as ``user`` with a folder at /data."""
        container = self("from", image).strip()
        try:
            return self("run", "--isolation", "chroot", "--user", user, "--volume",
                        f"{data}:/data", container, "--", *command)  # fmt: skip
        finally:
            self("rm", container)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Buildah]:
    folder = tmp_path_factory.mktemp("images")
    made = subprocess.run(
        ["mmdebstrap", "--variant=minbase", "--include=python3-venv,ca-certificates", "trixie",
         str(folder / "base.tar")], capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"Debian's packages cannot be reached: {made.stderr[-300:]}")
    shutil.copy(_CERTIFICATES, folder / "ca.crt")
    (folder / "Dockerfile").write_text(_BASE)
    buildah = _Buildah(folder)
    buildah("build", "--quiet", "--tag", "localhost/base", folder)
    form = ("--format", "{{.Digest}}")
    base = f"localhost/base@{buildah('images', '--digests', *form, 'localhost/base').strip()}"
    pip = folder / "pip.conf"
    pip.write_text(f"[global]\ncert = {_CERTIFICATES}\n")
    for target in ("runtime", "compiler"):
        buildah(
            *("build", "--isolation", "chroot", "--format", "docker", "--layers"),
            *("--secret", f"id=pip,src={os.environ.get('POPC_TEST_PIP_CONF', pip)}"),
            *("--build-arg", f"BASE={base}", "--build-arg", "PYTHON_HEADERS=python3-dev"),
            *("--target", target, "--tag", f"localhost/{target}", _ROOT),
        )
    yield buildah
    buildah("rmi", "--all", "--force")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that any user may write to, with a model."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    onnx.save(affine(), folder / "model.onnx")
    return folder


@pytest.mark.parametrize("user", ["1000:1000", "4242:4242"])
def test_compile_and_run(images: _Buildah, data: Path, user: str) -> None:
    """As in docs/images.md, by users that no image knows."""
    images.run("localhost/compiler", data, user, "popc", "compile", "model.onnx", "-o", "m.popx")
    assert (data / "m.popx").stat().st_uid == int(user.partition(":")[0])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(data / "request.npz", x=x)
    answers = images.run(
        "localhost/runtime", data, user, "sh", "-c",
        "echo request.npz | python /opt/popc/serve.py m.popx",
    )  # fmt: skip
    result = popc_runtime.load(data / "m.popx").run(x=x)["y"]
    assert result == expected_affine(x)
    assert f'"max": {float(result.max())}' in answers


def test_the_compiler_has_its_extras(images: _Buildah, data: Path) -> None:
    code = "import matplotlib, onnxruntime, PIL, plotly, securesystemslib"
    images.run("localhost/compiler", data, "7:7", "python", "-c", code)
    said = images.run("localhost/compiler", data, "7:7", "popc", "verify", "model.onnx")
    assert "agrees" in said


_ASK: Final = """
import json, subprocess, sys, urllib.request
command = [sys.executable, "-m", "popc_runtime.serving", "net=m.popx", "--http-port", "0",
           "--grpc-port", "0", "--log-format", "json"]
server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
for line in server.stderr:
    facts = json.loads(line)
    if facts["event"] == "serving":
        break
given = {"name": "x", "shape": [2, 3], "datatype": "FP32", "data": list(range(6))}
url = f"http://{facts['http']}/v2/models/net/infer"
request = urllib.request.Request(url, json.dumps({"inputs": [given]}).encode())
print(json.dumps(json.load(urllib.request.urlopen(request))["outputs"][0]["data"]))
server.terminate()
server.wait()
"""


def test_the_runtime_serves(images: _Buildah, data: Path) -> None:
    popc.compile(affine()).save(data / "m.popx")
    said = images.run("localhost/runtime", data, "4242:4242", "python", "-c", _ASK)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array(json.loads(said)).reshape(2, 3) == expected_affine(x)


def test_versions_are_those_of_the_constraints(images: _Buildah, data: Path) -> None:
    lines = (_ROOT / "docker" / "constraints.txt").read_text().lower().replace("_", "-")
    said = images.run("localhost/compiler", data, "7:7", "pip", "freeze").lower().replace("_", "-")
    found = {line for line in said.splitlines() if "==" in line and not line.startswith("popc")}
    assert found
    assert found <= set(lines.splitlines())


@pytest.mark.parametrize("target", ["runtime", "compiler"])
def test_checks_of_health(images: _Buildah, data: Path, target: str) -> None:
    facts = json.loads(images("inspect", "--type", "image", f"localhost/{target}"))
    _, *command = facts["Docker"]["config"]["Healthcheck"]["Test"]
    images.run(f"localhost/{target}", data, "1000:1000", *command)
