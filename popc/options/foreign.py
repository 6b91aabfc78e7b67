"""The outcome of translating settings of another system."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import frozen, inheritable

__all__ = ["ForeignSettings", "HostRow"]


@frozen
class HostRow:
    """A setting that the user, or the system itself, has made.

    Attributes:
        key, value: The setting, as the system calls it.
        options: The options of popc that follow from it, by name.
        reason: Why none does; "" if one does.
        place: Where it was set.
        told: Whether users are told that it has no effect, and why.
    """

    key: str
    value: str
    options: tuple[str, ...] = ()
    reason: str = ""
    place: str = ""
    told: bool = False


@inheritable
class ForeignSettings:
    """The settings of another system that options were made of; without any, nothing.

    Attributes:
        dialect: The name of the system's dialect.
        rows: The settings, in the order of the dialect.
        training: Values for the training file, by dotted name.
        trains: Whether the options are for a program that trains.
    """

    dialect: str = ""
    rows: tuple[HostRow, ...] = ()
    training: FrozenTable[object] = field(default_factory=FrozenTable[object])
    trains: bool = False

    @cached_property
    def keys(self) -> dict[str, str]:
        """By options of popc, the settings that they follow from."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            for option in row.options:
                found.setdefault(option, []).append(row.key)
        return {option: ", ".join(keys) for option, keys in found.items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for users about settings that have no effect."""
        return tuple(
            f"{row.key} = {row.value} (in {row.place}) has no effect: {row.reason}"
            for row in self.rows
            if row.told
        )
