"""Runs each file of tests in a forked child: torch is imported once, and a crash is one file's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import pytest

from tools.popart_tests.suite import INTEGRATION, TestFile

_POLL_SECONDS: Final = 0.02
_CHUNK: Final = 1 << 20
_LONGEST_REASON: Final = 300


@dataclass
class Outcome:
    """The results of the tests of a file.

    Attributes:
        items: "passed", "skipped", "collected" or "failed: REASON", by pytest's id of the item.
        errors: Why the file could not be collected or did not end.
        seconds: How long the file took.
    """

    items: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Child:
    file: TestFile
    pipe: int
    start: float
    text: bytearray = field(default_factory=bytearray)

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.pipe, _CHUNK):
                self.text += chunk


class _Record:
    """A plugin of pytest that notes what becomes of each item."""

    def __init__(self) -> None:
        self.outcome = Outcome()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.outcome.items.setdefault(item.nodeid, "collected")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcome.errors.append(_last_line(str(report.longrepr)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        items = self.outcome.items
        if report.failed:
            items[report.nodeid] = f"failed: {_last_line(str(report.longrepr or ''))}"
        elif report.skipped and items.get(report.nodeid) == "collected":
            items[report.nodeid] = "skipped"
        elif report.when == "call" and report.passed:
            items[report.nodeid] = "passed"


def _last_line(text: str) -> str:
    """The line that says what was wrong."""
    lines = text.strip().splitlines() or [""]
    said = next((line[2:] for line in reversed(lines) if line.startswith("E ")), lines[-1])
    return said.strip()[:_LONGEST_REASON]


def run_files(
    root: Path, files: list[TestFile], jobs: int, seconds: float
) -> Iterator[tuple[TestFile, Outcome]]:
    """Run ``jobs`` files at a time; a file that takes longer than ``seconds`` is ended.

    Yields:
        Each file with its outcome, when it has ended.
    """
    waiting = list(files)
    running: dict[int, _Child] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            pid, child = _start(root, waiting.pop(0))
            running[pid] = child
        for pid, child in list(running.items()):
            child.drain()
            late = time.monotonic() - child.start > seconds
            if _has_ended(pid, late=late):
                del running[pid]
                yield child.file, _outcome(child)
        time.sleep(_POLL_SECONDS)


def _start(root: Path, file: TestFile) -> tuple[int, _Child]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _run_in_child(root, file, writing)
    os.close(writing)
    os.set_blocking(reading, False)
    return pid, _Child(file, reading, time.monotonic())


def _has_ended(pid: int, *, late: bool) -> bool:
    ended = os.waitpid(pid, os.WNOHANG)[0]
    if not ended and late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        ended = os.waitpid(pid, 0)[0]
    return bool(ended)


def _outcome(child: _Child) -> Outcome:
    child.drain()
    os.close(child.pipe)
    seconds = time.monotonic() - child.start
    if not child.text:
        return Outcome(errors=["crashed, or took too long"], seconds=seconds)
    items, errors = json.loads(child.text)
    if not items and not errors:
        errors = ["no test was found in it"]
    return Outcome(items, errors, seconds)


def _run_in_child(root: Path, file: TestFile, pipe: int) -> NoReturn:
    os.setsid()
    os.chdir(root)
    os.environ["TEST_TARGET"] = file.device
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    sys.path[:0] = [str(root / Path(file.path).parent), str(root / INTEGRATION)]
    record = _Record()
    pytest.main(_pytest_options(file), plugins=[record])
    found = json.dumps([record.outcome.items, record.outcome.errors])
    _leave(lambda: _write(pipe, found.encode()))


def _pytest_options(file: TestFile) -> list[str]:
    kept = ["-q", "-p", "no:cacheprovider", "-o", "python_files=*.py", "-W", "ignore"]
    return [*kept, f"--device-type={file.device}", file.path]


def _write(pipe: int, text: bytes) -> None:
    with os.fdopen(pipe, "wb") as out:
        out.write(text)


def _leave(last: Callable[[], None]) -> NoReturn:
    """End the child without the handlers of the process that it was forked from."""
    try:
        last()
    finally:
        os._exit(0)
