"""The places where tensors are kept, and the tiles that move them."""

from __future__ import annotations

from typing import Any

from popc.popart.calls import constructed
from popc.popart.enums import ReplicatedTensorSharding, TensorStorage, TileSet
from popc.popart.groups import CommGroup

__all__ = ["TensorLocation", "TensorLocationSettings"]


class TensorLocation:
    """The place of a tensor, the tiles that load and keep it, and if replicas share it.

    Forms: ``()``, ``(storage)``, ``(storage, replicatedTensorSharding[, shardingDomain])``,
    ``(storage, loadTileSet, storageTileSet, replicatedTensorSharding[, shardingDomain])``.
    """

    __slots__ = (
        "loadTileSet",
        "replicatedTensorSharding",
        "shardingDomain",
        "storage",
        "storageTileSet",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.storage = TensorStorage.OnChip
        self.loadTileSet = TileSet.Compute
        self.storageTileSet = TileSet.Compute
        self.replicatedTensorSharding = ReplicatedTensorSharding.Off
        self.shardingDomain = CommGroup()
        constructed(self, (_on_chip, _stored, _sharded, _everything), args, kwargs)

    def numbers(self) -> list[int]:
        """The numbers in the attribute of a node."""
        domain = self.shardingDomain
        return [
            *(int(self.storage), int(self.loadTileSet), int(self.storageTileSet)),
            *(int(self.replicatedTensorSharding), int(domain.type), domain.replicaGroupSize),
        ]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorLocation):
            return NotImplemented
        return self.numbers() == other.numbers()

    __hash__ = None  # type: ignore[assignment]  # it can be changed


def _on_chip(self: TensorLocation) -> None:
    """On the chip, not shared."""


def _stored(self: TensorLocation, storage: TensorStorage) -> None:
    self.storage = storage


def _sharded(
    self: TensorLocation,
    storage: TensorStorage,
    replicatedTensorSharding: ReplicatedTensorSharding,
    shardingDomain: CommGroup | None = None,
) -> None:
    self.storage = storage
    self.replicatedTensorSharding = replicatedTensorSharding
    if shardingDomain is not None:
        self.shardingDomain = shardingDomain


def _everything(
    self: TensorLocation,
    storage: TensorStorage,
    loadTileSet: TileSet,
    storageTileSet: TileSet,
    replicatedTensorSharding: ReplicatedTensorSharding,
    shardingDomain: CommGroup | None = None,
) -> None:
    _sharded(self, storage, replicatedTensorSharding, shardingDomain)
    self.loadTileSet = loadTileSet
    self.storageTileSet = storageTileSet


class TensorLocationSettings:
    """The place of tensors of a kind, and the number of elements from which on it counts.

    Forms: ``()``, ``(location, minElementsForOffChip=2,
    minElementsForReplicatedTensorSharding=8192)``, the same with ``storage``.
    """

    __slots__ = ("location", "minElementsForOffChip", "minElementsForReplicatedTensorSharding")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.location = TensorLocation()
        self.minElementsForOffChip = 2
        self.minElementsForReplicatedTensorSharding = 8192
        constructed(self, (_default, _of_location, _of_storage), args, kwargs)

    def _key(self) -> tuple[list[int], int, int]:
        least = self.minElementsForReplicatedTensorSharding
        return (self.location.numbers(), self.minElementsForOffChip, least)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorLocationSettings):
            return NotImplemented
        return self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]  # it can be changed


def _default(self: TensorLocationSettings) -> None:
    """On the chip."""


def _of_location(
    self: TensorLocationSettings,
    location: TensorLocation,
    minElementsForOffChip: int = 2,
    minElementsForReplicatedTensorSharding: int = 8192,
) -> None:
    self.location = location
    self.minElementsForOffChip = minElementsForOffChip
    self.minElementsForReplicatedTensorSharding = minElementsForReplicatedTensorSharding


def _of_storage(
    self: TensorLocationSettings,
    storage: TensorStorage,
    minElementsForOffChip: int = 2,
    minElementsForReplicatedTensorSharding: int = 8192,
) -> None:
    location = TensorLocation(storage)
    _of_location(self, location, minElementsForOffChip, minElementsForReplicatedTensorSharding)
