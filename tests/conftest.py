"""Options and reports that all tests share."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import popc
import popc_runtime
from tests.support.modules import modules_of
from tests.support.recorded import Pytorch, Recorder, look_up

# The same few examples in every run; `make test-all` draws others, and more of them.
settings.register_profile("repeatable", derandomize=True, max_examples=30)
settings.register_profile("thorough", max_examples=100)
settings.load_profile("repeatable")

_GOLDEN = Path(__file__).parent / "golden"
_RECORDER = pytest.StashKey[Recorder]()
_FOLDERS = itertools.count()
_LONGEST_FOLDER = 30  # characters of a test's name in that of its folder
_LONGEST_ID = 120  # characters of a test's name that still fit a line of a report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew from what is printed"
    )
    parser.addoption(
        "--record-oracles", action="store_true", help="write tests/recorded/ anew: ask PyTorch"
    )
    parser.addoption(
        "--salt", default="", help="other random numbers in every test, to find bounds too narrow"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C raise `KeyboardInterrupt`: processes of a shell's background jobs ignore it.

    And import everything: hypothesis draws numbers that it finds in modules, if they are imported.
    """
    # Compiled modules are kept, whoever runs the tests: a hundred processes import popc.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("--record-oracles"):
        config.stash[_RECORDER] = Recorder()
    for package in (popc, popc_runtime):
        deque(modules_of(package), maxlen=0)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share tests as `tests.support.scheduling` says, where groups of them are asked for."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.support.scheduling import TableScheduling

    return TableScheduling(config, log)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes and long texts by their parameter: processes that share tests must agree on names.

    Packed bytes carry the time at which they were packed.
    """
    too_long = isinstance(val, str) and len(val) > _LONGEST_ID
    return argname if too_long or isinstance(val, bytes) else None


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of its own for each process that runs tests, which processes that it starts use too.

    And no bounds that whoever runs them has set.
    """
    folder = tmp_path_factory.mktemp("cache")
    os.environ["POPC_CACHE"] = str(folder)
    for variable in ("POPC_CACHE_MAX_SIZE", "POPC_CACHE_MAX_AGE"):
        os.environ.pop(variable, None)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_power_failures() -> Iterator[None]:
    """Files need not be on the disk when a test goes on: thousands are written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder; pytest's own looks for a free number among the folders of all tests."""
    name = re.sub(r"\W", "_", request.node.name)[:_LONGEST_FOLDER]
    folder = tmp_path_factory.getbasetemp() / f"{name}.{next(_FOLDERS)}"
    folder.mkdir()
    return folder


def pytest_collection_finish() -> None:
    """Leave the tests themselves, which stay, to no collection of cycles."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Start the random generators of a test's module anew, from the name of the test.

    What a test draws does not depend on the tests that ran before it in its process.
    """
    seed = zlib.crc32(f"{item.name}{item.config.getoption('--salt')}".encode())
    for value in vars(getattr(item, "module", item)).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = np.random.default_rng(seed).bit_generator.state


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of the given name in tests/golden/."""
    update: bool = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = _GOLDEN / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path.name}: see pytest --update-golden"

    return check


@pytest.fixture
def pytorch(request: pytest.FixtureRequest) -> Pytorch:
    """Answer a question to PyTorch from what was recorded for the test that asks."""
    path, test = request.path, request.node.name
    file = f"{path.parent.name}_{path.stem.removeprefix('test_')}"
    recorder = request.config.stash.get(_RECORDER, None)
    if recorder is None:
        return lambda _: look_up(file, test)
    return lambda question: recorder.ask(file, test, question)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was recorded."""
    recorder = session.config.stash.get(_RECORDER, None)
    if recorder is not None:
        recorder.write()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests went without their models: a skip is easily overlooked."""
    skipped = terminalreporter.stats.get("skipped", [])
    missing = [report.nodeid for report in skipped if "cannot be fetched" in str(report.longrepr)]
    if missing:
        terminalreporter.write_sep(
            "=", f"{len(missing)} tests skipped for want of models", red=True
        )
        for nodeid in sorted(missing):
            terminalreporter.write_line(nodeid)
