"""The demo on the trained model, and the features that its model reads."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.fixture
def sample_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_SAMPLES))


@pytest.mark.network
@pytest.mark.usefixtures("sample_path")
def test_demo_recognises_its_own_files() -> None:
    fetching: dict[str, Any] = runpy.run_path(str(_SAMPLES / "fetch_models.py"))
    try:
        fetching["fetch"]("magika")
    except fetching["FetchError"] as error:
        pytest.skip(f"1 model cannot be fetched: {error}")
    done = subprocess.run(
        [sys.executable, str(_SAMPLES / "demo.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "json/__init__.py: python" in done.stdout
    assert "Makefile: makefile" in done.stdout
    assert "magika.onnx: onnx" in done.stdout


def test_features_are_padded_and_stripped() -> None:
    sample: dict[str, Any] = runpy.run_path(str(_SAMPLES / "file_type.py"))
    row = sample["features"](b"  ab \n")
    assert row.shape == (1, 2048)
    assert row[0, :6].tolist() == [97, 98, 32, 10, 256, 256]
    assert row[0, -5:].tolist() == [256, 32, 32, 97, 98]
    long = sample["features"](bytes(range(65, 91)) * 1000)
    assert 256 not in long
