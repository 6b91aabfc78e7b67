"""The demo on the trained model, and the features that its model reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samples.fetch_models import FetchError, fetch
from samples.file_type import features

_DEMO = Path(__file__).parents[2] / "samples" / "demo.py"


@pytest.mark.network
def test_demo_recognises_its_own_files() -> None:
    try:
        fetch("magika")
    except FetchError as error:
        pytest.skip(f"1 model cannot be fetched: {error}")
    done = subprocess.run(
        [sys.executable, str(_DEMO)], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert "json/__init__.py: python" in done.stdout
    assert "Makefile: makefile" in done.stdout
    assert "magika.onnx: onnx" in done.stdout


def test_features_are_padded_and_stripped() -> None:
    row = features(b"  ab \n")
    assert row.shape == (1, 2048)
    assert row[0, :6].tolist() == [97, 98, 32, 10, 256, 256]
    assert row[0, -5:].tolist() == [256, 32, 32, 97, 98]
    assert 256 not in features(bytes(range(65, 91)) * 1000)
