"""The sample about operators of one's own, run as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "samples" / "custom_operator.py"


def test_the_sample_trains_and_says_what_an_archive_needs(tmp_path: Path) -> None:
    said = subprocess.check_output([sys.executable, str(_SCRIPT), str(tmp_path)], text=True)
    assert "refused   " in said
    assert "com.example.Snake:1" in said
    assert "loaded    " in said
