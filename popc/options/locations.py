"""Where tensors are kept: what can be said of one, or of all of a kind.

A location is a table of settings, each of which may be left out.  What is said of one tensor adds
to, or replaces, what is said of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from popc.options.kinds import Kind
from popc.options.replica_groups import ReplicaGroups
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue

__all__ = ["LocationKind", "Settings", "TensorLocation", "parse_location", "words_of"]

# Values of some fields of `TensorLocation`, by name.
Settings = FrozenTable[Any]

_STORAGE: Final = ("on_chip", "off_chip")
_TILE_SETS: Final = ("compute", "io")
_TRUTH: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}
_LARGEST: Final = (1 << 48) - 1
_ALL: Final = ReplicaGroups()


@dataclass(frozen=True, slots=True)
class TensorLocation:
    """Where a tensor is kept.

    Attributes:
        storage: "on_chip", or "off_chip": in streaming memory, from which it is fetched when it
            is needed.
        load_tile_set, storage_tile_set: The tiles that fetch it, and that hold it in between:
            "compute" or "io".
        replicated_tensor_sharding: Whether each replica holds a part of it.
        sharding_domain: The replicas that hold the parts of one whole.
        min_elements_for_off_chip: How many elements it has at least to be kept off chip.
        min_elements_for_replicated_tensor_sharding: How many it has at least to be divided.
    """

    storage: str = "on_chip"
    load_tile_set: str = "compute"
    storage_tile_set: str = "compute"
    replicated_tensor_sharding: bool = False
    sharding_domain: ReplicaGroups = _ALL
    min_elements_for_off_chip: int = 2
    min_elements_for_replicated_tensor_sharding: int = 8192

    @property
    def is_off_chip(self) -> bool:
        """Whether it is kept in streaming memory."""
        return self.storage == "off_chip"

    def keeps_off_chip(self, size: int) -> bool:
        """Whether a tensor of ``size`` elements is kept in streaming memory."""
        return self.is_off_chip and size >= self.min_elements_for_off_chip

    def divides(self, size: int) -> bool:
        """Whether replicas divide a tensor of ``size`` elements among them."""
        least = self.min_elements_for_replicated_tensor_sharding
        return self.replicated_tensor_sharding and size >= least


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        meant = {word.replace("_", ""): word for word in words}
        text = value.replace("_", "").lower() if isinstance(value, str) else ""
        if text not in meant:
            raise ValueError(f"is {value!r}, but must be one of {', '.join(words)}")
        return meant[text]

    return parse


def _truth(value: object) -> bool:
    truth = value if isinstance(value, bool) else _TRUTH.get(str(value).lower())
    if truth is None:
        raise ValueError(f"is {value!r}, but must be true or false")
    return truth


def _count(value: object) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _LARGEST:
        raise ValueError(f"is {value!r}, but must be a whole number from 0 on")
    return number


def _domain(value: object) -> ReplicaGroups:
    """A group as text; or as PopART's record of type and size."""
    if isinstance(value, Mapping):
        kind, size = str(value.get("type", "all")).lower(), value.get("replicaGroupSize", 0)
        return ReplicaGroups.parse(f"{kind}:{size}" if size else kind)
    return ReplicaGroups.parse(value)


_PARSERS: Final[dict[str, Callable[[object], Any]]] = {
    "storage": _one_of(*_STORAGE),
    "load_tile_set": _one_of(*_TILE_SETS),
    "storage_tile_set": _one_of(*_TILE_SETS),
    "replicated_tensor_sharding": _truth,
    "sharding_domain": _domain,
    "min_elements_for_off_chip": _count,
    "min_elements_for_replicated_tensor_sharding": _count,
}
assert set(_PARSERS) == {one.name for one in fields(TensorLocation)}

# Our names by PopART's, without the record that they are in.
_SPELLINGS: Final = {
    **{name: name for name in _PARSERS},
    "loadTileSet": "load_tile_set",
    "storageTileSet": "storage_tile_set",
    "replicatedTensorSharding": "replicated_tensor_sharding",
    "shardingDomain": "sharding_domain",
    "minElementsForOffChip": "min_elements_for_off_chip",
    "minElementsForReplicatedTensorSharding": "min_elements_for_replicated_tensor_sharding",
}

# What a single word says of a tensor.
_WORDS: Final[dict[str, tuple[str, Any]]] = {
    "on_chip": ("storage", "on_chip"),
    "off_chip": ("storage", "off_chip"),
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
        names = ", ".join(_PARSERS)
        raise ValueError(f"is {value!r}, but must be a table with some of {names}")
    found: dict[str, Any] = {}
    problems: list[str] = []
    for key, one in _flat(value).items():
        name = _SPELLINGS.get(str(key))
        if name is None:
            advice = did_you_mean(str(key), list(_PARSERS)) or f"choose from {', '.join(_PARSERS)}"
            problems.append(f"has no setting {key!r}: {advice}")
            continue
        try:
            found[name] = _PARSERS[name](one)
        except ValueError as error:
            problems.append(f"of {name!r} {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return FrozenTable(found)


def _flat(table: Mapping[Any, object]) -> dict[str, object]:
    """A table without PopART's table ``location`` in it."""
    inner = table.get("location")
    rest = {str(key): one for key, one in table.items() if key != "location" or inner is None}
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
        """It is."""
        return True

    def parse(self, value: object) -> Settings:
        """A table of settings, or words such as ``off_chip sharded``."""
        return parse_location(value)

    def entry(self, value: Settings) -> str:
        """The settings in words."""
        return words_of(value)

    def plain(self, value: Settings) -> OptionValue:
        """Pairs of names and settings."""
        return tuple(
            (key, one if isinstance(one, bool | int) else str(one)) for key, one in value.items()
        )
