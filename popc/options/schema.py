"""What an option is: its type, default and meaning, in one declaration."""

from __future__ import annotations

from dataclasses import Field, dataclass, replace
from typing import Any, Final

__all__ = ["OptionSpec", "described", "spec_of"]

_KEY: Final = "spec"
_TABLES: Final = frozenset(
    ["anchors", "axes", "choices", "floats", "groups", "ints", "location", "locations", "switches"]
)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option.

    Attributes:
        type: "bool", "int", "float", "text", "choice", "names" (a list of names), "patterns" (a
            list of names in which * stands for anything), "anchor" (a return type) or
            "anchors" (a table of return types), "axes" (a table of dimensions, or "none"),
            "choices" (a table whose entries are some of a "choice"), "floats" or "ints" (a table of
            numbers), "groups" (a table of groups of replicas), "location" (a table that says where
            tensors are kept), "locations" (a table of such), "switches" (a table of names that are
            on or off), or "integers" or "numbers" (lists).
        help: What it does, one sentence first.
        choices: What "choice" and "names" allow; names of passes are known only at run time.
        synonyms: Other spellings of a "choice", and what they mean.
        low, high: Range of an "int" or "float".
        popart: PopART's name for it ("" if it has none).
        name: In snake_case; the environment variable is POPC_ and the name in capitals.
        default: The built-in value.
    """

    type: str
    help: str
    choices: tuple[str, ...] = ()
    synonyms: tuple[tuple[str, str], ...] = ()
    low: int = 0
    high: int = (1 << 48) - 1
    popart: str = ""
    name: str = ""
    default: Any = None

    @property
    def is_table(self) -> bool:
        """Whether it has entries, each of which can be set by itself."""
        return self.type in _TABLES

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"POPC_{self.name.upper()}"


def described(type_: str, help_: str, **more: Any) -> dict[str, OptionSpec]:
    """The metadata of a dataclass field that is an option."""
    return {_KEY: OptionSpec(type_, help_, **more)}


def spec_of(declared: Field[Any]) -> OptionSpec | None:
    """The spec of a field, if it is an option."""
    spec: OptionSpec | None = declared.metadata.get(_KEY)
    return spec and replace(spec, name=declared.name, default=declared.default)
