"""What the documents say is so: examples run, and diffs show what the sources contain."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from popc.options import SCHEMA
from samples.fetch_models import FetchError, fetch
from tools.native_page import kinds
from tools.options_page import options_page
from tools.patterns_page import patterns_page

_ROOT: Final = Path(__file__).parents[2]
_README: Final = (_ROOT / "README.md").read_text(encoding="utf-8")
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(text: str, language: str) -> list[str]:
    return [body for name, body in _FENCE.findall(text) if name == language]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the demo's model where the README expects it."""
    try:
        model = fetch("magika")
    except FetchError as error:
        pytest.skip(f"1 model cannot be fetched: {error}")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "models").symlink_to(model.parent)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.network
def test_commands_of_the_readme(folder: Path) -> None:
    lines = [line[2:] for line in "".join(_blocks(_README, "console")).splitlines()
             if line.startswith("$ ")]  # fmt: skip
    assert len(lines) > 4
    path = os.pathsep.join(entry for entry in (str(_ROOT), *sys.path) if entry)
    for line in lines:
        _, *arguments = shlex.split(line)
        code = "import sys; from popc.cli.main import run; sys.exit(run(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": path},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.network
@pytest.mark.usefixtures("folder")
def test_python_of_the_readme() -> None:
    names: dict[str, Any] = {}
    for block in _blocks(_README, "python"):
        exec(compile(block, "README.md", "exec"), names)
    assert len(names["results"]) == 4


def test_the_patterns_page_is_current() -> None:
    page = (_ROOT / "docs" / "patterns.md").read_text(encoding="utf-8")
    assert page == patterns_page(), "make docs"


def test_the_options_page_is_current() -> None:
    page = (_ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options_page(), "make docs"


def test_the_page_of_native_instructions_is_current() -> None:
    """But for the steps that it counts, which take a while."""
    page = (_ROOT / "docs" / "native-instructions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (kernel|calls) \|", page, re.MULTILINE)
    assert dict(rows) == kinds(), "make native"
    kernels = [opcode for opcode, kind in rows if kind == "kernel"]
    assert f"{len(kernels)} of {len(rows)} instructions have a kernel." in page, "make native"


def test_the_options_of_the_readme_exist() -> None:
    table = _README.partition("## Options")[2].partition("## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(names) > 5
    assert set(names) <= {spec.name for spec in SCHEMA}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z-]+)`", _README))))
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (_ROOT / "Makefile").read_text(), re.MULTILINE)


def _diffs() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for block in _blocks((_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "diff"):
        for part in block.split("+++ b/")[1:]:
            file, *lines = part.split("--- ")[0].splitlines()
            found.append((file, [line[1:] for line in lines]))
    return found


@pytest.mark.parametrize(("file", "lines"), _diffs(), ids=lambda value: str(value)[:40])
def test_diffs_show_what_the_sources_contain(file: str, lines: list[str]) -> None:
    source = iter((_ROOT / file).read_text(encoding="utf-8").splitlines())
    for line in filter(None, lines):
        assert line in source, f"{file} does not contain, or not in this order: {line!r}"
