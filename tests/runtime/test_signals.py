"""Threads of the runtime leave the signals of the process to the program that it is part of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from popc_runtime.native import variants

_NATIVE = """
from popc_runtime.native import find_library
from tests.native.bindings import product_program

program, _, _ = product_program(find_library(), 200, 2)
program.run()
"""
_PYTHON = """
import threading
from tests.runtime.test_parallel import _shared

meeting = threading.Barrier(2, timeout=300)
_shared(meeting.wait, meeting.wait)()
"""
_WAIT = """
import os, signal, time

signal.signal(signal.SIGTERM, signal.SIG_DFL)  # runners of tests ignore it
assert len(os.listdir("/proc/self/task")) > 1
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.2)  # whoever does not block it takes it now
print(signal.sigwait([signal.SIGTERM]))
"""
_needs_tasks = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="the system does not list threads"
)


def _ended(script: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr


@_needs_tasks
@pytest.mark.skipif(not variants(), reason="there are no native kernels")
def test_a_signal_that_is_waited_for_does_not_go_to_helpers_of_kernels() -> None:
    assert _ended(_NATIVE + _WAIT) == (0, str(int(signal.SIGTERM)), "")


@_needs_tasks
def test_a_signal_that_is_waited_for_does_not_go_to_helpers_of_python() -> None:
    assert _ended(_PYTHON + _WAIT) == (0, str(int(signal.SIGTERM)), "")


@_needs_tasks
@pytest.mark.skipif(not variants(), reason="there are no native kernels")
def test_the_caller_keeps_its_own_signals() -> None:
    mask = "\nimport signal\nprint(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))\n"
    assert _ended(_NATIVE + mask) == (0, "[]", "")
