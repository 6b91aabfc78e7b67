"""The places where tensors are kept, of one or of all of a kind.

A location is a table of settings, each of which may be left out.  What is said of one tensor adds
to, or replaces, what is said of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

from popc.options.kinds import Choice, Kind, Truth, Whole
from popc.options.replica_groups import GroupsKind, ReplicaGroups
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue
from popc_runtime.ground.frozen import field_names, frozen

__all__ = [
    "LocationKind",
    "Settings",
    "SettledLocationKind",
    "TensorLocation",
    "TensorStorage",
    "TileSet",
    "parse_location",
    "parse_settled_location",
    "words_of",
]

# Values of some fields of `TensorLocation`, by name.
Settings = FrozenTable[Any]

_ALL: Final = ReplicaGroups()


class TensorStorage(StrEnum):
    """In which memory a tensor is kept."""

    ON_CHIP = "on_chip"
    OFF_CHIP = "off_chip"
    WHEN_NEEDED = "when_needed"  # off chip if the program does not fit otherwise


class TileSet(StrEnum):
    """The tiles that transfer something."""

    COMPUTE = "compute"
    IO = "io"


@frozen
class TensorLocation:
    """The place where a tensor is kept.

    Attributes:
        storage: On the chip; or off it, in streaming memory, from which it is fetched when it is
            needed.
        load_tile_set, storage_tile_set: The tiles that fetch it, and that hold it in between.
        replicated_tensor_sharding: Whether each replica holds a part of it.
        sharding_domain: The replicas that hold the parts of one whole.
        min_elements_for_off_chip: How many elements it has at least to be kept off chip.
        min_elements_for_replicated_tensor_sharding: How many it has at least to be divided.
    """

    storage: TensorStorage = TensorStorage.ON_CHIP
    load_tile_set: TileSet = TileSet.COMPUTE
    storage_tile_set: TileSet = TileSet.COMPUTE
    replicated_tensor_sharding: bool = False
    sharding_domain: ReplicaGroups = _ALL
    min_elements_for_off_chip: int = 2
    min_elements_for_replicated_tensor_sharding: int = 8192

    @property
    def is_off_chip(self) -> bool:
        """True if it is kept in streaming memory."""
        return self.storage is TensorStorage.OFF_CHIP

    @property
    def is_open(self) -> bool:
        """True if it is still to be decided where it is kept."""
        return self.storage is TensorStorage.WHEN_NEEDED

    def keeps_off_chip(self, size: int) -> bool:
        """True if a tensor of ``size`` elements is kept in streaming memory."""
        return self.is_off_chip and size >= self.min_elements_for_off_chip

    def divides(self, size: int) -> bool:
        """True if replicas divide a tensor of ``size`` elements among them."""
        least = self.min_elements_for_replicated_tensor_sharding
        return self.replicated_tensor_sharding and size >= least


class _Domain(GroupsKind):
    """A group as text; or as PopART's record of type and size."""

    def parse(self, value: object) -> ReplicaGroups:
        """Text such as ``consecutive:2``, or a record."""
        if not isinstance(value, Mapping):
            return super().parse(value)
        kind, size = str(value.get("type", "all")).lower(), value.get("replicaGroupSize", 0)
        return super().parse(f"{kind}:{size}" if size else kind)


_KINDS: Final[dict[str, Kind[Any]]] = {
    "storage": Choice(*TensorStorage),
    "load_tile_set": Choice(*TileSet),
    "storage_tile_set": Choice(*TileSet),
    "replicated_tensor_sharding": Truth(numbers=True),
    "sharding_domain": _Domain(),
    "min_elements_for_off_chip": Whole(),
    "min_elements_for_replicated_tensor_sharding": Whole(),
}
assert set(_KINDS) == set(field_names(TensorLocation))

# Our names by PopART's, without the record that they are in.
_SPELLINGS: Final = {
    **{name: name for name in _KINDS},
    "loadTileSet": "load_tile_set",
    "storageTileSet": "storage_tile_set",
    "replicatedTensorSharding": "replicated_tensor_sharding",
    "shardingDomain": "sharding_domain",
    "minElementsForOffChip": "min_elements_for_off_chip",
    "minElementsForReplicatedTensorSharding": "min_elements_for_replicated_tensor_sharding",
}

