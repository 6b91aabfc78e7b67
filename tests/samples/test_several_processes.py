"""The sample about several processes: in one, and in two that mpiexec starts."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = Path(__file__).parents[2] / "samples" / "several_processes.py"
_MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or ""


@pytest.mark.slow
def test_losses_are_the_same(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    if not _MPIEXEC:
        pytest.skip("no mpiexec beside this Python: pip install mpich")
    words = [sys.executable, str(_SCRIPT), str(tmp_path)]
    said = [
        subprocess.check_output([*start, *words], text=True)
        for start in ([], [_MPIEXEC, "-n", "2"])
    ]
    assert said[0].count("loss") == 3
    assert said[0].split() == said[1].split()
