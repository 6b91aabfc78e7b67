"""Archives at URLs."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc.cli.root import run
from popc_runtime.errors import ArchiveError, ResourceError, UsageError
from popc_runtime.process.paths import is_url
from tests.support.models import affine

_X = np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def archive() -> bytes:
    return popc.compile(affine()).to_bytes()


@pytest.fixture
def fsspec() -> Any:
    return pytest.importorskip("fsspec", reason="needs the group serve: make test-serve")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://bucket/m.popx", True),
        ("simplecache::s3://bucket/m.popx", True),
        ("memory://m", True),
        ("m.popx", False),
        ("/a//b", False),
        ("://x", False),
        ("a b://x", False),
        (Path("s3://x"), False),
        (b"s3://x", False),
    ],
)
def test_urls_are_told_from_paths(path: object, *, expected: bool) -> None:
    assert is_url(path) is expected


def test_without_fsspec_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(UsageError, match="fsspec is not installed") as caught:
        popc_runtime.load("s3://bucket/m.popx")
    assert "popc-runtime[fsspec]" in caught.value.hint


@pytest.mark.parametrize("weights", ["compressed", "mmap"])
def test_an_archive_elsewhere_is_loaded(fsspec: Any, weights: str) -> None:
    made = popc.compile(affine(), options={"weights": weights})
    fsspec.filesystem("memory").pipe_file("/m.popx", made.to_bytes())
    spec = popc_runtime.probe("memory://m.popx").inputs[0]
    x = np.ones(spec.shape, spec.dtype.storage)
    expected = made.load().run({spec.name: x})
    found = popc_runtime.load("memory://m.popx")
    again = copy.copy(found)
    for each in (found, again):
        for name, array in each.run({spec.name: x}).items():
            np.testing.assert_array_equal(array, expected[name])


def test_a_url_of_a_local_file_is_that_file(fsspec: Any, archive: bytes, tmp_path: Path) -> None:
    del fsspec
    (tmp_path / "m.popx").write_bytes(archive)
    found = popc_runtime.load(f"file://{tmp_path}/m.popx")
    assert found.recipe is not None
    assert found.recipe.path == f"{tmp_path}/m.popx"


def test_what_is_not_there_or_damaged_is_told(fsspec: Any, archive: bytes) -> None:
    with pytest.raises(
        ResourceError, match=r"cannot read memory://nothing\.popx: there is no such"
    ):
        popc_runtime.load("memory://nothing.popx")
    with pytest.raises(UsageError, match=r"fsspec cannot open nowhere://m\.popx"):
        popc_runtime.load("nowhere://m.popx")
    fsspec.filesystem("memory").pipe_file("/cut.popx", archive[:-40])
    with pytest.raises(ArchiveError):
        popc_runtime.load("memory://cut.popx")
    fsspec.filesystem("memory").pipe_file("/m.popx", archive)
    with pytest.raises(UsageError, match="signature"):
        popc_runtime.load("memory://m.popx", require_signature="key.pem")


def test_verbs_take_urls(
    fsspec: Any, archive: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fsspec.filesystem("memory").pipe_file("/m.popx", archive)
    (tmp_path / "m.popx").write_bytes(archive)
    for url in ("memory://m.popx", f"file://{tmp_path}/m.popx"):
        for verb in ("inspect", "check"):
            assert run([verb, url]) == 0
    capsys.readouterr()
    assert run(["inspect", "memory://nothing.popx"]) == 7
    assert "there is no such file" in capsys.readouterr().err