# What a single word says of a tensor.
_WORDS: Final[dict[str, tuple[str, Any]]] = {
    "on_chip": ("storage", TensorStorage.ON_CHIP),
    "off_chip": ("storage", TensorStorage.OFF_CHIP),
    "sharded": ("replicated_tensor_sharding", True),
    "whole": ("replicated_tensor_sharding", False),
}


def parse_location(value: object) -> Settings:
    """Settings from a table, or from words such as ``off_chip sharded``.

    Raises:
        ValueError: lists everything that is wrong, as what follows the name of the option.
    """
    if isinstance(value, str):
        return _from_text(value)
    if not isinstance(value, Mapping):
        names = ", ".join(_KINDS)
        raise ValueError(f"is {value!r}, but must be a table with some of {names}")
    found: dict[str, Any] = {}
    problems: list[str] = []
    for key, item in _flat(value).items():
        name = _SPELLINGS.get(str(key))
        if name is None:
            advice = did_you_mean(str(key), list(_KINDS)) or f"choose from {', '.join(_KINDS)}"
            problems.append(f"has no setting {key!r}: {advice}")
            continue
        try:
            found[name] = _KINDS[name].parse(item)
        except ValueError as error:
            problems.append(f"of {name!r} {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return FrozenTable(found)


def parse_settled_location(value: object) -> Settings:
    """The same for single tensors, which are not decided about.

    Raises:
        ValueError: see `parse_location`, or the storage is when_needed.
    """
    found = parse_location(value)
    if found.get("storage") is TensorStorage.WHEN_NEEDED:
        raise ValueError("is when_needed, which is decided for kinds of tensors: name one of those")
    return found


def _flat(table: Mapping[Any, object]) -> dict[str, object]:
    """A table without PopART's table ``location`` in it."""
    inner = table.get("location")
    rest = {
        str(key): section for key, section in table.items() if key != "location" or inner is None
    }
    return (
        {**inner, **rest} if isinstance(inner, Mapping) else {str(k): v for k, v in table.items()}
    )


def _from_text(text: str) -> Settings:
    """``off_chip sharded``, or ``storage=off_chip,min_elements_for_off_chip=64``."""
    table: dict[str, object] = {}
    for item in text.replace(",", " ").replace("+", " ").split():
        name, separator, value = item.partition("=")
        if separator:
            table[name] = value
        elif name.lower() in _WORDS:
            key, meant = _WORDS[name.lower()]
            table[key] = meant
        else:
            raise ValueError(
                f"is {text!r}, but must be made of {', '.join(_WORDS)}, or like storage=off_chip"
            )
    return parse_location(table)


def words_of(settings: Mapping[str, Any]) -> str:
    """Settings as text, which `parse_location` reads."""
    return ",".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in settings.items()
    )


class LocationKind(Kind[Settings]):
    """Settings of a location, each of which can be set by itself."""

    called: ClassVar[str] = "location"
    called_in_tables: ClassVar[str] = "locations"

    @property
    def is_table(self) -> bool:
        """True: entries can be set one by one."""
        return True

    def parse(self, value: object) -> Settings:
        """A table of settings, or words such as ``off_chip sharded``."""
        return parse_location(value)

    def is_parsed(self, value: Settings) -> bool:
        """True if all settings have been parsed."""
        return all(_KINDS[key].is_parsed(item) for key, item in value.items())

    def entry(self, value: Settings) -> str:
        """The settings in words."""
        return words_of(value)

    def plain(self, value: Settings) -> OptionValue:
        """Pairs of names and settings."""
        return tuple((key, _KINDS[key].plain(item)) for key, item in value.items())


class SettledLocationKind(LocationKind):
    """Settings of the location of single tensors."""

    def parse(self, value: object) -> Settings:
        """The same, without what is decided for kinds of tensors."""
        return parse_settled_location(value)
