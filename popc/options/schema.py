"""The declaration of an option: its kind, default and meaning."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, replace
from typing import Any, Final, TypeVar

from popc.options.kinds import Kind

__all__ = ["OptionSpec", "option", "spec_of"]

T = TypeVar("T")

_KEY: Final = "spec"


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """One option.

    Attributes:
        kind: What its values are, and how they are read.
        meaning: What it does, one sentence first.
        popart: PopART's name for it ("" if it has none).
        name: In snake_case; the environment variable is POPC_ and the name in capitals.
        default: The built-in value.
    """

    kind: Kind[Any]
    meaning: str
    popart: str = ""
    name: str = ""
    default: Any = None

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"POPC_{self.name.upper()}"


def option(kind: Kind[T], default: T, meaning: str, *, popart: str = "") -> T:
    """A field of a dataclass that is an option; to type checkers it is a value of its kind."""
    return field(default=default, metadata={_KEY: OptionSpec(kind, meaning, popart)})


def spec_of(declared: Field[Any]) -> OptionSpec | None:
    """The spec of a field, if it is an option."""
    spec: OptionSpec | None = declared.metadata.get(_KEY)
    return spec and replace(spec, name=declared.name, default=declared.default)
