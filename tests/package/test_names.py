"""A name means the same wherever it stands."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
# PopART decides what the classes of its interface are called.
_OTHERS_NAMES: Final = _ROOT / "popc" / "popart"


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
