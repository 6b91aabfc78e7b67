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
import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.cli.root import root
from popc_runtime import errors
from popc_runtime.serving.settings import ModelSource, ServeSettings
from tests.support.models import affine
from tools.error_texts import is_telling
from tools.errors_page import classes, errors_page
from tools.errors_page import words as words_of_errors

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


@pytest.mark.xdist_group("errors")  # which read all sources, once
def test_every_class_of_errors_has_its_section() -> None:
    text = errors_page()
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == list(classes())
    raised = {name for name in errors.__all__ if name.endswith("Error")} - {"PopcError"}
    assert raised == classes().keys()
    for name, kind in classes().items():
        assert f"## {name}\n" in text
        assert f"Code `{kind.code}`, exit code {kind.exit_code} " in text


# Places that pass on what others say, which stands under "Parts of messages", or names only.
_PASSED_ON: Final = {
    ("popc/frontend/open_graph.py", "found.reason"),
    ("popc/placement/starting.py", "conflicts"),
    ("popc/training/losses/add.py", "problems"),
    ("popc/transforms/serialization.py", "problems"),
    ("runtime/popc_runtime/data/streams/samples.py",
     "tuple((problem.message for problem in problems))"),
    # names and values
    ("popc/options/options.py",
     "tuple((f'{field.name} is {getattr(self, field.name)!r}' for field in wrong))"),
    ("popc/requests.py", "f'{argument} is {value!r:.80}'"),
    ("runtime/popc_runtime/cache/entries.py", "tuple((entry.key for entry in found))"),
    ("runtime/popc_runtime/custom.py", "tuple(missing)"),
}  # fmt: skip


@pytest.mark.xdist_group("errors")
def test_the_words_of_every_error_are_found() -> None:
    """A message, or the lines below it, that cannot be read in the sources is not on the page."""
    _, _, silent = words_of_errors()
    assert {(place.file, place.what) for place in silent} == _PASSED_ON


def _loss(**settings: Any) -> Any:
    return lambda folder: popc.compile(folder / "m.onnx", loss=settings, optimizer={"type": "sgd"})


def _options(**settings: Any) -> Any:
    return lambda folder: popc.compile(folder / "m.onnx", options=settings)


def _serving(**settings: Any) -> Any:
    return lambda folder: ServeSettings((ModelSource("a", 1, "a.popx"),), **settings).check()


def _ran(**inputs: Any) -> Any:
    return lambda folder: popc_runtime.load(folder / "m.popx").run(**inputs)


_MISTAKES: Final[dict[str, Any]] = {
    "option": _options(patterns="some"),
    "options": _options(num_ipus=3, weights="some", no_such_option=1),
    "conflict": _options(enable_pipelining=True),
    "target": _options(target="nothing"),
    "no file": lambda folder: popc_runtime.load(folder / "none.popx"),
    "no archive": lambda folder: popc_runtime.load(folder / "m.onnx"),
    "dims": lambda folder: popc.compile(folder / "m.onnx", dims={"batch": -1, "time": 0}),
    "shapes": lambda folder: popc.compile(folder / "m.onnx", shapes={"x": (5,), "z": (1,)}),
    "loss": _loss(type="nothing", reduction="some"),
    "serving": _serving(workers=0, timeout=0, log_format="xml"),
    "inputs": _ran(x=np.zeros((1, 1)), z=np.zeros(1)),
    "no input": _ran(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    model = affine()
    onnx.save(model, made / "m.onnx")
    popc.compile(model).save(made / "m.popx")
    return made


@pytest.mark.xdist_group("errors")
@pytest.mark.parametrize("mistake", _MISTAKES)
def test_messages_are_found_on_the_page(mistake: str, folder: Path) -> None:
    """Errors as they happen, and every line of theirs, in the section of their class."""
    with pytest.raises(popc.PopcError) as caught:
        _MISTAKES[mistake](folder)
    sections = re.split(r"^## ", errors_page(), flags=re.MULTILINE)
    kind = next(each.__name__ for each in type(caught.value).__mro__ if each.__name__ in classes())
    own = [each for each in sections if each.startswith((f"{kind}\n", "Parts of messages\n"))]
    rows = re.findall(r"^(?:\| (.*?) \| |\* (.*))", "\n".join(own), re.MULTILINE)
    texts = [re.sub(r"\\(.)", r"\1", "".join(row)) for row in rows]
    found = [re.escape(text).replace("…", ".*") for text in texts if is_telling(text)]
    for line in (caught.value.message, *caught.value.details):
        assert any(re.search(each, line.replace("`", ""), re.DOTALL) for each in found), line


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs `pip install --group site`")
@pytest.mark.parametrize("kind", ["html", "man"])
def test_the_site_has_no_broken_link(kind: str, tmp_path: Path) -> None:
    from tools.site import main

    assert main([str(tmp_path / "out"), *(["--man"] if kind == "man" else [])]) == 0
    names = {path.name for path in (tmp_path / "out" / kind).rglob("*")}
    assert {"html": {"index.html", "errors.html", "tutorial.html"},
            "man": {"popc.1", "popc-compile.1", "popc-cache.1"}}[kind] <= names  # fmt: skip
