"""Every option has a group, a kind, words, a row in the docs, and somebody who reads it."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import popc
import popc.options.conflicts
from popc.options import SCHEMA, Options, OptionSpec, describe_options
from popc.options.combinations import CONFLICTS, conflicts_among
from popc.options.kinds import Choice

_PACKAGE: Final = Path(popc.__file__).parent
_GROUPS: Final = _PACKAGE / "options" / "groups"
_PAGE: Final = (_PACKAGE.parent / "docs" / "options.md").read_text(encoding="utf-8")


def _groups() -> Iterator[ModuleType]:
    for file in sorted(_GROUPS.glob("[a-z]*.py")):
        yield importlib.import_module(f"popc.options.groups.{file.stem}")


def _classes(group: ModuleType) -> list[type]:
    found = [getattr(group, name) for name in group.__all__ if name.endswith("Options")]
    return [got for got in found if isinstance(got, type)]


@pytest.mark.parametrize("group", list(_groups()), ids=lambda group: group.__name__.split(".")[-1])
def test_a_group_is_part_of_the_options(group: ModuleType) -> None:
    (options,) = _classes(group)
    assert options in Options.__bases__
    assert options.__bases__ == (object,), "groups lie side by side"


def test_defaults_go_together() -> None:
    """Nobody asks if no option is set."""
    assert not list(conflicts_among(Options()))


def test_conflicts_are_asked() -> None:
    files = sorted(Path(popc.options.conflicts.__path__[0]).glob("[a-z]*.py"))
    modules = [importlib.import_module(f"popc.options.conflicts.{file.stem}") for file in files]
    assert {file.name for file in files} <= {file.name for file in _GROUPS.glob("*.py")}
    assert {m.conflicts for m in modules if hasattr(m, "conflicts")} == set(CONFLICTS)


def test_all_options_are_in_groups() -> None:
    known = {class_ for group in _groups() for class_ in _classes(group)}
    assert set(Options.__bases__) == known
    assert list(vars(Options)["__annotations__"]) == ["origins", "foreign"]


@pytest.mark.parametrize("spec", SCHEMA, ids=lambda spec: spec.name)
def test_an_option_is_whole(spec: OptionSpec) -> None:
    assert spec.kind.word
    assert re.fullmatch(r"\w.*\.", spec.meaning), "sentences that say what it does"
    assert spec.kind.parse(spec.default) == spec.default
    assert f"\n## `{spec.name}`\n" in _PAGE, "make docs"
    if isinstance(spec.kind, Choice):
        assert isinstance(spec.default, StrEnum), "so that type checkers know the words"
    assert _is_read(spec.name), "nobody reads it: an option that is ignored"


def test_names_of_popart_are_given_once() -> None:
    names = [spec.popart for spec in SCHEMA if spec.popart]
    assert len(names) == len(set(names))


def test_words_of_kinds_are_told_apart() -> None:
    """A row of the listing says what to write: kinds that read other things have other words."""
    words = {row["name"]: row["type"] for row in describe_options()}
    kinds = {(words[spec.name], type(spec.kind)) for spec in SCHEMA}
    assert len({word for word, _ in kinds}) == len(kinds)


# -- readers ---------------------------------------------------------------------------------------


def _is_read(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in _readers())


@cache
def _readers() -> frozenset[str]:
    """Patterns of the options that the compiler looks at.

    What only the search for conflicts looks at has no effect: in groups, methods count.
    """
    found: set[str] = set()
    for file in _PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if file.parent == _GROUPS:
            for group in (
                statement for statement in tree.body if isinstance(statement, ast.ClassDef)
            ):
                found.update(_read_in(group, "self"))
        elif not file.is_relative_to(_PACKAGE / "options"):
            found.update(_read_in(tree, "options"))
    return frozenset(found)


def _read_in(tree: ast.AST, owner: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(owner):
            yield re.escape(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
            subject, name = node.args[:2]
            if ast.unparse(subject).endswith(owner) and isinstance(name, ast.JoinedStr):
                yield "".join(map(_pattern, name.values))


def _pattern(part: ast.expr) -> str:
    return re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+"
