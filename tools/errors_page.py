"""Make docs/errors.md: every error that popc raises on purpose, by class, with its messages.

The messages are read from the sources: whatever is raised as a class of `popc_runtime.errors`, with
``…`` for what is only known when it happens.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from popc_runtime import errors
from popc_runtime.errors import PopcError

__all__ = ["errors_page", "messages"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("popc", "runtime/popc_runtime")
_UNKNOWN: Final = "…"
_EXIT: Final = {
    1: "the answer is no",
    2: "usage",
    3: "model rejected",
    4: "does not fit the target",
    5: "archive",
    6: "run",
    7: "files or memory",
    70: "bug",
}

Message = tuple[str, str]  # what is said, and the hint


def classes() -> dict[str, type[PopcError]]:
    """The classes of errors by name, those that are raised more specially behind the others."""
    found = [getattr(errors, name) for name in errors.__all__]
    tree = [each for each in found if issubclass(each, PopcError) and each is not PopcError]
    return {
        each.__name__: each for each in sorted(tree, key=lambda each: (each.exit_code, each.code))
    }


@cache
def messages() -> dict[str, set[Message]]:
    """The messages of every class in the sources, with their hints."""
    found: dict[str, set[Message]] = {name: set() for name in classes()}
    paths = [path for package in _PACKAGES for path in sorted((_ROOT / package).rglob("*.py"))]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    names = {name: name for name in found}
    for node in (each for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)):
        for base in map(ast.unparse, node.bases):
            if base in names:
                names[node.name] = names[base]
    for tree in trees:
        for name, message in _raised(tree, names.keys()):
            found[names[name]].add(message)
    return found


def _raised(tree: ast.AST, names: Collection[str]) -> Iterator[tuple[str, Message]]:
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            assigned.setdefault(node.targets[0].id, []).append(node.value)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in names:
            hints = [word.value for word in node.keywords if word.arg == "hint"]
            given = node.args[0]
            values = assigned.get(given.id, []) if isinstance(given, ast.Name) else [given]
            for said in (_text(each) for value in values for each in _choices(value)):
                if said.strip(f"{_UNKNOWN} :,"):
                    yield name, (said, _text(hints[0]) if hints else "")


def _choices(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body), *_choices(node.orelse)]
    return [node]


def _text(node: ast.expr) -> str:
    """The words of a text; what is computed is unknown."""
    match node:
        case ast.Constant(value=str() as value):
            return " ".join(value.split())
        case ast.JoinedStr(values=values):
            parts = [each.value if isinstance(each, ast.Constant) else _UNKNOWN for each in values]
            return " ".join("".join(map(str, parts)).split())
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_text(left)}{_text(right)}"
    return _UNKNOWN


def errors_page() -> str:
    """The text of the page."""
    found = messages()
    parts = [_HEADING]
    for name, each in classes().items():
        exit_code = each.exit_code
        described = inspect.cleandoc(each.__doc__ or "").replace("``", "`").split("\n\n")[0]
        parts.append(f"## {name}\n\n{' '.join(described.split())}\n")
        parts.append(f"Code `{each.code}`, exit code {exit_code} ({_EXIT[exit_code]}).\n")
        if found[name]:
            rows = [f"| {_cell(said)} | {_cell(hint)} |" for said, hint in sorted(found[name])]
            parts.append("\n".join(["| message | what to do |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _cell(text: str) -> str:
    for character in "\\|<>*_[]{}$":
        text = text.replace(character, f"\\{character}")
    return text.replace("`", "")


_HEADING: Final = """# Errors

Every error that popc raises on purpose, by its class, with what it says and what to do \
about it; `…` stands for names and numbers. Search this page for a few words of the message.

* In Python an error is an instance of the class (`popc_runtime.errors`), with `message`, \
`subject`, `hint` and `details`; on the command line its class decides the exit code, and \
`popc --format json` prints its code.
* Whatever ends with exit code 70 is a bug of popc: `popc -vv` shows where.
* An error lists all problems of its kind at once, in lines below the message; \
such a message may be put together of parts that are not listed here.
"""

if __name__ == "__main__":
    sys.stdout.write(errors_page())
