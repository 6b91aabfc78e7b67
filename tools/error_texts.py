"""The texts that an expression of the sources may stand for, as far as they can be read there.

Messages are put together in helpers, lists, loops and functions with ``yield``.  `Sources.texts`
follows them back to what somebody has written, with ``…`` for what is only known when it happens:
through names and attributes that are assigned or appended to, calls of functions of the sources,
and from parameters to the calls that give them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["FOREIGN", "UNKNOWN", "Sources", "is_clause", "is_telling"]

UNKNOWN: Final = "…"
FOREIGN: Final = "(the words of another error)"

_ADDING: Final = ("append", "extend", "insert", "add", "setdefault", "appendleft")
_PASSING: Final = (  # what comes out of them went in
    *("tuple", "list", "sorted", "set", "str", "map", "filter", "chain", "reversed", "enumerate"),
    *("zip", "islice", "partial", "items", "values", "keys", "fromkeys", "join", "strip", "rstrip"),
    *("lstrip", "replace", "removeprefix", "removesuffix", "partition", "rpartition", "splitlines"),
    *("get", "pop", "popleft", "SpokenHint", "wrapped", "isinstance"),
)
_MOST: Final = 3  # functions of one name that a call may mean, in other files
_LOGGING: Final = ("log", "log_once", "note")  # what is logged is no error
_DEEPEST: Final = 40
_FOLLOWED: Final[dict[type[ast.AST], tuple[str, ...]]] = {  # fields that hold what is said
    ast.IfExp: ("body", "orelse"),
    ast.BoolOp: ("values",),
    ast.Dict: ("keys", "values"),
    ast.DictComp: ("key", "value"),
    ast.Lambda: ("body",),
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set), ("elts",)),
    **dict.fromkeys((ast.ListComp, ast.GeneratorExp, ast.SetComp), ("elt",)),
    **dict.fromkeys((ast.Starred, ast.Subscript, ast.Await), ("value",)),
    **dict.fromkeys((ast.NamedExpr, ast.FormattedValue), ("value",)),
}
_NAMES: Final = ("name", "names", "key", "keys", "items", "values")  # of what a text is about

_NOTED: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ImportFrom, ast.Call, ast.Assign, ast.AnnAssign),
    *(ast.AugAssign, ast.NamedExpr, ast.For, ast.comprehension),
)
# One object stands for all of a kind: they have no parent, and say nothing.
_SHARED: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_telling(text: str) -> bool:
    """True if a text has words that one can search for."""
    words = text.replace(UNKNOWN, " ").split()
    return sum(bool(re.search(r"[A-Za-z]{2}", word)) for word in words) > 1 and not text.isupper()


def is_clause(text: str) -> bool:
    """True if a text says something, and does not only name it."""
    return is_telling(text) and (UNKNOWN in text or len(text.split()) > 2)


class Sources:
    """All files of some folders."""

    def __init__(self, folders: Iterable[Path]) -> None:
        paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
        self.trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
        self._path: dict[ast.AST, Path] = {tree: path for path, tree in self.trees.items()}
        self._file: dict[ast.AST, ast.Module] = {}  # of each node
        self._parent: dict[ast.AST, ast.AST] = {}
        self._functions: dict[str, list[Function]] = defaultdict(list)
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._keywords: dict[tuple[ast.AST, str], list[ast.expr]] = defaultdict(list)
        self._changes: dict[tuple[ast.AST, str], list[ast.expr]] = defaultdict(list)
        self._imported: dict[tuple[ast.AST, str], tuple[str, str]] = {}
        self._attributes: dict[tuple[ast.AST, str], list[ast.expr]] = defaultdict(list)
        self._filled: dict[tuple[ast.AST, str], list[ast.expr]] = defaultdict(list)
        self._of_classes: dict[str, list[ast.expr]] = defaultdict(list)
        self._fields: dict[str, set[ast.AST]] = defaultdict(set)  # files whose classes declare them
        # By name, for attributes of any object.
        self._elsewhere: dict[str, list[ast.expr]] = defaultdict(list)
        self._said: dict[Function, list[ast.expr]] = {}
        self._depth = 0
        self.nodes = {path: self._walk(tree) for path, tree in self.trees.items()}
        for path, tree in self.trees.items():
            for node in self.nodes[path]:
                if isinstance(node, _NOTED):
                    self._note(node, tree)

    def texts(self, node: ast.expr) -> set[str]:
        """The texts of an expression; `FOREIGN` for those of an exception that was caught."""
        return self._texts(node, set())

    # -- what there is -----------------------------------------------------------------------------

    def _walk(self, tree: ast.Module) -> list[ast.AST]:
        """All nodes of a file that hold or say anything, whose parents are noted."""
        nodes: list[ast.AST] = [tree]
        for node in nodes:  # which grows meanwhile
            self._file[node] = tree
            for child in _nodes([getattr(node, field, None) for field in node._fields]):
                self._parent[child] = node
                nodes.append(child)
        return nodes

    def _note(self, node: ast.AST, tree: ast.Module) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._functions[node.name].append(node)
            case ast.ImportFrom():
                for each in node.names:
                    place = (node.module or "").replace(".", "/"), each.name
                    self._imported[tree, each.asname or each.name] = place
            case ast.Call():
                self._note_call(node, tree)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._change(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._change(target, value)
            case (
                ast.AugAssign(target=target, value=value)
                | ast.NamedExpr(target=target, value=value)
            ):
                self._change(target, value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._change(target, value)

    def _note_call(self, node: ast.Call, tree: ast.Module) -> None:
        self._calls[_last_name(node.func)].append(node)
        for word in node.keywords:
            if word.arg:
                self._keywords[tree, word.arg].append(word.value)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            self._change(node.func.value, *node.args)

    def _change(self, target: ast.expr, *values: ast.expr) -> None:
        """Note that ``target`` may hold ``values``, or have them among its elements."""
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._change(part, *values)
            case ast.Starred(value=part):
                self._change(part, *values)
            case ast.Subscript(value=whole, slice=key):
                self._change(whole, key, *values)
            case ast.Name(id=name):
                self._change_name(target, name, values)
            case ast.Attribute(attr=name):
                self._attributes[self._module(target), name] += values
                self._elsewhere[name] += values

    def _change_name(self, target: ast.Name, name: str, values: Sequence[ast.expr]) -> None:
        scope = self._scope(target)
        self._changes[scope, name] += values
        if isinstance(scope, Function) and name in _parameters(scope):
            self._filled[self._module(target), name] += values
        elif isinstance(self._parent[self._parent[target]], ast.ClassDef):
            self._of_classes[name] += values
            self._fields[name].add(self._module(target))

    def _scope(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, Function | ast.Module):
            node = self._parent[node]
        return node

    # -- following ---------------------------------------------------------------------------------

    def _all(self, nodes: Iterable[ast.AST], seen: set[ast.AST]) -> set[str]:
        return {text for node in nodes for text in self._texts(node, seen)}

    def _texts(self, node: ast.AST, seen: set[ast.AST]) -> set[str]:
        if node in seen or self._depth > _DEEPEST:
            return set()
        seen.add(node)
        self._depth += 1
        try:
            return self._followed(node, seen)
        finally:
            self._depth -= 1

    def _followed(self, node: ast.AST, seen: set[ast.AST]) -> set[str]:
        match node:
            case ast.Constant(value=str() as value):
                return {" ".join(value.split())}
            case ast.JoinedStr() | ast.BinOp():
                return self._template(node, seen)
            case ast.Name():
                return self._of_name(node, seen)
            case ast.Attribute():
                return self._of_attribute(node, seen)
            case ast.Call():
                return self._of_call(node, seen)
        fields = [getattr(node, field) for field in _FOLLOWED.get(type(node), ())]
        return self._all(_nodes(fields), seen)

    def _template(self, node: ast.JoinedStr | ast.BinOp, seen: set[ast.AST]) -> set[str]:
        """A text with unknown parts; those parts themselves, if nothing else tells anything."""
        text = _plain(node)
        if is_telling(text):
            return {text}
        if isinstance(node, ast.BinOp):
            parts = [node.left] if isinstance(node.op, ast.Mod) else [node.left, node.right]
            return self._all(parts, seen)
        return self._all(node.values, seen)

    def _of_name(self, node: ast.Name, seen: set[ast.AST]) -> set[str]:
        scope = self._scope(node)
        while True:
            if self._is_caught(node):
                return {FOREIGN}
            values = [*self._changes.get((scope, node.id), ())]
            if isinstance(scope, Function) and scope not in seen:  # else the call has said it
                values += self._given(scope, node.id)
            if values:  # also what functions of the file add to a list that they are given
                values += self._filled.get((self._module(node), node.id), ())
                return self._all(values, seen)
            if isinstance(scope, ast.Module):
                return self._of_functions(self._meant(node.id, node), seen)
            scope = self._scope(self._parent[scope])

    def _is_caught(self, node: ast.Name) -> bool:
        above: ast.AST = node
        while above in self._parent:
            above = self._parent[above]
            if isinstance(above, ast.ExceptHandler) and above.name == node.id:
                return True
        return False

    def _given(self, function: Function, name: str) -> Iterator[ast.expr]:
        """The arguments for a parameter, in all calls of a function."""
        given = function.args
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        if name not in _parameters(function):
            if given.vararg and given.vararg.arg == name:
                for call in self._calls[function.name]:
                    yield from call.args[len(names) :]
            return
        place = names.index(name) - (names[0] in ("self", "cls")) if name in names else -1
        called = function.name
        if called == "__init__":
            above = self._parent[function]
            called = above.name if isinstance(above, ast.ClassDef) else called
        calls = self._calls[called] if called not in _LOGGING else []
        if len(self._functions[called]) > 1:  # others have that name too
            calls = [each for each in calls if self._module(each) is self._module(function)]
        for call in calls:
            if 0 <= place < len(call.args):
                yield call.args[place]
            yield from (word.value for word in call.keywords if word.arg == name)

    def _of_attribute(self, node: ast.Attribute, seen: set[ast.AST]) -> set[str]:
        whole, name = node.value, node.attr
        if isinstance(whole, ast.Name) and self._is_caught(whole):
            return {FOREIGN}
        if name in _NAMES:
            return set()
        here = self._module(whole), name
        of_classes = self._of_classes.get(name, [])
        ours = self._fields[name] == {self._module(whole)}  # a field that no other file declares
        values = [*(self._elsewhere[name] if ours else self._attributes[here])]
        values += self._keywords[here]
        found = self._all(values + (of_classes if len(of_classes) <= _MOST else []), seen)
        return found | self._of_functions(self._meant(name, whole), seen)

    def _of_call(self, node: ast.Call, seen: set[ast.AST]) -> set[str]:
        name = _last_name(node.func)
        found: set[str] = set()
        functions = self._meant(name, node) if name not in _PASSING else []
        if functions:
            found = self._of_functions(functions, seen)
        if name in _PASSING or not any(map(is_telling, found)):
            found |= self._all(node.args, seen)
            if isinstance(node.func, ast.Attribute):
                found |= self._texts(node.func.value, seen)
        return found

    def _meant(self, name: str, node: ast.AST) -> list[Function]:
        """The functions that a name may mean: imported, of the same file, or few elsewhere."""
        module = self._module(node)
        if (module, name) in self._imported:
            place, name = self._imported[module, name]
            return [each for each in self._functions[name] if self._is_in(each, place)]
        found = self._functions.get(name, [])
        near = [each for each in found if self._module(each) is module]
        return near or (found if len(found) <= _MOST else [])

    def _is_in(self, function: Function, place: str) -> bool:
        path = str(self._path[self._module(function)])
        return path.endswith((f"{place}.py", f"{place}/__init__.py"))

    def _module(self, node: ast.AST) -> ast.AST:
        return self._file[node]

    def _results(self, function: Function) -> list[ast.expr]:
        """The expressions that a function returns or yields."""
        if function not in self._said:
            self._said[function] = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom) and node.value
            ]
        return self._said[function]

    def told(self, function: Function) -> set[str]:
        """The texts that a function returns or yields."""
        return {text for node in self._results(function) for text in self.texts(node)}

    def _of_functions(self, functions: Iterable[Function], seen: set[ast.AST]) -> set[str]:
        found: set[str] = set()
        for function in functions:
            if function in seen:
                continue
            seen.add(function)
            found |= self._all(self._results(function), seen)
        return found


def _parameters(function: Function) -> set[str]:
    given = function.args
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _nodes(fields: Iterable[object]) -> Iterator[ast.AST]:
    """The nodes in some fields of another node."""
    for field in fields:
        for item in field if isinstance(field, list) else (field,):
            if isinstance(item, ast.AST) and not isinstance(item, _SHARED):
                yield item


def _plain(node: ast.AST) -> str:
    """A text as it is written, with ``…`` for what is computed."""
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr(values=values):
            parts = [each.value if isinstance(each, ast.Constant) else UNKNOWN for each in values]
            return " ".join("".join(map(str, parts)).split())
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return f"{_plain(left)}{_plain(right)}"
    return UNKNOWN


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
