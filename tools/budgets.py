"""Size budgets: lines per file and per function, columns of C, and totals per package.

Limits are in pyproject.toml under [tool.budgets], exceptions there too, each with its reason: a
file, or a function as "file::function".
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "popc",
    "runtime/popc_runtime",
    "runtime/csrc",
    "tests",
    "benchmarks",
    "samples",
    "tools",
)
SUFFIXES = (".py", ".c", ".h")


def functions(source: str, suffix: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function in a file of that suffix."""
    return python_functions(ast.parse(source)) if suffix == ".py" else c_functions(source)


def python_functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The functions of Python; the docstring does not count."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            first = body[0].lineno if body else node.lineno
            yield node.name, (node.end_lineno or node.lineno) - first + 1


def c_functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions of C: bodies end with a brace alone at the margin."""
    name, first = "", 0
    for number, line in enumerate(source.splitlines(), 1):
        if start := re.match(r"[a-z].*?\b(\w+(?:\(\w+\))?)\(", line, re.IGNORECASE):
            name, first = start[1], number
        elif line == "}" and first:
            yield name, number - first + 1
            first = 0


def main() -> int:
    """Print totals and violations; 1 if there are any."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["budgets"]
    exceptions: dict[str, str] = budgets.get("exceptions", {})
    problems: list[str] = []
    totals: Counter[str] = Counter()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(ROOT).as_posix()
            source = path.read_text()
            lines = source.count("\n")
            totals[package] += lines
            if lines > budgets["file"] and name not in exceptions:
                problems.append(f"{name}: {lines} lines, budget {budgets['file']}")
            if path.suffix != ".py":
                widest = max(map(len, source.splitlines()), default=0)
                if widest > budgets["columns"]:
                    problems.append(f"{name}: {widest} columns, budget {budgets['columns']}")
            problems.extend(
                f"{name}: {function}() has {count} lines, budget {budgets['function']}"
                for function, count in functions(source, path.suffix)
                if count > budgets["function"] and f"{name}::{function}" not in exceptions
            )
    for package, lines in totals.items():
        print(f"{package:22} {lines:7,} lines")
    for name, reason in exceptions.items():
        print(f"exception: {name}: {reason}")
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
