"""What must not be anywhere in the tree."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_SKIPPED_FOLDERS: Final = {
    *(".git", ".venv", ".cache", "build", "dist", "node_modules", "shared", "__pycache__"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".import_linter_cache"),
}
_TEXT: Final = {".py", ".toml", ".md", ".tsv", ".txt", ".yml", ".cfg", ""}

# One letter of each is in brackets, so that the patterns do not match themselves.
_FORBIDDEN: Final = {
    "a note to oneself": re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b"),
    "a stub": re.compile(r"NotImplemented[E]rror|raise NotImplemente[d]"),
    "a skipped test without a reason": re.compile(
        r"\b(pytest|mark)\.(skip|xfail)(\(\s*\)|\s*$)", re.MULTILINE
    ),
    "a path of somebody's machine": re.compile(r"[\"'\s=(](/[h]ome/|/[U]sers/|/[r]oot/|[CD]:\\)"),
    "a conflict marker": re.compile(r"(?m)^(<{7} |>{7} |={7}$)"),
    "a breakpoint": re.compile(r"\bbreak[p]oint\(\)|\bpdb\.set_[t]race"),
}

# Tests that hand such paths to popc, which must refuse them or leave them out.
_HOSTILE: Final = {
    "a path of somebody's machine": (
        "tests/format/test_manifest.py",
        "tests/frontend/test_external.py",
    )
}


@cache
def _files() -> tuple[Path, ...]:
    """Text files of the tree: those that git knows or would add, or all if there is no git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
        paths = [_ROOT / line for line in done.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        paths = list(_ROOT.rglob("*"))
    return tuple(
        path
        for path in sorted(paths)
        if path.is_file()
        and path.suffix in _TEXT
        and not _SKIPPED_FOLDERS & set(path.relative_to(_ROOT).parts)
    )


@pytest.mark.parametrize("what", sorted(_FORBIDDEN))
def test_nothing_forbidden(what: str) -> None:
    found = [
        f"{path.relative_to(_ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}"
        for path in _files()
        if path.relative_to(_ROOT).as_posix() not in _HOSTILE.get(what, ())
        for text in [path.read_text(encoding="utf-8")]
        for match in _FORBIDDEN[what].finditer(text)
    ]
    assert not found


# Who may add to the orders of a graph without asking whether that can be.
_ORDERS: Final = {
    re.compile(r"ordering\.add\("): ("popc/ops/sequencer.py",),
    re.compile(r"\bop\.settings = replace\([^=]*\bbins=(?!\(\))"): ("popc/ops/sequencer.py",),
}


def test_orders_are_required_in_one_place() -> None:
    found = [
        f"{name}: {match[0]!r}"
        for path in _files()
        for name in [path.relative_to(_ROOT).as_posix()]
        if name.startswith("popc/") and path.suffix == ".py"
        for pattern, allowed in _ORDERS.items()
        if name not in allowed
        for match in pattern.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_the_files_were_found() -> None:
    names = {path.relative_to(_ROOT).as_posix() for path in _files()}
    assert {"Makefile", "README.md", "popc/compiler.py", "runtime/pyproject.toml"} <= names


def test_the_versions_agree() -> None:
    version = re.compile(r'^version = "(.+)"$', re.MULTILINE)
    found = {
        version.findall((_ROOT / name).read_text())[0]
        for name in ("pyproject.toml", "runtime/pyproject.toml")
    }
    assert len(found) == 1
    assert f'"popc-runtime=={found.pop()}"' in (_ROOT / "pyproject.toml").read_text()


def test_both_distributions_carry_the_same_licence() -> None:
    assert (_ROOT / "LICENSE").read_bytes() == (_ROOT / "runtime" / "LICENSE").read_bytes()


def test_links_of_the_documents_lead_somewhere() -> None:
    dead = [
        f"{path.relative_to(_ROOT)}: {target}"
        for path in _files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]
    assert not dead
