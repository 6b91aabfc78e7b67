"""The settings of every op added while a scope is open: names and annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from popc.popart.errors import popart_exception

__all__ = ["ATTRIBUTES", "Scope", "Scopes"]

# The attributes of annotations, by what they are called here.
ATTRIBUTES: Final = {
    "available_memory": "__available_memory",
    "comm_group": "__collectiveCommGroup",
    "exclude_patterns": "__exclude_patterns",
    "execution_phase": "__execution_phase",
    "outline": "__outline",
    "output_tensor_location": "__output_tensor_location",
    "pipeline_stage": "__pipeline_stage",
    "recompute": "__recompute_output_in_backward_pass",
    "schedule_priority": "__schedule_priority",
    "virtual_graph": "__ipu_number",
}


class Scope:
    """A context manager that is in force between entering and leaving."""

    __slots__ = ("_enter", "_leave")

    def __init__(self, enter: Callable[[], None], leave: Callable[[], object]) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *error: object) -> None:
        self._leave()


class Scopes:
    """The open scopes of a builder; of one kind the innermost counts."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._values: dict[str, list[Any]] = {}
        self._outlines: list[Mapping[str, str]] = []

    # -- names -----------------------------------------------------------------------------------

    def named(self, name: str) -> Scope:
        """A scope in which names begin with ``name`` and a slash."""
        return Scope(lambda: self._names.append(name), self._names.pop)

    def full_name(self, name: str = "") -> str:
        """``name`` behind those of the open scopes."""
        return "".join(f"{scope}/" for scope in self._names) + name

    @property
    def has_name(self) -> bool:
        """True if a scope of names is open."""
        return bool(self._names)

    # -- annotations -----------------------------------------------------------------------------

    def annotated(self, kind: str, value: Any) -> Scope:
        """A scope in which ops have an annotation (by its name in `ATTRIBUTES`)."""
        stack = self._values.setdefault(ATTRIBUTES[kind], [])
        return Scope(lambda: stack.append(value), stack.pop)

    def outlined(self, attributes: Mapping[str, str]) -> Scope:
        """A scope in which ops have attributes for outlining; those of outer scopes win."""
        return Scope(lambda: self._outlines.append(attributes), self._outlines.pop)

    def has(self, kind: str) -> bool:
        """True if a scope of an annotation is open."""
        return bool(self._values.get(ATTRIBUTES[kind]))

    def value(self, kind: str, what: str) -> Any:
        """The value of the innermost scope of an annotation.

        Raises:
            popart_exception: none is open.
        """
        if not self.has(kind):
            raise popart_exception(f"{what} not set in current scope.")
        return self._values[ATTRIBUTES[kind]][-1]

    def attributes(self) -> dict[str, Any]:
        """The attributes that an op gets now."""
        found = {name: stack[-1] for name, stack in self._values.items() if stack}
        merged: dict[str, str] = {}
        for outline in self._outlines:
            merged = {**outline, **merged}
        if merged:
            pairs = sorted(merged.items())
            found[ATTRIBUTES["outline"]] = [text for pair in pairs for text in pair]
        return found
