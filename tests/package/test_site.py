"""The site: what its pages show exists, and the pages that the code tells are complete."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
import onnx
import pytest

import popc
import popc_runtime
from popc.cli.main import root
from popc_runtime import errors
from tests.support.models import affine
from tools.errors_page import classes, errors_page

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = (
    *sorted(_ROOT.glob("*.md")), *sorted((_ROOT / "docs").rglob("*.md")),
    *(_ROOT / folder / "README.md" for folder in ("runtime", "facade")),
)  # fmt: skip
_RUN: Final = ("docs/guides.md", "docs/tutorial.md")  # whole pages, from the top to the bottom
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _name_of(page: Path) -> str:
    return str(page.relative_to(_ROOT))


def _blocks(page: Path) -> list[tuple[str, str]]:
    return _FENCE.findall(page.read_text(encoding="utf-8"))


def _commands(page: Path) -> list[list[str]]:
    """The words of every call of popc on a page."""
    found = []
    for language, body in _blocks(page):
        if language in {"sh", "console"}:
            for line in body.replace("\\\n", " ").splitlines():
                if language == "console" and not line.startswith("$ "):
                    continue  # what was printed
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words[:1] == ["popc"]:
                    found.append(words[1:])
    return found


@pytest.mark.parametrize("page", _PAGES, ids=_name_of)
def test_commands_and_options_of_pages_exist(page: Path) -> None:
    for words in _commands(page):
        command: click.Command = root
        context = click.Context(root)
        known = {name for parameter in root.params for name in parameter.opts}
        for word in words:
            if isinstance(command, click.Group) and not word.startswith("-"):
                found = command.get_command(context, word)
                if found is not None:
                    command, context = found, click.Context(found, parent=context)
                    for parameter in command.params:
                        known |= {*parameter.opts, *parameter.secondary_opts}
        assert command is not root or not words or words[0].startswith("-"), words
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used - {"--help"} <= known, (words, used - known)


@pytest.mark.parametrize("page", _PAGES, ids=_name_of)
def test_snippets_of_pages_can_be_read(page: Path) -> None:
    for language, body in _blocks(page):
        if language == "python":
            compile(body, _name_of(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        elif language == "toml":
            tomllib.loads(body)


@pytest.mark.slow
@pytest.mark.parametrize("page", _RUN)
def test_pages_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples").symlink_to(_ROOT / "samples")
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([binaries, os.environ["PATH"]])}
    names: dict[str, Any] = {}
    ran = 0
    for language, body in _blocks(_ROOT / page):
        if language == "python":
            exec(compile(body, page, "exec"), names)
            ran += 1
        for line in body.splitlines() if language == "console" else ():
            assert line.startswith("$ "), line
            done = subprocess.run(
                ["bash", "-c", line[2:]], env=environment,
                capture_output=True, text=True, check=False, timeout=1800,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            ran += 1
    assert ran > 4


def test_every_class_of_errors_has_its_section() -> None:
    text = errors_page()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(classes())
    raised = {name for name in errors.__all__ if name.endswith("Error")} - {"PopcError"}
    assert raised == classes().keys()
    for name, kind in classes().items():
        assert f"## {name}\n" in text
        assert f"Code `{kind.code}`, exit code {kind.exit_code} " in text


def _mistakes(folder: Path) -> list[Exception]:
    onnx.save(affine(), folder / "m.onnx")
    calls: list[Any] = [
        lambda: popc.compile(folder / "m.onnx", options={"patterns": "some"}),
        lambda: popc_runtime.load(folder / "none.popx"),
        lambda: popc_runtime.load(folder / "m.onnx"),
    ]
    found: list[Exception] = []
    for call in calls:
        try:
            call()
        except popc.PopcError as error:
            found.append(error)
    assert len(found) == len(calls)
    return found


def test_messages_are_found_on_the_page(tmp_path: Path) -> None:
    """Errors as they happen, each in the section of its class, with its names and numbers."""
    sections = re.split(r"^## ", errors_page(), flags=re.MULTILINE)
    for error in _mistakes(tmp_path):
        assert isinstance(error, popc.PopcError)
        kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in classes())
        section = next(each for each in sections if each.startswith(f"{kind}\n"))
        rows = re.findall(r"^\| (.*?) \| ", section, re.MULTILINE)
        patterns = [re.escape(re.sub(r"\\(.)", r"\1", row)).replace("…", ".*") for row in rows]
        said = error.message.replace("`", "")
        assert any(re.fullmatch(each, said, re.DOTALL) for each in patterns), said


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs `pip install --group site`")
@pytest.mark.parametrize("kind", ["html", "man"])
def test_the_site_has_no_broken_link(kind: str, tmp_path: Path) -> None:
    from tools.site import main

    assert main([str(tmp_path / "out"), *(["--man"] if kind == "man" else [])]) == 0
    names = {path.name for path in (tmp_path / "out" / kind).rglob("*")}
    assert {"html": {"index.html", "errors.html", "tutorial.html"},
            "man": {"popc.1", "popc-compile.1", "popc-cache.1"}}[kind] <= names  # fmt: skip
