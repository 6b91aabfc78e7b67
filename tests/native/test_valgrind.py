"""Native kernels read nothing that was never written, and nothing outside of what is theirs.

valgrind sees what the sanitizers do not: uninitialised memory.  It knows no AVX-512, so that the
library takes the kernels of x86-64-v3.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from popc_runtime.native import variants

_ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind"),
    pytest.mark.skipif("x86-64-v3" not in variants(), reason="valgrind runs no such kernels"),
]


def test_kernels_under_valgrind() -> None:
    command = ["valgrind", "--leak-check=no", "--num-callers=12", "--error-limit=no"]
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.native.watched"],
        env={**os.environ, "PYTHONMALLOC": "malloc", "OPENBLAS_NUM_THREADS": "1"},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    # Errors are separated by lines without text; those of other libraries are not ours.
    errors = re.split(r"^==\d+== *$", done.stderr, flags=re.MULTILINE)
    ours = [error for error in errors if "_native.abi3.so" in error]
    assert not ours, "\n".join(ours)[:8000]
