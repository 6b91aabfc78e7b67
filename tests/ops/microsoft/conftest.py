"""What tests of operators of com.microsoft share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.microsoft.programs import Compare


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    """Compares a program of one operator with onnxruntime."""
    return Compare(tmp_path)
