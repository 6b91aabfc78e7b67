"""Which kernels are taken, and what ``POPC_NATIVE`` says about it."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import popc_runtime.native
from popc.cli.root import run
from popc_runtime.device.choose import binder_type
from popc_runtime.errors import UsageError
from popc_runtime.native import fast_sha256, find_library, variants, why_missing
from tests.support.models import affine, executable

_PROCESSOR = Path("/proc/cpuinfo")
_FLAGS = {
    flag
    for line in (_PROCESSOR.read_text().splitlines() if _PROCESSOR.exists() else ())
    if line.startswith("flags")
    for flag in line.partition(":")[2].split()
}
needs_kernels = pytest.mark.skipif(not variants(), reason="there are no native kernels")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    find_library.cache_clear()
    yield
    find_library.cache_clear()


@needs_kernels
@pytest.mark.parametrize("name", ["", *variants()])
def test_the_environment_chooses_the_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPC_NATIVE", name)
    library = find_library()
    assert library is not None
    assert library.variant == (name or variants()[0])
    assert not why_missing()


@needs_kernels
@pytest.mark.skipif(not _FLAGS, reason="the system does not list what the processor has")
def test_kernels_are_those_of_the_processor() -> None:
    needed = {
        "x86-64-v4": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
        "x86-64-v3": {"avx2", "fma", "f16c", "bmi2"},
    }
    assert variants() == [name for name, flags in needed.items() if flags <= _FLAGS]
    assert (fast_sha256() is not None) == (bool(variants()) and "sha_ni" in _FLAGS)


@needs_kernels
def test_hashes_are_those_of_hashlib() -> None:
    sha256 = fast_sha256()
    if sha256 is None:
        pytest.skip("the processor has no instructions for SHA-256")
    text = bytes(range(256)) * 17
    for size in (*range(260), 4096, len(text)):
        data = memoryview(text)[len(text) - size :]
        assert sha256(data) == hashlib.sha256(data).digest()


def test_numpy_may_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("POPC_NATIVE", "none")
    assert find_library() is None
    assert fast_sha256() is None
    assert why_missing()
    assert executable(affine(), tmp_path).engine == "numpy"


def test_a_package_without_kernels_computes_with_numpy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("POPC_NATIVE", raising=False)
    monkeypatch.delattr(popc_runtime.native, "_native", raising=False)
    monkeypatch.setitem(sys.modules, "popc_runtime.native._native", None)
    _runs_with_numpy(tmp_path, capsys, "the package was built without native kernels")
    find_library.cache_clear()
    monkeypatch.setenv("POPC_NATIVE", "x86-64-v3")
    with pytest.raises(UsageError, match="no such native kernels"):
        executable(affine(), tmp_path)


@needs_kernels
def test_a_processor_without_kernels_computes_with_numpy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("POPC_NATIVE", raising=False)
    module = importlib.import_module("popc_runtime.native._native")
    monkeypatch.setattr(module, "variants", list)
    _runs_with_numpy(tmp_path, capsys, "there are no native kernels for this processor")


def _runs_with_numpy(folder: Path, capsys: pytest.CaptureFixture[str], reason: str) -> None:
    assert executable(affine(), folder).engine == "numpy"
    assert run(["doctor"]) == 0
    assert f"numpy: {reason}" in capsys.readouterr().out
    with pytest.raises(UsageError, match=reason):
        binder_type("native", ())


def test_kernels_that_do_not_run_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPC_NATIVE", "x86-64-v9")
    with pytest.raises(UsageError, match="POPC_NATIVE is 'x86-64-v9'") as refused:
        find_library()
    assert "none" in str(refused.value.hint)


@needs_kernels
def test_doctor_tells_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POPC_NATIVE", variants()[-1])
    assert run(["doctor"]) == 0
    assert f"native, for {variants()[-1]}, as POPC_NATIVE says" in capsys.readouterr().out
