"""The sample about the cache, run as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "samples" / "cached.py"


@pytest.mark.slow
def test_the_cache_does_what_the_sample_says() -> None:
    said = subprocess.check_output([sys.executable, str(_SCRIPT)], text=True)
    assert "SIGKILL" in said
    assert said.count(": compiled, ") == 1
    assert said.count("found in the cache") == 2
    assert "options.enable_inplace" in said
    assert "programs  1" in said
