"""A name means the same wherever it stands, and docstrings begin with a noun or a verb."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
# PopART decides what the classes of its interface are called.
_OTHERS_NAMES: Final = _ROOT / "popc" / "popart"


_BOUND: Final = re.compile(r"\b(for|lambda)\b[^:]*?\bone\b")
_FOLDERS: Final = ("popc", "runtime", "tests", "tools", "benchmarks", "samples", "facade")


def _modules() -> Iterator[tuple[str, ast.Module]]:
    """The modules of both packages: path in the repository, and content."""
    for folder in (_ROOT / "popc", _ROOT / "runtime" / "popc_runtime"):
        for path in sorted(folder.rglob("*.py")):
            if not path.is_relative_to(_OTHERS_NAMES):
                yield str(path.relative_to(_ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def test_a_public_class_is_the_only_one_of_its_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in _modules():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def _targets(node: ast.AST) -> Iterator[list[str]]:
    """The names that a loop binds, together."""
    loops = (ast.For, ast.comprehension)
    bound = [node.target] if isinstance(node, loops) else []
    if isinstance(node, ast.Lambda):
        yield [argument.arg for argument in node.args.args]
    for target in bound:
        yield [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]


def test_loops_say_what_they_walk_over() -> None:
    """A variable is not called ``one``, unless it is one of a pair with ``other`` or ``two``."""
    found = [
        path
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for text in [path.read_text(encoding="utf-8")]
        if _BOUND.search(text)  # parsing takes longer
        for node in ast.walk(ast.parse(text))
        for names in _targets(node)
        if "one" in names and not {"other", "two"} & set(names)
    ]
    assert found == []


_OPENINGS: Final = re.compile(
    r'"""(As|How|If|Of|That|Those|What|Whatever|Where|Whether|Which|Who)\b.*'
)


def test_docstrings_say_what_things_are_or_do() -> None:
    found = [
        f"{path.relative_to(_ROOT)}: {match[0]}"
        for folder in ("popc", "runtime", "tools", "benchmarks")
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for match in _OPENINGS.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
