"""Fuzz targets take the corpus that they begin with; what they found stays mended."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import targets
from fuzz.unpack import unpack

_ROOT = Path(__file__).parents[2]
_MOST = 8  # seeds of a target
_PYTHON = ("archive", "sealed", "program", "options", "model")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus, unpacked."""
    folder = tmp_path_factory.mktemp("corpus")
    unpack(folder)
    return folder


def test_every_target_has_seeds(corpus: Path) -> None:
    native = {path.stem for path in (_ROOT / "fuzz" / "native").glob("*.c")} - {"records"}
    assert {path.name for path in corpus.iterdir()} == {*targets.TARGETS, *native}
    assert set(_PYTHON) == set(targets.TARGETS)


@pytest.mark.parametrize("name", _PYTHON)
def test_seeds(corpus: Path, name: str) -> None:
    target: Callable[[bytes], None] = targets.TARGETS[name]
    for path in sorted((corpus / name).iterdir())[:_MOST]:
        data = path.read_bytes()
        target(data)
        target(data[: len(data) // 2])
        target(b"")


def test_parts_of_an_archive_are_an_archive(corpus: Path) -> None:
    whole = min((corpus / "archive").iterdir(), key=lambda path: path.stat().st_size).read_bytes()
    parts = targets.taken_apart(whole)
    targets.sealed(parts)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="records are those of x86-64")
@pytest.mark.skipif(shutil.which("clang") is None, reason="there is no clang")
def test_the_c_core_under_sanitizers() -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([_ROOT / ".ci" / "sanitizers"], check=True, env=environment)
