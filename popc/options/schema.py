"""The declaration of an option: its kind, default and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from popc.options.kinds import Kind
from popc_runtime.ground.frozen import field, frozen, replace

__all__ = ["OptionSpec", "option", "spec_of"]

T = TypeVar("T")

_KEY: Final = "spec"


@frozen
class OptionSpec:
    """One option.

    Attributes:
        kind: What its values are, and how they are read.
        meaning: What it does, one sentence first.
        popart: PopART's name for it ("" if it has none).
        name: In snake_case; the environment variable is POPC_ and the name in capitals.
        default: The built-in value.
        recorded: Whether archives say what it was: not of what depends on the machine alone.
    """

    kind: Kind[Any]
    meaning: str
    popart: str = ""
    name: str = ""
    default: Any = None
    recorded: bool = True

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"POPC_{self.name.upper()}"


def option(
    kind: Kind[T], default: T, meaning: str, *, popart: str = "", recorded: bool = True
) -> T:
    """A field of a dataclass that is an option; to type checkers it is a value of its kind."""
    spec = OptionSpec(kind, meaning, popart, recorded=recorded)
    return field(default=default, metadata={_KEY: spec})


def spec_of(name: str, said: Mapping[str, Any]) -> OptionSpec | None:
    """The spec of a field, if it is an option, from its name and the settings of the field."""
    spec: OptionSpec | None = said.get("metadata", {}).get(_KEY)
    return spec and replace(spec, name=name, default=said["default"])
