"""Kinds of values that only other systems have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, TypeVar

from popc.options.kinds import Kind
from popc_runtime.format import OptionValue

__all__ = ["Anything", "EnumMember", "Maybe", "OneOrMany", "PerPod", "Plain"]

T = TypeVar("T")


class Plain(Kind[str]):
    """Text, which may be empty."""

    called: ClassVar[str] = "text"

    def parse(self, value: object) -> str:
        """Text as it is; paths too."""
        text = value.__fspath__() if hasattr(value, "__fspath__") else value
        if not isinstance(text, str):
            raise ValueError(f"is {value!r}, but must be text")
        return text


class EnumMember(Kind[str]):
    """A member of an enumeration, by its name, with or without that of the enumeration."""

    called: ClassVar[str] = "choice"

    def __init__(self, *names: str) -> None:
        self._names = {name.lower().replace("_", ""): name for name in names}

    def parse(self, value: object) -> str:
        """The name of the member."""
        name = value.name if isinstance(value, Enum) else value
        text = name.rpartition(".")[2].lower().replace("_", "") if isinstance(name, str) else ""
        if text not in self._names:
            raise ValueError(f"is {value!r}, but must be one of {', '.join(self.choices)}")
        return self._names[text]

    @property
    def choices(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self._names.values())


class Maybe(Kind[T | None], Generic[T]):
    """A value of another kind, or none."""

    def __init__(self, kind: Kind[T]) -> None:
        self._kind = kind

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return f"{self._kind.word} or none"

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of the other kind."""
        return self._kind.choices

    def parse(self, value: object) -> T | None:
        """``None`` as it is."""
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null")):
            return None
        return self._kind.parse(value)

    def plain(self, value: T | None) -> OptionValue:
        """Nothing is empty text."""
        return "" if value is None else self._kind.plain(value)


class OneOrMany(Kind[Any], Generic[T]):
    """A value of another kind, or a list of such; text has blanks or commas between them."""

    def __init__(self, item: Kind[T]) -> None:
        self._item = item

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return f"{self._item.word} or {self._item.called_in_lists}"

    def parse(self, value: object) -> T | tuple[T, ...]:
        """A list stays a list, also if it has one item."""
        if isinstance(value, str) and value.strip().startswith("["):
            value = value.strip().strip("[]").replace(",", " ").split()
        if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(map(self._item.parse, value))
        return self._item.parse(value)

    def plain(self, value: Any) -> OptionValue:
        """The items."""
        return tuple(map(self._item.entry, value)) if isinstance(value, tuple) else value


class PerPod(Kind[Any], Generic[T]):
    """A value of another kind, or a table of such by kind of pod, with a default."""

    def __init__(self, kind: Kind[T]) -> None:
        self._kind = kind

    @property
    def word(self) -> str:
        """The word for it in listings."""
        return self._kind.word

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of the other kind."""
        return self._kind.choices

    def parse(self, value: object) -> T:
        """The default of a table."""
        if not isinstance(value, Mapping):
            return self._kind.parse(value)
        if "default" not in value:
            pods = ", ".join(map(str, value))
            raise ValueError(
                f"has values for {pods}, and no default: popc.hosts.optimum.IPUConfig."
                "from_pretrained(FOLDER).for_pod_type(POD) chooses"
            )
        return self._kind.parse(value["default"])

    def plain(self, value: T) -> OptionValue:
        """The plain value that the other kind makes of it."""
        return "none" if value is None else self._kind.plain(value)


class Anything(Kind[Any]):
    """A table or a value that nobody here reads."""

    called: ClassVar[str] = "any"

    def parse(self, value: object) -> object:
        """``value`` as it is."""
        return value

    def plain(self, value: Any) -> OptionValue:
        """The value as text."""
        return str(dict(value) if isinstance(value, Mapping) else value)
