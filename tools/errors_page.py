"""Make docs/errors.md: every error that popc raises on purpose, by class, with its messages.

The messages are read from the sources (`tools.error_texts`): whatever is raised as a class of
`popc_runtime.errors`, with ``…`` for what is only known when it happens.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from popc.collector import without_collector
from popc_runtime import errors
from popc_runtime.errors import PopcError
from tools.error_texts import FOREIGN, UNKNOWN, Sources, is_clause, is_telling

__all__ = ["classes", "errors_page", "words"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("popc", "runtime/popc_runtime")
# Exceptions of PopART's and of others, which users see by themselves or never.
_OTHERS: Final = (
    *("popart_exception", "popart_runtime_error", "popart_internal_exception", "AssertionError"),
    *("poplar_exception", "SystemExit", "AttributeError", "RuntimeError"),
)
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

_MARKS: Final = ("Unavailable",)  # hold what is said when somebody asks for what they stand for
_ABOUT: Final = re.compile("problem|conflict|refus|mismatch|reason|misfit")  # what functions tell
_ALTERNATIVES: Final = 3  # of a hint
_TELLING: Final = (ast.Call, ast.Raise, ast.FunctionDef)

Message = tuple[str, str]  # what is said, and the hint


class Said(NamedTuple):
    """The words of the errors of a class.

    Attributes:
        messages: With their hints.
        lines: What may stand below a message.
    """

    messages: set[Message]
    lines: set[str]


class Place(NamedTuple):
    """A place in the sources where an error is made, whose words could not be found there."""

    file: str
    what: str


def classes() -> dict[str, type[PopcError]]:
    """The classes of errors by name, those that are raised more specially behind the others."""
    found = [getattr(errors, name) for name in errors.__all__]
    tree = [each for each in found if issubclass(each, PopcError) and each is not PopcError]
    return {
        each.__name__: each for each in sorted(tree, key=lambda each: (each.exit_code, each.code))
    }


@cache
def words() -> tuple[dict[str, Said], set[str], list[Place]]:
    """The words of errors, by class; parts of messages by themselves; places that say nothing."""
    with without_collector():  # a million nodes, all of which stay till the end
        return _words(Sources(_ROOT / package for package in _PACKAGES))


def _words(sources: Sources) -> tuple[dict[str, Said], set[str], list[Place]]:
    found = {name: Said(set(), set()) for name in classes()}
    names = _with_subclasses(sources)
    parts: set[str] = set()
    silent: list[Place] = []
    for path, nodes in sources.nodes.items():
        for node in (node for node in nodes if isinstance(node, _TELLING)):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                if name in names:
                    silent += _note(sources, path, node, found[names[name]])
            parts |= _parts(sources, node, names.keys())
    listed = {text for said in found.values() for text, _ in said.messages}
    listed |= {text for said in found.values() for text in said.lines}
    return found, parts - listed, silent


def _with_subclasses(sources: Sources) -> dict[str, str]:
    """The class of `classes` for each name of an error in the sources."""
    names = {name: name for name in classes()}
    for tree in sources.trees.values():
        for node in (each for each in tree.body if isinstance(each, ast.ClassDef)):
            for base in map(ast.unparse, node.bases):
                if base in names and node.name not in names:
                    names[node.name] = names[base]
    return names


def _note(sources: Sources, path: Path, node: ast.Call, said: Said) -> Iterator[Place]:
    """Add what an error says; where that is nothing, tell it."""
    given = {word.arg: word.value for word in node.keywords}
    hints = sorted(filter(_is_known, sources.texts(given["hint"]))) if "hint" in given else []
    hint = " / ".join(hints) if len(hints) <= _ALTERNATIVES else UNKNOWN
    if not node.args:
        return
    for what, expression in (("message", node.args[0]), ("details", given.get("details"))):
        if expression is None:
            continue
        texts = {text for text in sources.texts(expression) if is_telling(text)}
        if not texts:
            yield Place(str(path.relative_to(_ROOT)), ast.unparse(expression))
        texts.discard(FOREIGN)
        if what == "message":
            said.messages.update((text, hint) for text in texts)
        else:
            said.lines.update(filter(is_clause, texts))


def _parts(sources: Sources, node: ast.AST, names: Collection[str]) -> set[str]:
    """The words of exceptions that become parts of messages, and of functions about problems."""
    texts: set[str] = set()
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        name = ast.unparse(node.exc.func).rpartition(".")[2]
        if name not in names and name not in _OTHERS:
            texts = {text for word in node.exc.args[:1] for text in sources.texts(word)}
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _MARKS:
        texts = {text for word in node.args for text in sources.texts(word)}
    elif isinstance(node, ast.FunctionDef) and _ABOUT.search(node.name):
        texts = sources.told(node)
    return {text for text in texts if is_clause(text) and text != FOREIGN}


def _is_known(text: str) -> bool:
    return bool(text.strip(f"{UNKNOWN} :,")) and text != FOREIGN


def errors_page() -> str:
    """The text of the page."""
    found, others, _ = words()
    parts = [_HEADING]
    for name, each in classes().items():
        exit_code = each.exit_code
        described = inspect.cleandoc(each.__doc__ or "").replace("``", "`").split("\n\n")[0]
        parts.append(f"## {name}\n\n{' '.join(described.split())}\n")
        parts.append(f"Code `{each.code}`, exit code {exit_code} ({_EXIT[exit_code]}).\n")
        said = found[name]
        if said.messages:
            rows = [f"| {_cell(text)} | {_cell(hint)} |" for text, hint in sorted(said.messages)]
            parts.append("\n".join(["| message | what to do |", "|---|---|", *rows]) + "\n")
        if said.lines:
            parts.append("Lines below such messages, one for each problem:\n")
            parts.append(_listed(said.lines))
    parts += [_PARTS, _listed(others)]
    return "\n".join(parts)


def _listed(texts: Collection[str]) -> str:
    return "\n".join(f"* {_cell(text)}" for text in sorted(texts)) + "\n"


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
* An error lists all problems of its kind at once, in lines below the message, or has one of \
them as its message.
* The words of other programs (Python, the system, ONNX's checker) stand in messages as they are.
"""
_PARTS: Final = """## Parts of messages

What stands behind a name or a colon, or in a line, of messages of several classes.
"""

if __name__ == "__main__":
    sys.stdout.write(errors_page())
