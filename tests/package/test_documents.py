"""What the documents say is so: examples run, and diffs show what the sources contain."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from popc.cli.verbs import VERBS
from popc.options import SCHEMA
from samples.fetch_models import FetchError, fetch
from tools.native_page import kinds
from tools.options_page import options_page
from tools.patterns_page import patterns_page
from tools.popart_page import popart_page

_ROOT: Final = Path(__file__).parents[2]
_README: Final = (_ROOT / "README.md").read_text(encoding="utf-8")
_CONTRIBUTING: Final = (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_DOCUMENTS: Final = (
    *sorted(_ROOT.glob("*.md")),
    *sorted((_ROOT / "docs").rglob("*.md")),
    *(_ROOT / folder / "README.md" for folder in ("runtime", "facade")),
)
_LONGEST: Final = 600  # characters of a paragraph: more is hard to read


def _name_of(document: Path) -> str:
    return str(document.relative_to(_ROOT))


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
        code = "import sys; from popc.cli.root import run; sys.exit(run(sys.argv[1:]))"
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": path},
            capture_output=True, text=True, check=False, timeout=600,
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


def test_the_page_about_popart_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POPART_CACHE_DIR", "POPXL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    page = (_ROOT / "docs" / "popart.md").read_text(encoding="utf-8")
    assert page == popart_page(), "make docs"


def test_the_options_page_is_current() -> None:
    page = (_ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert page == options_page(), "make docs"


def test_the_page_of_native_instructions_is_current() -> None:
    """But for the steps that it counts, which take a while."""
    page = (_ROOT / "docs" / "inside" / "native-instructions.md").read_text(encoding="utf-8")
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
    for block in _blocks(_CONTRIBUTING, "diff"):
        for part in block.split("+++ b/")[1:]:
            file, *lines = part.split("--- ")[0].splitlines()
            found.append((file, [line[1:] for line in lines]))
    return found


@pytest.mark.parametrize(("file", "lines"), _diffs(), ids=lambda value: str(value)[:40])
def test_diffs_show_what_the_sources_contain(file: str, lines: list[str]) -> None:
    source = iter((_ROOT / file).read_text(encoding="utf-8").splitlines())
    for line in filter(None, lines):
        assert line in source, f"{file} does not contain, or not in this order: {line!r}"


_ERRANDS: Final = (
    "an op", "a pass", "an option", "a verb", "a field of the manifest", "a column of the program",
    "a target", "a native kernel", "an engine",
)  # fmt: skip


def test_every_errand_is_shown_on_a_diff() -> None:
    errands = re.split(r"^## ", _CONTRIBUTING, flags=re.MULTILINE)
    found = {head: body for head, _, body in (errand.partition("\n") for errand in errands)}
    assert [head for head in found if head.startswith("Adding")] == [
        f"Adding {what}" for what in _ERRANDS
    ]
    assert [head for head, body in found.items() if head.startswith("Adding")
            and not _blocks(body, "diff")] == []  # fmt: skip


def test_every_verb_is_in_the_readme() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", _README.partition("## Command line")[2], re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}
    assert VERBS.keys() <= named


def test_the_index_lists_every_page() -> None:
    folder = _ROOT / "docs"
    pages = {str(page.relative_to(folder)) for page in folder.rglob("*.md")} - {"README.md"}
    users, inside = (folder / "README.md").read_text(encoding="utf-8").split("## For contributors")
    listed = [set(re.findall(r"\]\(((?!\.\.)[^)]+)\)", part)) for part in (users, inside)]
    assert listed == [{page for page in pages if ("/" in page) == deep} for deep in (False, True)]


@pytest.mark.parametrize("document", _DOCUMENTS, ids=_name_of)
def test_paragraphs_are_short(document: Path) -> None:
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    long = [line for line in text.splitlines() if len(line) > _LONGEST]
    assert not long


@cache
def _paths() -> tuple[str, ...]:
    """Files and folders of the sources, each from a slash to a slash: "/popc/", "/popc/api.py/"."""
    code = ("popc", "runtime", "facade", "tests", "tools", "samples", "benchmarks", "fuzz")
    tops = (*code, "docs", ".ci")
    below = [path.relative_to(_ROOT) for top in tops for path in (_ROOT / top).rglob("*")]
    named = [path for path in (*map(Path, tops), *below) if "build" not in path.parts]
    return (
        *(f"/{path.as_posix()}/" for path in named),
        *(f"/{path.name}/" for path in _ROOT.iterdir()),
    )


@pytest.mark.parametrize("document", _DOCUMENTS, ids=_name_of)
def test_paths_that_are_named_exist(document: Path) -> None:
    """As the end of a path, for documents leave out the beginning of what is clear."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|c|h)))`", text)
    missing = [
        name
        for name in named
        if not any(path.endswith(f"/{name.strip('/')}/") for path in _paths())
    ]
    assert not missing


def test_the_layers_are_those_that_are_enforced() -> None:
    """Each drawing begins with the package and goes from the top to the bottom."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    enforced = [
        [*contract["containers"], *contract["layers"]]
        for contract in contracts
        if "layers" in contract
    ]
    blocks = _blocks((_ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), "layers")
    assert [[line.strip() for line in block.splitlines()] for block in blocks] == enforced
