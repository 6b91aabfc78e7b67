"""The samples of PopART's interface agree with what PyTorch gave."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["popart_bert", "popart_cnn", "popart_custom_operator", "popart_operators"]
)
def test_the_losses_are_those_of_pytorch(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_ROOT / "facade")}
    done = subprocess.run(
        [sys.executable, _ROOT / "samples" / f"{name}.py"],
        capture_output=True,
        env=environment,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "equal"
