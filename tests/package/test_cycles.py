"""Modules build on each other, never in a circle; what only type checkers import counts as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = {"popc": _ROOT, "popc_runtime": _ROOT / "runtime"}


def _modules(package: str) -> dict[str, Path]:
    """The modules of a package, and the native one, of which there is a stub."""
    root = _PACKAGES[package]
    files = [*(root / package).rglob("*.py"), *(root / package).rglob("*.pyi")]
    return {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in files
    }


def _imports(file: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """The modules that a file names; a package stands for what its ``__init__`` imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_modules_import_each_other(package: str) -> None:
    modules = _modules(package)
    graph = {
        name: {other for other in _imports(file, modules) if other in modules and other != name}
        for name, file in modules.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' <- '.join(error.args[1])}")
