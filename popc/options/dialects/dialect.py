"""A dialect: the settings of another system as a table of rows.

Each row says what a setting becomes here, or why nothing can come of it.  Everything else follows
from the rows: the translation, listings, the page of documentation, classes that stand in for those
of the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from popc.options.kinds import Kind
from popc.options.suggest import did_you_mean
from popc_runtime.ground.frozen import frozen

__all__ = [
    "TRAIN",
    "Becomes",
    "Computed",
    "Dialect",
    "Fate",
    "HostKey",
    "HostTable",
    "Nothing",
    "Refused",
]

# Before the dotted name of a setting of the training file, where options are expected.
TRAIN: Final = "train."

# Options by name, or the reason why there is nothing to set.
Outcome: TypeAlias = "Mapping[str, object] | str"


def _same(value: Any) -> object:
    return value


@frozen
class Becomes:
    """The value becomes that of an option of popc, converted if need be."""

    option: str
    convert: Callable[[Any], object] = _same

    @property
    def words(self) -> str:
        """The outcome, for listings."""
        return f"`{self.option}`"


@frozen
class Computed:
    """Options follow from the value and from others in the table, as ``words`` say.

    ``settings`` raises ValueError if the values do not fit each other.
    """

    words: str
    settings: Callable[[HostTable], Outcome]


@frozen
class Nothing:
    """It has no effect on results here, for a reason; users are told where they set it."""

    reason: str

    @property
    def words(self) -> str:
        """The reason."""
        return f"no effect: {self.reason}"


@frozen
class Refused:
    """Other values than the default would change results in a way that popc cannot."""

    reason: str

    @property
    def words(self) -> str:
        """The reason."""
        return f"refused: {self.reason}"


Fate: TypeAlias = "Becomes | Computed | Nothing | Refused"


@frozen
class HostKey:
    """A setting of the other system.

    Attributes:
        name: Its dotted name; ``*`` at the end stands for any further name.
        kind: What values it takes.
        default: The value that it has there if nobody sets it.
        fate: What becomes of it.
        always: Whether the default has to be said here, because popc's own differs.
        silent: Whether nobody needs to be told that it has no effect.
    """

    name: str
    kind: Kind[Any]
    default: Any
    fate: Fate
    always: bool = False
    silent: bool = False


@dataclass(frozen=True, eq=False)
class Dialect:
    """The settings of one system; there is one object of each.

    Attributes:
        name: What users call it: ``dialect = "optimum"``.
        title: What it is.
        keys: Its settings.
        implied: What the system does without being asked, as options of popc, and who does it.
        mixes: Whether its names stand beside popc's own in one table.
    """

    name: str
    title: str
    keys: tuple[HostKey, ...]
    implied: Callable[[HostTable], Mapping[str, object]] | None = None
    implied_by: str = ""
    mixes: bool = False

    @cached_property
    def by_name(self) -> Mapping[str, HostKey]:
        """The rows by name; those for any further name are not among them."""
        return {key.name: key for key in self.keys if not key.name.endswith("*")}

    @cached_property
    def families(self) -> Mapping[str, HostKey]:
        """The rows for any further name, by what stands before it."""
        return {key.name[:-1]: key for key in self.keys if key.name.endswith("*")}

    def find(self, name: str) -> HostKey | None:
        """The row for ``name``; ``None`` if there is none."""
        if name in self.by_name:
            return self.by_name[name]
        found = [prefix for prefix in self.families if name.startswith(prefix)]
        return self.families[max(found, key=len)] if found else None

    def has_below(self, name: str) -> bool:
        """True if ``name`` is a category of settings."""
        return any(key.name.startswith(f"{name}.") for key in self.keys)

    def flattened(self, name: str, value: object) -> Iterator[tuple[str, object]]:
        """``value`` by full names, if ``name`` is a category; else ``name`` and ``value``."""
        if name in self.by_name or not (isinstance(value, Mapping) and self.has_below(name)):
            yield name, value
            return
        for inner, item in value.items():
            yield from self.flattened(f"{name}.{inner}", item)

    def knows(self, name: str) -> bool:
        """True if ``name`` is a setting or a category of it."""
        return self.find(name) is not None or self.has_below(name)

    def advice(self, name: str) -> str:
        """A question with the most similar setting; "" if none is similar."""
        return did_you_mean(name, self.by_name)


class HostTable:
    """The values of a table of the other system, with its defaults for those that are not given."""

    def __init__(
        self,
        dialect: Dialect,
        given: Mapping[str, Any],
        *,
        trains: bool,
        options: Mapping[str, object] | None = None,
    ) -> None:
        """``options`` are those of popc that are given beside the table, as the user wrote them."""
        self._dialect = dialect
        self._given = dict(given)
        self.trains: Final = trains
        self.options: Final[Mapping[str, object]] = options or {}

    def __getitem__(self, name: str) -> Any:
        """The value of a setting."""
        return self._given.get(name, self._dialect.by_name[name].default)

    def is_given(self, name: str) -> bool:
        """True if the user has set it."""
        return name in self._given
