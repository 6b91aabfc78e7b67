"""The number of BLAS threads after a fork, whatever other threads of the parent did just then."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A library of 8 threads instead of numpy's, which may have one thread only.
_SCRIPT = """
import os, threading, warnings
from popc_runtime.device import blas

warnings.simplefilter("ignore", DeprecationWarning)
number = [8]
functions = (lambda: number[0], lambda threads: number.__setitem__(0, threads))
blas._functions = lambda: functions
inside, leave = threading.Event(), threading.Event()

def other(context):
    with context:
        inside.set()
        leave.wait(LEAVES_AFTER)

def in_child(check):
    child = os.fork()
    if child == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0

def is_usable():
    before = number[0]
    with blas.settings_of_numpy():
        alone = number[0]
    return (before, alone, number[0]) == (8, 1, 8)

def is_restored(context):
    assert number[0] == 1
    context.__exit__(None, None, None)
    return is_usable()

thread = threading.Thread(target=other, args=[CONTEXT])
thread.start()
inside.wait()
CHECK
leave.set()
thread.join()
assert is_usable()
"""
_IDLE = "assert in_child(is_usable)"
_RUNS = """
context = blas.settings_of_numpy()
context.__enter__()
assert in_child(lambda: is_restored(context))
assert number[0] == 1
context.__exit__(None, None, None)
"""


@pytest.mark.parametrize(
    ("context", "leaves_after", "check"),
    [
        pytest.param("blas.settings_of_numpy()", 60, _IDLE, id="another thread runs a program"),
        pytest.param("blas.settings_of_numpy()", 60, _RUNS, id="and so does the one that forks"),
        pytest.param("blas._lock", 0.3, _IDLE, id="another thread begins to run one"),
    ],
)
def test_a_forked_child(context: str, leaves_after: float, check: str) -> None:
    script = _SCRIPT.replace("CONTEXT", context).replace("CHECK", check)
    script = script.replace("LEAVES_AFTER", str(leaves_after))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
